//! The signing keys of one gateway for the platform's tokens: generated here, kept only in memory and rotated daily; or
//! the operator's.
//!
//! Keeps true: a generated key signs nothing before it is published, and nothing that would outlive its publication,
//! even if this process or the store fails; the next key is published long before it signs; a key that the store has lost
//! is published again within [`KEEP_EVERY`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp_store::published_keys::{MemoryKeys, PublicJwk, PublishError, PublishedKey, PublishedKeys};
use asp_store::records::OwnerId;
use parking_lot::Mutex;
use serde_json::Value;

use super::key_set::{FRESH, PublishedKeySet, milliseconds, within};
use super::keys::{KeyError, PublicKey, SigningKey};
use super::{Clock, MAX_LIFE};

/// Time for which a key signs.
const ROTATE: Duration = Duration::from_secs(24 * 3600);
/// Time for which the next key is published before it signs: longer than a key set is cached by services that do not
/// fetch it again for an unknown key.
const AHEAD: Duration = Duration::from_secs(3600);
/// Time for which a key stays published after it signed its last token: that token's life, and a service's clock skew.
const REST: Duration = MAX_LIFE.saturating_add(Duration::from_secs(5 * 60));
/// Time for which a key is published at once. If the store accepts nothing any more, a gateway continues to sign for
/// this time less [`REST`]; the key of a killed gateway stays published for at most this long.
const PUBLISH_FOR: Duration = Duration::from_secs(2 * 3600);
/// Remaining publication below which a key is published again: half an hour after the last time.
const RENEW_BELOW: Duration = PUBLISH_FOR.saturating_sub(Duration::from_secs(30 * 60));
/// Time for which a key signs before the next one is generated.
const ALONE: Duration = ROTATE.saturating_sub(AHEAD);
/// Time after which every other gateway serves a new key: its set may be [`FRESH`] old, and so may a cache in front of
/// it.
const SEEN: Duration = FRESH.saturating_mul(2);
/// Interval of [`TokenKeys::keep`].
pub const KEEP_EVERY: Duration = Duration::from_secs(30);
/// Delay before a failed step is retried: until then, a gateway that started without the store may have no signing key.
pub const KEEP_AGAIN: Duration = Duration::from_secs(5);

/// The reason why a gateway cannot start signing.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key that signs this gateway's tokens cannot be published: {0}")]
    Publish(#[from] PublishError),
}

/// The signing keys of one gateway.
pub struct TokenKeys {
    store: Arc<dyn PublishedKeys>,
    owner: OwnerId,
    clock: Clock,
    signing: Signing,
    set: PublishedKeySet,
    is_failing: AtomicBool,
}

enum Signing {
    /// The operator's keys, the same at every gateway; of the previous one only the public half is needed.
    Given { current: Arc<SigningKey>, previous: Option<PublicKey>, published_until_ms: AtomicU64 },
    /// Generated keys, oldest first; at most the previous, the current and the next.
    Made(Mutex<Vec<MadeKey>>),
}

struct MadeKey {
    key: Arc<SigningKey>,
    /// Start of signing in Unix milliseconds; `None` until the key is published.
    signs_from_ms: Option<u64>,
    /// End of publication in Unix milliseconds; 0 before the first.
    published_until_ms: u64,
}

impl MadeKey {
    fn new() -> Result<MadeKey, KeyError> {
        Ok(MadeKey { key: Arc::new(SigningKey::generate()?), signs_from_ms: None, published_until_ms: 0 })
    }

    /// Whether the key may sign at `now`, so that the token expires before the publication ends.
    fn signs(&self, now: u64) -> bool {
        let published = self.published_until_ms >= now.saturating_add(milliseconds(REST));
        published && self.signs_from_ms.is_some_and(|from| from <= now)
    }

    fn is_due_to_be_published(&self, now: u64) -> bool {
        self.published_until_ms < now.saturating_add(milliseconds(RENEW_BELOW))
    }
}

impl TokenKeys {
    /// Generates a key and publishes it. If other gateways run, returns once each of them serves the key. If the store
    /// is unavailable or full, starts without a signing key, and [`TokenKeys::keep`] publishes it later. Keys of killed
    /// gateways stay published for up to [`PUBLISH_FOR`].
    pub async fn start(store: Arc<dyn PublishedKeys>, clock: Clock) -> Result<TokenKeys, StartError> {
        let mut first = MadeKey::new()?;
        let keys = TokenKeys::of(store, clock, Signing::Made(Mutex::default()));
        match keys.publish(first.key.public()).await {
            Ok(until_ms) => first.published_until_ms = until_ms,
            Err(error) => {
                tracing::warn!(%error, "this gateway starts without a signing key; calls that need the platform's token are refused until its key is published, which is retried every few seconds");
                // Keeps `keep` from logging the outage again.
                keys.is_failing.store(true, Ordering::Relaxed);
                if let Signing::Made(made) = &keys.signing {
                    made.lock().push(first);
                }
                return Ok(keys);
            }
        }
        first.signs_from_ms = Some((keys.clock)());
        // A gateway that stopped properly has no key published for so long.
        let is_other = |one: &PublishedKey| one.left > REST && one.owner != keys.owner;
        // If the store does not answer, there may be others.
        let has_others = keys.set.read().await.map_or(true, |published| published.iter().any(is_other));
        if let Signing::Made(made) = &keys.signing {
            made.lock().push(first);
        }
        if has_others {
            tokio::time::sleep(SEEN).await;
        }
        Ok(keys)
    }

    /// Uses the operator's keys, which are the same at every gateway and sign whether or not they are published.
    pub fn fixed(
        (current, previous): (SigningKey, Option<PublicKey>),
        store: Arc<dyn PublishedKeys>,
        clock: Clock,
    ) -> TokenKeys {
        let current = Arc::new(current);
        let signing = Signing::Given { current, previous, published_until_ms: AtomicU64::new(0) };
        TokenKeys::of(store, clock, signing)
    }

    /// Returns a key of this process alone, for tests.
    pub fn alone() -> Result<TokenKeys, KeyError> {
        let store = Arc::new(MemoryKeys::default());
        Ok(TokenKeys::fixed((SigningKey::generate()?, None), store, super::wall_clock()))
    }

    fn of(store: Arc<dyn PublishedKeys>, clock: Clock, signing: Signing) -> TokenKeys {
        let set = PublishedKeySet::new(store.clone(), clock.clone());
        let owner = OwnerId(rand::random());
        TokenKeys { store, owner, clock, signing, set, is_failing: AtomicBool::new(false) }
    }

    /// Returns the store of the published keys.
    pub fn store(&self) -> Arc<dyn PublishedKeys> {
        self.store.clone()
    }

    /// Returns the id of this run of the gateway in the stores.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Returns the public keys of every gateway as a JWK set (RFC 7517 section 5).
    pub async fn jwks(&self) -> Value {
        self.set.jwks(&self.public()).await
    }

    /// Returns a key whose tokens services can verify until they expire; `None` if no key is published for long enough.
    pub(super) fn signer(&self) -> Option<Arc<SigningKey>> {
        match &self.signing {
            Signing::Given { current, .. } => Some(current.clone()),
            Signing::Made(made) => {
                let now = (self.clock)();
                made.lock().iter().rev().find(|one| one.signs(now)).map(|one| one.key.clone())
            }
        }
    }

    /// Generates the next key and renews publications when due. Returns whether that succeeded. Run every
    /// [`KEEP_EVERY`], and [`KEEP_AGAIN`] after a failure.
    pub async fn keep(&self) -> bool {
        // A store loses rows in a failover, and all of them if its clock jumps. One that does not answer has lost none.
        let stored = self.set.read().await.ok();
        let stored = stored.as_deref();
        let kept = match &self.signing {
            Signing::Given { published_until_ms, .. } => {
                self.keep_given(published_until_ms, stored).await.map_err(StartError::Publish)
            }
            Signing::Made(made) => self.keep_made(made, stored).await,
        };
        let is_done = kept.is_ok();
        match kept {
            Ok(()) => self.is_failing.store(false, Ordering::Relaxed),
            // Logged once, as it is retried soon.
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "signing keys of this gateway could not be published; the current one signs for at most 100 minutes, and then calls continue without the platform's token: check the store");
            }
            Err(_) => {}
        }
        is_done
    }

    /// Publishes the operator's keys for gateways that do not have them; the operator decides how long a key is used.
    async fn keep_given(
        &self,
        published_until_ms: &AtomicU64,
        stored: Option<&[PublishedKey]>,
    ) -> Result<(), PublishError> {
        let due = (self.clock)().saturating_add(milliseconds(RENEW_BELOW));
        let is_lost = self.public().iter().any(|key| self.is_lost(key, stored));
        if published_until_ms.load(Ordering::Relaxed) >= due && !is_lost {
            return Ok(());
        }
        let mut until = u64::MAX;
        for key in self.public() {
            until = until.min(self.publish(&key).await?);
        }
        published_until_ms.store(until, Ordering::Relaxed);
        Ok(())
    }

    async fn keep_made(
        &self,
        made: &Mutex<Vec<MadeKey>>,
        stored: Option<&[PublishedKey]>,
    ) -> Result<(), StartError> {
        for key in self.due(made, stored)? {
            let until = self.publish(key.public()).await?;
            self.published(made, &key, until);
        }
        Ok(())
    }

    /// Returns the keys to publish now; generates the next one when it is due.
    fn due(
        &self,
        made: &Mutex<Vec<MadeKey>>,
        stored: Option<&[PublishedKey]>,
    ) -> Result<Vec<Arc<SigningKey>>, KeyError> {
        let now = (self.clock)();
        let mut made = made.lock();
        // A key that waits for its publication is kept, because the store may have stored what it did not acknowledge.
        made.retain(|one| one.published_until_ms > now || one.signs_from_ms.is_none());
        let latest = made.last().map(|one| one.signs_from_ms);
        let next_from = match latest {
            None => 0,
            Some(None) => u64::MAX,
            Some(Some(from)) => from.saturating_add(milliseconds(ALONE)),
        };
        if next_from <= now {
            made.push(MadeKey::new()?);
        }
        // Keys older than the signing one sign nothing new, and their publication is left to expire.
        let signing = made.iter().rposition(|one| one.signs_from_ms.is_some_and(|from| from <= now));
        let due = made.iter().enumerate().filter(|(n, one)| {
            let is_lasting = *n >= signing.unwrap_or_default();
            (is_lasting && one.is_due_to_be_published(now)) || self.is_lost(one.key.public(), stored)
        });
        Ok(due.map(|(_, one)| one.key.clone()).collect())
    }

    /// Whether the store has answered and does not have the key.
    fn is_lost(&self, key: &PublicKey, stored: Option<&[PublishedKey]>) -> bool {
        let is_it = |one: &PublishedKey| one.owner == self.owner && one.key.kid == key.kid();
        stored.is_some_and(|stored| !stored.iter().any(is_it))
    }

    fn published(&self, made: &Mutex<Vec<MadeKey>>, key: &Arc<SigningKey>, until_ms: u64) {
        let now = (self.clock)();
        let mut made = made.lock();
        let before = made.iter().rev().find(|one| one.signs_from_ms.is_some() && !Arc::ptr_eq(&one.key, key));
        let first_use = match before.filter(|one| one.signs(now)).and_then(|one| one.signs_from_ms) {
            Some(from) => {
                from.saturating_add(milliseconds(ROTATE)).max(now.saturating_add(milliseconds(AHEAD)))
            }
            // No key signs until this one does.
            None => now.saturating_add(milliseconds(SEEN)),
        };
        if let Some(one) = made.iter_mut().find(|one| Arc::ptr_eq(&one.key, key)) {
            one.published_until_ms = until_ms;
            one.signs_from_ms.get_or_insert(first_use);
        }
    }

    /// Publishes a key; returns the time until which it is published at least.
    async fn publish(&self, key: &PublicKey) -> Result<u64, PublishError> {
        let until_ms = (self.clock)().saturating_add(milliseconds(PUBLISH_FOR));
        within(self.store.publish(self.owner, &jwk(key), PUBLISH_FOR)).await?;
        Ok(until_ms)
    }

    /// Shortens the publication of this gateway's keys, because it signs nothing more.
    pub async fn withdraw(&self) {
        if let Err(error) = within(self.store.withdraw(self.owner, REST)).await {
            tracing::debug!(%error, "publication of this gateway's keys could not be shortened and expires by itself");
        }
    }

    /// Returns the public halves of this gateway's keys that services may need.
    fn public(&self) -> Vec<PublicKey> {
        match &self.signing {
            Signing::Given { current, previous, .. } => {
                [Some(current.public()), previous.as_ref()].into_iter().flatten().cloned().collect()
            }
            Signing::Made(made) => {
                let now = (self.clock)();
                let made = made.lock();
                let published = made.iter().rev().filter(|one| one.published_until_ms > now);
                published.map(|one| one.key.public().clone()).collect()
            }
        }
    }
}

fn jwk(key: &PublicKey) -> PublicJwk {
    PublicJwk { kid: key.kid().to_owned(), jwk: key.jwk().to_string() }
}

#[cfg(test)]
pub(super) mod tests;
