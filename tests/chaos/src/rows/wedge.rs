//! F9: a plugin that does not end: stopped, computing, deaf to cancels.
//!
//! What counts is the end of the call, that the plugin is dead or at least does no more, and that its place serves
//! again.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::death::millis;
use crate::bed::Bed;
use crate::call::{End, Request};
use crate::hostile::{HOSTILE, Language, call};
use crate::neighbours::Neighbours;
use crate::plugins::RELEASE;
use crate::processes;
use crate::sheet::Sheet;

const DEADLINE: Duration = Duration::from_secs(2);
/// Beyond the call's deadline.
const WITHIN: Duration = Duration::from_secs(3);
/// How long the end is watched for when it is late.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
/// A worker that lives on is watched for this long.
const COMPUTES_FOR: Duration = Duration::from_secs(1);
/// What pings and an idle interpreter may use; one that computes uses 100.
const CPU_PERCENT: f64 = 10.0;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wedge {
    PythonStopped,
    PythonBusyThread,
    PythonBusyLoop,
    PythonDeaf,
    NodeStopped,
    NodeBusy,
    NodeDeaf,
    JavaBusy,
    JavaDeaf,
}

pub(crate) const ALL: [Wedge; 9] = [
    Wedge::PythonStopped,
    Wedge::PythonBusyThread,
    Wedge::PythonBusyLoop,
    Wedge::PythonDeaf,
    Wedge::NodeStopped,
    Wedge::NodeBusy,
    Wedge::NodeDeaf,
    Wedge::JavaBusy,
    Wedge::JavaDeaf,
];

impl Wedge {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wedge::PythonStopped => "python stops itself",
            Wedge::PythonBusyThread => "python computes in a thread",
            Wedge::PythonBusyLoop => "python computes on the event loop",
            Wedge::PythonDeaf => "python ignores its cancel",
            Wedge::NodeStopped => "node stops itself",
            Wedge::NodeBusy => "node computes",
            Wedge::NodeDeaf => "node ignores its cancel",
            Wedge::JavaBusy => "java computes",
            Wedge::JavaDeaf => "java ignores its cancel",
        }
    }

    fn language(self) -> Language {
        match self {
            Wedge::PythonStopped | Wedge::PythonBusyThread | Wedge::PythonBusyLoop | Wedge::PythonDeaf => {
                Language::Python
            }
            Wedge::NodeStopped | Wedge::NodeBusy | Wedge::NodeDeaf => Language::Node,
            Wedge::JavaBusy | Wedge::JavaDeaf => Language::Java,
        }
    }

    fn request(self) -> Request {
        let arguments = match self {
            Wedge::PythonStopped => json!({"mode": "stop"}),
            Wedge::PythonBusyThread => json!({"mode": "busy"}),
            Wedge::PythonBusyLoop => json!({"mode": "busy_async"}),
            Wedge::PythonDeaf => json!({"mode": "ignore_cancel"}),
            Wedge::NodeStopped => json!({"probe": "stop"}),
            Wedge::NodeBusy => json!({"probe": "busy", "args": {"ms": 600_000}}),
            Wedge::NodeDeaf => json!({"probe": "ignore", "args": {"ms": 600_000}}),
            Wedge::JavaBusy => json!({"act": "spin"}),
            Wedge::JavaDeaf => json!({"act": "ignore-cancel"}),
        };
        Request { deadline: DEADLINE, ..call(arguments) }
    }
}

pub(crate) async fn run(wedge: Wedge, sheet: &mut Sheet) -> Result<()> {
    let language = wedge.language();
    let bed = Bed::start(|plugins| language.install(plugins, (1, 1))).await?;
    bed.warm(HOSTILE, RELEASE, 1).await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    neighbours.fault_begins();

    let started = wedge.request().start(&bed.client).await?;
    let mut running = started.map_err(|reason| anyhow::anyhow!("refused: {reason}"))?;
    let worker = processes::of_worker(bed.pid(), &running.worker)?;
    let began = Instant::now();
    let end = running.end().await?;
    sheet.at_most("the call has ended, ms", millis(running.elapsed()), millis(DEADLINE + WITHIN));
    let text = end.text();
    sheet.note(&format!("ends that were {text:?}"), 1.0);
    if !matches!(text.as_str(), "deadline" | "wedged" | "failed DEADLINE" | "failed CANCELLED") {
        sheet.fault(format!("the call's end is {text:?}"));
    }
    if matches!(end, End::Crashed(_)) {
        match processes::gone(&worker, PATIENCE).await {
            Ok(_) => {
                sheet.at_most("the worker is dead, ms", millis(began.elapsed()), millis(DEADLINE + WITHIN))
            }
            Err(left) => sheet.fault(format!("{left} processes of the worker are left")),
        }
    } else {
        // The shim got hold of its handler: the worker may live, but not go on with the call.
        sleep((DEADLINE + WITHIN).saturating_sub(began.elapsed())).await;
        let used = processes::cpu_within(&worker, COMPUTES_FOR).await / COMPUTES_FOR.as_secs_f64() * 100.0;
        sheet.at_most("processor of the worker after deadline + 3 s, %", used, CPU_PERCENT);
    }
    slot_returned(&bed, sheet).await?;
    let next = language.harmless().run(&bed.client).await.context("call it again")?;
    sheet.expect("the next call's end", &next.text(), "completed");
    sheet.note("the place has served again, ms", millis(began.elapsed()));
    neighbours.finish(sheet, None).await
}

async fn slot_returned(bed: &Bed, sheet: &mut Sheet) -> Result<()> {
    let began = Instant::now();
    while bed.figure("hostile@1.0.0", "active").await? > 0.0 {
        if began.elapsed() > PATIENCE {
            sheet.fault("the call's place was not given back");
            return Ok(());
        }
        sleep(POLL).await;
    }
    Ok(())
}
