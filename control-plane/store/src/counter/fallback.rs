//! Counters that several processes share, with a local fallback.
//!
//! Keeps true: no call waits for a shard that is known to be unavailable, except one probe a second. While it is
//! unavailable, each process counts its tenants by itself, so that each admits up to a limit.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Bucket, CounterError, Counters, DrawOutcome, MemoryCounters};
use crate::availability::{Attempt, Availability};

/// Shared counters, and this process's own while those are unavailable.
pub struct WithFallback {
    shared: Arc<dyn Counters>,
    own: MemoryCounters,
    availability: Availability,
}

impl WithFallback {
    pub fn new(shared: Arc<dyn Counters>) -> WithFallback {
        WithFallback { shared, own: MemoryCounters::default(), availability: Availability::default() }
    }

    fn answered(&self, shard: u64, attempt: Attempt) {
        if self.availability.answered(shard, attempt) {
            tracing::info!("limits count for all gateways together again");
        }
    }

    fn failed(&self, shard: u64, error: &CounterError) {
        if self.availability.failed(shard) {
            tracing::warn!(
                %error,
                "limits count for this gateway alone where the shared counters do not answer: each gateway admits up to a limit"
            );
        }
    }
}

#[async_trait]
impl Counters for WithFallback {
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        let shard = self.shared.shard(tenant);
        if let Some(attempt) = self.availability.attempt(shard) {
            match self.shared.take(tenant, buckets).await {
                Ok(taken) => {
                    self.answered(shard, attempt);
                    return Ok(taken);
                }
                Err(error) => self.failed(shard, &error),
            }
        }
        self.own.take(tenant, buckets).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    use super::*;
    use crate::availability::PROBE_EVERY;

    /// Counters that grant everything while available; each length of a tenant's name is a shard.
    #[derive(Default)]
    struct Shared {
        away: AtomicBool,
        /// Shard that is unavailable by itself.
        lost: AtomicU64,
        asked: AtomicU32,
        /// Delays the bucket `slow`.
        go: tokio::sync::Notify,
    }

    #[async_trait]
    impl Counters for Shared {
        async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if buckets[0].key == "slow" {
                self.go.notified().await;
                return Ok(DrawOutcome::Granted { remaining: 55 });
            }
            match self.away.load(Ordering::Relaxed) || self.lost.load(Ordering::Relaxed) == self.shard(tenant)
            {
                false => Ok(DrawOutcome::Granted { remaining: 77 }),
                true => Err(CounterError("connection refused".into())),
            }
        }

        fn shard(&self, tenant: &str) -> u64 {
            tenant.len() as u64
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_tenants_of_a_lost_shard_are_counted_here() {
        let shared = Arc::new(Shared::default());
        shared.lost.store(1, Ordering::Relaxed);
        let counters = WithFallback::new(shared.clone());
        let buckets = [Bucket { key: "k".into(), capacity: 2, refill_per_second: 0.001 }];
        for remaining in [1, 0] {
            assert_eq!(counters.take("t", &buckets).await.unwrap(), DrawOutcome::Granted { remaining });
            let other = counters.take("other", &buckets).await.unwrap();
            assert_eq!(other, DrawOutcome::Granted { remaining: 77 });
        }
        assert_eq!(shared.asked.load(Ordering::Relaxed), 3, "the lost one once");
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_shared_counters_are_away_each_process_admits_a_limit_and_one_call_a_second_looks() {
        let shared = Arc::new(Shared::default());
        let counters = WithFallback::new(shared.clone());
        let buckets = [Bucket { key: "k".into(), capacity: 2, refill_per_second: 0.001 }];
        let take = || async { counters.take("t", &buckets).await.unwrap() };
        assert_eq!(take().await, DrawOutcome::Granted { remaining: 77 });

        shared.away.store(true, Ordering::Relaxed);
        assert_eq!(take().await, DrawOutcome::Granted { remaining: 1 });
        assert_eq!(take().await, DrawOutcome::Granted { remaining: 0 });
        for _ in 0..100 {
            assert!(matches!(take().await, DrawOutcome::Denied { .. }));
        }
        assert_eq!(shared.asked.load(Ordering::Relaxed), 2, "the first, and the one that failed");
        tokio::time::advance(PROBE_EVERY).await;
        for _ in 0..100 {
            assert!(matches!(take().await, DrawOutcome::Denied { .. }));
        }
        assert_eq!(shared.asked.load(Ordering::Relaxed), 3);

        shared.away.store(false, Ordering::Relaxed);
        assert!(matches!(take().await, DrawOutcome::Denied { .. }), "nobody has looked yet");
        tokio::time::advance(PROBE_EVERY).await;
        for _ in 0..10 {
            assert_eq!(take().await, DrawOutcome::Granted { remaining: 77 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_to_what_was_asked_before_brings_nothing_back() {
        let shared = Arc::new(Shared::default());
        let counters = Arc::new(WithFallback::new(shared.clone()));
        let bucket = |key: &str| [Bucket { key: key.into(), capacity: 2, refill_per_second: 0.001 }];
        let asking = counters.clone();
        let slow = tokio::spawn(async move { asking.take("t", &bucket("slow")).await.unwrap() });
        tokio::task::yield_now().await;
        shared.away.store(true, Ordering::Relaxed);
        assert_eq!(counters.take("t", &bucket("k")).await.unwrap(), DrawOutcome::Granted { remaining: 1 });
        shared.go.notify_one();
        assert_eq!(slow.await.unwrap(), DrawOutcome::Granted { remaining: 55 });
        let asked = shared.asked.load(Ordering::Relaxed);
        assert_eq!(counters.take("t", &bucket("k")).await.unwrap(), DrawOutcome::Granted { remaining: 0 });
        assert_eq!(shared.asked.load(Ordering::Relaxed), asked, "nobody asks before it is time to look");
    }
}
