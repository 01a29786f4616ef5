//! Published keys of one process.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{
    MAX_KEYS, MAX_OF_GATEWAY, PublicJwk, PublishError, PublishedKey, PublishedKeys, bounded, time_left,
};
use crate::clock::{milliseconds, now_ms};
use crate::records::OwnerId;

/// Keys kept until the process ends.
#[derive(Default)]
pub struct MemoryKeys {
    /// Keys by owner and `kid`.
    keys: Mutex<HashMap<(OwnerId, String), PublishedRow>>,
}

struct PublishedRow {
    jwk: String,
    until_ms: i64,
}

#[async_trait]
impl PublishedKeys for MemoryKeys {
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError> {
        bounded(key)?;
        let now = now_ms();
        let until_ms = now.saturating_add(milliseconds(lasts));
        let mut keys = self.keys.lock();
        keys.retain(|_, row| row.until_ms > now);
        let id = (owner, key.kid.clone());
        if let Some(row) = keys.get_mut(&id) {
            row.until_ms = row.until_ms.max(until_ms);
            return Ok(());
        }
        let theirs = keys.keys().filter(|(of, _)| *of == owner).count();
        let fits = |count: usize, most: u32| u32::try_from(count).is_ok_and(|count| count < most);
        if !fits(theirs, MAX_OF_GATEWAY) || !fits(keys.len(), MAX_KEYS) {
            return Err(PublishError::Full);
        }
        keys.insert(id, PublishedRow { jwk: key.jwk.clone(), until_ms });
        Ok(())
    }

    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError> {
        let now = now_ms();
        let keys = self.keys.lock();
        let published = keys.iter().filter(|(_, row)| row.until_ms > now).map(|((owner, kid), row)| {
            let key = PublicJwk { kid: kid.clone(), jwk: row.jwk.clone() };
            PublishedKey { owner: *owner, key, left: time_left(row.until_ms, now) }
        });
        Ok(published.collect())
    }

    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError> {
        let until_ms = now_ms().saturating_add(milliseconds(rest));
        let mut keys = self.keys.lock();
        for (_, row) in keys.iter_mut().filter(|((of, _), _)| *of == owner) {
            row.until_ms = row.until_ms.min(until_ms);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(&MemoryKeys::default()).await;
        suite::keeps_to_its_bounds(&MemoryKeys::default()).await;
    }
}
