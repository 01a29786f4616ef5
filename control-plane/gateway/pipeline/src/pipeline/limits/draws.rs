//! Draws of a granted call, to give them back.
//!
//! Keeps true: a slot is held while its call runs, however that ends, and for a bounded time after its gateway is lost; a draw is
//! given back at most once.

use std::sync::Arc;
use std::time::Duration;

use asp_store::counter::{Bucket, Counters, EVERY_ORG, Slices};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Time for which a slot is held without a word of its gateway.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Interval at which a gateway extends the leases of the slots that its calls hold.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Draws of one call.
pub(super) struct Draws {
    counters: Arc<dyn Counters>,
    slices: Arc<Slices>,
    org: String,
    /// Unix milliseconds.
    drawn_ms: u64,
    of_org: Vec<Bucket>,
    of_every_org: Vec<Bucket>,
    /// Task that extends the leases of slots.
    renewal: Option<AbortHandle>,
}

impl Draws {
    pub(super) fn new(
        (counters, slices): (Arc<dyn Counters>, Arc<Slices>),
        org: &str,
        drawn_ms: u64,
        (of_org, of_every_org): (Vec<Bucket>, Vec<Bucket>),
    ) -> Draws {
        let org = org.to_owned();
        let mut draws = Draws { counters, slices, org, drawn_ms, of_org, of_every_org, renewal: None };
        draws.renewal = draws.renew_slots();
        draws
    }

    /// Starts to extend the leases of the slots, if there are any.
    fn renew_slots(&self) -> Option<AbortHandle> {
        let mut all = self.of_org.iter().chain(&self.of_every_org);
        if !all.any(Bucket::is_slots) {
            return None;
        }
        let held = self.slots();
        let counters = Arc::clone(&self.counters);
        let renewing = async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                for (tenant, slots) in held.iter().filter(|(_, slots)| !slots.is_empty()) {
                    // The next attempt is before the lease ends.
                    let _ = counters.renew(tenant, slots).await;
                }
            }
        };
        Handle::try_current().ok().map(|runtime| runtime.spawn(renewing).abort_handle())
    }

    /// Returns the slots by their tenant.
    fn slots(&self) -> [(String, Vec<Bucket>); 2] {
        let of = |buckets: &[Bucket]| buckets.iter().filter(|bucket| bucket.is_slots()).cloned().collect();
        [(self.org.clone(), of(&self.of_org)), (EVERY_ORG.to_owned(), of(&self.of_every_org))]
    }

    /// Gives all draws back.
    pub(super) async fn refund(mut self) {
        let (of_org, of_every_org) =
            (std::mem::take(&mut self.of_org), std::mem::take(&mut self.of_every_org));
        // Without an answer a slot is held until its lease ends, and a token comes back by itself.
        if !of_org.is_empty() {
            let _ = self.counters.give_back(&self.org, &of_org, self.drawn_ms).await;
        }
        if !of_every_org.is_empty() {
            let _ = self.slices.give_back(&of_every_org, self.drawn_ms).await;
        }
    }

    /// Gives the slots back before the call's answer, so that its client's next call finds them free.
    pub(super) async fn release(mut self) {
        if self.renewal.is_none() {
            return;
        }
        let held = self.slots();
        (self.of_org, self.of_every_org) = (Vec::new(), Vec::new());
        for (tenant, slots) in held.iter().filter(|(_, slots)| !slots.is_empty()) {
            let _ = self.counters.give_back(tenant, slots, self.drawn_ms).await;
        }
    }
}

impl Drop for Draws {
    fn drop(&mut self) {
        let Some(renewal) = self.renewal.take() else { return };
        renewal.abort();
        let drawn_ms = self.drawn_ms;
        for (tenant, slots) in self.slots() {
            if slots.is_empty() || self.counters.give_back_now(&tenant, &slots) {
                continue;
            }
            let counters = Arc::clone(&self.counters);
            let giving = async move { counters.give_back(&tenant, &slots, drawn_ms).await };
            // Without a runtime the gateway ends, and so does the lease.
            if let Ok(runtime) = Handle::try_current() {
                drop(runtime.spawn(giving));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_store::counter::{BucketKind, DrawOutcome, MemoryCounters};

    use super::*;

    fn buckets() -> Vec<Bucket> {
        let slot = BucketKind::Slots { holder: "h".into(), lease_ms: 30_000 };
        let bucket = |key: &str, kind: BucketKind| Bucket {
            key: key.into(),
            capacity: 1,
            refill_per_second: 1e-9,
            kind,
        };
        vec![bucket("tokens", BucketKind::Tokens), bucket("slots", slot)]
    }

    async fn drawn(counters: &Arc<dyn Counters>) -> Draws {
        let taken = counters.take("acme", &buckets()).await.unwrap();
        assert!(matches!(taken, DrawOutcome::Granted { .. }), "{taken:?}");
        let slices = Arc::new(Slices::new(counters.clone()));
        Draws::new((counters.clone(), slices), "acme", 0, (buckets(), Vec::new()))
    }

    async fn is_free(counters: &Arc<dyn Counters>, of: usize) -> bool {
        let mut other = buckets().swap_remove(of);
        if let BucketKind::Slots { holder, .. } = &mut other.kind {
            *holder = "other".into();
        }
        matches!(counters.take("acme", &[other]).await, Ok(DrawOutcome::Granted { .. }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_refund_gives_back_all_and_the_end_of_a_call_its_slots() {
        let counters: Arc<dyn Counters> = Arc::new(MemoryCounters::default());
        drawn(&counters).await.refund().await;
        drawn(&counters).await.release().await;
        assert!(is_free(&counters, 1).await && !is_free(&counters, 0).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_held_beyond_its_lease_while_its_call_runs() {
        let counters: Arc<dyn Counters> = Arc::new(MemoryCounters::default());
        let draws = drawn(&counters).await;
        for _ in 0..10 {
            tokio::time::sleep(LEASE / 2).await;
            assert!(!is_free(&counters, 1).await);
        }
        drop(draws);
        assert!(is_free(&counters, 1).await, "whoever drops it");
    }
}
