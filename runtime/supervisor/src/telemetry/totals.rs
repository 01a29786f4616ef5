//! Totals of a plugin version since its first worker, including ended workers, and the statistics of one worker.
//!
//! Keeps true: totals never decrease, and their size does not depend on how much was counted.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_launcher::Stats;
use asp_proto::plugin as wire;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::latency::Latency;
use crate::telemetry::vitals::Vitals;

/// Totals of a plugin version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of workers that took calls.
    pub starts: u64,
    /// Number of crashes by [`crate::cause::Cause::name`], of workers that took calls and others.
    pub crashes: BTreeMap<&'static str, u64>,
    pub latency: Latency,
    pub used: ResourceUse,
    /// Resource use of ended workers that took calls, by the last sample of each.
    gone: ResourceUse,
}

/// Resource use of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUse {
    pub cpu_ms: u64,
    pub gc_count: u64,
    pub gc_time: Duration,
}

/// Durations of one worker's calls, and the vitals that it reports.
#[derive(Debug)]
pub struct WorkerStats {
    born: Instant,
    known: Mutex<(Latency, Vitals)>,
}

impl WorkerStats {
    /// Creates the statistics of a worker whose process started at `born`.
    pub fn new(born: Instant) -> WorkerStats {
        WorkerStats { born, known: Mutex::default() }
    }

    /// Records that a call of the worker ended.
    pub fn call(&self, took: Duration) {
        self.known.lock().0.observe(took);
    }

    /// Updates the vitals with the plausible part of a worker's report.
    pub fn update(&self, reported: &wire::Vitals) {
        let mut known = self.known.lock();
        known.1 = Vitals::plausible(reported, self.age(), known.1);
    }

    pub fn latency(&self) -> Latency {
        self.known.lock().0
    }

    pub fn vitals(&self) -> Vitals {
        self.known.lock().1
    }

    pub fn age(&self) -> Duration {
        self.born.elapsed()
    }
}

impl Totals {
    /// Records that a worker ended that took calls; `used` is its last sample.
    pub fn record_end(&mut self, used: ResourceUse) {
        self.gone = self.gone.plus(used);
    }

    /// Returns the totals, including the resource use of living workers. A worker that ends during this call may be
    /// missing from both sides for a moment; the totals do not decrease even then.
    pub fn with(&mut self, living: impl Iterator<Item = ResourceUse>) -> Totals {
        let now = living.fold(self.gone, ResourceUse::plus);
        self.used = ResourceUse {
            cpu_ms: self.used.cpu_ms.max(now.cpu_ms),
            gc_count: self.used.gc_count.max(now.gc_count),
            gc_time: self.used.gc_time.max(now.gc_time),
        };
        self.clone()
    }
}

impl ResourceUse {
    pub fn of(stats: &Stats, vitals: &Vitals) -> ResourceUse {
        ResourceUse {
            cpu_ms: stats.cpu_ms,
            gc_count: vitals.gc_count.unwrap_or(0),
            gc_time: vitals.gc_time.unwrap_or_default(),
        }
    }

    fn plus(self, other: ResourceUse) -> ResourceUse {
        ResourceUse {
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            gc_count: self.gc_count.saturating_add(other.gc_count),
            gc_time: self.gc_time.saturating_add(other.gc_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(cpu_ms: u64) -> ResourceUse {
        ResourceUse { cpu_ms, ..ResourceUse::default() }
    }

    #[test]
    fn what_workers_used_outlives_them_and_never_goes_back() {
        let mut totals_so_far = Totals::default();
        assert_eq!(totals_so_far.with([used(100), used(50)].into_iter()).used.cpu_ms, 150);
        // The worker ended, and its last sample has not arrived yet.
        assert_eq!(totals_so_far.with([used(60)].into_iter()).used.cpu_ms, 150);
        totals_so_far.record_end(used(110));
        assert_eq!(totals_so_far.with([used(60)].into_iter()).used.cpu_ms, 170);
    }
}
