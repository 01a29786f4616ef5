//! Blobs in memory, for tests only.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::{BlobError, BlobId, BlobMeta, Blobs, EACH, MAX_BLOB, Upload};
use crate::clock::now_ms;

/// Maximum bytes of all orgs together.
const MAX_BYTES: u64 = 256 << 20;

/// Blobs of one process.
pub struct MemoryBlobs {
    kept: Arc<Mutex<HashMap<BlobId, (BlobMeta, Bytes)>>>,
    /// Bytes of all orgs together.
    quota: u64,
}

impl Default for MemoryBlobs {
    fn default() -> MemoryBlobs {
        MemoryBlobs { kept: Arc::default(), quota: MAX_BYTES }
    }
}

struct MemoryUpload {
    kept: Arc<Mutex<HashMap<BlobId, (BlobMeta, Bytes)>>>,
    quota: u64,
    id: BlobId,
    bytes: BytesMut,
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn create(&self, id: BlobId, _org: &str) -> Result<Box<dyn Upload>, BlobError> {
        Ok(Box::new(MemoryUpload { kept: self.kept.clone(), quota: self.quota, id, bytes: BytesMut::new() }))
    }

    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError> {
        let kept = self.kept.lock();
        Ok(kept.get(id).filter(|(meta, _)| meta.org == org && meta.expires_ms > now_ms()).cloned())
    }

    async fn sweep(&self) -> Result<(), BlobError> {
        let now = now_ms();
        self.kept.lock().retain(|_, (meta, _)| meta.expires_ms > now);
        Ok(())
    }
}

#[async_trait]
impl Upload for MemoryUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        if (self.bytes.len() + piece.len()) as u64 > MAX_BLOB {
            return Err(BlobError::TooLarge);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    async fn finish(self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError> {
        let MemoryUpload { kept, quota, id, bytes } = *self;
        let mut kept = kept.lock();
        let used: u64 = kept.values().map(|(_, bytes)| bytes.len() as u64 + EACH).sum();
        if used + bytes.len() as u64 + EACH > quota {
            return Err(BlobError::Quota);
        }
        kept.insert(id, (meta, bytes.freeze()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        super::super::suite::run(&MemoryBlobs::default()).await;
    }

    #[tokio::test]
    async fn the_memory_backend_counts_empty_blobs() {
        let blobs = MemoryBlobs { quota: super::super::suite::SMALL, ..MemoryBlobs::default() };
        super::super::suite::counts_empty_blobs(&blobs).await;
    }
}
