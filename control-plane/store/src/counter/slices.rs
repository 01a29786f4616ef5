//! Draws from limits that all orgs share: each gateway leases slices of large buckets, and spends them by itself.
//!
//! Keeps true: tokens in slices were taken from their bucket, whose capacity is smaller by the most that all gateways may hold, so
//! that no such limit admits more than its own capacity and refill. A slice does not end: one that is not spent costs at most a
//! sixteenth of the capacity.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Bucket, BucketKind, CounterError, Counters, DrawOutcome, UNCOUNTED};

/// Name of the tenant of limits that all orgs share; no org has it.
pub const EVERY_ORG: &str = "*";
/// Part of a bucket's capacity that all gateways together may hold in slices.
const RESERVE: u64 = 16;
/// Maximum number of tokens in a slice.
const MAX_SLICE: u64 = 1_000;
/// Maximum number of buckets with slices; further ones are drawn from directly.
const MAX_SLICED: usize = 10_000;

/// Slices of one gateway.
pub struct Slices {
    counters: Arc<dyn Counters>,
    /// Tokens left, by bucket.
    held: Mutex<HashMap<String, u64>>,
}

impl Slices {
    pub fn new(counters: Arc<dyn Counters>) -> Slices {
        Slices { counters, held: Mutex::default() }
    }

    /// Draws from every bucket of all orgs, or from none.
    pub async fn take(&self, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        let gateways = self.counters.share().gateways.max(1);
        let mut spent = Vec::new();
        let mut direct = Vec::new();
        let mut refused = None;
        for (index, bucket) in buckets.iter().enumerate() {
            let Some((reduced, size)) = sliced(bucket, gateways).filter(|_| self.has_room(&bucket.key))
            else {
                direct.push(index);
                continue;
            };
            if self.spend(&bucket.key) {
                spent.push((&bucket.key, size));
                continue;
            }
            match self.counters.take_many(EVERY_ORG, &reduced, size).await? {
                0 => {
                    refused = Some((index, reduced, size));
                    break;
                }
                taken => {
                    self.keep(&bucket.key, taken.saturating_sub(1), size);
                    spent.push((&bucket.key, size));
                }
            }
        }
        let drawn = match refused {
            Some((index, reduced, size)) => self.wait_for(index, &reduced, size).await,
            None => self.take_directly(buckets, &direct).await,
        };
        if !matches!(drawn, Ok(DrawOutcome::Granted { .. })) {
            spent.into_iter().for_each(|(key, size)| self.keep(key, 1, size));
        }
        drawn
    }

    /// Gives a draw back that was granted at this Unix time.
    pub async fn give_back(&self, buckets: &[Bucket], drawn_ms: u64) -> Result<(), CounterError> {
        let gateways = self.counters.share().gateways.max(1);
        let mut direct = Vec::new();
        for bucket in buckets {
            match sliced(bucket, gateways) {
                // A token of a window may be spent in a later one: fewer are drawn from that.
                Some((_, size)) if self.held.lock().contains_key(&bucket.key) => {
                    self.keep(&bucket.key, 1, size);
                }
                _ => direct.push(bucket.clone()),
            }
        }
        if direct.is_empty() {
            return Ok(());
        }
        self.counters.give_back(EVERY_ORG, &direct, drawn_ms).await
    }

    /// Asks how long an empty bucket takes; a token that has come back since stays in the slice.
    async fn wait_for(&self, index: usize, reduced: &Bucket, size: u64) -> Result<DrawOutcome, CounterError> {
        match self.counters.take(EVERY_ORG, std::slice::from_ref(reduced)).await? {
            DrawOutcome::Granted { .. } => {
                self.keep(&reduced.key, 1, size);
                Ok(DrawOutcome::Denied { index, retry_after_ms: 1 })
            }
            DrawOutcome::Denied { retry_after_ms, .. } => Ok(DrawOutcome::Denied { index, retry_after_ms }),
        }
    }

    /// Draws from the buckets at these places without slices.
    async fn take_directly(&self, all: &[Bucket], places: &[usize]) -> Result<DrawOutcome, CounterError> {
        let buckets: Vec<Bucket> = places.iter().filter_map(|place| all.get(*place).cloned()).collect();
        if buckets.is_empty() {
            return Ok(DrawOutcome::Granted { remaining: UNCOUNTED });
        }
        match self.counters.take(EVERY_ORG, &buckets).await? {
            DrawOutcome::Denied { index, retry_after_ms } => {
                let index = places.get(index).copied().unwrap_or_default();
                Ok(DrawOutcome::Denied { index, retry_after_ms })
            }
            granted @ DrawOutcome::Granted { .. } => Ok(granted),
        }
    }

    /// Spends a token of the slice, if there is one.
    fn spend(&self, key: &str) -> bool {
        match self.held.lock().get_mut(key) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Adds tokens to the slice. What exceeds its size is lost, so that all gateways hold no more than they may.
    fn keep(&self, key: &str, tokens: u64, size: u64) {
        let mut held = self.held.lock();
        let left = held.entry(key.to_owned()).or_default();
        *left = left.saturating_add(tokens).min(size);
    }

    /// Whether the bucket has a slice or can have one. Buckets without tokens are forgotten first.
    fn has_room(&self, key: &str) -> bool {
        let mut held = self.held.lock();
        if held.len() < MAX_SLICED || held.contains_key(key) {
            return true;
        }
        held.retain(|_, left| *left > 0);
        held.len() < MAX_SLICED
    }
}

/// Returns the bucket without the part that gateways may hold, and the number of tokens in a slice; `None` if the bucket is too
/// small, or of a kind that cannot be leased.
fn sliced(bucket: &Bucket, gateways: u64) -> Option<(Bucket, u64)> {
    if !matches!(bucket.kind, BucketKind::Tokens | BucketKind::Fixed { .. }) {
        return None;
    }
    let reserve = bucket.capacity / RESERVE;
    let size = (reserve / gateways).min(MAX_SLICE);
    let reduced = Bucket { capacity: bucket.capacity.saturating_sub(reserve), ..bucket.clone() };
    (size > 1).then_some((reduced, size))
}

#[cfg(test)]
mod tests {
    use super::super::MemoryCounters;
    use super::*;

    fn bucket(capacity: u64) -> Bucket {
        Bucket { key: "all".into(), capacity, refill_per_second: 1e-6, ..Bucket::default() }
    }

    /// Gateways in turn draw until all are refused.
    async fn admitted(gateways: &[Slices], bucket: &Bucket) -> u64 {
        let mut admitted = 0;
        loop {
            let before = admitted;
            for gateway in gateways {
                let drawn = gateway.take(std::slice::from_ref(bucket)).await.unwrap();
                admitted += u64::from(matches!(drawn, DrawOutcome::Granted { .. }));
            }
            if admitted == before {
                return admitted;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn gateways_with_slices_admit_no_more_than_the_limit() {
        for capacity in [1, 5, 63, 100, 1_000, 40_000] {
            let counters: Arc<dyn Counters> = Arc::new(MemoryCounters::default());
            let gateways: Vec<Slices> = (0..4).map(|_| Slices::new(counters.clone())).collect();
            let admitted = admitted(&gateways, &bucket(capacity)).await;
            assert!(admitted <= capacity, "{admitted} of {capacity}");
            assert!(admitted >= capacity - capacity / RESERVE, "{admitted} of {capacity}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_draw_leaves_the_other_buckets_as_they_were() {
        let slices = Slices::new(Arc::new(MemoryCounters::default()));
        let small = Bucket { key: "small".into(), ..bucket(1) };
        let both = [bucket(1_600), small];
        assert!(matches!(slices.take(&both).await, Ok(DrawOutcome::Granted { .. })));
        let before = slices.held.lock()["all"];
        for _ in 0..3 {
            assert!(matches!(slices.take(&both).await, Ok(DrawOutcome::Denied { index: 1, .. })));
        }
        assert_eq!(slices.held.lock()["all"], before);
        for _ in 0..3 {
            slices.give_back(&[bucket(1_600)], 0).await.unwrap();
            assert_eq!(slices.held.lock()["all"], before + 1, "no more than a slice");
        }
    }
}
