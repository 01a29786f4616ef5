//! The keys with which services verify the platform's tokens: those of every gateway with the same store.
//!
//! Keeps true: the set is at most [`FRESH`] old, and a gateway reads the store once at a time for all requests; if the
//! store does not answer, the last known keys remain published, each until its expiry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_store::published_keys::{CARDS, PublishError, PublishedKey, PublishedKeys};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Clock;
use super::keys::PublicKey;

/// Maximum age of the set, and time that others may cache it: a service that meets an unknown key fetches the set
/// again, and must find the key there. It also limits the store's load from requests, which anyone may send.
pub const FRESH: Duration = Duration::from_secs(1);
/// Timeout of the store.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The published keys, as last read from the store.
pub(super) struct PublishedKeySet {
    store: Arc<dyn PublishedKeys>,
    clock: Clock,
    /// Keys by `kid`, with their expiry in Unix milliseconds.
    known: Mutex<BTreeMap<String, (PublicKey, u64)>>,
    /// Time of the last read, successful or not.
    asked: tokio::sync::Mutex<Option<Instant>>,
    is_failing: AtomicBool,
}

impl PublishedKeySet {
    pub(super) fn new(store: Arc<dyn PublishedKeys>, clock: Clock) -> PublishedKeySet {
        let (known, asked, is_failing) =
            (Mutex::default(), tokio::sync::Mutex::default(), AtomicBool::new(false));
        PublishedKeySet { store, clock, known, asked, is_failing }
    }

    /// Returns `own` and the published keys as a JWK set (RFC 7517 section 5).
    pub(crate) async fn jwks(&self, own: &[PublicKey]) -> Value {
        self.freshen().await;
        let now = (self.clock)();
        let known = self.known.lock();
        let others = known.iter().filter(|(kid, (_, until_ms))| {
            *until_ms > now && !own.iter().any(|key| key.kid() == kid.as_str())
        });
        let keys = own.iter().chain(others.map(|(_, (key, _))| key));
        json!({"keys": keys.map(PublicKey::jwk).collect::<Vec<_>>()})
    }

    /// Reads the store if the set is stale. Concurrent requests wait for the same read.
    async fn freshen(&self) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        match self.read().await {
            Ok(published) => {
                self.learn(&published);
                self.is_failing.store(false, Ordering::Relaxed);
            }
            // Logged once, because anyone may send requests.
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "signing keys of other gateways could not be read; known keys are served until they expire, and new ones are missing: check the store");
            }
            Err(_) => {}
        }
        *asked = Some(Instant::now());
    }

    /// Reads the published keys from the store, without those that sign agent cards: no service accepts a token by them.
    pub(super) async fn read(&self) -> Result<Vec<PublishedKey>, PublishError> {
        let mut published = within(self.store.published()).await?;
        published.retain(|one| !CARDS.contains(&one.owner));
        Ok(published)
    }

    fn learn(&self, published: &[PublishedKey]) {
        let now = (self.clock)();
        let mut known = BTreeMap::new();
        for one in published {
            let read = serde_json::from_str(&one.key.jwk).ok().and_then(|jwk| PublicKey::from_jwk(&jwk).ok());
            let Some(key) = read else {
                tracing::warn!(kid = %one.key.kid, "published key is not a P-256 key and was left out of the key set; a gateway of another version may have written it");
                continue;
            };
            let until_ms = now.saturating_add(milliseconds(one.left));
            let (_, until) = known.entry(key.kid().to_owned()).or_insert((key, 0));
            *until = until_ms.max(*until);
        }
        *self.known.lock() = known;
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Limits the time of a store operation, so that a hanging store blocks nobody.
pub(super) async fn within<T>(
    asked: impl Future<Output = Result<T, PublishError>>,
) -> Result<T, PublishError> {
    let late = |_| Err(PublishError::Unavailable("the store did not answer in time".into()));
    tokio::time::timeout(STORE_TIMEOUT, asked).await.unwrap_or_else(late)
}
