//! What a plugin version has used and suffered since its first worker, workers that are gone included; and what is
//! known of one worker.
//!
//! Keeps true: totals only count up, and their size does not depend on how much they have counted.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_launcher::Stats;
use asp_proto::plugin as wire;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::telemetry::latency::Latency;
use crate::telemetry::vitals::Vitals;

#[derive(Debug, Default)]
pub struct PluginTotals(Mutex<Totals>);

/// The figures of a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Workers that took calls.
    pub starts: u64,
    /// By [`Cause::name`].
    pub crashes: BTreeMap<&'static str, u64>,
    pub latency: Latency,
    pub used: Used,
    /// Of workers that are gone.
    gone: Used,
}

/// What workers used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub cpu_ms: u64,
    pub gc_count: u64,
    pub gc_time: Duration,
}

/// What one worker's calls took, and what it tells of itself.
#[derive(Debug)]
pub struct WorkerStats {
    born: Instant,
    known: Mutex<(Latency, Vitals)>,
}

impl WorkerStats {
    /// Of a worker whose process began at `born`.
    pub fn new(born: Instant) -> WorkerStats {
        WorkerStats { born, known: Mutex::default() }
    }

    /// A call of it ended.
    pub fn call(&self, took: Duration) {
        self.known.lock().0.observe(took);
    }

    /// Takes what can be true of what it told.
    pub fn learn(&self, told: &wire::Vitals) {
        let mut known = self.known.lock();
        known.1 = Vitals::believed(told, self.age(), known.1);
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

impl PluginTotals {
    pub fn started(&self) {
        self.0.lock().starts += 1;
    }

    /// A call ended that had a worker.
    pub fn call(&self, took: Duration) {
        self.0.lock().latency.observe(took);
    }

    /// A worker ended that took calls; `used` is its last reading.
    pub fn ended(&self, used: Used) {
        let mut totals = self.0.lock();
        totals.gone = totals.gone.plus(used);
    }

    /// A worker failed, whether it took calls or not.
    pub fn crashed(&self, cause: Cause) {
        *self.0.lock().crashes.entry(cause.name()).or_default() += 1;
    }

    /// The totals with what the workers that live have used. A worker that ends meanwhile may be missing from
    /// both sides for a moment: totals do not go back all the same.
    pub fn with(&self, living: impl Iterator<Item = Used>) -> Totals {
        let living = living.fold(Used::default(), Used::plus);
        let mut totals = self.0.lock();
        let now = totals.gone.plus(living);
        totals.used = Used {
            cpu_ms: totals.used.cpu_ms.max(now.cpu_ms),
            gc_count: totals.used.gc_count.max(now.gc_count),
            gc_time: totals.used.gc_time.max(now.gc_time),
        };
        totals.clone()
    }
}

impl Used {
    pub fn of(stats: &Stats, vitals: &Vitals) -> Used {
        Used {
            cpu_ms: stats.cpu_ms,
            gc_count: vitals.gc_count.unwrap_or(0),
            gc_time: vitals.gc_time.unwrap_or_default(),
        }
    }

    fn plus(self, other: Used) -> Used {
        Used {
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            gc_count: self.gc_count.saturating_add(other.gc_count),
            gc_time: self.gc_time.saturating_add(other.gc_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(cpu_ms: u64) -> Used {
        Used { cpu_ms, ..Used::default() }
    }

    #[test]
    fn what_workers_used_outlives_them_and_never_goes_back() {
        let totals_so_far = PluginTotals::default();
        totals_so_far.started();
        totals_so_far.started();
        assert_eq!(totals_so_far.with([used(100), used(50)].into_iter()).used.cpu_ms, 150);
        // It ended, and its last reading is not there yet.
        assert_eq!(totals_so_far.with([used(60)].into_iter()).used.cpu_ms, 150);
        totals_so_far.ended(used(110));
        totals_so_far.crashed(Cause::Oom);
        totals_so_far.crashed(Cause::Exit(1));
        totals_so_far.crashed(Cause::Exit(2));
        let totals = totals_so_far.with([used(60)].into_iter());
        assert_eq!((totals.starts, totals.used.cpu_ms), (2, 170));
        assert_eq!(totals.crashes, BTreeMap::from([("exit", 2), ("oom", 1)]));
    }
}
