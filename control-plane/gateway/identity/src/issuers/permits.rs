//! Permits for requests to issuers, which limit the concurrent requests to each, so that a slow issuer delays nobody
//! else's.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// Number of keys from which unused ones are removed.
const MAX_KEYS: usize = 1_024;

/// Slots of a request: one of the requester, if it has a limit, then one of the issuer.
pub(super) struct Slots {
    /// Permits of the requester, fewer than the issuer's: requests beyond them wait here and block nobody else.
    pub(super) of_asker: Option<Arc<Semaphore>>,
    pub(super) of_issuer: Arc<Semaphore>,
}

impl Slots {
    /// Waits for a permit of each.
    pub(super) async fn acquire(
        &self,
    ) -> Result<(Option<SemaphorePermit<'_>>, SemaphorePermit<'_>), AcquireError> {
        let of_asker = match &self.of_asker {
            Some(permits) => Some(permits.acquire().await?),
            None => None,
        };
        Ok((of_asker, self.of_issuer.acquire().await?))
    }
}

/// Permits by the name of an issuer, or by another key.
pub(super) struct Permits<K = String> {
    at_once: usize,
    by_key: HashMap<K, Arc<Semaphore>>,
}

impl<K: Eq + Hash> Permits<K> {
    /// Allows `at_once` concurrent requests for each key.
    pub(super) fn new(at_once: usize) -> Permits<K> {
        Permits { at_once, by_key: HashMap::new() }
    }

    /// Returns the permits of this key.
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
