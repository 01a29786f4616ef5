//! Files in directories of owners, within a quota of each owner: the part that the disk backends of blobs and packages
//! share.
//!
//! Owns: the usage of each owner, and a file while it is written. Refuses: to decide when a file becomes visible, which
//! its backend does. Keeps true: files being written count from their start; a file that is not kept is removed and
//! releases its capacity, and no file that existed before is.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

use crate::private;

/// Bytes and number of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileUsage {
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

/// Reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The limit that the owner's files would exceed.
    #[error("the owner's files use up their quota")]
    Full(FileUsage),
    #[error("{0}")]
    Failed(#[from] io::Error),
}

/// Usage of each owner, by the name of its directory, and the limit that is the same for all. Bounded by the owners
/// that have written files.
#[derive(Clone)]
pub(crate) struct OwnerUsage {
    used: Arc<Mutex<HashMap<String, FileUsage>>>,
    limit: FileUsage,
}

impl OwnerUsage {
    pub(crate) fn new(limit: FileUsage) -> OwnerUsage {
        OwnerUsage { used: Arc::default(), limit }
    }

    /// Sets the usage of an owner, as found at the start.
    pub(crate) fn set(&self, owner: String, used: FileUsage) {
        self.used.lock().insert(owner, used);
    }

    /// Releases the capacity of deleted files.
    pub(crate) fn release(&self, owner: &str, freed: FileUsage) {
        if let Some(used) = self.used.lock().get_mut(owner) {
            used.bytes = used.bytes.saturating_sub(freed.bytes);
            used.files = used.files.saturating_sub(freed.files);
        }
    }
}

/// Capacity reserved for one file, released on drop unless kept.
struct FileReservation {
    usage: OwnerUsage,
    owner: String,
    taken: FileUsage,
}

impl FileReservation {
    fn take(&mut self, more: FileUsage) -> Result<(), FileError> {
        let mut used = self.usage.used.lock();
        let used = used.entry(self.owner.clone()).or_default();
        let limit = self.usage.limit;
        let after = FileUsage { bytes: used.bytes + more.bytes, files: used.files + more.files };
        if after.bytes > limit.bytes || after.files > limit.files {
            return Err(FileError::Full(limit));
        }
        *used = after;
        self.taken.bytes += more.bytes;
        self.taken.files += more.files;
        Ok(())
    }
}

impl Drop for FileReservation {
    fn drop(&mut self) {
        self.usage.release(&self.owner, self.taken);
    }
}

/// A file being written. Dropping it removes it and releases its capacity, unless it is kept.
pub(crate) struct UnfinishedFile {
    file: File,
    path: PathBuf,
    size: u64,
    reservation: FileReservation,
    is_kept: bool,
}

impl UnfinishedFile {
    /// Creates a file that does not exist yet, and charges its owner `each` bytes in addition to the content.
    pub(crate) async fn create(
        path: PathBuf,
        usage: &OwnerUsage,
        owner: &str,
        each: u64,
    ) -> Result<UnfinishedFile, FileError> {
        let (usage, owner) = (usage.clone(), owner.to_owned());
        let mut reservation = FileReservation { usage, owner, taken: FileUsage::default() };
        reservation.take(FileUsage { bytes: each, files: 1 })?;
        let file = File::options().write(true).create_new(true).mode(private::FILE).open(&path).await?;
        Ok(UnfinishedFile { file, path, size: 0, reservation, is_kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes, if the owner has capacity for them.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), FileError> {
        let bytes = piece.len() as u64;
        self.reservation.take(FileUsage { bytes, files: 0 })?;
        self.size += bytes;
        Ok(self.file.write_all(piece).await?)
    }

    /// Writes all bytes to the disk.
    pub(crate) async fn sync(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.sync_data().await
    }

    /// Keeps the file and its capacity; its name may have changed.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
        self.reservation.taken = FileUsage::default();
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // A single fast system call, and only after a failure.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the names of the owners' directories, sorted.
pub(crate) async fn owners(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(directory).await?;
    while let Some(entry) = entries.next_entry().await? {
        let is_directory = entry.file_type().await.is_ok_and(|kind| kind.is_dir());
        found.extend(entry.file_name().to_str().filter(|_| is_directory).map(str::to_owned));
    }
    found.sort();
    Ok(found)
}

/// Reads the description of a file; `None` if there is none that can be decoded. An error says nothing about the file,
/// for example if this process has no free file descriptors.
pub(crate) async fn describe<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path).await {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("read {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FileUsage = FileUsage { bytes: 6, files: 2 };

    fn used(usage: &OwnerUsage) -> FileUsage {
        usage.used.lock().get("acme").copied().unwrap_or_default()
    }

    #[tokio::test]
    async fn a_file_that_is_not_kept_is_removed_and_takes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let usage = OwnerUsage::new(LIMIT);
        for name in ["a", "b", "c"] {
            let path = directory.path().join(name);
            let mut file = UnfinishedFile::create(path.clone(), &usage, "acme", 2).await.unwrap();
            file.write(b"four").await.unwrap();
            assert!(matches!(file.write(b"x").await, Err(FileError::Full(LIMIT))));
            assert_eq!((file.size(), used(&usage)), (4, FileUsage { bytes: 6, files: 1 }));
            drop(file);
            assert!(!path.exists());
        }
        assert_eq!(used(&usage), FileUsage::default());
    }

    #[tokio::test]
    async fn a_file_that_is_kept_counts_until_it_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let usage = OwnerUsage::new(LIMIT);
        for name in ["a", "b"] {
            let path = directory.path().join(name);
            let mut file = UnfinishedFile::create(path.clone(), &usage, "acme", 1).await.unwrap();
            file.write(b"x").await.unwrap();
            file.sync().await.unwrap();
            file.keep();
            drop(file);
            assert_eq!(std::fs::read(path).unwrap(), b"x");
        }
        assert_eq!(used(&usage), FileUsage { bytes: 4, files: 2 });
        let third = directory.path().join("c");
        let refused = UnfinishedFile::create(third.clone(), &usage, "acme", 0).await;
        assert!(matches!(refused, Err(FileError::Full(LIMIT))), "two files");
        assert!(!third.exists());
        usage.release("acme", FileUsage { bytes: 2, files: 1 });
        drop(UnfinishedFile::create(third, &usage, "acme", 0).await.unwrap());
    }

    #[tokio::test]
    async fn a_file_of_somebody_else_is_neither_replaced_nor_removed() {
        let directory = tempfile::tempdir().unwrap();
        let usage = OwnerUsage::new(LIMIT);
        let path = directory.path().join("a");
        std::fs::write(&path, b"theirs").unwrap();
        let refused = UnfinishedFile::create(path.clone(), &usage, "acme", 2).await;
        assert!(matches!(refused, Err(FileError::Failed(_))));
        assert_eq!(std::fs::read(path).unwrap(), b"theirs");
        assert_eq!(used(&usage), FileUsage::default());
    }
}
