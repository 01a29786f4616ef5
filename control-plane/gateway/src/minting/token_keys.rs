//! The keys by which one gateway signs the platform's tokens: made here, held in memory alone, changed every day; or the
//! operator's.
//!
//! Keeps true: a key that was made here signs nothing before it is published, and nothing that would outlive its
//! publication, whatever becomes of this process and of the store; the next key is published long before it signs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp_store::published_keys::{MemoryKeys, PublicJwk, PublishError, PublishedKey, PublishedKeys};
use asp_store::records::OwnerId;
use parking_lot::Mutex;
use serde_json::Value;

use super::key_set::{FRESH, KeySet, milliseconds, within};
use super::keys::{KeyError, PublicKey, SigningKey};
use super::{Clock, MAX_LIFE};

/// How long a key signs before the next one does.
const ROTATE: Duration = Duration::from_secs(24 * 3600);
/// How long the next key is published before it signs: longer than services keep a key set that do not fetch it again when
/// they meet a new key.
const AHEAD: Duration = Duration::from_secs(3600);
/// How long a key is published after its last token was signed: that token's life, and a service's wrong clock.
const REST: Duration = MAX_LIFE.saturating_add(Duration::from_secs(5 * 60));
/// How long a key is published for at a time. Where the store takes nothing any more, a gateway goes on signing for this
/// long without [`REST`]; and this long is a key published of a gateway that was killed.
const PUBLISH_FOR: Duration = Duration::from_secs(2 * 3600);
/// A key that is published for less than this is published anew: half an hour after the last time.
const RENEW_BELOW: Duration = PUBLISH_FOR.saturating_sub(Duration::from_secs(30 * 60));
/// How long a key signs before the next one is made.
const ALONE: Duration = ROTATE.saturating_sub(AHEAD);
/// From then on every other gateway tells a new key: its set may be [`FRESH`] old, and as long may a cache before it be.
const SEEN: Duration = FRESH.saturating_mul(2);
/// Interval of looks at what is due.
pub const KEEP_EVERY: Duration = Duration::from_secs(30);
/// Pause before what failed is tried again: until then a gateway that started without the store may have no key that signs.
pub const KEEP_AGAIN: Duration = Duration::from_secs(5);

/// A gateway cannot begin to sign.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key that signs this gateway's tokens cannot be published: {0}")]
    Publish(#[from] PublishError),
}

/// The keys of one gateway.
pub struct TokenKeys {
    store: Arc<dyn PublishedKeys>,
    owner: OwnerId,
    clock: Clock,
    signing: Signing,
    set: KeySet,
    is_failing: AtomicBool,
}

enum Signing {
    /// The operator's, the same at every gateway; of the one before only the public half is needed.
    Given { current: Arc<SigningKey>, previous: Option<PublicKey>, published_until_ms: AtomicU64 },
    /// The oldest first; at most the one before, the current and the next.
    Made(Mutex<Vec<MadeKey>>),
}

struct MadeKey {
    key: Arc<SigningKey>,
    /// Unix milliseconds; `None` until it was published.
    signs_from_ms: Option<u64>,
    /// Unix milliseconds; 0 before.
    published_until_ms: u64,
}

impl MadeKey {
    fn new() -> Result<MadeKey, KeyError> {
        Ok(MadeKey { key: Arc::new(SigningKey::generate()?), signs_from_ms: None, published_until_ms: 0 })
    }

    /// Whether what it signs at `now` ends before its publication does.
    fn signs(&self, now: u64) -> bool {
        let published = self.published_until_ms >= now.saturating_add(milliseconds(REST));
        published && self.signs_from_ms.is_some_and(|from| from <= now)
    }

    fn is_due_to_be_published(&self, now: u64) -> bool {
        self.published_until_ms < now.saturating_add(milliseconds(RENEW_BELOW))
    }
}

impl TokenKeys {
    /// Makes a key and publishes it. Where other gateways run, returns when each of them tells the key. If the store is away, or as
    /// many keys are published as may be, starts without a key that signs: [`TokenKeys::keep`] publishes it later. Keys of gateways
    /// that were killed stay published for up to [`PUBLISH_FOR`].
    pub async fn start(store: Arc<dyn PublishedKeys>, clock: Clock) -> Result<TokenKeys, StartError> {
        let mut first = MadeKey::new()?;
        let keys = TokenKeys::of(store, clock, Signing::Made(Mutex::default()));
        match keys.publish(first.key.public()).await {
            Ok(until_ms) => first.published_until_ms = until_ms,
            Err(error) => {
                tracing::warn!(%error, "this gateway starts without a key for the platform's token: calls that need one are refused until its key is published, which is tried again every few seconds");
                // `keep` does not say it again.
                keys.is_failing.store(true, Ordering::Relaxed);
                if let Signing::Made(made) = &keys.signing {
                    made.lock().push(first);
                }
                return Ok(keys);
            }
        }
        first.signs_from_ms = Some((keys.clock)());
        // Of a gateway that has ended properly no key lasts as long.
        let is_other = |one: &PublishedKey| one.left > REST && one.owner != keys.owner;
        // Where the store does not say, there may be some.
        let has_others = keys.set.read().await.map_or(true, |published| published.iter().any(is_other));
        if let Signing::Made(made) = &keys.signing {
            made.lock().push(first);
        }
        if has_others {
            tokio::time::sleep(SEEN).await;
        }
        Ok(keys)
    }

    /// The operator's keys, of which every gateway has the same: they sign, published or not.
    pub fn given(
        (current, previous): (SigningKey, Option<PublicKey>),
        store: Arc<dyn PublishedKeys>,
        clock: Clock,
    ) -> TokenKeys {
        let current = Arc::new(current);
        let signing = Signing::Given { current, previous, published_until_ms: AtomicU64::new(0) };
        TokenKeys::of(store, clock, signing)
    }

    /// A key of this process alone, for tests.
    pub fn alone() -> Result<TokenKeys, KeyError> {
        let store = Arc::new(MemoryKeys::default());
        Ok(TokenKeys::given((SigningKey::generate()?, None), store, super::wall_clock()))
    }

    fn of(store: Arc<dyn PublishedKeys>, clock: Clock, signing: Signing) -> TokenKeys {
        let set = KeySet::new(store.clone(), clock.clone());
        let owner = OwnerId(rand::random());
        TokenKeys { store, owner, clock, signing, set, is_failing: AtomicBool::new(false) }
    }

    /// This run of this gateway, as the stores know it.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The public halves of the keys of every gateway, as a JWK set (RFC 7517 section 5).
    pub async fn jwks(&self) -> Value {
        self.set.jwks(&self.public()).await
    }

    /// A key whose tokens services can verify until they end; `None` where none is published for so long.
    pub(super) fn signer(&self) -> Option<Arc<SigningKey>> {
        match &self.signing {
            Signing::Given { current, .. } => Some(current.clone()),
            Signing::Made(made) => {
                let now = (self.clock)();
                made.lock().iter().rev().find(|one| one.signs(now)).map(|one| one.key.clone())
            }
        }
    }

    /// Does what is due: the next key, and that keys stay published. Returns whether that was done. Run every [`KEEP_EVERY`], and
    /// [`KEEP_AGAIN`] after it was not.
    pub async fn keep(&self) -> bool {
        let kept = match &self.signing {
            Signing::Given { published_until_ms, .. } => {
                self.keep_given(published_until_ms).await.map_err(StartError::Publish)
            }
            Signing::Made(made) => self.keep_made(made).await,
        };
        let is_done = kept.is_ok();
        match kept {
            Ok(()) => self.is_failing.store(false, Ordering::Relaxed),
            // Said once: it is tried again soon.
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the keys of this gateway's tokens cannot be published; the present one signs on for at most 100 minutes, and then calls go without the platform's token: check the store");
            }
            Err(_) => {}
        }
        is_done
    }

    /// The operator says how long a key serves; that it is published is for gateways that do not have it.
    async fn keep_given(&self, published_until_ms: &AtomicU64) -> Result<(), PublishError> {
        let due = (self.clock)().saturating_add(milliseconds(RENEW_BELOW));
        if published_until_ms.load(Ordering::Relaxed) >= due {
            return Ok(());
        }
        let mut until = u64::MAX;
        for key in self.public() {
            until = until.min(self.publish(&key).await?);
        }
        published_until_ms.store(until, Ordering::Relaxed);
        Ok(())
    }

    async fn keep_made(&self, made: &Mutex<Vec<MadeKey>>) -> Result<(), StartError> {
        for key in self.due(made)? {
            let until = self.publish(key.public()).await?;
            self.published(made, &key, until);
        }
        Ok(())
    }

    /// What is to be published now, the next key among it where it is time for one.
    fn due(&self, made: &Mutex<Vec<MadeKey>>) -> Result<Vec<Arc<SigningKey>>, KeyError> {
        let now = (self.clock)();
        let mut made = made.lock();
        // One that waits to be published is kept: the store may have taken what it did not acknowledge.
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
        // Of those before the one that signs nothing new is signed, and their time runs out.
        let signing = made.iter().rposition(|one| one.signs_from_ms.is_some_and(|from| from <= now));
        let lasting = made.iter().skip(signing.unwrap_or_default());
        Ok(lasting.filter(|one| one.is_due_to_be_published(now)).map(|one| one.key.clone()).collect())
    }

    fn published(&self, made: &Mutex<Vec<MadeKey>>, key: &Arc<SigningKey>, until_ms: u64) {
        let now = (self.clock)();
        let mut made = made.lock();
        let before = made.iter().rev().find(|one| one.signs_from_ms.is_some() && !Arc::ptr_eq(&one.key, key));
        let first_use = match before.filter(|one| one.signs(now)).and_then(|one| one.signs_from_ms) {
            Some(from) => {
                from.saturating_add(milliseconds(ROTATE)).max(now.saturating_add(milliseconds(AHEAD)))
            }
            // None signs until this one does.
            None => now.saturating_add(milliseconds(SEEN)),
        };
        if let Some(one) = made.iter_mut().find(|one| Arc::ptr_eq(&one.key, key)) {
            one.published_until_ms = until_ms;
            one.signs_from_ms.get_or_insert(first_use);
        }
    }

    /// Returns until when it is published at least.
    async fn publish(&self, key: &PublicKey) -> Result<u64, PublishError> {
        let until_ms = (self.clock)().saturating_add(milliseconds(PUBLISH_FOR));
        within(self.store.publish(self.owner, &jwk(key), PUBLISH_FOR)).await?;
        Ok(until_ms)
    }

    /// This gateway signs nothing any more.
    pub async fn withdraw(&self) {
        if let Err(error) = within(self.store.withdraw(self.owner, REST)).await {
            tracing::debug!(%error, "the keys of this gateway end by themselves");
        }
    }

    /// The public halves of this gateway's own keys that services may need.
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
mod tests;
