//! An object store that speaks S3, for what several machines write and read: artifacts of calls and packages of plugins.
//!
//! Owns: the backends of [`Blobs`](crate::blobs::Blobs) and [`Packages`](crate::packages::Packages) whose bytes are there.
//! What is known of an object, and how much everybody has, is in PostgreSQL: an object store counts nothing, so that a quota
//! of several gateways cannot be held there. Keeps true: what is written is on this machine until it is complete, and then
//! one request puts it, so that no half object is ever there; a name in the store is random and used once; bytes that are
//! read have the digest that was written, or are refused.

mod blobs;
mod client;
mod packages;
mod place;
mod reading;
mod spool;
mod stored;

pub use blobs::S3Blobs;
pub use client::{Fault, S3};
pub use packages::S3Packages;
pub use place::{BadUrl, Place, check};

/// What signs the requests.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: asp_platform::secret::Secret,
    /// Of temporary credentials.
    pub session_token: Option<asp_platform::secret::Secret>,
}

/// An object store as its operator names it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Place,
    pub region: String,
    pub credentials: Credentials,
    pub links: Option<Links>,
}

/// That whoever asks for large bytes is given a signed URL instead.
#[derive(Clone, Debug)]
pub struct Links {
    /// The origin under which clients reach the store, where that is another one.
    pub origin: Option<String>,
    /// How long a URL can be used.
    pub life: std::time::Duration,
}
