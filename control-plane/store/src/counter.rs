//! The exact rate-limit counters: token buckets that are taken together or not at all.
//!
//! Owns: the [`Counters`] port and its in-process backend. Refuses: deciding which buckets a call needs
//! (the limits stage does). Keeps true: a bucket never admits more than its capacity plus its refill, also
//! under concurrency and when the table is full (invariant I-4, ADR 10).

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Most buckets the in-process backend keeps.
const MAX_BUCKETS: usize = 100_000;
/// Least time between two sweeps for full buckets; bounds the cost of a table under attack.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// One token bucket a call must draw from.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// What is counted, e.g. `acme|limit|3|user=alice`.
    pub key: String,
    /// Most tokens the bucket holds, at least 1.
    pub capacity: u64,
    /// Tokens that come back per second, above 0.
    pub refill_per_second: f64,
}

/// What a check said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// One token was taken from every bucket; the fewest that any of them has left.
    Granted { remaining: u64 },
    /// Nothing was taken; the bucket at `index` was empty.
    Denied { index: usize, retry_after_ms: u64 },
}

/// Counters failed; the caller decides whether that admits or refuses.
#[derive(Debug, thiserror::Error)]
#[error("counters are not available: {0}")]
pub struct CounterError(pub String);

/// Takes tokens from several buckets atomically.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Takes one token from every bucket, or none when one of them is empty.
    async fn take(&self, buckets: &[Bucket]) -> Result<Taken, CounterError>;
}

/// Counters of one process.
#[derive(Default)]
pub struct MemoryCounters {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    levels: HashMap<String, Level>,
    last_sweep: Option<Instant>,
}

struct Level {
    tokens: f64,
    at: Instant,
    /// When the bucket is full again, so that forgetting it changes nothing.
    full_at: Instant,
}

#[async_trait]
impl Counters for MemoryCounters {
    async fn take(&self, buckets: &[Bucket]) -> Result<Taken, CounterError> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let mut after = Vec::with_capacity(buckets.len());
        for (index, bucket) in buckets.iter().enumerate() {
            let tokens = table.tokens(bucket, now);
            if tokens < 1.0 {
                let wait = (1.0 - tokens) / bucket.refill_per_second.max(f64::MIN_POSITIVE);
                return Ok(Taken::Denied { index, retry_after_ms: milliseconds(wait) });
            }
            after.push(tokens - 1.0);
        }
        if let Some(index) = table.make_room(buckets, now) {
            return Ok(Taken::Denied { index, retry_after_ms: 1000 });
        }
        let mut remaining = u64::MAX;
        for (bucket, tokens) in buckets.iter().zip(after) {
            remaining = remaining.min(tokens as u64);
            table.store(bucket, tokens, now);
        }
        Ok(Taken::Granted { remaining })
    }
}

impl Table {
    fn tokens(&self, bucket: &Bucket, now: Instant) -> f64 {
        let capacity = bucket.capacity as f64;
        match self.levels.get(&bucket.key) {
            None => capacity,
            Some(level) => {
                let back = now.saturating_duration_since(level.at).as_secs_f64() * bucket.refill_per_second;
                (level.tokens + back).min(capacity)
            }
        }
    }

    fn store(&mut self, bucket: &Bucket, tokens: f64, now: Instant) {
        let missing = (bucket.capacity as f64 - tokens).max(0.0);
        let seconds = (missing / bucket.refill_per_second.max(f64::MIN_POSITIVE)).min(86_400.0 * 365.0);
        let level = Level { tokens, at: now, full_at: now + Duration::from_secs_f64(seconds) };
        self.levels.insert(bucket.key.clone(), level);
    }

    /// Returns the first bucket for which there is no room. A bucket that is not full is never forgotten:
    /// that would admit more than it allows.
    fn make_room(&mut self, buckets: &[Bucket], now: Instant) -> Option<usize> {
        let missing = buckets.iter().filter(|bucket| !self.levels.contains_key(&bucket.key)).count();
        if self.levels.len() + missing <= MAX_BUCKETS {
            return None;
        }
        if self.last_sweep.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EVERY) {
            self.levels.retain(|_, level| level.full_at > now);
            self.last_sweep = Some(now);
        }
        if self.levels.len() + missing <= MAX_BUCKETS {
            return None;
        }
        buckets.iter().position(|bucket| !self.levels.contains_key(&bucket.key))
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(1.0, 86_400_000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(key: &str, capacity: u64, refill_per_second: f64) -> Bucket {
        Bucket { key: key.into(), capacity, refill_per_second }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_admits_its_capacity_and_then_its_refill() {
        let counters = MemoryCounters::default();
        let buckets = [bucket("a", 2, 1.0)];
        assert_eq!(counters.take(&buckets).await.unwrap(), Taken::Granted { remaining: 1 });
        assert_eq!(counters.take(&buckets).await.unwrap(), Taken::Granted { remaining: 0 });
        assert_eq!(counters.take(&buckets).await.unwrap(), Taken::Denied { index: 0, retry_after_ms: 1000 });
        tokio::time::advance(Duration::from_millis(1000)).await;
        assert_eq!(counters.take(&buckets).await.unwrap(), Taken::Granted { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_check_takes_nothing_from_the_other_buckets() {
        let counters = MemoryCounters::default();
        let both = [bucket("wide", 10, 0.001), bucket("narrow", 1, 0.001)];
        assert!(matches!(counters.take(&both).await.unwrap(), Taken::Granted { .. }));
        for _ in 0..5 {
            assert!(matches!(counters.take(&both).await.unwrap(), Taken::Denied { index: 1, .. }));
        }
        let wide = [bucket("wide", 10, 0.001)];
        assert_eq!(counters.take(&wide).await.unwrap(), Taken::Granted { remaining: 8 });
    }

    #[tokio::test]
    async fn concurrent_callers_never_get_more_than_the_capacity() {
        let counters = std::sync::Arc::new(MemoryCounters::default());
        let mut tasks = Vec::new();
        for _ in 0..200 {
            let counters = counters.clone();
            tasks.push(tokio::spawn(async move { counters.take(&[bucket("a", 50, 1e-6)]).await.unwrap() }));
        }
        let mut granted = 0;
        for task in tasks {
            if matches!(task.await.unwrap(), Taken::Granted { .. }) {
                granted += 1;
            }
        }
        assert_eq!(granted, 50);
    }

    /// Invariant I-4: tables of limits.
    #[tokio::test(start_paused = true)]
    async fn a_full_table_forgets_only_full_buckets_and_refuses_the_rest() {
        let counters = MemoryCounters::default();
        for n in 0..MAX_BUCKETS {
            let refill = if n == 0 { 1e-6 } else { 1.0 };
            counters.take(&[bucket(&format!("k{n}"), 1, refill)]).await.unwrap();
        }
        assert!(matches!(counters.take(&[bucket("new", 1, 1.0)]).await.unwrap(), Taken::Denied { .. }));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(counters.take(&[bucket("new", 1, 1.0)]).await.unwrap(), Taken::Granted { .. }));
        assert!(matches!(counters.take(&[bucket("k0", 1, 1e-6)]).await.unwrap(), Taken::Denied { .. }));
    }
}
