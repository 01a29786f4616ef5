//! Verified tokens, so that a signature is checked once and not on every request.
//!
//! Owns a bounded map with two generations: when the young one is full it becomes the old one, so that what
//! was used lately stays. Keys hold the key generation of the snapshot: after a key change nothing old is
//! found any more. Only the signature's verdict is remembered; time, audience and revocation are judged again.
//! A token is known by a keyed fingerprint: it is taken on every request, and in wasm SHA-256 of a token costs
//! several times as much as everything else about a known one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siphasher::sip128::SipHasher24;

use super::refused::Cause;
use super::verified::Verified;

/// Of one generation: 8192 verified tokens or 8 MiB in all, whichever comes first.
const GOOD: Bound = Bound { entries: 4096, bytes: 4 << 20 };
/// Bad signatures only save the cost of checking the same one again.
const BAD: Bound = Bound { entries: 512, bytes: usize::MAX };

/// The fingerprint of the compact token, and the generation of the issuers it was judged by.
pub(super) type Key = (u128, u64);

/// Takes fingerprints: SipHash-2-4-128, a pseudo-random function, under a key that this process drew and nobody
/// else learns, so that no one can make two tokens with one fingerprint.
pub(super) struct Fingerprints {
    key: (u64, u64),
}

impl Default for Fingerprints {
    fn default() -> Fingerprints {
        let drawn = RandomState::new();
        Fingerprints { key: (drawn.hash_one(0), drawn.hash_one(1)) }
    }
}

impl Fingerprints {
    pub(super) fn of(&self, token: &str) -> u128 {
        SipHasher24::new_with_keys(self.key.0, self.key.1).hash(token.as_bytes()).as_u128()
    }
}

#[derive(Default)]
pub(super) struct Cache {
    good: Generations<Arc<Verified>>,
    bad: Generations<Option<Cause>>,
}

pub(super) enum Known {
    Good(Arc<Verified>),
    Bad(Option<Cause>),
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<Known> {
        let good = self.good.get(key, GOOD).map(Known::Good);
        good.or_else(|| self.bad.get(key, BAD).map(Known::Bad))
    }

    pub(super) fn put_good(&mut self, key: Key, verified: Arc<Verified>) {
        let bytes = verified.size();
        self.good.put(key, verified, bytes, GOOD);
    }

    pub(super) fn put_bad(&mut self, key: Key, cause: Option<Cause>) {
        self.bad.put(key, cause, 0, BAD);
    }
}

#[derive(Clone, Copy)]
struct Bound {
    entries: usize,
    bytes: usize,
}

struct Generations<V> {
    young: HashMap<Key, (V, usize)>,
    /// Sum of the sizes in `young`.
    young_bytes: usize,
    old: HashMap<Key, (V, usize)>,
}

impl<V> Default for Generations<V> {
    fn default() -> Generations<V> {
        Generations { young: HashMap::new(), young_bytes: 0, old: HashMap::new() }
    }
}

impl<V: Clone> Generations<V> {
    fn get(&mut self, key: &Key, bound: Bound) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.remove(key)?;
        self.put(*key, value.clone(), bytes, bound);
        Some(value)
    }

    fn put(&mut self, key: Key, value: V, bytes: usize, bound: Bound) {
        if self.young.len() >= bound.entries || self.young_bytes >= bound.bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, (value, bytes)).is_none() {
            self.young_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        (u128::from(number), 1)
    }

    #[test]
    fn fingerprints_are_repeatable_here_and_unknown_elsewhere() {
        let here = Fingerprints::default();
        let elsewhere = Fingerprints::default();
        assert_eq!(here.of("a.b.c"), here.of("a.b.c"));
        assert_ne!(here.of("a.b.c"), here.of("a.b.d"));
        assert_ne!(here.of("a.b.c"), elsewhere.of("a.b.c"));
    }

    /// Invariant I-4: caches.
    #[test]
    fn it_stays_bounded_and_keeps_what_is_used() {
        let bound = Bound { entries: 100, bytes: 1000 };
        for (bytes, most) in [(1, 200), (100, 20)] {
            let mut generations = Generations::default();
            for number in 0..10_000 {
                generations.put(key(number), number, bytes, bound);
                assert_eq!(generations.get(&key(0), bound), Some(0));
                assert!(generations.young.len() + generations.old.len() <= most);
            }
            assert_eq!(generations.get(&key(5000), bound), None);
        }
    }

    #[test]
    fn another_key_generation_finds_nothing() {
        let mut cache = Cache::default();
        cache.put_bad(key(1), None);
        assert!(matches!(cache.get(&key(1)), Some(Known::Bad(_))));
        assert!(cache.get(&(key(1).0, 2)).is_none());
    }
}
