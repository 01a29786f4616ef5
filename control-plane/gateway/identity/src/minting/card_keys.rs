//! The keys that sign agent cards, which all gateways share, one of each algorithm: generated at the first card, sealed in
//! the store, replaced after 90 days.
//!
//! Keeps true: a key is published for as long again after it signed its last card; for a week the old and the new key of an
//! algorithm both sign, so that a verifier may know either; a key that this gateway cannot open signs nothing here and stays
//! published. Gateways that start together may each add a key, and then all sign with the oldest.

use std::sync::Arc;
use std::time::Duration;

use asp_call::seal::{Purpose, SealError, Sealer};
use asp_store::published_keys::{PublicJwk, PublishError, PublishedKey, PublishedKeys};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::key_set::{FRESH, within};
use super::keys::KeyError;

mod pair;

use pair::CardPublicKey;
pub use pair::{CardAlgorithm, CardSigningKey};

/// Time for which a key signs.
const SIGNS: Duration = Duration::from_secs(90 * 24 * 3600);
/// Time for which a key stays published after it signed its last card.
const REST: Duration = SIGNS;
/// Time for which a key and its successor both sign: longer than verifiers cache a key set.
const OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);
/// Member of a JWK in the store with the private half, sealed for its `kid`.
const SEALED: &str = "sealed";

/// The reason why no key can be added.
#[derive(Debug, thiserror::Error)]
enum CardKeyError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// The keys that sign agent cards.
pub struct CardKeys {
    store: Arc<dyn PublishedKeys>,
    sealer: Arc<Sealer>,
    known: Mutex<KnownCardKeys>,
}

/// The keys as last read from the store.
#[derive(Default)]
struct KnownCardKeys {
    /// Ordered by algorithm, the oldest first.
    keys: Vec<SharedKey>,
    /// Time of the last read, successful or not.
    asked: Option<Instant>,
    is_failing: bool,
}

struct SharedKey {
    public: CardPublicKey,
    /// `None` if it was sealed with a key that this gateway does not have.
    signing: Option<Arc<CardSigningKey>>,
    /// End of publication.
    until: Instant,
}

impl SharedKey {
    /// Returns the position among the keys.
    fn order(&self) -> (CardAlgorithm, Instant, &str) {
        (self.public.algorithm(), self.until, self.public.kid())
    }

    /// Returns the key if it signs for longer than this.
    fn signs_for(&self, longer: Duration) -> Option<&Arc<CardSigningKey>> {
        self.signing.as_ref().filter(|_| self.until > Instant::now() + REST + longer)
    }
}

impl CardKeys {
    pub fn new(store: Arc<dyn PublishedKeys>, sealer: Arc<Sealer>) -> CardKeys {
        CardKeys { store, sealer, known: Mutex::default() }
    }

    /// Returns the keys that sign a card now: one of each algorithm, and its successor in the last week. None if the store
    /// has not answered yet.
    pub async fn signers(&self) -> Vec<Arc<CardSigningKey>> {
        let known = self.fresh().await;
        CardAlgorithm::ALL.into_iter().flat_map(|algorithm| signers(&known.keys, algorithm)).collect()
    }

    /// Returns the published keys as a JWK set (RFC 7517 section 5).
    pub async fn jwks(&self) -> Value {
        let known = self.fresh().await;
        let now = Instant::now();
        let published = known.keys.iter().filter(|key| key.until > now);
        json!({"keys": published.map(|key| key.public.jwk()).collect::<Vec<_>>()})
    }

    /// Returns the keys, read again if they are stale. Concurrent requests wait for the same read.
    async fn fresh(&self) -> MutexGuard<'_, KnownCardKeys> {
        let mut known = self.known.lock().await;
        if known.asked.is_some_and(|at| at.elapsed() < FRESH) {
            return known;
        }
        let renewed = self.renew(&mut known.keys).await;
        match renewed {
            Ok(()) => known.is_failing = false,
            // Logged once, because anyone may send requests.
            Err(error) if !std::mem::replace(&mut known.is_failing, true) => {
                tracing::warn!(%error, "key that signs agent cards could not be read or added; known keys sign until they expire, and without one cards are unsigned: check the store");
            }
            Err(_) => {}
        }
        known.asked = Some(Instant::now());
        known
    }

    /// Reads the keys, and adds one of each algorithm whose newest is about to retire.
    async fn renew(&self, known: &mut Vec<SharedKey>) -> Result<(), CardKeyError> {
        *known = self.read().await?;
        let due: Vec<CardAlgorithm> = retiring(known).collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut added = Ok(());
        for algorithm in due {
            added = added.and(self.add(algorithm).await);
        }
        *known = self.read().await?;
        // Other gateways may have left no capacity for this key, but one of theirs.
        if retiring(known).next().is_none() { Ok(()) } else { added }
    }

    async fn add(&self, algorithm: CardAlgorithm) -> Result<(), CardKeyError> {
        let key = CardSigningKey::generate(algorithm)?;
        let kid = key.public().kid();
        let mut jwk = key.public().jwk();
        if let Some(members) = jwk.as_object_mut() {
            let sealed = self.sealer.seal(Purpose::CardKey, kid.as_bytes(), &key.to_pkcs8()?)?;
            members.insert(SEALED.to_owned(), sealed.into());
        }
        let jwk = PublicJwk { kid: kid.to_owned(), jwk: jwk.to_string() };
        within(self.store.publish(algorithm.owner(), &jwk, SIGNS + REST)).await?;
        Ok(())
    }

    async fn read(&self) -> Result<Vec<SharedKey>, PublishError> {
        let published = within(self.store.published()).await?;
        let now = Instant::now();
        let mut keys: Vec<SharedKey> = published.iter().filter_map(|one| self.open(one, now)).collect();
        // Every gateway has the same order.
        keys.sort_by(|one, other| one.order().cmp(&other.order()));
        Ok(keys)
    }

    fn open(&self, published: &PublishedKey, now: Instant) -> Option<SharedKey> {
        let of_cards = |algorithm: &CardAlgorithm| algorithm.owner() == published.owner;
        let algorithm = CardAlgorithm::ALL.into_iter().find(of_cards)?;
        let jwk: Value = serde_json::from_str(&published.key.jwk).ok()?;
        let public = CardPublicKey::from_jwk(&jwk).ok().filter(|key| key.algorithm() == algorithm)?;
        let sealed = jwk.get(SEALED).and_then(Value::as_str).unwrap_or_default();
        let opened = self.sealer.open(Purpose::CardKey, public.kid().as_bytes(), sealed);
        let signing = opened.and_then(|der| CardSigningKey::from_pkcs8(algorithm, &der).ok());
        let signing = signing.filter(|key| *key.public() == public).map(Arc::new);
        Some(SharedKey { public, signing, until: now.checked_add(published.left)? })
    }
}

/// Returns the keys of an algorithm that sign now.
fn signers(keys: &[SharedKey], algorithm: CardAlgorithm) -> Vec<Arc<CardSigningKey>> {
    let signs =
        |key: &&SharedKey| key.public.algorithm() == algorithm && key.signs_for(Duration::ZERO).is_some();
    let mut signing = keys.iter().filter(signs);
    let Some(oldest) = signing.next() else { return Vec::new() };
    let successor = match oldest.signs_for(OVERLAP) {
        Some(_) => None,
        None => signing.next_back(),
    };
    [Some(oldest), successor].into_iter().flatten().filter_map(|key| key.signing.clone()).collect()
}

/// Returns the algorithms of which every key is about to retire.
fn retiring(keys: &[SharedKey]) -> impl Iterator<Item = CardAlgorithm> {
    let lasts = |key: &SharedKey, algorithm: CardAlgorithm| {
        key.public.algorithm() == algorithm && key.signs_for(OVERLAP).is_some()
    };
    CardAlgorithm::ALL.into_iter().filter(move |algorithm| !keys.iter().any(|key| lasts(key, *algorithm)))
}

#[cfg(test)]
mod tests;
