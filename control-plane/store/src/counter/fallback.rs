//! Counters that several processes share, with a local fallback.
//!
//! Keeps true: no call waits for a shard that is known to be unavailable, except one probe a second. While it is
//! unavailable, each process counts its tenants by itself and admits its share of each limit, less what it has just admitted: all
//! together admit no more than the limit, as far as they know of each other. A change of availability adds at most one capacity.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_platform::clock::now_ms;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Bucket, CounterError, Counters, DrawOutcome, GatewayShare, Membership, MemoryCounters};
use crate::availability::{Attempt, Availability};

/// Interval at which a gateway records that it is there, and learns of the others.
const ENTER_EVERY: Duration = Duration::from_secs(1);
/// Time after which a gateway that says nothing has no share any more.
const LEASE: Duration = Duration::from_secs(30);
/// Wait that is proposed to a caller whose limit has fewer calls than there are gateways.
const NO_SHARE_WAIT_MS: u64 = 1000;

/// Shared counters, and this process's own while those are unavailable.
pub struct WithFallback {
    shared: Arc<dyn Counters>,
    own: MemoryCounters,
    availability: Availability,
    share: Mutex<GatewayShare>,
    /// Unix milliseconds of the last change of availability.
    changed_ms: AtomicU64,
}

impl WithFallback {
    pub fn new(shared: Arc<dyn Counters>) -> WithFallback {
        WithFallback {
            shared,
            own: MemoryCounters::default(),
            availability: Availability::default(),
            share: Mutex::default(),
            changed_ms: AtomicU64::new(0),
        }
    }

    /// Records this gateway among the others, until this is dropped. Needs a running tokio runtime.
    pub fn join(self: &Arc<WithFallback>, others: Arc<dyn Membership>, gateway: String) {
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(this) = this.upgrade() {
                // While the others are unknown, it keeps to the number that it knew last.
                if let Ok(share) = others.enter(&gateway, LEASE).await {
                    this.set_share(share);
                }
                drop(this);
                tokio::time::sleep(ENTER_EVERY).await;
            }
        });
    }

    pub fn set_share(&self, share: GatewayShare) {
        let before = std::mem::replace(&mut *self.share.lock(), share);
        if before.gateways != share.gateways {
            tracing::info!(gateways = share.gateways, "limits are shared by another number of gateways");
        }
    }

    /// Returns this gateway's parts of buckets, without those of which it has none.
    fn parts(&self, buckets: &[Bucket]) -> Vec<Bucket> {
        let share = self.share();
        buckets.iter().filter_map(|bucket| share.of(bucket)).collect()
    }

    /// Draws from this gateway's parts.
    async fn take_own(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        let parts = self.parts(buckets);
        if parts.len() < buckets.len() {
            let share = self.share();
            let index = buckets.iter().position(|bucket| share.of(bucket).is_none()).unwrap_or_default();
            return Ok(DrawOutcome::Denied { index, retry_after_ms: NO_SHARE_WAIT_MS });
        }
        self.own.take(tenant, &parts).await
    }

    /// Sends a request to the shared counters; `None` if they are unavailable.
    async fn ask<T>(
        &self,
        tenant: &str,
        asking: impl Future<Output = Result<T, CounterError>> + Send,
    ) -> Option<T> {
        let shard = self.shared.shard(tenant);
        let attempt = self.availability.attempt(shard)?;
        match asking.await {
            Ok(answer) => {
                self.answered(shard, attempt);
                Some(answer)
            }
            Err(error) => {
                self.failed(shard, &error);
                None
            }
        }
    }

    fn answered(&self, shard: u64, attempt: Attempt) {
        if self.availability.answered(shard, attempt) {
            self.changed_ms.store(now_ms(), Ordering::Relaxed);
            tracing::info!("limits count for all gateways together again");
        }
    }

    fn failed(&self, shard: u64, error: &CounterError) {
        if self.availability.failed(shard) {
            self.changed_ms.store(now_ms(), Ordering::Relaxed);
            let GatewayShare { gateways, .. } = self.share();
            tracing::warn!(
                %error,
                gateways,
                "limits count for this gateway alone where the shared counters do not answer: each gateway admits its share of a limit"
            );
        }
    }
}

#[async_trait]
impl Counters for WithFallback {
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        match self.ask(tenant, self.shared.take(tenant, buckets)).await {
            Some(drawn) => {
                if matches!(drawn, DrawOutcome::Granted { .. }) {
                    self.own.draw_each(tenant, &self.parts(buckets));
                }
                Ok(drawn)
            }
            None => self.take_own(tenant, buckets).await,
        }
    }

    async fn give_back(&self, tenant: &str, buckets: &[Bucket], drawn_ms: u64) -> Result<(), CounterError> {
        self.own.give_back(tenant, &self.parts(buckets), drawn_ms).await?;
        // Tokens of a draw before the last change may be another counter's.
        let is_of_now = drawn_ms > self.changed_ms.load(Ordering::Relaxed);
        let shared: Vec<Bucket> =
            buckets.iter().filter(|bucket| is_of_now || bucket.is_slots()).cloned().collect();
        if !shared.is_empty() {
            self.ask(tenant, self.shared.give_back(tenant, &shared, drawn_ms)).await;
        }
        Ok(())
    }

    async fn renew(&self, tenant: &str, buckets: &[Bucket]) -> Result<(), CounterError> {
        self.own.renew(tenant, &self.parts(buckets)).await?;
        self.ask(tenant, self.shared.renew(tenant, buckets)).await;
        Ok(())
    }

    async fn take_many(&self, tenant: &str, bucket: &Bucket, count: u64) -> Result<u64, CounterError> {
        match self.ask(tenant, self.shared.take_many(tenant, bucket, count)).await {
            Some(taken) => {
                let part = self.parts(std::slice::from_ref(bucket));
                (0..taken).for_each(|_| self.own.draw_each(tenant, &part));
                Ok(taken)
            }
            None => {
                let drawn = self.take_own(tenant, std::slice::from_ref(bucket)).await?;
                Ok(u64::from(count > 0 && matches!(drawn, DrawOutcome::Granted { .. })))
            }
        }
    }

    fn share(&self) -> GatewayShare {
        *self.share.lock()
    }

    fn shard(&self, tenant: &str) -> u64 {
        self.shared.shard(tenant)
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

    fn bucket(key: &str) -> Bucket {
        Bucket { key: key.into(), capacity: 2, refill_per_second: 0.001, ..Bucket::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_gateway_admits_its_share_less_what_it_has_admitted_before() {
        let shared = Arc::new(Shared::default());
        let gateways: Vec<WithFallback> = (0..3)
            .map(|rank| {
                let gateway = WithFallback::new(shared.clone());
                gateway.set_share(GatewayShare { gateways: 3, rank });
                gateway
            })
            .collect();
        let ten = [Bucket { capacity: 10, ..bucket("k") }];
        for _ in 0..2 {
            gateways[1].take("t", &ten).await.unwrap();
        }
        shared.away.store(true, Ordering::Relaxed);
        let mut admitted = Vec::new();
        for gateway in &gateways {
            let mut count = 0;
            while matches!(gateway.take("t", &ten).await.unwrap(), DrawOutcome::Granted { .. }) {
                count += 1;
            }
            admitted.push(count);
        }
        assert_eq!(admitted, [4, 1, 3], "10 in all, less the 2 before");
        let one = [Bucket { capacity: 1, ..bucket("one") }];
        let mut admitted = Vec::new();
        for gateway in &gateways {
            admitted.push(matches!(gateway.take("t", &one).await.unwrap(), DrawOutcome::Granted { .. }));
        }
        assert_eq!(admitted, [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_tenants_of_a_lost_shard_are_counted_here() {
        let shared = Arc::new(Shared::default());
        shared.lost.store(1, Ordering::Relaxed);
        let counters = WithFallback::new(shared.clone());
        let buckets = [bucket("k")];
        for remaining in [1, 0] {
            assert_eq!(counters.take("t", &buckets).await.unwrap(), DrawOutcome::Granted { remaining });
            let other = counters.take("other", &buckets).await.unwrap();
            assert_eq!(other, DrawOutcome::Granted { remaining: 77 });
        }
        assert_eq!(shared.asked.load(Ordering::Relaxed), 3, "the lost one once");
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_shared_counters_are_away_a_process_admits_its_share_and_one_call_a_second_looks() {
        let shared = Arc::new(Shared::default());
        let counters = WithFallback::new(shared.clone());
        let buckets = [bucket("k")];
        let take = || async { counters.take("t", &buckets).await.unwrap() };
        assert_eq!(take().await, DrawOutcome::Granted { remaining: 77 });

        shared.away.store(true, Ordering::Relaxed);
        assert_eq!(take().await, DrawOutcome::Granted { remaining: 0 }, "one was admitted just now");
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
        let bucket = |key: &str| [bucket(key)];
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
