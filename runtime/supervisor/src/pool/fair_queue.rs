//! The queue of a busy plugin: one queue per tenant, served by deficit round robin.
//!
//! A pure data structure. An item costs what its tenant's calls have cost recently (milliseconds of a worker), so a
//! tenant with long calls gets as much worker time as one with short calls, not as many calls.
//! Bounds: a tenant queues at most `per_tenant` items, all tenants together twice that. When the total is reached, an
//! item of the longest queue is dropped for one of a shorter queue.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Budget of a tenant in one round, in milliseconds of a worker.
const QUANTUM: f64 = 50.0;
/// Bounds of an item's cost: no call is free, and one slow call must not lock its tenant out for long.
const COST: std::ops::RangeInclusive<f64> = 1.0..=10_000.0;
/// Weight of the latest call in a tenant's mean cost.
const ALPHA: f64 = 0.2;
/// Maximum number of tenants whose costs are remembered while they queue nothing.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug)]
pub struct FairQueue<T> {
    per_tenant: usize,
    /// Queues of the tenants that have items.
    queues: BTreeMap<String, TenantQueue<T>>,
    /// Tenants of `queues` in the order of service.
    round: VecDeque<String>,
    costs: BTreeMap<String, f64>,
    length: usize,
}

#[derive(Debug)]
struct TenantQueue<T> {
    items: VecDeque<T>,
    deficit: f64,
    /// Whether the tenant has received its quantum of this round.
    visited: bool,
}

/// Reason why an item was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The tenant has too many items.
    Tenant,
    /// All tenants together have too many, and no other queue is longer than this tenant's.
    All,
}

impl<T> FairQueue<T> {
    pub fn new(per_tenant: usize) -> FairQueue<T> {
        FairQueue {
            per_tenant,
            queues: BTreeMap::new(),
            round: VecDeque::new(),
            costs: BTreeMap::new(),
            length: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Queues an item. Returns the item that was dropped for it, if any.
    pub fn push(&mut self, tenant: &str, item: T) -> Result<Option<T>, Overflow> {
        let own = self.queues.get(tenant).map_or(0, |queue| queue.items.len());
        if own >= self.per_tenant {
            return Err(Overflow::Tenant);
        }
        let mut displaced = None;
        if self.length >= self.per_tenant * 2 {
            let longest = self.queues.iter().max_by_key(|(_, queue)| queue.items.len());
            match longest {
                Some((name, queue)) if queue.items.len() > own + 1 => {
                    let name = name.clone();
                    displaced = self.drop_newest(&name);
                }
                _ => return Err(Overflow::All),
            }
        }
        match self.queues.get_mut(tenant) {
            Some(queue) => queue.items.push_back(item),
            None => {
                let queue = TenantQueue { items: VecDeque::from([item]), deficit: 0.0, visited: false };
                self.queues.insert(tenant.to_owned(), queue);
                self.round.push_back(tenant.to_owned());
            }
        }
        self.length += 1;
        Ok(displaced)
    }

    /// Removes and returns the next item for which `fits` holds; a tenant whose first item does not fit is skipped.
    pub fn pop(&mut self, mut fits: impl FnMut(&T) -> bool) -> Option<T> {
        let mut waiting = 0;
        while waiting < self.round.len() {
            let tenant = self.round.front()?.clone();
            let cost = self.cost(&tenant);
            let queue = self.queues.get_mut(&tenant)?;
            if !queue.items.front().is_some_and(&mut fits) {
                // A full rotation over such tenants leaves the round as it was.
                self.round.rotate_left(1);
                waiting += 1;
                continue;
            }
            if !std::mem::replace(&mut queue.visited, true) {
                queue.deficit += QUANTUM;
            }
            if queue.deficit < cost {
                // This ends: every round adds to the deficit, and a cost is bounded.
                queue.visited = false;
                self.round.rotate_left(1);
                waiting = 0;
                continue;
            }
            queue.deficit -= cost;
            return self.take_first(&tenant);
        }
        None
    }

    /// Removes every item for which `wanted` holds.
    pub fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for queue in self.queues.values_mut() {
            // The usual case; this runs on every pump of the pool.
            if !queue.items.iter().any(&mut wanted) {
                continue;
            }
            for item in std::mem::take(&mut queue.items) {
                if wanted(&item) {
                    removed.push(item);
                } else {
                    queue.items.push_back(item);
                }
            }
        }
        if !removed.is_empty() {
            self.length -= removed.len();
            self.forget_empty();
        }
        removed
    }

    /// Iterates over every item, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.values().flat_map(|queue| queue.items.iter())
    }

    /// Iterates over every item with its position in the order of service, from 1; a close estimate when costs differ.
    pub fn positions(&self) -> impl Iterator<Item = (&T, usize)> {
        // Number of items that are served before the n-th of any tenant: the first n of every tenant.
        let mut in_turn: Vec<usize> = Vec::new();
        for queue in self.queues.values() {
            in_turn.resize(in_turn.len().max(queue.items.len()), 0);
            in_turn.iter_mut().take(queue.items.len()).for_each(|tenants| *tenants += 1);
        }
        let mut before = 0;
        for tenants in &mut in_turn {
            before += std::mem::replace(tenants, before);
        }
        let in_turn = Rc::new(in_turn);
        self.queues.values().flat_map(move |queue| {
            let in_turn = Rc::clone(&in_turn);
            let position = move |index: usize| in_turn.get(index).map_or(0, |before| before + 1);
            queue.items.iter().enumerate().map(move |(index, item)| (item, position(index)))
        })
    }

    /// Returns the position of the item of `tenant` for which `wanted` holds, without visiting other tenants' items.
    pub fn position(&self, tenant: &str, wanted: impl FnMut(&T) -> bool) -> Option<usize> {
        let index = self.queues.get(tenant)?.items.iter().position(wanted)?;
        Some(1 + self.queues.values().map(|queue| queue.items.len().min(index)).sum::<usize>())
    }

    /// Records the cost of a call of `tenant`, in milliseconds.
    pub fn charge(&mut self, tenant: &str, milliseconds: f64) {
        if self.costs.len() >= MAX_REMEMBERED && !self.costs.contains_key(tenant) {
            self.costs.pop_first();
        }
        let mean = self.costs.entry(tenant.to_owned()).or_insert(milliseconds);
        *mean = *mean * (1.0 - ALPHA) + milliseconds * ALPHA;
    }

    fn cost(&self, tenant: &str) -> f64 {
        self.costs.get(tenant).copied().unwrap_or(QUANTUM).clamp(*COST.start(), *COST.end())
    }

    fn take_first(&mut self, tenant: &str) -> Option<T> {
        let item = self.queues.get_mut(tenant)?.items.pop_front()?;
        self.length -= 1;
        self.forget_empty();
        Some(item)
    }

    fn drop_newest(&mut self, tenant: &str) -> Option<T> {
        let item = self.queues.get_mut(tenant)?.items.pop_back()?;
        self.length -= 1;
        Some(item)
    }

    /// Removes tenants that queue nothing, and their deficit: idleness earns no credit.
    fn forget_empty(&mut self) {
        self.queues.retain(|_, queue| !queue.items.is_empty());
        let queues = &self.queues;
        self.round.retain(|tenant| queues.contains_key(tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any<T>(_: &T) -> bool {
        true
    }

    fn drain(queue: &mut FairQueue<(&'static str, u32)>) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| queue.pop(any)).collect()
    }

    #[test]
    fn tenants_take_turns_however_many_calls_one_of_them_queues() {
        let mut queue = FairQueue::new(100);
        for number in 0..50 {
            queue.push("noisy", ("noisy", number)).unwrap();
        }
        for number in 0..3 {
            queue.push("victim", ("victim", number)).unwrap();
        }
        let order = drain(&mut queue);
        let victims: Vec<usize> =
            order.iter().enumerate().filter(|(_, (name, _))| *name == "victim").map(|(at, _)| at).collect();
        assert_eq!(order.len(), 53);
        assert!(victims.iter().all(|at| *at <= 6), "{victims:?}");
        let numbers: Vec<u32> = order.iter().filter(|(name, _)| *name == "noisy").map(|(_, n)| *n).collect();
        assert!(numbers.is_sorted(), "a tenant's own calls keep their order");
    }

    #[test]
    fn worker_time_is_shared_not_the_number_of_calls() {
        let mut queue = FairQueue::new(1000);
        for _ in 0..60 {
            queue.charge("slow", 1000.0);
            queue.charge("quick", 10.0);
        }
        for number in 0..500 {
            queue.push("slow", ("slow", number)).unwrap();
            queue.push("quick", ("quick", number)).unwrap();
        }
        let first: Vec<_> = (0..303).filter_map(|_| queue.pop(any)).collect();
        let slow = first.iter().filter(|(name, _)| *name == "slow").count();
        assert!((2..=4).contains(&slow), "a hundredth of the calls, half of the time: {slow}");
    }

    #[test]
    fn a_full_tenant_is_refused_and_the_longest_queue_gives_way() {
        let mut queue = FairQueue::new(4);
        for number in 0..4 {
            assert_eq!(queue.push("a", ("a", number)), Ok(None));
        }
        assert_eq!(queue.push("a", ("a", 4)), Err(Overflow::Tenant));
        for number in 0..4 {
            assert_eq!(queue.push("b", ("b", number)), Ok(None));
        }
        let displaced = queue.push("c", ("c", 0)).unwrap().unwrap();
        assert_eq!(displaced.1, 3, "the newest of a longest queue");
        assert_eq!(queue.len(), 8);
        queue.push("c", ("c", 1)).unwrap();
        assert_eq!(queue.push("c", ("c", 2)), Err(Overflow::All), "nobody has more than one more");
        assert_eq!(queue.len(), 8);
    }

    #[test]
    fn an_item_that_does_not_fit_holds_up_only_its_tenant() {
        let mut queue = FairQueue::new(10);
        queue.push("a", ("fresh", 0)).unwrap();
        queue.push("a", ("a", 1)).unwrap();
        queue.push("b", ("b", 0)).unwrap();
        assert_eq!(queue.pop(|item| item.0 != "fresh"), Some(("b", 0)));
        assert_eq!(queue.pop(|item| item.0 != "fresh"), None);
        assert_eq!(queue.pop(any), Some(("fresh", 0)));
    }

    #[test]
    fn asking_in_vain_changes_no_turn() {
        let mut queue = FairQueue::new(10);
        for number in 0..3 {
            queue.push("a", ("a", number)).unwrap();
            queue.push("b", ("b", number)).unwrap();
        }
        let mut order = Vec::new();
        while let Some((tenant, _)) = queue.pop(any) {
            order.push(tenant);
            assert_eq!(queue.pop(|_| false), None);
        }
        assert_eq!(order, ["a", "b", "a", "b", "a", "b"]);
    }

    #[test]
    fn positions_tell_the_order_of_service() {
        let mut queue = FairQueue::new(10);
        for number in 0..3 {
            queue.push("a", ("a", number)).unwrap();
        }
        queue.push("b", ("b", 0)).unwrap();
        let mut positions: Vec<_> = queue.positions().map(|(item, at)| (at, *item)).collect();
        positions.sort_by_key(|(at, _)| *at);
        let order: Vec<usize> = positions.iter().map(|(at, _)| *at).collect();
        assert_eq!(order, [1, 1, 3, 4]);
        for (position, item) in positions {
            assert_eq!(queue.position(item.0, |other| *other == item), Some(position));
        }
        assert_eq!(queue.position("a", |item| item.1 == 7), None);
        assert_eq!(queue.remove(|item| item.0 == "a").len(), 3);
        assert_eq!(queue.len(), 1);
        assert_eq!(drain(&mut queue), [("b", 0)]);
        assert!(queue.is_empty());
    }
}
