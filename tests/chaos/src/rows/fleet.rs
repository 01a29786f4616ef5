//! F34 and F35: while clients call, come back and cancel, and an admin writes, the processes of a whole fleet are killed at
//! random, or its gateways are cut off from the stores and the control planes. What was asked, told, done and in force is
//! judged as one history.

use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::fleet::load::Load;
use asp_e2e::fleet::{Fleet, Part};
use asp_e2e::history::{What, judge};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::sheet::Sheet;

/// How long a process is away, and how long all are there before the next is lost, in milliseconds.
const AWAY: std::ops::Range<u64> = 0..3_000;
const THERE: std::ops::Range<u64> = 500..4_000;
/// How long a gateway is cut off, in milliseconds: shorter and longer than its lease.
const CUT: std::ops::Range<u64> = 1_000..15_000;
/// After so many losses nothing is lost for longer than a gateway's lease, and what is left is taken over.
const BETWEEN_CALMS: usize = 6;
const CALM: Duration = Duration::from_secs(12);

/// What is done to the fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Killed,
    CutOff,
}

pub(crate) async fn run(loss: Loss, length: Duration, seed: Option<u64>, sheet: &mut Sheet) -> Result<()> {
    let seed = seed.unwrap_or_else(rand::random);
    eprintln!("seed {seed}");
    let mut fleet = match loss {
        Loss::Killed => Fleet::start().await?,
        Loss::CutOff => Fleet::start_over_cables().await?,
    };
    let load = Load::start(&fleet, seed).await?;
    let mut random = StdRng::seed_from_u64(seed);
    let until = Instant::now() + length;
    let mut losses = 0;
    while Instant::now() < until {
        match loss {
            Loss::Killed => kill(&mut fleet, &load, &mut random).await?,
            Loss::CutOff => cut(&fleet, &mut random).await?,
        }
        losses += 1;
        if losses % BETWEEN_CALMS == 0 || Instant::now() >= until {
            calm(&fleet).await?;
        }
    }
    let figures = load.finish(&fleet).await?;
    let faults = judge(&fleet.history.entries());
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.note("losses", losses as f64);
        sheet.at_least("things that were to be done", figures.things as f64, 1.0);
        sheet.at_least("writes of the admin", figures.writes as f64, 1.0);
        let unknown = fleet.history.count(|what| matches!(what, What::Unknown { .. }));
        sheet.note("answers that the outcome is unknown", unknown as f64);
        let refused = fleet.history.count(|what| matches!(what, What::Refused { .. }));
        sheet.note("refusals", refused as f64);
        let unanswered = fleet.history.count(|what| matches!(what, What::Unanswered { .. }));
        sheet.note("requests without an answer", unanswered as f64);
        sheet.at_most("faults in the history", faults.len() as f64, 0.0);
    }
    if let Err(faults) = fleet.history.hold() {
        sheet.fault(format!("seed {seed}: {faults:#}"));
    }
    Ok(())
}

/// One process, or two gateways at once.
async fn kill(fleet: &mut Fleet, load: &Load, random: &mut StdRng) -> Result<()> {
    let first = *Part::ALL.choose(random).context("a process")?;
    let mut lost = vec![first];
    if let Part::Gateway(number) = first
        && random.random_bool(0.3)
    {
        lost.push(Part::Gateway((number + 1) % 3));
    }
    for part in &lost {
        fleet.kill(*part).await?;
    }
    sleep(Duration::from_millis(random.random_range(AWAY))).await;
    for part in &lost {
        fleet.start_again(*part).await?;
        load.places.learn(fleet);
    }
    sleep(Duration::from_millis(random.random_range(THERE))).await;
    Ok(())
}

/// A gateway from the stores, from the control planes, or from both.
async fn cut(fleet: &Fleet, random: &mut StdRng) -> Result<()> {
    let number = random.random_range(0..3);
    let cables = fleet.cables(number)?;
    fleet.history.add(&format!("gateway {number}"), What::Lost);
    let what = random.random_range(0..3);
    if what != 1 {
        cables.cut_stores();
    }
    if what != 0 {
        cables.cut_controls();
    }
    sleep(Duration::from_millis(random.random_range(CUT))).await;
    cables.mend();
    sleep(Duration::from_millis(random.random_range(THERE))).await;
    Ok(())
}

async fn calm(fleet: &Fleet) -> Result<()> {
    fleet.is_well().await?;
    sleep(CALM).await;
    fleet.history.add("fleet", What::Well);
    Ok(())
}
