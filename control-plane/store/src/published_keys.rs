//! The public halves of the keys by which gateways sign the platform's tokens: each gateway publishes its own, and all of
//! them together are what services verify tokens with.
//!
//! Owns: the [`PublishedKeys`] port. Refuses: private halves, and reading what it keeps. Keeps true: a key stays published
//! until its own time is over, whatever becomes of its gateway and of its lease; a key is never published for less long than
//! was said before, unless its gateway withdraws; keys are bounded for each gateway and in all (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::OwnerId;

mod memory;

pub use memory::MemoryKeys;

/// Most keys of one gateway: the one that signs, the next one, the one before, and one more where its clock is not the
/// store's.
pub const MAX_OF_GATEWAY: u32 = 4;
/// Most keys of all gateways: as a JWK set they stay below 50 KiB, more than which libraries of services do not read (the
/// default of Nimbus JOSE + JWT).
pub const MAX_KEYS: u32 = 200;
/// Bytes of a key's id, which is a thumbprint.
pub const MAX_KID: usize = 64;
/// Bytes of a key on P-256 as a JWK, with room.
pub const MAX_JWK: usize = 512;

/// A key to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicJwk {
    /// At most [`MAX_KID`] bytes.
    pub kid: String,
    /// JSON (RFC 7517), at most [`MAX_JWK`] bytes.
    pub jwk: String,
}

/// A key that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whose it is; several gateways may publish one key.
    pub owner: OwnerId,
    pub key: PublicJwk,
    /// How much longer, by the store's clock.
    pub left: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("published keys are not available: {0}")]
    Unavailable(String),
    #[error(
        "as many keys are published as may be ({MAX_KEYS} in all, {MAX_OF_GATEWAY} of a gateway): those of gateways that are \
         gone end by themselves"
    )]
    Full,
    #[error("a key to publish is too large")]
    TooLarge,
}

/// Keeps the keys. On return of `Ok` from [`PublishedKeys::publish`] every gateway over the same store reads the key.
#[async_trait]
pub trait PublishedKeys: Send + Sync {
    /// Publishes a key of `owner`'s for `lasts` from now on, or for longer where that was said before.
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError>;

    /// Every key whose time is not over.
    async fn published(&self) -> Result<Vec<Published>, PublishError>;

    /// The owner signs nothing any more: its keys are published for another `rest` at most.
    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError>;
}

/// Refuses what no row should hold.
pub(crate) fn bounded(key: &PublicJwk) -> Result<(), PublishError> {
    match key.kid.len() <= MAX_KID && key.jwk.len() <= MAX_JWK {
        true => Ok(()),
        false => Err(PublishError::TooLarge),
    }
}

/// How much longer something lasts that ends at `until_ms`.
pub(crate) fn left(until_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or_default())
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
