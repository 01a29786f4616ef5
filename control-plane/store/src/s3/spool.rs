//! Bytes on their way to the store: in memory while they are few, then in an unnamed file that ends with the process.
//!
//! Keeps true: at most one step and the last piece are in memory; each attempt to send starts at the beginning.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use reqwest::Body;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

/// Bytes read from the file at a time.
const PIECE: usize = 256 << 10;

/// Complete content of an upload.
pub(super) struct SpooledContent {
    bytes: ContentBytes,
    size: u64,
    sha256: [u8; 32],
}

enum ContentBytes {
    Memory(Bytes),
    File(Arc<File>),
}

/// Content of an upload in progress.
pub(super) struct Spool {
    file: Option<Arc<File>>,
    written: u64,
    waiting: Vec<u8>,
    hash: Sha256,
}

impl Spool {
    pub(super) fn new() -> Spool {
        Spool { file: None, written: 0, waiting: Vec::new(), hash: Sha256::new() }
    }

    pub(super) fn size(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Returns the number of bytes in memory.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.waiting.extend_from_slice(piece);
    }

    /// Writes the bytes in memory to a file below the directory.
    pub(super) async fn flush(&mut self, directory: &Path) -> std::io::Result<()> {
        let bytes = std::mem::take(&mut self.waiting);
        let file = self.file.clone();
        let at = self.written;
        let length = bytes.len() as u64;
        let directory = directory.to_owned();
        let written = spawn_blocking(move || -> std::io::Result<Arc<File>> {
            let file = match file {
                Some(file) => file,
                None => Arc::new(tempfile::tempfile_in(directory)?),
            };
            file.write_all_at(&bytes, at)?;
            Ok(file)
        });
        self.file = Some(written.await.map_err(std::io::Error::other)??);
        self.written += length;
        Ok(())
    }

    /// Completes the content. It stays in memory only if no file was needed.
    pub(super) async fn finish(mut self, directory: &Path) -> std::io::Result<SpooledContent> {
        if self.file.is_some() && !self.waiting.is_empty() {
            self.flush(directory).await?;
        }
        let size = self.size();
        let bytes = match self.file {
            Some(file) => ContentBytes::File(file),
            None => ContentBytes::Memory(self.waiting.into()),
        };
        Ok(SpooledContent { bytes, size, sha256: self.hash.finalize().into() })
    }
}

impl SpooledContent {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// Returns a request body that starts at the beginning.
    pub(super) fn body(&self) -> Body {
        let file = match &self.bytes {
            ContentBytes::Memory(bytes) => return bytes.clone().into(),
            ContentBytes::File(file) => file.clone(),
        };
        let size = self.size;
        Body::wrap_stream(stream::try_unfold(0, move |at: u64| {
            let file = file.clone();
            async move {
                if at >= size {
                    return Ok::<_, std::io::Error>(None);
                }
                let length = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
                let read = spawn_blocking(move || -> std::io::Result<Vec<u8>> {
                    let mut piece = vec![0; length];
                    file.read_exact_at(&mut piece, at)?;
                    Ok(piece)
                });
                let piece = read.await.map_err(std::io::Error::other)??;
                Ok(Some((Bytes::from(piece), at + length as u64)))
            }
        }))
    }
}
