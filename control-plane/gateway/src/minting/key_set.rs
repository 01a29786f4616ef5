//! The keys by which services verify the platform's tokens: those of every gateway over the same store.
//!
//! Keeps true: the set is at most [`FRESH`] old, and one gateway asks the store once at a time for all who want it; where
//! the store does not answer, what it said last is told on, each key until its time is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_store::published_keys::{PublishError, PublishedKey, PublishedKeys};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Clock;
use super::keys::PublicKey;

/// How old the set is at most, and for how long others may keep it: a service that meets a key which it does not know
/// fetches the set again, and must find it there. It also bounds what strangers, who may all ask, cost the store.
pub const FRESH: Duration = Duration::from_secs(1);
/// How long the store may take.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// What is published, as the store said last.
pub(super) struct KeySet {
    store: Arc<dyn PublishedKeys>,
    clock: Clock,
    /// By `kid`, with the end in Unix milliseconds.
    known: Mutex<BTreeMap<String, (PublicKey, u64)>>,
    /// When the store was asked last, whatever it said.
    asked: tokio::sync::Mutex<Option<Instant>>,
    is_failing: AtomicBool,
}

impl KeySet {
    pub(super) fn new(store: Arc<dyn PublishedKeys>, clock: Clock) -> KeySet {
        let (known, asked, is_failing) =
            (Mutex::default(), tokio::sync::Mutex::default(), AtomicBool::new(false));
        KeySet { store, clock, known, asked, is_failing }
    }

    /// As a JWK set (RFC 7517 section 5): `own`, and what is published.
    pub(super) async fn jwks(&self, own: &[PublicKey]) -> Value {
        self.freshen().await;
        let now = (self.clock)();
        let known = self.known.lock();
        let others = known.iter().filter(|(kid, (_, until_ms))| {
            *until_ms > now && !own.iter().any(|key| key.kid() == kid.as_str())
        });
        let keys = own.iter().chain(others.map(|(_, (key, _))| key));
        json!({"keys": keys.map(PublicKey::jwk).collect::<Vec<_>>()})
    }

    /// Those who come while the store is asked wait for what it says.
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
            // Said once: anybody may ask.
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the store does not say which keys other gateways sign with; those that are known go on being published until their time is over, and new ones are missing: check the store");
            }
            Err(_) => {}
        }
        *asked = Some(Instant::now());
    }

    /// What the store says now.
    pub(super) async fn read(&self) -> Result<Vec<PublishedKey>, PublishError> {
        within(self.store.published()).await
    }

    fn learn(&self, published: &[PublishedKey]) {
        let now = (self.clock)();
        let mut known = BTreeMap::new();
        for one in published {
            let read = serde_json::from_str(&one.key.jwk).ok().and_then(|jwk| PublicKey::from_jwk(&jwk).ok());
            let Some(key) = read else {
                tracing::warn!(kid = %one.key.kid, "the store has a published key that is none on P-256: a gateway of another version may have written it; it is left out of the key set");
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

/// A store that hangs holds up nobody.
pub(super) async fn within<T>(
    asked: impl Future<Output = Result<T, PublishError>>,
) -> Result<T, PublishError> {
    let late = |_| Err(PublishError::Unavailable("the store did not answer in time".into()));
    tokio::time::timeout(STORE_TIMEOUT, asked).await.unwrap_or_else(late)
}
