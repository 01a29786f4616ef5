//! F44: a gateway of three is killed about the moment at which calls of every kind end, and started again. No result that a
//! client was told is lost or contradicted at any gateway, and nothing is done twice.

use anyhow::Result;
use asp_e2e::fleet::Fleet;
use asp_e2e::fleet::ends::{Ends, done_again};
use asp_e2e::history::{What, judge};

use crate::sheet::Sheet;

/// Kinds of calls.
const KINDS: usize = 6;
/// Calls of each kind that are under way when a gateway is killed.
const EACH: usize = 10;

pub(crate) async fn run(calls: usize, seed: Option<u64>, sheet: &mut Sheet) -> Result<()> {
    let seed = seed.unwrap_or_else(rand::random);
    eprintln!("seed {seed}");
    let mut fleet = Fleet::start_with_plugins().await?;
    let played = play(&mut fleet, calls, seed, sheet).await;
    let faults = judge(&fleet.history.entries());
    let log = fleet.runtime.as_ref().map(|runtime| runtime.process.log().lines()).unwrap_or_default();
    let again = done_again(&log);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_most("results lost or contradicted, and effects that came twice", faults.len() as f64, 0.0);
        sheet.at_most("things done again after a checkpoint", again.len() as f64, 0.0);
    }
    if let Err(faults) = fleet.history.hold() {
        sheet.fault(format!("seed {seed}: {faults:#}"));
    }
    if let Some(thing) = again.first() {
        sheet.fault(format!("seed {seed}: done again after it was saved: {thing}"));
    }
    played.map_err(|error| error.context(format!("seed {seed}")))
}

async fn play(fleet: &mut Fleet, calls: usize, seed: u64, sheet: &mut Sheet) -> Result<()> {
    let mut ends = Ends::start(fleet, EACH, seed).await?;
    let kills = calls.div_ceil(KINDS * EACH);
    for _ in 0..kills {
        ends.lose(fleet, EACH).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.note("kills", kills as f64);
        for (kind, tally) in ends.tallies() {
            let name = kind.name();
            // A tenth of all calls, of six kinds.
            sheet.at_least(&format!("{name} calls"), tally.calls as f64, calls as f64 / 10.0);
            // What is killed long before or after the ends proves nothing.
            sheet.at_least(&format!("{name} calls that ended before the kill"), tally.ended as f64, 1.0);
            sheet.at_least(&format!("{name} calls cut off by the kill"), tally.cut_off as f64, 1.0);
        }
        let unknown = fleet.history.count(|what| matches!(what, What::Unknown { .. }));
        sheet.note("answers that the outcome is unknown", unknown as f64);
        let refused = fleet.history.count(|what| matches!(what, What::Refused { .. }));
        sheet.note("refusals", refused as f64);
    }
    Ok(())
}
