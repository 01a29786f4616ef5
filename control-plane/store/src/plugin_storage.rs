//! Storage of plugins: keys and values that outlive a call, for each plugin and org.
//!
//! Owns the [`PluginStorage`] port. Refuses: to read values, which the gateway seals, and to choose whose a key is. Keeps
//! true: a value is replaced as a whole, and under a condition only if the condition still holds; an expired key counts for
//! nothing; the keys of a plugin and org are bounded (I-4), however many are stored at the same moment.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// Digest of the user whose keys they are; zeros: the org's.
pub type HolderId = [u8; 16];

/// Holder of the keys that all calls of an org see.
pub const WHOLE_ORG: HolderId = [0; 16];

/// The keys of one plugin and org, or of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSpace {
    pub org: String,
    /// Id of the primitive that the plugin runs.
    pub plugin: String,
    pub holder: HolderId,
}

/// Bounds of all keys of a plugin and org.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageBounds {
    pub keys: u32,
    /// Sum of [`NewValue::bytes`].
    pub bytes: u32,
}

/// Value to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewValue {
    pub sealed: Bytes,
    /// Random number above 0.
    pub version: i64,
    /// Bytes that count for the bounds.
    pub bytes: u32,
    /// Time after which the key expires.
    pub keep: Duration,
    /// Version that the key must have; 0: it must have no value.
    pub if_version: Option<i64>,
}

/// Value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    pub version: i64,
    pub sealed: Bytes,
}

/// Result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutValue {
    Stored,
    /// The key has another version.
    Conflict,
    /// The plugin has too many keys or bytes in this org.
    Full,
}

#[derive(Debug, thiserror::Error)]
pub enum PluginStorageError {
    #[error("the storage of plugins is not available: {0}")]
    Unavailable(String),
}

/// Result of an operation on the storage of plugins.
pub type Result<T, E = PluginStorageError> = std::result::Result<T, E>;

/// Store of the plugins' keys and values. Data is durable once a method has returned `Ok`.
#[async_trait]
pub trait PluginStorage: Send + Sync {
    /// Returns the value of a key.
    async fn get_value(&self, space: &StorageSpace, key: &str) -> Result<Option<StoredValue>>;

    /// Stores a value, or replaces the one under the same key.
    async fn put_value(
        &self,
        space: &StorageSpace,
        key: &str,
        value: &NewValue,
        bounds: StorageBounds,
    ) -> Result<PutValue>;

    /// Returns at most `limit` keys that begin with `prefix` and follow `after`, in the order of their bytes.
    async fn list_keys(
        &self,
        space: &StorageSpace,
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<String>>;

    /// Deletes a key; returns whether it had a value.
    async fn delete_value(&self, space: &StorageSpace, key: &str) -> Result<bool>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
