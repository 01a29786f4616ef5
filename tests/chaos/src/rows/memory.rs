//! F8: a plugin takes more memory than it has. Its worker dies, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::death::millis;
use crate::bed::Bed;
use crate::events::Events;
use crate::hostile::{HOSTILE, Language, call};
use crate::neighbours::Neighbours;
use crate::plugins::RELEASE;
use crate::processes;
use crate::sheet::Sheet;

const WORKERS: u32 = 2;
const GROWTH_MIB: f64 = 20.0;
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(language: Language, sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| language.install(plugins, (WORKERS, 1))).await?;
    bed.warm(HOSTILE, RELEASE, WORKERS).await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    let events = Events::follow(&bed).await?;
    let rss = processes::rss_mib(bed.pid())?;
    neighbours.fault_begins();

    let started = greedy(language).start(&bed.client).await?;
    let mut running = started.map_err(|reason| anyhow::anyhow!("refused: {reason}"))?;
    let dying = processes::of_worker(bed.pid(), &running.worker)?;
    let others: Vec<_> =
        processes::below(bed.pid()).into_iter().filter(|known| !dying.contains(known)).collect();
    let end = running.end().await?;
    sheet.expect("the call's end", &end.text(), "oom");
    sheet.note("dead after, ms", millis(running.elapsed()));
    if let Err(left) = processes::gone(&dying, PATIENCE).await {
        sheet.fault(format!("{left} processes of the worker are left"));
    }
    let next = language.harmless().run(&bed.client).await.context("call it again")?;
    sheet.expect("the next call's end", &next.text(), "completed");
    #[expect(clippy::cast_precision_loss, reason = "a number of crashes")]
    sheet.at_most("workers that crashed", events.count("worker_crashed") as f64, 1.0);
    // The dead worker's own launcher, which is outside the sandbox, goes with it.
    let lost = others.iter().filter(|known| !known.alive()).count();
    #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
    sheet.at_most("other processes that ended (its launcher's two)", lost as f64, 2.0);
    sheet.at_most("the runtime's growth, MiB", processes::rss_mib(bed.pid())? - rss, GROWTH_MIB);
    neighbours.finish(sheet, None).await
}

/// Takes memory that the language itself does not bound.
fn greedy(language: Language) -> crate::call::Request {
    call(match language {
        Language::Python => json!({"mode": "memory"}),
        Language::Node => json!({"probe": "memory", "args": {"mib": 4096}}),
        Language::Java => json!({"act": "native-memory", "bytes": 4_294_967_296_u64}),
    })
}
