//! Bytes that calls leave behind: artifacts, readable by their owner until their time ends.
//!
//! Owns: the [`Blobs`] port and its backends, a directory and memory; for several machines there is `s3`. Refuses: judging
//! who may read; it keeps the owner and the caller compares. Keeps true: a blob appears whole or not at all; one blob and one org's
//! blobs are bounded, empty ones too; what has expired is gone.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::link::Link;

mod disk;
mod memory;

pub use disk::DiskBlobs;
pub use memory::MemoryBlobs;

/// Largest blob in bytes.
pub const MAX_BLOB: u64 = 64 << 20;
/// What a blob counts for beside its own bytes: without it an org could fill a disk with empty ones. It is
/// what the longest description takes on a disk with blocks of 4 KiB.
pub const EACH: u64 = 8 * 1024;

/// What one org may keep, in bytes.
pub(crate) const ORG_QUOTA: u64 = 1 << 30;

/// 128 random bits, 32 hex digits in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlobId(String);

impl BlobId {
    /// An id nobody can guess.
    pub fn random(bits: u128) -> BlobId {
        BlobId(format!("{bits:032x}"))
    }

    /// Reads an id; `None` for anything that is none, so that an id is always a safe file name.
    pub fn parse(text: &str) -> Option<BlobId> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(hex)).then(|| BlobId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is known of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobMeta {
    pub org: String,
    /// Who may read it, as the gateway names principals.
    pub owner: Vec<u8>,
    /// The server it was made on.
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

/// Keeps blobs.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Begins a blob. It is there when the upload is finished, and counts against the org's quota meanwhile.
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError>;

    /// A blob of an org that has not expired.
    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError>;

    /// A URL by which whoever has it reads a blob for a while, and the blob's size in bytes, where the operator wants such
    /// URLs.
    async fn link(&self, _org: &str, _id: &BlobId) -> Result<Option<(BlobMeta, u64, Link)>, BlobError> {
        Ok(None)
    }

    /// Deletes what has expired; run from time to time.
    async fn sweep(&self) -> Result<(), BlobError>;
}

/// A blob that is being written. Dropping it leaves nothing behind.
#[async_trait]
pub trait Upload: Send {
    /// Appends bytes.
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError>;

    /// Makes the blob readable; `meta.org` is the org it was created for.
    async fn finish(self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError>;
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
