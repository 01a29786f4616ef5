//! F27: a plugin is upgraded, and rolled back, under load: no call fails.
//!
//! The switch is as a gateway's: new calls name the new release from one moment on, and the old one is drained
//! when no call that names it is still being admitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::death::millis;
use crate::bed::{Bed, Client};
use crate::call::{End, Request};
use crate::neighbours::Neighbours;
use crate::plugins;
use crate::sheet::Sheet;

const PLUGIN: &str = "moving";
const OLD: &str = "1.0.0";
const NEW: &str = "1.1.0";
const SHAPE: (u32, u32) = (2, 8);
const RATE: f64 = 40.0;
/// Long enough that a drain always meets running calls.
const CALL_MS: u32 = 100;
const BETWEEN: Duration = Duration::from_secs(3);
const DRAIN: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Seen {
    failed: Mutex<Vec<String>>,
    old: AtomicUsize,
    new: AtomicUsize,
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| plugins::echo(plugins, PLUGIN, OLD, SHAPE)).await?;
    bed.warm(PLUGIN, OLD, SHAPE.0).await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    let current = Arc::new(RwLock::new(OLD));
    let seen = Arc::new(Seen::default());
    let (stop, stopped) = watch::channel(false);
    let client = bed.another_client()?;
    let calls = tokio::spawn(load(client, Arc::clone(&current), Arc::clone(&seen), stopped));
    sleep(BETWEEN).await;
    neighbours.fault_begins();

    plugins::echo(&bed.plugins(), PLUGIN, NEW, SHAPE)?;
    for (name, from, to) in [("upgrade", OLD, NEW), ("rollback", NEW, OLD)] {
        bed.warm(PLUGIN, to, 1).await?;
        *current.write().await = to;
        let began = Instant::now();
        bed.drain(PLUGIN, from, Some(DRAIN)).await?;
        sheet.at_most(
            &format!("{name}: the old release drained, ms"),
            millis(began.elapsed()),
            millis(DRAIN),
        );
        let left = bed.figure(&format!("{PLUGIN}@{from}"), "workers").await?;
        sheet.at_most(&format!("{name}: workers of the old release"), left, 0.0);
        sleep(BETWEEN).await;
    }
    stop.send_replace(true);
    calls.await?;
    let failed = std::mem::take(&mut *seen.failed.lock());
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    {
        sheet.at_most("failed calls", failed.len() as f64, 0.0);
        sheet.at_least("calls the old release answered", seen.old.load(Ordering::Relaxed) as f64, 1.0);
        sheet.at_least("calls the new release answered", seen.new.load(Ordering::Relaxed) as f64, 1.0);
    }
    if let Some(first) = failed.first() {
        sheet.fault(format!("a call: {first}"));
    }
    neighbours.finish(sheet, None).await
}

async fn load(
    client: Client,
    current: Arc<RwLock<&'static str>>,
    seen: Arc<Seen>,
    stopped: watch::Receiver<bool>,
) {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / RATE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        while calls.try_join_next().is_some() {}
        let client = client.clone();
        let current = Arc::clone(&current);
        let seen = Arc::clone(&seen);
        calls.spawn(async move {
            if let Err(error) = one(&client, &current, &seen).await {
                seen.failed.lock().push(format!("{error:#}"));
            }
        });
    }
    while calls.join_next().await.is_some() {}
}

async fn one(client: &Client, current: &RwLock<&'static str>, seen: &Seen) -> Result<()> {
    let release = current.read().await;
    let request = Request::new(PLUGIN, *release, json!({"ms": CALL_MS}));
    let started = request.start(client).await?;
    drop(release);
    match started.map_err(|reason| anyhow::anyhow!("refused {reason}"))?.end().await? {
        End::Completed(output) => {
            let release =
                output.get("release").and_then(|text| text.as_str()).context("it says its release")?;
            anyhow::ensure!(release == request.version, "release {release} answered for {}", request.version);
            let count = if release == OLD { &seen.old } else { &seen.new };
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        end => anyhow::bail!("{}", end.text()),
    }
}
