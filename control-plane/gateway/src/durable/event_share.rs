//! The part of the store of events that one org may fill, from all gateways together (I-4).
//!
//! Keeps true: the budget of an org is counted where the limits are, for all gateways that share those, and by each gateway for itself
//! while they are away; a gateway takes it by the block, so that few batches wait for an answer, and one block at a time, however many
//! calls wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_store::counter::{Bucket, Counters, Taken};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that a gateway takes of a budget at a time; it may keep as much unused.
const BLOCK: usize = 1 << 20;
/// Maximum blocks that calls of one org write within the time for which they are kept; at most twice as much is there.
const BLOCKS: u32 = 64;

/// The budgets of orgs, as far as this gateway has taken them.
pub(super) struct EventShares {
    counters: Arc<dyn Counters>,
    window: Duration,
    shares: Mutex<HashMap<String, Share>>,
}

struct Share {
    /// Bytes that were taken and not written.
    left: usize,
    /// The last block was taken, or refused.
    asked_at: Instant,
    paused_until: Option<Instant>,
    /// Held by the call that asks for a block.
    turns: Arc<tokio::sync::Mutex<()>>,
}

impl EventShares {
    pub(super) fn within(window: Duration, counters: Arc<dyn Counters>) -> EventShares {
        EventShares { counters, window, shares: Mutex::default() }
    }

    /// Takes so many bytes of an org's budget; `Err`: there are no more before that moment.
    pub(super) async fn take(&self, org: &str, bytes: usize) -> Result<(), Instant> {
        while !self.spend(org, bytes)? {
            let turns = self.turns(org);
            let _turn = turns.lock().await;
            // The block of the call before may be enough.
            if self.spend(org, bytes)? {
                break;
            }
            self.take_block(org).await;
        }
        Ok(())
    }

    fn turns(&self, org: &str) -> Arc<tokio::sync::Mutex<()>> {
        let now = Instant::now();
        let mut shares = self.shares.lock();
        if !shares.contains_key(org) {
            shares.retain(|_, other| now < other.asked_at + self.window);
        }
        let none = || Share { left: 0, asked_at: now, paused_until: None, turns: Arc::default() };
        shares.entry(org.to_owned()).or_insert_with(none).turns.clone()
    }

    /// False if this gateway must take more first.
    fn spend(&self, org: &str, bytes: usize) -> Result<bool, Instant> {
        let now = Instant::now();
        let mut shares = self.shares.lock();
        let Some(share) = shares.get_mut(org) else { return Ok(bytes == 0) };
        if let Some(until) = share.paused_until.filter(|until| now < *until) {
            return Err(until);
        }
        let is_enough = bytes <= share.left;
        if is_enough {
            share.left -= bytes;
        }
        Ok(is_enough)
    }

    async fn take_block(&self, org: &str) {
        let bucket = Bucket {
            key: format!("{org}\u{0}events"),
            capacity: u64::from(BLOCKS),
            refill_per_second: f64::from(BLOCKS) / self.window.as_secs_f64(),
        };
        let taken = self.counters.take(org, &[bucket]).await;
        let now = Instant::now();
        let mut shares = self.shares.lock();
        // Else it is long past its time.
        let Some(share) = shares.get_mut(org) else { return };
        share.asked_at = now;
        match taken {
            Ok(Taken::Granted { .. }) => {
                share.left += BLOCK;
                share.paused_until = None;
            }
            // A call that begins again writes all that it has: not before there is much of the budget again.
            Ok(Taken::Denied { .. }) | Err(_) => share.paused_until = Some(now + self.window),
        }
    }

    /// Gives back what was taken and not written.
    pub(super) fn give_back(&self, org: &str, bytes: usize) {
        if let Some(share) = self.shares.lock().get_mut(org) {
            share.left = share.left.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asp_store::counter::{CounterError, MemoryCounters};
    use async_trait::async_trait;
    use futures::future::join_all;

    use super::*;

    const MAX_BYTES: usize = BLOCKS as usize * BLOCK;
    const WINDOW: Duration = Duration::from_secs(180);

    #[tokio::test(start_paused = true)]
    async fn an_org_fills_its_own_budget_and_has_it_again_later() {
        let shares = EventShares::within(WINDOW, Arc::new(MemoryCounters::default()));
        let free_at = Instant::now() + WINDOW;
        assert_eq!(shares.take("acme", MAX_BYTES).await, Ok(()));
        assert_eq!(shares.take("acme", 1).await, Err(free_at));
        assert_eq!(shares.take("other", MAX_BYTES).await, Ok(()));
        assert_eq!(shares.take("other", 1).await, Err(free_at));
        tokio::time::advance(WINDOW).await;
        assert_eq!(shares.take("acme", MAX_BYTES).await, Ok(()));
        assert_eq!(shares.take("third", 1).await, Ok(()));
        assert_eq!(shares.shares.lock().len(), 2, "what is past is forgotten");
    }

    /// Counters that answer later, and count how often they are asked.
    #[derive(Default)]
    struct Slow {
        counters: MemoryCounters,
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Counters for Slow {
        async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<Taken, CounterError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.counters.take(tenant, buckets).await
        }
    }

    #[tokio::test]
    async fn calls_that_write_at_once_take_one_block() {
        let counters = Arc::new(Slow::default());
        let shares = EventShares::within(WINDOW, counters.clone());
        let taken = join_all((0..2 * BLOCKS).map(|_| shares.take("acme", 1))).await;
        assert!(taken.iter().all(Result::is_ok));
        assert_eq!(counters.asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn all_gateways_fill_one_budget() {
        let counters = Arc::new(MemoryCounters::default());
        let [one, other] = [(), ()].map(|()| EventShares::within(WINDOW, counters.clone()));
        assert_eq!(one.take("acme", MAX_BYTES - BLOCK).await, Ok(()));
        assert_eq!(other.take("acme", BLOCK - 1).await, Ok(()), "what is left");
        assert_eq!(other.take("acme", 1).await, Ok(()), "of its block");
        for gateway in [&one, &other] {
            assert!(gateway.take("acme", 1).await.is_err());
        }
        assert_eq!(other.take("globex", MAX_BYTES).await, Ok(()), "another org has its own");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_store_did_not_take_counts_for_nothing() {
        let shares = EventShares::within(WINDOW, Arc::new(MemoryCounters::default()));
        for _ in 0..100 {
            assert_eq!(
                shares.take("acme", MAX_BYTES).await,
                Ok(()),
                "as often as the store is asked in vain"
            );
            shares.give_back("acme", MAX_BYTES);
        }
        assert_eq!(shares.take("acme", MAX_BYTES).await, Ok(()));
        assert!(shares.take("acme", 1).await.is_err());
    }
}
