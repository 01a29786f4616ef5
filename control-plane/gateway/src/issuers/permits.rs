//! Permits to ask an issuer, so that each is asked by a few at a time and a slow one holds up nobody else's.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Keys with permits; beyond them those that nobody uses go first.
const MAX_KEYS: usize = 1_024;

/// Permits by the name of an issuer, or by another key.
pub(super) struct Permits<K = String> {
    at_once: usize,
    by_key: HashMap<K, Arc<Semaphore>>,
}

impl<K: Eq + Hash> Permits<K> {
    /// `at_once` questions of one key at a time.
    pub(super) fn new(at_once: usize) -> Permits<K> {
        Permits { at_once, by_key: HashMap::new() }
    }

    /// Permits of this key.
    pub(super) fn of<Q>(&mut self, key: &Q) -> Arc<Semaphore>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if self.by_key.len() >= MAX_KEYS && !self.by_key.contains_key(key) {
            self.by_key.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let permits = self.by_key.entry(key.to_owned());
        Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(self.at_once))))
    }
}
