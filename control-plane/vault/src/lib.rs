//! The vault: records such as the tokens of linked accounts, sealed before they are stored.
//!
//! Owns: the sealed form of a record, the port to services that hold key-encryption keys, and their implementations.
//! Refuses: where sealed records are stored, and their meaning. Keeps true: each record has a data key of its own
//! (AES-256-GCM), and opens only for the tenant, table and row for which it was sealed; a data key leaves this process
//! only wrapped by a key service; while the key service is away, data keys used recently stay usable for a stated time.

pub mod aws;
mod cache;
mod error;
mod key_service;
pub mod local;
mod metrics;
mod no_key_service;
mod place;
pub mod plugin;
mod record;
mod vault;

pub use cache::CacheBounds;
pub use error::VaultError;
pub use key_service::{DataKey, KeyService, WrappedKey};
pub use no_key_service::NoKeyService;
pub use place::Place;
pub use record::{MAX_KEY_ID, MAX_PLAIN, MAX_SEALED, MAX_WRAPPED, key_id_of};
pub use vault::{OpenedRecord, Vault};
