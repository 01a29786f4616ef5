//! Package files of plugins, by the SHA-256 of their bytes, kept until they are deleted.
//!
//! Owns: the [`Packages`] port and its backend, a directory; `s3` serves several machines. Refuses: to decide who may
//! read or delete, which the caller does. Keeps true: a package appears whole, under the digest of its bytes, or not at
//! all; the size of one package and of one owner's packages is limited.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::hex::is_hex;
use crate::link::Link;

mod disk;

pub use disk::DiskPackages;

/// Maximum size of a package file in bytes.
pub const MAX_PACKAGE: u64 = 256 << 20;

/// Quota of one owner.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub bytes: u64,
    pub count: usize,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota { bytes: 4 << 30, count: 10_000 }
    }
}

/// Digest as 64 lower-case hex digits: always a safe file name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    pub fn parse(text: &str) -> Option<Digest> {
        is_hex(text, 64).then(|| Digest(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Description of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageMeta {
    /// Lower-case hex.
    pub sha256: String,
    /// File name, e.g. `greet-1.0.0-py3-none-any.whl`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// The org that pushed it; empty for the platform.
    pub owner: String,
    /// Unix milliseconds.
    pub created_ms: u64,
}

/// Sorts packages in the order of [`Packages::list`].
pub(crate) fn sort(packages: &mut [PackageMeta]) {
    packages.sort_by(|a, b| (&a.name, &a.sha256, &a.owner).cmp(&(&b.name, &b.sha256, &b.owner)));
}

#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("a package has at most {MAX_PACKAGE} bytes")]
    TooLarge,
    #[error("the owner's packages use up their quota of {bytes} bytes or {count} packages")]
    Quota { bytes: u64, count: usize },
    /// The bytes have another digest.
    #[error("the bytes have the digest {found}")]
    Mismatch { found: String },
    #[error("packages are not available: {0}")]
    Unavailable(String),
}

/// Result of an operation on packages.
pub type Result<T, E = PackageError> = std::result::Result<T, E>;

/// The outcome of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    New,
    /// The owner had the same bytes; their description stays.
    Known,
}

/// Store of packages. An owner is an org, or empty for the platform.
#[async_trait]
pub trait Packages: Send + Sync {
    /// Starts a package. It becomes readable when the upload is finished, and counts against the quota from the start.
    async fn create(&self, owner: &str) -> Result<Box<dyn PackageUpload>>;

    /// Returns a package of one owner, or of any for `None`.
    async fn find(&self, owner: Option<&str>, digest: &Digest) -> Result<Option<PackageMeta>>;

    /// Opens a package that [`Packages::find`] returned; `None` if it has been deleted since.
    async fn open(&self, found: &PackageMeta) -> Result<Option<Box<dyn AsyncRead + Send + Unpin>>>;

    /// Returns a URL with which anyone can read the found package for a while; `None` unless the operator enabled such
    /// URLs.
    async fn link(&self, _found: &PackageMeta) -> Result<Option<Link>> {
        Ok(None)
    }

    /// Returns the packages of one owner or of all, by name, then digest, then owner.
    async fn list(&self, owner: Option<&str>) -> Result<Vec<PackageMeta>>;

    /// Removes a package of one owner; returns whether it existed.
    async fn delete(&self, owner: &str, digest: &Digest) -> Result<bool>;

    /// Deletes the remains of crashes and failures, unless that happens at the start; run periodically.
    async fn sweep(&self) -> Result<()> {
        Ok(())
    }
}

/// A package being written. Dropping it leaves nothing behind.
#[async_trait]
pub trait PackageUpload: Send {
    /// Appends bytes.
    async fn write(&mut self, piece: &[u8]) -> Result<()>;

    /// Makes the package readable under the expected digest, which its bytes must match.
    async fn finish(self: Box<Self>, digest: &Digest, name: &str, now_ms: u64) -> Result<UploadOutcome>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
