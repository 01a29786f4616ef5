//! F26: one tenant asks a plugin a hundred times as often as each of the others.
//!
//! The others ask for less than their equal part, so their fair share is what they ask for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::spread::percentile;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::bed::{Bed, Client};
use crate::call::{End, Request};
use crate::neighbours::Neighbours;
use crate::plugins::{self, RELEASE};
use crate::processes;
use crate::sheet::Sheet;

const PLUGIN: &str = "shared";
/// One worker of four places and calls of 100 ms on average: 40 calls a second, of which a third is 13.
const SHAPE: (u32, u32) = (1, 4);
/// Calls differ in length: equal ones would start and end together, and a call between would always meet a full house.
const CALLS_MS: [u32; 5] = [50, 125, 75, 150, 100];
const VICTIMS: [&str; 2] = ["first", "second"];
const VICTIM_RATE: f64 = 5.0;
const NOISE: f64 = 100.0;
const LENGTH: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| plugins::echo(plugins, PLUGIN, RELEASE, SHAPE)).await?;
    bed.warm(PLUGIN, RELEASE, SHAPE.0).await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    let alone = victims(&bed).await?;
    neighbours.fault_begins();
    let cpu = |pid| anyhow::Ok(processes::cpu_seconds(pid)?.0);
    let before = (cpu(bed.pid())?, cpu(std::process::id())?);
    let began = Instant::now();
    let noisy = tokio::spawn(load(bed.another_client()?, "noisy", VICTIM_RATE * NOISE));
    let beside = victims(&bed).await?;
    let noise = noisy.await?;
    let percent = |used: f64| used / began.elapsed().as_secs_f64() * 100.0;
    sheet.note("processor of the runtime, %", percent(cpu(bed.pid())? - before.0));
    // Where this is high, the figures are those of this program.
    sheet.note("processor of this program, %", percent(cpu(std::process::id())? - before.1));

    let alone_p99 = percentile(&alone.latencies, 0.99).context("the victims were not served alone")?;
    let beside_p99 = percentile(&beside.latencies, 0.99).context("the victims were not served")?;
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    {
        sheet.at_least("victims' calls served, % of their share", share(&beside), 90.0);
        sheet.note("victims' calls served alone, %", share(&alone));
        sheet.note("victims' p99 alone, ms", alone_p99);
        sheet.note("victims' p99 beside, ms", beside_p99);
        sheet.at_most("victims' p99, times alone", beside_p99 / alone_p99, 2.0);
        sheet.note("noisy calls offered", noise.offered as f64);
        sheet.note("noisy calls served", noise.latencies.len() as f64);
    }
    neighbours.finish(sheet, None).await
}

#[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
fn share(load: &Load) -> f64 {
    load.latencies.len() as f64 / load.offered.max(1) as f64 * 100.0
}

#[derive(Default)]
struct Load {
    offered: usize,
    /// Milliseconds from when each served call was due.
    latencies: Vec<f64>,
}

async fn victims(bed: &Bed) -> Result<Load> {
    let mut loads = JoinSet::new();
    for victim in VICTIMS {
        loads.spawn(load(bed.another_client()?, victim, VICTIM_RATE));
    }
    let mut all = Load::default();
    while let Some(load) = loads.join_next().await {
        let load = load?;
        all.offered += load.offered;
        all.latencies.extend(load.latencies);
    }
    Ok(all)
}

/// An open loop of `rate` calls a second for [`LENGTH`].
async fn load(client: Client, tenant: &'static str, rate: f64) -> Load {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let latencies = Arc::new(Mutex::new(Vec::new()));
    let mut offered = 0;
    let mut calls = JoinSet::new();
    let end = Instant::now() + LENGTH;
    loop {
        let due = ticks.tick().await;
        if due >= end {
            break;
        }
        // Bounded: the runtime refuses a tenant that has too many waiting.
        while calls.try_join_next().is_some() {}
        let length = CALLS_MS.get(offered % CALLS_MS.len()).copied().unwrap_or_default();
        offered += 1;
        let client = client.clone();
        let latencies = Arc::clone(&latencies);
        calls.spawn(async move {
            let mut request = Request::new(PLUGIN, RELEASE, json!({"ms": length}));
            tenant.clone_into(&mut request.tenant);
            request.deadline = PATIENCE;
            if matches!(request.run(&client).await, Ok(End::Completed(_))) {
                latencies.lock().push(due.elapsed().as_secs_f64() * 1000.0);
            }
        });
    }
    // What is served only after the noise has ended is no share of it.
    if tenant == "noisy" {
        calls.abort_all();
    }
    while calls.join_next().await.is_some() {}
    let latencies = std::mem::take(&mut *latencies.lock());
    Load { offered, latencies }
}
