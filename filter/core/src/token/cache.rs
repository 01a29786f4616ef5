//! Cache of verified tokens, so that a signature is checked once and not on every request.
//!
//! Owns a bounded map with two generations: when the young one is full it becomes the old one, so that recently used
//! entries stay. Cache keys include the key generation of the snapshot: after a key change, older entries are no longer
//! found. Only the result of the signature check is cached; time, audience and revocation are checked on each request.
//! A token is identified by a keyed fingerprint: it is computed on every request, and in wasm the SHA-256 of a token
//! costs several times as much as all other work on a cached one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siphasher::sip128::SipHasher24;

use super::refusal::Cause;
use super::verified::VerifiedToken;

/// Bound of one generation of verified tokens; the two together hold 8192 tokens or 8 MiB, whichever comes first.
const GOOD: CacheBound = CacheBound { entries: 4096, bytes: 4 << 20 };
/// Bound of one generation of bad signatures, which only save the cost of checking the same one again.
const BAD: CacheBound = CacheBound { entries: 512, bytes: usize::MAX };

/// Fingerprint of the compact token, and the generation of the issuers that it was verified against.
pub(super) type Key = (u128, u64);

/// Computes fingerprints with SipHash-2-4-128, a pseudo-random function, under a secret key drawn by this process, so
/// that nobody can construct two tokens with the same fingerprint.
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
    good: Generations<Arc<VerifiedToken>>,
    bad: Generations<Option<Cause>>,
}

pub(super) enum CacheEntry {
    Good(Arc<VerifiedToken>),
    Bad(Option<Cause>),
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<CacheEntry> {
        let good = self.good.get(key, GOOD).map(CacheEntry::Good);
        good.or_else(|| self.bad.get(key, BAD).map(CacheEntry::Bad))
    }

    pub(super) fn put_good(&mut self, key: Key, verified: Arc<VerifiedToken>) {
        let bytes = verified.size();
        self.good.put(key, verified, bytes, GOOD);
    }

    pub(super) fn put_bad(&mut self, key: Key, cause: Option<Cause>) {
        self.bad.put(key, cause, 0, BAD);
    }
}

#[derive(Clone, Copy)]
struct CacheBound {
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
    fn get(&mut self, key: &Key, bound: CacheBound) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.remove(key)?;
        self.put(*key, value.clone(), bytes, bound);
        Some(value)
    }

    fn put(&mut self, key: Key, value: V, bytes: usize, bound: CacheBound) {
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
        let bound = CacheBound { entries: 100, bytes: 1000 };
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
        assert!(matches!(cache.get(&key(1)), Some(CacheEntry::Bad(_))));
        assert!(cache.get(&(key(1).0, 2)).is_none());
    }
}
