//! Verified tokens, so that a signature is checked once and not on every request.
//!
//! Owns a bounded map with two generations: when the young one is full it becomes the old one, so that what
//! was used lately stays. Keys hold the key generation of the snapshot: after a key change nothing old is
//! found any more. Only the signature's verdict is remembered; time, audience and revocation are judged again.

use std::collections::HashMap;
use std::sync::Arc;

use super::Verified;

/// Entries per generation: 8192 verified tokens in all.
const MAX_GOOD: usize = 4096;
/// Bad signatures per generation; they only save the cost of checking the same one again.
const MAX_BAD: usize = 512;

/// SHA-256 of the compact token, and the generation of the issuers it was judged by.
pub(super) type Key = ([u8; 32], u64);

#[derive(Default)]
pub(super) struct Cache {
    good: Generations<Arc<Verified>>,
    bad: Generations<()>,
}

pub(super) enum Known {
    Good(Arc<Verified>),
    Bad,
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<Known> {
        let good = self.good.get(key, MAX_GOOD).map(Known::Good);
        good.or_else(|| self.bad.get(key, MAX_BAD).map(|()| Known::Bad))
    }

    pub(super) fn put_good(&mut self, key: Key, verified: Arc<Verified>) {
        self.good.put(key, verified, MAX_GOOD);
    }

    pub(super) fn put_bad(&mut self, key: Key) {
        self.bad.put(key, (), MAX_BAD);
    }
}

struct Generations<V> {
    young: HashMap<Key, V>,
    old: HashMap<Key, V>,
}

impl<V> Default for Generations<V> {
    fn default() -> Generations<V> {
        Generations { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<V: Clone> Generations<V> {
    fn get(&mut self, key: &Key, max: usize) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.put(*key, value.clone(), max);
        Some(value)
    }

    fn put(&mut self, key: Key, value: V, max: usize) {
        if self.young.len() >= max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        (bytes, 1)
    }

    #[test]
    fn it_stays_bounded_and_keeps_what_is_used() {
        let mut generations = Generations::default();
        for number in 0..10_000 {
            generations.put(key(number), number, 100);
            assert_eq!(generations.get(&key(0), 100), Some(0));
            assert!(generations.young.len() + generations.old.len() <= 200);
        }
        assert_eq!(generations.get(&key(5000), 100), None);
    }

    #[test]
    fn another_key_generation_finds_nothing() {
        let mut cache = Cache::default();
        cache.put_bad(key(1));
        assert!(matches!(cache.get(&key(1)), Some(Known::Bad)));
        assert!(cache.get(&(key(1).0, 2)).is_none());
    }
}
