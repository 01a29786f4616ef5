//! Quotas by key, such as an org, a user or a service.
//!
//! Keeps true: no key takes more than its quota; a key that has nothing is not remembered, so that what is taken bounds the
//! memory.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Amounts by key, without entries for zero.
pub struct Counts<K>(HashMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts(HashMap::new())
    }
}

impl<K: Eq + Hash> Counts<K> {
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied().unwrap_or_default()
    }

    pub fn add(&mut self, key: K, amount: usize) {
        if amount > 0 {
            let count = self.0.entry(key).or_default();
            *count = count.saturating_add(amount);
        }
    }

    /// Adds an amount; false, and no change, if the key would have more than `quota`.
    pub fn add_within(&mut self, quota: usize, key: K, amount: usize) -> bool {
        let fits = self.get(&key).saturating_add(amount) <= quota;
        if fits {
            self.add(key, amount);
        }
        fits
    }

    /// Takes an amount away.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q, amount: usize)
    where
        K: Borrow<Q>,
    {
        match self.0.get_mut(key) {
            Some(count) if *count > amount => *count -= amount,
            _ => drop(self.0.remove(key)),
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One unit of a key's quota, given back when this is dropped.
pub struct QuotaPermit<K: Eq + Hash> {
    counts: Arc<Mutex<Counts<K>>>,
    key: K,
}

impl<K: Eq + Hash + Clone> QuotaPermit<K> {
    /// Takes one of `quota` permits of the key; `None` if all are taken.
    pub fn take(counts: &Arc<Mutex<Counts<K>>>, key: K, quota: usize) -> Option<QuotaPermit<K>> {
        let is_taken = counts.lock().add_within(quota, key.clone(), 1);
        is_taken.then(|| QuotaPermit { counts: counts.clone(), key })
    }
}

impl<K: Eq + Hash> Drop for QuotaPermit<K> {
    fn drop(&mut self) {
        self.counts.lock().remove(&self.key, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_at_its_quota_gets_no_more_and_takes_nothing_from_another() {
        let mut counts = Counts::default();
        assert!(counts.add_within(3, "a", 2) && !counts.add_within(3, "a", 2));
        assert!(counts.add_within(3, "a", 1) && counts.add_within(3, "b", 3));
        assert!(!counts.add_within(3, "a", usize::MAX), "an amount beyond all numbers is no small one");
        assert_eq!((counts.get("a"), counts.get("b"), counts.get("c")), (3, 3, 0));
    }

    #[test]
    fn a_key_that_has_nothing_is_forgotten() {
        let mut counts = Counts::default();
        counts.add("a", 2);
        counts.remove("a", 1);
        assert_eq!((counts.len(), counts.get("a")), (1, 1));
        counts.remove("a", 1);
        counts.remove("b", 1);
        assert!(counts.add_within(1, "a", 0));
        counts.add("b", 0);
        assert!(counts.is_empty());
    }

    #[test]
    fn a_permit_is_given_back_when_it_is_dropped() {
        let counts = Arc::default();
        let take = |key: &'static str| QuotaPermit::take(&counts, key, 2);
        let first = take("a").unwrap();
        let _second = take("a").unwrap();
        assert!(take("a").is_none() && take("b").is_some());
        drop(first);
        assert!(take("a").is_some());
        assert_eq!(counts.lock().keys().collect::<Vec<_>>(), [&"a"]);
    }
}
