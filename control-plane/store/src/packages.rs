//! Package files of plugins, by the SHA-256 of their bytes: kept until somebody deletes them.
//!
//! Owns: the [`Packages`] port and its backend, a directory; for several machines there is `s3`. Refuses: judging who may read or delete; the caller does.
//! Keeps true: a package appears whole, under the digest its bytes have, or not at all; one package and one
//! owner's packages are bounded.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::link::Link;

mod disk;

pub use disk::DiskPackages;

/// Largest package file in bytes.
pub const MAX_PACKAGE: u64 = 256 << 20;

/// What one owner may keep.
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

/// 64 hex digits in lower case: always a safe file name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    pub fn parse(text: &str) -> Option<Digest> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(hex)).then(|| Digest(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is known of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageMeta {
    /// Lower-case hex.
    pub sha256: String,
    /// The file's name, e.g. `greet-1.0.0-py3-none-any.whl`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// The org that pushed it; empty for the platform.
    pub owner: String,
    /// Unix milliseconds.
    pub created_ms: u64,
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

/// Whether a package was stored or was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    New,
    /// The owner had the same bytes; what was known of them stays.
    Known,
}

/// Keeps packages. An owner is an org, or empty for the platform.
#[async_trait]
pub trait Packages: Send + Sync {
    /// Begins a package; it is there when the upload is finished, and counts against the quota meanwhile.
    async fn create(&self, owner: &str) -> Result<Box<dyn PackageUpload>, PackageError>;

    /// A package of one owner, or with `None` of any.
    async fn find(&self, owner: Option<&str>, digest: &Digest) -> Result<Option<PackageMeta>, PackageError>;

    /// The bytes of a package that [`Packages::find`] found; `None` when it is gone meanwhile.
    async fn open(
        &self,
        found: &PackageMeta,
    ) -> Result<Option<Box<dyn AsyncRead + Send + Unpin>>, PackageError>;

    /// A URL by which whoever has it reads a package that [`Packages::find`] found for a while, where the operator wants
    /// such URLs.
    async fn link(&self, _found: &PackageMeta) -> Result<Option<Link>, PackageError> {
        Ok(None)
    }

    /// The packages of one owner or of all, by name, then digest.
    async fn list(&self, owner: Option<&str>) -> Result<Vec<PackageMeta>, PackageError>;

    /// Removes a package of one owner; says whether it was there.
    async fn delete(&self, owner: &str, digest: &Digest) -> Result<bool, PackageError>;

    /// Deletes what crashes and failures left, where that is not done at the start; run from time to time.
    async fn sweep(&self) -> Result<(), PackageError> {
        Ok(())
    }
}

/// A package that is being written. Dropping it leaves nothing behind.
#[async_trait]
pub trait PackageUpload: Send {
    /// Appends bytes.
    async fn write(&mut self, piece: &[u8]) -> Result<(), PackageError>;

    /// Makes the package readable under the digest it is said to have, which its bytes must have.
    async fn finish(
        self: Box<Self>,
        digest: &Digest,
        name: &str,
        now_ms: u64,
    ) -> Result<Stored, PackageError>;
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
