//! Counters of one process. Keeps true: the table and each tenant's part of it are bounded, and only what is full again is
//! forgotten.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Bucket, CounterError, Counters, Taken, milliseconds};

/// Most buckets that are kept.
const MAX_BUCKETS: usize = 100_000;
/// Most buckets of one tenant: limits with a bucket for each user or token must not use up the room of other tenants.
const MAX_OF_TENANT: usize = MAX_BUCKETS / 4;
/// Least time between two sweeps for full buckets; bounds the cost of a table under attack.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Counters of one process.
#[derive(Default)]
pub struct MemoryCounters {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Levels by tenant, then by the bucket's key.
    tenants: HashMap<String, HashMap<String, Level>>,
    /// Buckets of all tenants.
    count: usize,
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
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<Taken, CounterError> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let mut after = Vec::with_capacity(buckets.len());
        for (index, bucket) in buckets.iter().enumerate() {
            let tokens = table.tokens(tenant, bucket, now);
            if tokens < 1.0 {
                let wait = (1.0 - tokens) / bucket.refill_per_second.max(f64::MIN_POSITIVE);
                return Ok(Taken::Denied { index, retry_after_ms: milliseconds(wait) });
            }
            after.push(tokens - 1.0);
        }
        if let Some(index) = table.make_room(tenant, buckets, now) {
            return Ok(Taken::Denied { index, retry_after_ms: 1000 });
        }
        let mut remaining = u64::MAX;
        for (bucket, tokens) in buckets.iter().zip(after) {
            remaining = remaining.min(tokens as u64);
            table.store(tenant, bucket, tokens, now);
        }
        Ok(Taken::Granted { remaining })
    }
}

impl Table {
    fn level(&self, tenant: &str, key: &str) -> Option<&Level> {
        self.tenants.get(tenant)?.get(key)
    }

    fn tokens(&self, tenant: &str, bucket: &Bucket, now: Instant) -> f64 {
        let capacity = bucket.capacity as f64;
        match self.level(tenant, &bucket.key) {
            None => capacity,
            Some(level) => {
                let back = now.saturating_duration_since(level.at).as_secs_f64() * bucket.refill_per_second;
                (level.tokens + back).min(capacity)
            }
        }
    }

    fn store(&mut self, tenant: &str, bucket: &Bucket, tokens: f64, now: Instant) {
        let missing = (bucket.capacity as f64 - tokens).max(0.0);
        let seconds = (missing / bucket.refill_per_second.max(f64::MIN_POSITIVE)).min(86_400.0 * 365.0);
        let level = Level { tokens, at: now, full_at: now + Duration::from_secs_f64(seconds) };
        let own = match self.tenants.get_mut(tenant) {
            Some(own) => own,
            None => self.tenants.entry(tenant.to_owned()).or_default(),
        };
        if own.insert(bucket.key.clone(), level).is_none() {
            self.count += 1;
        }
    }

    /// Returns the first bucket for which there is no room. A bucket that is not full is never forgotten:
    /// that would admit more than it allows.
    fn make_room(&mut self, tenant: &str, buckets: &[Bucket], now: Instant) -> Option<usize> {
        let missing = buckets.iter().filter(|bucket| self.level(tenant, &bucket.key).is_none()).count();
        if self.has_room(tenant, missing) {
            return None;
        }
        if self.last_sweep.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EVERY) {
            self.sweep(now);
        }
        if self.has_room(tenant, missing) {
            return None;
        }
        buckets.iter().position(|bucket| self.level(tenant, &bucket.key).is_none())
    }

    fn has_room(&self, tenant: &str, missing: usize) -> bool {
        let own = self.tenants.get(tenant).map_or(0, HashMap::len);
        missing == 0 || (own + missing <= MAX_OF_TENANT && self.count + missing <= MAX_BUCKETS)
    }

    fn sweep(&mut self, now: Instant) {
        for own in self.tenants.values_mut() {
            own.retain(|_, level| level.full_at > now);
        }
        self.tenants.retain(|_, own| !own.is_empty());
        self.count = self.tenants.values().map(HashMap::len).sum();
        self.last_sweep = Some(now);
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
            let tenant = format!("t{}", n / MAX_OF_TENANT);
            counters.take(&tenant, &[bucket(&format!("k{n}"), 1, refill)]).await.unwrap();
        }
        let new = [bucket("new", 1, 1.0)];
        assert!(matches!(counters.take("t", &new).await.unwrap(), Taken::Denied { .. }));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(counters.take("t", &new).await.unwrap(), Taken::Granted { .. }));
        assert!(matches!(counters.take("t0", &[bucket("k0", 1, 1e-6)]).await.unwrap(), Taken::Denied { .. }));
    }

    /// Invariant I-4: one tenant's tokens, each with a bucket, take no room of another tenant.
    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_many_buckets_is_refused_more_while_others_get_theirs() {
        let counters = MemoryCounters::default();
        for n in 0..MAX_OF_TENANT {
            let granted = counters.take("many", &[bucket(&format!("k{n}"), 1, 1e-6)]).await.unwrap();
            assert!(matches!(granted, Taken::Granted { .. }));
        }
        let new = [bucket("new", 1, 1e-6)];
        assert!(matches!(counters.take("many", &new).await.unwrap(), Taken::Denied { index: 0, .. }));
        assert!(matches!(counters.take("few", &new).await.unwrap(), Taken::Granted { .. }));
    }
}
