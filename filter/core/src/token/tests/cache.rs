//! The cache of verified tokens.

use crate::token::{Cache, CacheBound, CacheEntry, CacheKey, Fingerprints, Generations};

fn key(number: u64) -> CacheKey {
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
