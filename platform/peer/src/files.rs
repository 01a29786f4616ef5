//! Values that are read from PEM files, and read again when one of the files changes.
//!
//! Keeps true: files that cannot be used (half written, belonging to another process, missing) leave the previous value
//! in use, and are reported once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::IdentityError;

/// Error for files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("{path}: {fault}")]
    File { path: String, fault: String },
    #[error("{path}: {source}")]
    Identity {
        path: String,
        #[source]
        source: IdentityError,
    },
    #[error("certificate, key and authority do not match: {0}")]
    Tls(String),
}

/// Value read last, and the files it comes from.
pub(crate) struct FileCache<T> {
    files: Vec<PathBuf>,
    current: Mutex<Current<T>>,
}

struct Current<T> {
    stamps: Vec<Option<Stamp>>,
    value: T,
}

/// Attributes that change when a file is written or replaced, also behind a symbolic link: a mounted secret is replaced
/// by replacing the link to its directory. Two writes within one tick of the clock leave the same time, so size and
/// inode of the file count too.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    number: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl<T: Clone> FileCache<T> {
    pub(crate) fn open(
        files: Vec<PathBuf>,
        load: impl FnOnce() -> Result<T, PeerError>,
    ) -> Result<FileCache<T>, PeerError> {
        // Taken before the files are read, so that a concurrent write shows as a change.
        let stamps = stamps(&files);
        let current = Mutex::new(Current { stamps, value: load()? });
        Ok(FileCache { files, current })
    }

    /// Returns the value, loaded again if a file has changed since.
    pub(crate) fn reload_if_changed(&self, load: impl FnOnce() -> Result<T, PeerError>) -> T {
        let mut current = self.current.lock();
        let stamps = stamps(&self.files);
        if stamps != current.stamps {
            // Unusable files are reported once and read again when they change again.
            current.stamps = stamps;
            let certificate = self.files.first().map(|path| path.display().to_string());
            match load() {
                Ok(value) => {
                    current.value = value;
                    tracing::info!(certificate, "renewed certificate files are in use");
                }
                Err(error) => tracing::warn!(
                    certificate,
                    %error,
                    "renewed certificate files cannot be used; fix them before the previous ones expire, which stay in use"
                ),
            }
        }
        current.value.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let data = fs::metadata(path).ok()?;
        Some(Stamp {
            device: data.dev(),
            number: data.ino(),
            size: data.size(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    };
    files.iter().map(stamp).collect()
}

/// Reads the certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PeerError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| fault(path, error))?;
    let found = read.collect::<Result<Vec<_>, _>>().map_err(|error| fault(path, error))?;
    if found.is_empty() {
        return Err(fault(path, "it has no certificate"));
    }
    Ok(found)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PeerError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| fault(path, error))
}

pub(crate) fn fault(path: &Path, fault: impl std::fmt::Display) -> PeerError {
    PeerError::File { path: path.display().to_string(), fault: fault.to_string() }
}
