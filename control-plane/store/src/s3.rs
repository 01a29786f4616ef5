//! An object store with an S3 API, for artifacts of calls and packages of plugins that several machines write and read.
//!
//! Owns: the backends of [`Blobs`](crate::blobs::Blobs) and [`Packages`](crate::packages::Packages) whose bytes are
//! there. Descriptions and usage are in PostgreSQL: an object store keeps no counts, so that it cannot enforce a quota
//! across gateways. Keeps true: an upload is on this machine until it is complete, and then a single request stores it,
//! so that no partial object is ever visible; a name in the store is random and used once; bytes that are read must
//! match the written digest, or they are rejected.

mod blobs;
mod client;
mod packages;
mod place;
mod reading;
mod spool;
mod stored;

pub use blobs::S3Blobs;
pub use client::{S3, S3Fault};
pub use packages::S3Packages;
pub use place::{BadUrl, StoreLocation, check};

/// Credentials that sign the requests.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: asp_platform::secret::Secret,
    /// Session token of temporary credentials.
    pub session_token: Option<asp_platform::secret::Secret>,
}

/// Object store as configured by the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    pub place: StoreLocation,
    pub region: String,
    pub credentials: Credentials,
    pub links: Option<Links>,
}

/// Settings of signed URLs, which callers get instead of large bytes.
#[derive(Clone, Debug)]
pub struct Links {
    /// Origin under which clients reach the store, if it differs.
    pub origin: Option<String>,
    /// Lifetime of a URL.
    pub life: std::time::Duration,
}
