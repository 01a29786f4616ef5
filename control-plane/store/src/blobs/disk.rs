//! Blobs in a directory: `<org>/<id>.blob` holds the bytes, `<org>/<id>.json` the description; the org is encoded in
//! hex, so that its name is safe. A blob exists if its description does.
//!
//! Keeps true: the description is written last and by rename, so that a crash leaves no partial blob; the bytes of an
//! org's blobs are counted with [`EACH`] for every blob, uploads included, and refused above its quota.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::fs;

use super::{BlobError, BlobId, BlobMeta, Blobs, EACH, MAX_BLOB, ORG_QUOTA, Upload};
use crate::clock::now_ms;
use crate::hex::hex;
use crate::owner_files::{FileError, FileUsage, OwnerUsage, UnfinishedFile, describe, owners};
use crate::private;

/// Blobs below one directory, which only one process uses.
pub struct DiskBlobs {
    directory: PathBuf,
    /// Usage by org directory, uploads included.
    usage: OwnerUsage,
}

from_failure!(std::io::Error => BlobError::Unavailable);

impl From<FileError> for BlobError {
    fn from(error: FileError) -> BlobError {
        match error {
            FileError::Full(_) => BlobError::Quota,
            FileError::Failed(error) => error.into(),
        }
    }
}

impl DiskBlobs {
    /// Opens a directory, creates it if needed, and removes partial blobs of a crash.
    pub async fn open(directory: &Path) -> Result<DiskBlobs, BlobError> {
        DiskBlobs::with_quota(directory, ORG_QUOTA).await
    }

    /// Opens a directory with another quota for each org, in bytes.
    pub async fn with_quota(directory: &Path, quota: u64) -> Result<DiskBlobs, BlobError> {
        private::directory(directory)?;
        // Each blob is charged some bytes, which bounds their number.
        let usage = OwnerUsage::new(FileUsage { bytes: quota, files: usize::MAX });
        let blobs = DiskBlobs { directory: directory.to_owned(), usage };
        blobs.recount(true).await?;
        Ok(blobs)
    }

    /// Deletes expired blobs. `at_start`, also deletes files without a description and counts the bytes of each org.
    async fn recount(&self, at_start: bool) -> Result<(), BlobError> {
        let now = now_ms();
        for org in owners(&self.directory).await? {
            let Ok(mut files) = fs::read_dir(self.directory.join(&org)).await else { continue };
            let mut kept = FileUsage::default();
            while let Some(file) = files.next_entry().await? {
                let path = file.path();
                let size = file.metadata().await.map_or(0, |metadata| metadata.len());
                let description = path.with_extension("json");
                match path.extension().and_then(|extension| extension.to_str()) {
                    Some("json") if may_be_live(&path, now).await => {}
                    Some("json") => {
                        let _ = fs::remove_file(&path).await;
                        let bytes = path.with_extension("blob");
                        let freed = fs::metadata(&bytes).await.map_or(0, |metadata| metadata.len());
                        if fs::remove_file(&bytes).await.is_ok() && !at_start {
                            self.usage.release(&org, FileUsage { bytes: freed + EACH, files: 1 });
                        }
                    }
                    Some("blob") if !at_start || may_be_live(&description, now).await => {
                        kept.bytes += size + EACH;
                        kept.files += 1;
                    }
                    _ if at_start => drop(fs::remove_file(&path).await),
                    _ => {}
                }
            }
            if at_start {
                self.usage.set(org, kept);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Blobs for DiskBlobs {
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError> {
        let org = directory_name(org);
        let directory = self.directory.join(&org);
        private::directory(&directory)?;
        let path = directory.join(id.as_str()).with_extension("blob");
        Ok(Box::new(DiskUpload(UnfinishedFile::create(path, &self.usage, &org, EACH).await?)))
    }

    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError> {
        let path = self.directory.join(directory_name(org)).join(id.as_str()).with_extension("json");
        // Truncated directory names may be shared by two orgs; the description has the full name.
        let meta = describe::<BlobMeta>(&path).await?;
        let Some(meta) = meta.filter(|meta| meta.org == org && meta.expires_ms > now_ms()) else {
            return Ok(None);
        };
        let bytes = fs::read(path.with_extension("blob")).await?;
        Ok(Some((meta, Bytes::from(bytes))))
    }

    async fn sweep(&self) -> Result<(), BlobError> {
        self.recount(false).await
    }
}

struct DiskUpload(UnfinishedFile);

#[async_trait]
impl Upload for DiskUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        if self.0.size() + piece.len() as u64 > MAX_BLOB {
            return Err(BlobError::TooLarge);
        }
        Ok(self.0.write(piece).await?)
    }

    async fn finish(mut self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError> {
        self.0.sync().await?;
        let description = serde_json::to_vec(&meta).map_err(|e| BlobError::Unavailable(e.to_string()))?;
        let path = self.0.path().with_extension("json");
        let written = self.0.path().with_extension("new");
        private::write(&written, description).await?;
        fs::rename(&written, &path).await?;
        self.0.keep();
        Ok(())
    }
}

/// Whether a description is of a live blob, or cannot be read at present.
async fn may_be_live(path: &Path, now: i64) -> bool {
    match describe::<BlobMeta>(path).await {
        Ok(meta) => meta.is_some_and(|meta| meta.expires_ms > now),
        Err(_) => true,
    }
}

/// Returns the org in hex: safe for any text, and unique below 120 bytes.
fn directory_name(org: &str) -> String {
    let bytes = org.as_bytes();
    // File names are limited to 255 bytes. Orgs are far shorter; longer ones are truncated and may share a quota.
    format!("o{}", hex(bytes.get(..120).unwrap_or(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(org: &str, expires_ms: i64) -> BlobMeta {
        BlobMeta {
            org: org.into(),
            owner: b"alice".to_vec(),
            server: "s".into(),
            name: "n".into(),
            content_type: "text/plain".into(),
            expires_ms,
        }
    }

    async fn put(blobs: &DiskBlobs, n: u128, meta: BlobMeta, bytes: &[u8]) -> Result<(), BlobError> {
        let mut upload = blobs.create(BlobId::random(n), &meta.org).await?;
        upload.write(bytes).await?;
        upload.finish(meta).await
    }

    #[tokio::test]
    async fn the_disk_backend_passes_the_suite() {
        let directory = tempfile::tempdir().unwrap();
        super::super::suite::run(&DiskBlobs::open(directory.path()).await.unwrap()).await;
    }

    #[tokio::test]
    async fn blobs_survive_a_restart_and_half_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::open(directory.path()).await.unwrap();
        put(&blobs, 1, meta("../acme", i64::MAX), b"one").await.unwrap();
        let mut half = blobs.create(BlobId::random(2), "../acme").await.unwrap();
        half.write(b"two").await.unwrap();
        // State after a crash.
        std::mem::forget(half);
        let again = DiskBlobs::with_quota(directory.path(), 6 + 2 * EACH).await.unwrap();
        let (found, bytes) = again.read("../acme", &BlobId::random(1)).await.unwrap().unwrap();
        assert_eq!((found.org.as_str(), bytes.as_ref()), ("../acme", &b"one"[..]));
        assert!(again.read("../acme", &BlobId::random(2)).await.unwrap().is_none());
        // Three of six bytes and one of two blobs are used; those of the partial one are free again.
        put(&again, 3, meta("../acme", i64::MAX), b"new").await.unwrap();
        assert!(matches!(put(&again, 4, meta("../acme", i64::MAX), b"").await, Err(BlobError::Quota)));
        put(&again, 5, meta("globex", i64::MAX), b"theirs").await.unwrap();
    }

    #[tokio::test]
    async fn the_disk_backend_counts_empty_blobs() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::with_quota(directory.path(), super::super::suite::SMALL).await.unwrap();
        super::super::suite::counts_empty_blobs(&blobs).await;
    }

    #[tokio::test]
    async fn an_upload_that_could_not_begin_takes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::with_quota(directory.path(), 2 * EACH).await.unwrap();
        put(&blobs, 1, meta("acme", i64::MAX), b"").await.unwrap();
        for _ in 0..3 {
            let again = put(&blobs, 1, meta("acme", i64::MAX), b"").await;
            assert!(matches!(again, Err(BlobError::Unavailable(_))), "its id is used: {again:?}");
        }
        put(&blobs, 2, meta("acme", i64::MAX), b"").await.unwrap();
    }

    #[tokio::test]
    async fn what_expires_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::with_quota(directory.path(), 3 + EACH).await.unwrap();
        put(&blobs, 1, meta("acme", 1), b"old").await.unwrap();
        assert!(matches!(put(&blobs, 2, meta("acme", i64::MAX), b"new").await, Err(BlobError::Quota)));
        blobs.sweep().await.unwrap();
        put(&blobs, 3, meta("acme", i64::MAX), b"new").await.unwrap();
        assert_eq!(std::fs::read_dir(directory.path().join(directory_name("acme"))).unwrap().count(), 2);
    }

    /// A process without free file descriptors reads none.
    #[tokio::test]
    async fn a_blob_whose_description_cannot_be_read_stays() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::open(directory.path()).await.unwrap();
        let id = BlobId::random(1);
        put(&blobs, 1, meta("acme", i64::MAX), b"one").await.unwrap();
        let description =
            directory.path().join(directory_name("acme")).join(id.as_str()).with_extension("json");
        let saved = directory.path().join("saved");
        std::fs::rename(&description, &saved).unwrap();
        // A link to itself cannot be opened.
        std::os::unix::fs::symlink(&description, &description).unwrap();
        blobs.sweep().await.unwrap();
        assert!(matches!(blobs.read("acme", &id).await, Err(BlobError::Unavailable(_))));
        let again = DiskBlobs::open(directory.path()).await.unwrap();
        std::fs::rename(&saved, &description).unwrap();
        assert_eq!(again.read("acme", &id).await.unwrap().unwrap().1.as_ref(), b"one");
    }
}
