//! F11: a plugin that crashes again and again costs next to nothing, and is set aside.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::death::millis;
use crate::bed::Bed;
use crate::call::Request;
use crate::events::Events;
use crate::hostile::{HOSTILE, Language, call};
use crate::neighbours::Neighbours;
use crate::plugins::{self, RELEASE};
use crate::processes;
use crate::sheet::Sheet;

const WINDOW: Duration = Duration::from_secs(60);
/// Between two calls of somebody who does not give up.
const ASKS_EVERY: Duration = Duration::from_millis(100);
const STARTS: f64 = 6.0;
const CPU_PERCENT: f64 = 5.0;
const RUNTIME_ALONE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Loop {
    AtStart,
    AtCall,
}

impl Loop {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Loop::AtStart => "cannot be loaded",
            Loop::AtCall => "crashes at every call",
        }
    }

    fn request(self) -> Request {
        match self {
            // It is never told anything.
            Loop::AtStart => call(json!({})),
            Loop::AtCall => call(json!({"mode": "crash"})),
        }
    }
}

pub(crate) async fn run(kind: Loop, sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| match kind {
        Loop::AtStart => plugins::broken(plugins, HOSTILE),
        Loop::AtCall => Language::Python.install(plugins, (1, 1)),
    })
    .await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    let events = Events::follow(&bed).await?;
    // The neighbours' calls cost the runtime something too.
    let (alone, _) = processes::cpu_seconds(bed.pid())?;
    sleep(RUNTIME_ALONE).await;
    let idle_share = (processes::cpu_seconds(bed.pid())?.0 - alone) / RUNTIME_ALONE.as_secs_f64();
    neighbours.fault_begins();

    let (own, reaped) = processes::cpu_seconds(bed.pid())?;
    let began = Instant::now();
    bed.prewarm(HOSTILE, RELEASE).await?;
    let mut quarantined = None;
    while began.elapsed() < WINDOW {
        let end = kind.request().run(&bed.client).await.context("call a plugin that crashes")?;
        // A tenant whose calls crash it is refused alone; a plugin that never starts is refused to all.
        let refused = bed.figure("hostile@1.0.0", "quarantined_s").await?
            + bed.figure("hostile@1.0.0", "tenants_off").await?;
        if quarantined.is_none() && refused > 0.0 {
            quarantined = Some(began.elapsed());
            sheet.note("quarantined after, s", began.elapsed().as_secs_f64());
        }
        if end.text() == "completed" {
            sheet.fault("a call of a plugin that crashes completed");
        }
        sleep(ASKS_EVERY).await;
    }
    let lasted = began.elapsed().as_secs_f64();
    let (own_after, reaped_after) = processes::cpu_seconds(bed.pid())?;
    let last = kind.request().run(&bed.client).await?.text();
    let is_refused =
        ["refused quarantined", "refused tenant_quarantined"].iter().any(|end| last.starts_with(end));
    if quarantined.is_none() || !is_refused {
        sheet.fault(format!("it is not quarantined: a call's end is {last:?}"));
    }
    // A worker that cannot load its plugin crashes without having started.
    let started = events.times("worker_started", "hostile@1.0.0");
    let crashed = events.times("worker_crashed", "hostile@1.0.0");
    #[expect(clippy::cast_precision_loss, reason = "a number of workers")]
    sheet.at_most("starts in 60 s", started.len().max(crashed.len()) as f64, STARTS);
    if let (Some(first), Some(last)) = (crashed.first(), crashed.last()) {
        sheet.note("first to last crash, ms", millis(last.duration_since(*first)));
    }
    let workers = (reaped_after - reaped) / lasted * 100.0;
    let runtime = ((own_after - own) / lasted - idle_share) * 100.0;
    sheet.note("processor of its workers, %", workers);
    sheet.note("processor of the runtime beyond the neighbours' part, %", runtime);
    sheet.at_most("processor of the loop, %", workers + runtime.max(0.0), CPU_PERCENT);
    neighbours.finish(sheet, None).await
}
