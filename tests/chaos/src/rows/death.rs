//! F7: a worker is killed with a call in it.
//!
//! Both workers of a warm pool have a call in their only place, so the call after the kill can be served by the
//! replacement only.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::bed::Bed;
use crate::call::End;
use crate::events::Events;
use crate::hostile::{HOSTILE, Language, held};
use crate::neighbours::Neighbours;
use crate::plugins::RELEASE;
use crate::processes;
use crate::sheet::Sheet;

const WORKERS: u32 = 2;
/// How long a missing event is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| Language::Python.install(plugins, (WORKERS, 1))).await?;
    bed.warm(HOSTILE, RELEASE, WORKERS).await?;
    let mut victim = start(&bed).await?;
    let mut other = start(&bed).await?;
    let worker = processes::of_worker(bed.pid(), &victim.worker)?;
    let mut neighbours = Neighbours::start(&bed).await?;
    let events = Events::follow(&bed).await?;
    neighbours.fault_begins();

    let killed = Instant::now();
    processes::send(*worker.first().context("a worker is a process")?, Signal::KILL)?;
    let next = tokio::spawn({
        let client = bed.another_client()?;
        async move {
            let end = Language::Python.harmless().run(&client).await;
            (end, killed.elapsed())
        }
    });
    let end = victim.end().await?;
    let told = killed.elapsed();
    sheet.expect("the call's end", &end.text(), "signal");
    let detected = timeout(PATIENCE, detected(&events)).await.context("nobody was told of the crash")?;
    sheet.at_most("detected, ms", millis(detected.duration_since(killed)), 100.0);
    sheet.at_most("the caller has its error, ms", millis(told), 250.0);
    let (end, served) = next.await?;
    if !matches!(end?, End::Completed(_)) {
        sheet.fault("the call after the kill was not served");
    }
    sheet.at_most("the replacement has served a call, ms", millis(served), 500.0);
    if !other.still_runs(POLL).await? {
        sheet.fault("the call of the other worker ended");
    }
    neighbours.finish(sheet, None).await
}

async fn start(bed: &Bed) -> Result<crate::call::Running> {
    let started = held().start(&bed.client).await?;
    let mut running = started.map_err(|reason| anyhow::anyhow!("refused: {reason}"))?;
    running.begun().await?;
    Ok(running)
}

async fn detected(events: &Events) -> Instant {
    loop {
        if let Some(at) = events.times("worker_crashed", "hostile@1.0.0").first() {
            return *at;
        }
        sleep(POLL).await;
    }
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
