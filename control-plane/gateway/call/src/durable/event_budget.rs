//! Budgets of the event store that one org, and all orgs together, may fill from all gateways (I-4).
//!
//! Keeps true: budgets are counted in the store of the limits, for all gateways that share it, and by each gateway
//! alone while that is unavailable; a gateway draws blocks, so that few batches wait for an answer, and one block at a
//! time, however many calls wait for it; large orgs leave a quarter of the total budget to small ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_store::counter::{Bucket, BucketKind, Counters, DrawOutcome};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that a gateway draws from a budget at a time; it may keep as much unused.
const BLOCK: usize = 1 << 20;
/// Maximum number of blocks that calls of one org write within the time for which they are kept; at most twice as much
/// is stored.
const BLOCKS: u32 = 64;
/// Blocks within the window beyond which an org counts as large. An org that writes little takes fewer, even if its calls are at
/// many gateways.
const LARGE_BEYOND: u32 = 16;
/// Name of the budget of all orgs together. No org has such a name.
const ALL: &str = "\u{0}all";
/// Name of the budget of all large orgs together, three quarters of the total.
const LARGE: &str = "\u{0}large";

/// Budgets of several orgs that bound one of them.
pub(super) type CommonBudgets = &'static [&'static str];

/// The budgets of orgs, as far as this gateway has drawn from them.
pub(super) struct EventBudgets {
    counters: Arc<dyn Counters>,
    window: Duration,
    /// Blocks that all orgs together may write at once, and again within the window.
    blocks_of_all: u32,
    /// Budgets by the name of their org; those of several orgs by [`ALL`] and [`LARGE`].
    budgets: Mutex<HashMap<String, BudgetLevel>>,
}

struct BudgetLevel {
    /// Bytes that were drawn and not written.
    left: usize,
    /// Time until which the org counts as large.
    large_until: Option<Instant>,
    /// Time at which the last block was granted or denied.
    asked_at: Instant,
    paused_until: Option<Instant>,
    /// Held by the call that draws a block.
    drawing: Arc<tokio::sync::Mutex<()>>,
}

impl EventBudgets {
    /// Creates budgets of which all orgs together write at most `bytes_of_all` within any window.
    pub(super) fn within(window: Duration, bytes_of_all: u64, counters: Arc<dyn Counters>) -> EventBudgets {
        // A full budget is written at once, and the same amount is refilled within the window.
        let blocks = bytes_of_all / 2 / BLOCK as u64;
        let blocks_of_all = u32::try_from(blocks).unwrap_or(u32::MAX).max(1);
        EventBudgets { counters, window, blocks_of_all, budgets: Mutex::default() }
    }

    /// Takes bytes from the budget of an org, and from the shared ones that it returns; `Err`: time until which a
    /// budget is used up.
    pub(super) async fn take(&self, org: &str, bytes: usize) -> Result<CommonBudgets, Instant> {
        self.take_of(org, bytes).await?;
        let common = self.common(org);
        for (before, budget) in common.iter().enumerate() {
            if let Err(until) = self.take_of(budget, bytes).await {
                self.put_back(org, bytes);
                common.iter().take(before).for_each(|taken| self.put_back(taken, bytes));
                return Err(until);
            }
        }
        Ok(common)
    }

    /// The budgets of several orgs that bound this one too.
    fn common(&self, org: &str) -> CommonBudgets {
        let now = Instant::now();
        let large_until = self.budgets.lock().get(org).and_then(|level| level.large_until);
        if large_until.is_some_and(|until| now < until) { &[LARGE, ALL] } else { &[ALL] }
    }

    async fn take_of(&self, budget: &str, bytes: usize) -> Result<(), Instant> {
        while !self.spend(budget, bytes)? {
            let drawing = self.drawing(budget);
            let _drawing = drawing.lock().await;
            // The block that another call drew may be enough.
            if self.spend(budget, bytes)? {
                break;
            }
            self.take_block(budget).await;
        }
        Ok(())
    }

    fn drawing(&self, budget: &str) -> Arc<tokio::sync::Mutex<()>> {
        let now = Instant::now();
        let mut budgets = self.budgets.lock();
        if !budgets.contains_key(budget) {
            budgets.retain(|_, other| now < other.asked_at + self.window);
        }
        let none = || BudgetLevel {
            left: 0,
            large_until: None,
            asked_at: now,
            paused_until: None,
            drawing: Arc::default(),
        };
        budgets.entry(budget.to_owned()).or_insert_with(none).drawing.clone()
    }

    /// Takes bytes from what was drawn; false if this gateway must draw more first.
    fn spend(&self, budget: &str, bytes: usize) -> Result<bool, Instant> {
        let now = Instant::now();
        let mut budgets = self.budgets.lock();
        let Some(level) = budgets.get_mut(budget) else { return Ok(bytes == 0) };
        if let Some(until) = level.paused_until.filter(|until| now < *until) {
            return Err(until);
        }
        let is_enough = bytes <= level.left;
        if is_enough {
            level.left -= bytes;
        }
        Ok(is_enough)
    }

    async fn take_block(&self, budget: &str) {
        let drawn = self.draw(budget).await;
        let now = Instant::now();
        let mut budgets = self.budgets.lock();
        // Otherwise the share has long expired.
        let Some(level) = budgets.get_mut(budget) else { return };
        level.asked_at = now;
        match drawn {
            Some(is_beyond_little) => {
                level.left += BLOCK;
                level.paused_until = None;
                if is_beyond_little {
                    level.large_until = Some(now + self.window);
                }
            }
            // A call that begins again writes all that it has: not before there is much of the budget again.
            None => level.paused_until = Some(now + self.window),
        }
    }

    /// Draws a block; returns whether an org draws more than one that writes little, or `None` if there is no block.
    async fn draw(&self, budget: &str) -> Option<bool> {
        let blocks = match budget {
            ALL => self.blocks_of_all,
            LARGE => (self.blocks_of_all - self.blocks_of_all / 4).max(1),
            _ => BLOCKS,
        };
        let whole = self.bucket(format!("{budget}\u{0}events"), blocks);
        if matches!(budget, ALL | LARGE) {
            return self.draw_from(budget, &[whole]).await.is_ok().then_some(false);
        }
        // An org that writes evenly never empties its budget, and all the same uses up that of one that writes little.
        let little = self.bucket(format!("{budget}\u{0}events\u{0}little"), LARGE_BEYOND);
        match self.draw_from(budget, &[whole.clone(), little]).await {
            Ok(()) => Some(false),
            Err(Some(1)) => self.draw_from(budget, &[whole]).await.is_ok().then_some(true),
            Err(_) => None,
        }
    }

    /// Draws from all of the buckets or from none; `Err`: index of an empty one, if known.
    async fn draw_from(&self, budget: &str, buckets: &[Bucket]) -> Result<(), Option<usize>> {
        match self.counters.take(budget, buckets).await {
            Ok(DrawOutcome::Granted { .. }) => Ok(()),
            Ok(DrawOutcome::Denied { index, .. }) => Err(Some(index)),
            Err(_) => Err(None),
        }
    }

    fn bucket(&self, key: String, blocks: u32) -> Bucket {
        let refill_per_second = f64::from(blocks) / self.window.as_secs_f64();
        Bucket { key, capacity: u64::from(blocks), refill_per_second, kind: BucketKind::Tokens }
    }

    /// Gives back what was taken of an org's budget and of those `common` ones, and not written.
    pub(super) fn give_back(&self, org: &str, bytes: usize, common: CommonBudgets) {
        self.put_back(org, bytes);
        common.iter().for_each(|budget| self.put_back(budget, bytes));
    }

    fn put_back(&self, budget: &str, bytes: usize) {
        if let Some(level) = self.budgets.lock().get_mut(budget) {
            level.left = level.left.saturating_add(bytes);
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
    /// More than the orgs of a test write, for tests that are not about the total budget.
    const PLENTY: u64 = 1 << 30;

    impl EventBudgets {
        async fn takes(&self, org: &str, bytes: usize) -> Result<(), Instant> {
            self.take(org, bytes).await.map(|_| ())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_org_fills_its_own_budget_and_has_it_again_later() {
        let budgets = EventBudgets::within(WINDOW, PLENTY, Arc::new(MemoryCounters::default()));
        let free_at = Instant::now() + WINDOW;
        assert_eq!(budgets.takes("acme", MAX_BYTES).await, Ok(()));
        assert_eq!(budgets.takes("acme", 1).await, Err(free_at));
        assert_eq!(budgets.takes("other", MAX_BYTES).await, Ok(()));
        assert_eq!(budgets.takes("other", 1).await, Err(free_at));
        tokio::time::advance(WINDOW).await;
        assert_eq!(budgets.takes("acme", MAX_BYTES).await, Ok(()));
        assert_eq!(budgets.takes("third", 1).await, Ok(()));
        let mut known: Vec<String> = budgets.budgets.lock().keys().cloned().collect();
        known.sort_unstable();
        assert_eq!(known, [ALL, LARGE, "acme", "third"], "what is past is forgotten");
    }

    /// Counters that answer later, and count how often they are asked.
    #[derive(Default)]
    struct Slow {
        counters: MemoryCounters,
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Counters for Slow {
        async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.counters.take(tenant, buckets).await
        }
    }

    #[tokio::test]
    async fn calls_that_write_at_once_take_one_block() {
        let counters = Arc::new(Slow::default());
        let budgets = EventBudgets::within(WINDOW, PLENTY, counters.clone());
        let taken = join_all((0..2 * BLOCKS).map(|_| budgets.takes("acme", 1))).await;
        assert!(taken.iter().all(Result::is_ok));
        assert_eq!(counters.asked.load(Ordering::SeqCst), 2, "a block of the org's, and one of all orgs'");
    }

    #[tokio::test(start_paused = true)]
    async fn all_gateways_fill_one_budget() {
        let counters = Arc::new(MemoryCounters::default());
        let [one, other] = [(), ()].map(|()| EventBudgets::within(WINDOW, PLENTY, counters.clone()));
        assert_eq!(one.takes("acme", MAX_BYTES - BLOCK).await, Ok(()));
        assert_eq!(other.takes("acme", BLOCK - 1).await, Ok(()), "what is left");
        assert_eq!(other.takes("acme", 1).await, Ok(()), "of its block");
        for gateway in [&one, &other] {
            assert!(gateway.takes("acme", 1).await.is_err());
        }
        assert_eq!(other.takes("globex", MAX_BYTES).await, Ok(()), "another org has its own");
    }

    /// Invariant I-4: of 128 blocks at once, large orgs have 96.
    #[tokio::test(start_paused = true)]
    async fn all_orgs_fill_one_budget_of_which_large_ones_leave_a_part_to_the_others() {
        let counters = Arc::new(MemoryCounters::default());
        let of_all = 256 * BLOCK as u64;
        let [one, other] = [(), ()].map(|()| EventBudgets::within(WINDOW, of_all, counters.clone()));
        assert_eq!(one.takes("large", MAX_BYTES).await, Ok(()));
        assert_eq!(other.takes("larger", 32 * BLOCK).await, Ok(()), "what is left for large ones");
        let free_at = Instant::now() + WINDOW;
        assert_eq!(other.takes("larger", BLOCK).await, Err(free_at), "all large ones have used up theirs");
        assert_eq!(one.takes("small", 16 * BLOCK).await, Ok(()));
        assert_eq!(other.takes("smaller", 16 * BLOCK).await, Ok(()));
        for gateway in [&one, &other] {
            assert_eq!(gateway.takes("smallest", 1).await, Err(free_at), "all have used up theirs");
        }
        tokio::time::advance(WINDOW).await;
        assert_eq!(one.takes("smallest", 1).await, Ok(()));
        assert_eq!(other.takes("larger", MAX_BYTES).await, Ok(()));
    }

    /// Orgs that write evenly have as much again at any time as they have just written.
    #[tokio::test(start_paused = true)]
    async fn orgs_that_write_much_evenly_are_large_and_leave_a_part_to_the_others() {
        let of_all = 256 * BLOCK as u64;
        let budgets = EventBudgets::within(WINDOW, of_all, Arc::new(MemoryCounters::default()));
        let mut written = 0;
        for step in 0..200 {
            for org in ["one", "two", "three"] {
                written += usize::from(budgets.takes(org, BLOCK).await.is_ok());
            }
            assert_eq!(budgets.takes("small", 1).await, Ok(()), "step {step}");
            tokio::time::advance(WINDOW / 60).await;
        }
        assert!(written > 300, "they have most of it: {written}");
    }

    /// A block that is not used up is left for other orgs.
    #[tokio::test(start_paused = true)]
    async fn orgs_that_write_little_take_little_of_the_budget_of_all() {
        let budgets = EventBudgets::within(WINDOW, 2 * BLOCK as u64, Arc::new(MemoryCounters::default()));
        for org in 0..1_000 {
            assert_eq!(budgets.takes(&format!("org-{org}"), 1_000).await, Ok(()), "org {org}");
        }
        assert!(budgets.takes("another", BLOCK).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_store_did_not_take_counts_for_nothing() {
        let budgets = EventBudgets::within(WINDOW, PLENTY, Arc::new(MemoryCounters::default()));
        for _ in 0..100 {
            // As often as the store is asked in vain.
            let common = budgets.take("acme", MAX_BYTES).await.unwrap();
            budgets.give_back("acme", MAX_BYTES, common);
        }
        assert_eq!(budgets.takes("acme", MAX_BYTES).await, Ok(()));
        assert!(budgets.takes("acme", 1).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_before_an_org_was_large_is_given_back_to_no_budget_of_large_ones() {
        let budgets = EventBudgets::within(WINDOW, PLENTY, Arc::new(MemoryCounters::default()));
        let little = LARGE_BEYOND as usize * BLOCK;
        let common = budgets.take("acme", little).await.unwrap();
        assert_eq!(budgets.take("acme", BLOCK).await, Ok([LARGE, ALL].as_slice()));
        budgets.give_back("acme", little, common);
        let left = |budget: &str| budgets.budgets.lock()[budget].left;
        assert_eq!([ALL, LARGE, "acme"].map(left), [little, 0, little]);
    }
}
