//! Counters of one process. Keeps true: the table is bounded, and only what is full again is forgotten.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Bucket, CounterError, Counters, Taken, milliseconds};

/// Most buckets that are kept.
const MAX_BUCKETS: usize = 100_000;
/// Least time between two sweeps for full buckets; bounds the cost of a table under attack.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

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
    async fn take(&self, _tenant: &str, buckets: &[Bucket]) -> Result<Taken, CounterError> {
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
        assert_eq!(counters.take("t", &buckets).await.unwrap(), Taken::Granted { remaining: 1 });
        assert_eq!(counters.take("t", &buckets).await.unwrap(), Taken::Granted { remaining: 0 });
        assert_eq!(
            counters.take("t", &buckets).await.unwrap(),
            Taken::Denied { index: 0, retry_after_ms: 1000 }
        );
        tokio::time::advance(Duration::from_millis(1000)).await;
        assert_eq!(counters.take("t", &buckets).await.unwrap(), Taken::Granted { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_check_takes_nothing_from_the_other_buckets() {
        let counters = MemoryCounters::default();
        let both = [bucket("wide", 10, 0.001), bucket("narrow", 1, 0.001)];
        assert!(matches!(counters.take("t", &both).await.unwrap(), Taken::Granted { .. }));
        for _ in 0..5 {
            assert!(matches!(counters.take("t", &both).await.unwrap(), Taken::Denied { index: 1, .. }));
        }
        let wide = [bucket("wide", 10, 0.001)];
        assert_eq!(counters.take("t", &wide).await.unwrap(), Taken::Granted { remaining: 8 });
    }

    #[tokio::test]
    async fn it_does_what_every_backend_must() {
        super::super::suite::run(std::sync::Arc::new(MemoryCounters::default())).await;
    }

    /// Invariant I-4: tables of limits.
    #[tokio::test(start_paused = true)]
    async fn a_full_table_forgets_only_full_buckets_and_refuses_the_rest() {
        let counters = MemoryCounters::default();
        for n in 0..MAX_BUCKETS {
            let refill = if n == 0 { 1e-6 } else { 1.0 };
            counters.take("t", &[bucket(&format!("k{n}"), 1, refill)]).await.unwrap();
        }
        assert!(matches!(counters.take("t", &[bucket("new", 1, 1.0)]).await.unwrap(), Taken::Denied { .. }));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(counters.take("t", &[bucket("new", 1, 1.0)]).await.unwrap(), Taken::Granted { .. }));
        assert!(matches!(counters.take("t", &[bucket("k0", 1, 1e-6)]).await.unwrap(), Taken::Denied { .. }));
    }
}
