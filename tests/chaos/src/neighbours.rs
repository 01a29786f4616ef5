//! Calls of another plugin while something breaks: they must not notice.
//!
//! An open loop: a call starts when it is due, whether the last one has ended or not, and its latency counts
//! from then.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::spread::percentile;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::bed::{Bed, Client};
use crate::call::{End, Request};
use crate::plugins::{GOOD, RELEASE};
use crate::sheet::Sheet;

/// Calls a second: enough for a percentile in seconds, far from what two workers can do. At 40 the 99th of a baseline was
/// the second-slowest of 160, and varied by the factor that is asserted where nothing burdened the machine.
const RATE: f64 = 160.0;
/// Calls at once; more than that wait no longer but count as failed.
const AT_ONCE: usize = 400;
const BASELINE: Duration = Duration::from_secs(4);

pub(crate) struct Neighbours {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: watch::Sender<bool>,
    load: JoinHandle<()>,
    fault_began: Option<Instant>,
}

struct Seen {
    due: Instant,
    latency_ms: f64,
    error: Option<String>,
}

impl Neighbours {
    /// Starts the calls and takes the baseline.
    pub(crate) async fn start(bed: &Bed) -> Result<Neighbours> {
        let client = bed.another_client()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = watch::channel(false);
        // The first calls open the connection; they are no baseline.
        for _ in 0..4 {
            call().run(&client).await.context("call the neighbours' plugin")?;
        }
        let load = tokio::spawn(load(client, Arc::clone(&seen), stopped));
        sleep(BASELINE).await;
        Ok(Neighbours { seen, stop, load, fault_began: None })
    }

    /// Marks the end of the baseline.
    pub(crate) fn fault_begins(&mut self) {
        self.fault_began = Some(Instant::now());
    }

    /// Ends the calls, and puts down how they fared. `p99_limit`: times the baseline, where the row has a bound.
    pub(crate) async fn finish(self, sheet: &mut Sheet, p99_limit: Option<f64>) -> Result<()> {
        self.stop.send_replace(true);
        self.load.await.context("the neighbours' load ended early")?;
        let began = self.fault_began.context("the row said when its fault begins")?;
        let seen = self.seen.lock();
        let latencies = |during: bool| -> Vec<f64> {
            seen.iter().filter(|one| (one.due >= began) == during).map(|one| one.latency_ms).collect()
        };
        let errors: Vec<&String> = seen.iter().filter_map(|one| one.error.as_ref()).collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        sheet.at_most("neighbours' errors", errors.len() as f64, 0.0);
        if let Some(first) = errors.first() {
            sheet.fault(format!("a neighbour's call: {first}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        sheet.note("neighbours' calls during", latencies(true).len() as f64);
        let baseline = percentile(&latencies(false), 0.99).context("the baseline has no calls")?;
        let during = percentile(&latencies(true), 0.99).context("there were no calls during the fault")?;
        sheet.note("neighbours' p99 before, ms", baseline);
        sheet.note("neighbours' p99 during, ms", during);
        // Where a stall was: at the fault's beginning, or all along.
        let slow = seen.iter().filter(|one| one.due >= began && one.latency_ms >= during);
        if let Some(last) = slow.map(|one| one.due.duration_since(began).as_secs_f64()).max_by(f64::total_cmp)
        {
            sheet.note("last call as slow as that, s after the fault began", last);
        }
        match p99_limit {
            Some(limit) => sheet.at_most("neighbours' p99, times the baseline", during / baseline, limit),
            None => sheet.note("neighbours' p99, times the baseline", during / baseline),
        }
        Ok(())
    }
}

fn call() -> Request {
    let mut request = Request::new(GOOD, RELEASE, json!({"text": "hello"}));
    "neighbour".clone_into(&mut request.tenant);
    request
}

async fn load(client: Client, seen: Arc<Mutex<Vec<Seen>>>, stopped: watch::Receiver<bool>) {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / RATE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    while !*stopped.borrow() {
        let due = ticks.tick().await;
        while calls.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            let error = Some(format!("{AT_ONCE} calls wait already"));
            seen.lock().push(Seen { due, latency_ms: 0.0, error });
            continue;
        };
        let client = client.clone();
        let seen = Arc::clone(&seen);
        calls.spawn(async move {
            let error = match call().run(&client).await {
                Ok(End::Completed(output)) if output.get("text").is_some_and(|text| text == "hello") => None,
                Ok(end) => Some(end.text()),
                Err(error) => Some(format!("{error:#}")),
            };
            seen.lock().push(Seen { due, latency_ms: due.elapsed().as_secs_f64() * 1000.0, error });
            drop(place);
        });
    }
    while calls.join_next().await.is_some() {}
}
