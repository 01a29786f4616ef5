//! Artifacts of calls: bytes that their owner can read until they expire.
//!
//! Owns: the [`Blobs`] port and its backends, a directory and memory; `s3` serves several machines. Refuses: to decide
//! who may read; it stores the owner, and the caller compares. Keeps true: a blob appears whole or not at all; the size
//! of one blob and of all blobs of an org is limited, empty ones included; expired blobs are deleted.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hex::is_hex;
use crate::link::Link;

mod disk;
#[cfg(any(test, feature = "testing"))]
mod memory;

pub use disk::DiskBlobs;
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryBlobs;

/// Maximum size of a blob in bytes.
pub const MAX_BLOB: u64 = 64 << 20;
/// Bytes charged for each blob in addition to its content, so that an org cannot fill a disk with empty ones: the space
/// of the longest description on a disk with blocks of 4 KiB.
pub const EACH: u64 = 8 * 1024;

/// Quota of an org in bytes.
pub(crate) const ORG_QUOTA: u64 = 1 << 30;

/// Id of a blob: 128 random bits as 32 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlobId(String);

impl BlobId {
    /// Formats random bits as an id that cannot be guessed.
    pub fn random(bits: u128) -> BlobId {
        BlobId(format!("{bits:032x}"))
    }

    /// Parses an id; `None` for anything else, so that an id is always a safe file name.
    pub fn parse(text: &str) -> Option<BlobId> {
        is_hex(text, 32).then(|| BlobId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Description of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobMeta {
    pub org: String,
    /// Principal who may read it, as the gateway encodes principals.
    pub owner: Vec<u8>,
    /// Server that created it.
    pub server: String,
    pub name: String,
    pub content_type: String,
    /// Unix milliseconds.
    pub expires_ms: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("a blob has at most {MAX_BLOB} bytes")]
    TooLarge,
    #[error("the org's blobs use up their quota")]
    Quota,
    #[error("blobs are not available: {0}")]
    Unavailable(String),
}

/// Store of blobs.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Starts a blob. It becomes readable when the upload is finished, and counts against the org's quota from the
    /// start.
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError>;

    /// Returns a blob of an org unless it has expired.
    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError>;

    /// Returns a URL with which anyone can read a blob for a while, and the blob's size in bytes; `None` unless the
    /// operator enabled such URLs.
    async fn link(&self, _org: &str, _id: &BlobId) -> Result<Option<(BlobMeta, u64, Link)>, BlobError> {
        Ok(None)
    }

    /// Deletes expired blobs; run periodically.
    async fn sweep(&self) -> Result<(), BlobError>;
}

/// A blob being written. Dropping it leaves nothing behind.
#[async_trait]
pub trait Upload: Send {
    /// Appends bytes.
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError>;

    /// Makes the blob readable; `meta.org` must be the org it was created for.
    async fn finish(self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
