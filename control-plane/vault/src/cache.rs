//! Data keys that a remote key service unwrapped recently.
//!
//! Keeps true: a data key is confirmed by its service at least every [`CacheBounds::fresh`], unless the service is
//! unavailable; then it stays usable until [`CacheBounds::usable`] after the last confirmation, never longer. The number
//! of keys is bounded; the one confirmed longest ago makes room.

use std::collections::HashMap;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::key_service::DataKey;
use crate::place::Place;
use crate::record::Record;

/// Time between attempts to confirm one key at a service that is unavailable, so that its users do not wait each time.
const CONFIRM_PAUSE: Duration = Duration::from_secs(30);

/// Bounds of the cached data keys.
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// Maximum number of keys.
    pub keys: usize,
    /// Time for which the key service is not asked again.
    pub fresh: Duration,
    /// Time for which a key stays usable while the key service is unavailable.
    pub usable: Duration,
}

impl CacheBounds {
    /// Bounds for an outage of the given length: the service is asked again twelve times within it.
    pub fn for_outage(usable: Duration) -> CacheBounds {
        CacheBounds { keys: 10_000, fresh: usable / 12, usable }
    }
}

impl Default for CacheBounds {
    fn default() -> CacheBounds {
        CacheBounds::for_outage(Duration::from_secs(3_600))
    }
}

/// Identity of a wrapped data key at its place.
pub(crate) type CacheKey = [u8; 32];

/// Cached data key, and whether its service should confirm it.
pub(crate) struct CachedKey {
    pub(crate) data_key: DataKey,
    pub(crate) is_fresh: bool,
}

struct CacheEntry {
    data_key: DataKey,
    fresh_until: Instant,
    usable_until: Instant,
}

pub(crate) struct Cache {
    bounds: CacheBounds,
    entries: Mutex<HashMap<CacheKey, CacheEntry>>,
}

impl Cache {
    pub(crate) fn new(bounds: CacheBounds) -> Cache {
        Cache { bounds, entries: Mutex::default() }
    }

    /// Returns the identity of a record's data key. Records with other headers or places have others.
    pub(crate) fn key(record: &Record<'_>, place: &Place<'_>) -> CacheKey {
        let mut context = Context::new(&SHA256);
        for part in [record.service.as_bytes(), record.key_id.as_bytes(), record.wrapped] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.update(&place.to_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        key
    }

    pub(crate) fn get(&self, key: &CacheKey) -> Option<CachedKey> {
        let now = Instant::now();
        let entries = self.entries.lock();
        let entry = entries.get(key).filter(|entry| now < entry.usable_until)?;
        Some(CachedKey { data_key: entry.data_key.clone(), is_fresh: now < entry.fresh_until })
    }

    /// Stores a key that its service has just wrapped or unwrapped.
    pub(crate) fn put(&self, key: CacheKey, data_key: DataKey) {
        if self.bounds.keys == 0 || self.bounds.usable.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if entries.len() >= self.bounds.keys && !entries.contains_key(&key) {
            make_room(&mut entries, now);
        }
        let usable_until = now + self.bounds.usable;
        let fresh_until = now + self.bounds.fresh.min(self.bounds.usable);
        entries.insert(key, CacheEntry { data_key, fresh_until, usable_until });
    }

    /// Notes that the service could not confirm a key, so that it is not asked again at once.
    pub(crate) fn postpone(&self, key: &CacheKey) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.fresh_until = Instant::now() + CONFIRM_PAUSE;
        }
    }

    pub(crate) fn remove(&self, key: &CacheKey) {
        self.entries.lock().remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Removes the keys that are no longer usable, so that they do not stay in memory.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.entries.lock().retain(|_, entry| now < entry.usable_until);
    }
}

/// Removes the keys that are no longer usable; if there are none, the one confirmed longest ago.
fn make_room(entries: &mut HashMap<CacheKey, CacheEntry>, now: Instant) {
    let before = entries.len();
    entries.retain(|_, entry| now < entry.usable_until);
    if entries.len() < before {
        return;
    }
    let oldest = entries.iter().min_by_key(|(_, entry)| entry.usable_until).map(|(key, _)| *key);
    if let Some(oldest) = oldest {
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> CacheKey {
        [byte; 32]
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_keys_is_bounded_and_the_oldest_makes_room() {
        let bounds = CacheBounds { keys: 3, ..CacheBounds::default() };
        let cache = Cache::new(bounds);
        for byte in 0..5 {
            cache.put(key(byte), DataKey::random().unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(cache.len(), 3);
        let held: Vec<bool> = (0..5).map(|byte| cache.get(&key(byte)).is_some()).collect();
        assert_eq!(held, [false, false, true, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_gone_from_memory_after_its_time() {
        let cache = Cache::new(CacheBounds::for_outage(Duration::from_secs(60)));
        cache.put(key(1), DataKey::random().unwrap());
        cache.sweep();
        assert_eq!(cache.len(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(cache.get(&key(1)).is_none());
        cache.sweep();
        assert_eq!(cache.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_kept_where_no_outage_is_to_be_survived() {
        let cache = Cache::new(CacheBounds::for_outage(Duration::ZERO));
        cache.put(key(1), DataKey::random().unwrap());
        assert_eq!(cache.len(), 0);
    }
}
