//! Public halves of the keys with which gateways sign the platform's tokens: each gateway publishes its own, and
//! services verify tokens with all of them.
//!
//! Owns: the [`PublishedKeys`] port. Refuses: private halves, except sealed ones of the keys that all gateways share
//! ([`CARDS`]); and to read what it stores. Keeps true: a key stays published until it expires, regardless of its gateway
//! and that gateway's lease; its expiry never becomes earlier unless its gateway withdraws it; keys are bounded per
//! gateway and in total (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::OwnerId;

mod memory;

pub use memory::MemoryKeys;

/// Maximum number of keys of one gateway: the current, the next and the previous one, and one more in case its clock
/// differs from the store's.
pub const MAX_OF_GATEWAY: u32 = 4;
/// Maximum number of keys of all gateways: as a JWK set they stay below 50 KiB, the default limit of libraries that
/// services use (Nimbus JOSE + JWT).
pub const MAX_KEYS: u32 = 200;
/// Maximum length of a key's id in bytes; it is a thumbprint.
pub const MAX_KID: usize = 64;
/// Maximum length of a P-256 key as a JWK in bytes, with its sealed private half and a margin.
pub const MAX_JWK: usize = 512;

/// Owner of the keys on P-256 that sign agent cards. All gateways share them: their JWKs contain the private half, sealed.
/// No gateway has this id.
pub const P256_CARDS: OwnerId = OwnerId(*b"asp/agent-card/1");
/// The same for keys on Ed25519, which have a bound of their own.
pub const ED25519_CARDS: OwnerId = OwnerId(*b"asp/agent-card/2");
/// The owners of keys that sign agent cards.
pub const CARDS: [OwnerId; 2] = [P256_CARDS, ED25519_CARDS];

/// A key to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicJwk {
    /// Key id of at most [`MAX_KID`] bytes.
    pub kid: String,
    /// JSON (RFC 7517) of at most [`MAX_JWK`] bytes.
    pub jwk: String,
}

/// A published key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKey {
    /// Gateway that publishes it; several gateways may publish the same key.
    pub owner: OwnerId,
    pub key: PublicJwk,
    /// Time until it expires, by the store's clock.
    pub left: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("published keys are not available: {0}")]
    Unavailable(String),
    #[error(
        "the limit of published keys is reached ({MAX_KEYS} in total, {MAX_OF_GATEWAY} per gateway): keys of stopped \
         gateways expire by themselves"
    )]
    Full,
    #[error("a key to publish is too large")]
    TooLarge,
}

/// Store of published keys. Once [`PublishedKeys::publish`] has returned `Ok`, every gateway on the same store reads
/// the key.
#[async_trait]
pub trait PublishedKeys: Send + Sync {
    /// Publishes a key of `owner` for `lasts` from now on, or until its earlier expiry if that is later.
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError>;

    /// Returns all keys that have not expired.
    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError>;

    /// Withdraws the keys of an owner that no longer signs: they expire after `rest` at the latest.
    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError>;
}

/// Rejects keys that are too large for a row.
pub(crate) fn bounded(key: &PublicJwk) -> Result<(), PublishError> {
    match key.kid.len() <= MAX_KID && key.jwk.len() <= MAX_JWK {
        true => Ok(()),
        false => Err(PublishError::TooLarge),
    }
}

/// Returns the time left until `until_ms`.
pub(crate) fn time_left(until_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or_default())
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
