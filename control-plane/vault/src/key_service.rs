//! The port to a service that holds key-encryption keys.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::place::Place;

/// Length of a data key in bytes: AES-256.
pub(crate) const DATA_KEY_LEN: usize = 32;

/// Key of one record. It prints as `***`, and its memory is cleared when it is dropped.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; DATA_KEY_LEN]>);

impl DataKey {
    /// Generates a key.
    pub fn random() -> Result<DataKey, VaultError> {
        let mut bytes = Zeroizing::new([0_u8; DATA_KEY_LEN]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| VaultError::Crypto)?;
        Ok(DataKey(bytes))
    }

    /// Reads a key; `None` if it has another length.
    pub fn from_slice(bytes: &[u8]) -> Option<DataKey> {
        Some(DataKey(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// Returns the bytes of the key.
    pub fn expose(&self) -> &[u8; DATA_KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Data key as wrapped by a key service, which alone can unwrap it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Key-encryption key; unique within its service.
    pub key_id: String,
    /// Ciphertext, and all else that the service needs for unwrapping.
    pub bytes: Vec<u8>,
}

/// A service that holds key-encryption keys.
#[async_trait]
pub trait KeyService: Send + Sync {
    /// Name of the kind of service: `local`, `aws` or `plugin`. It is stored with each record.
    fn name(&self) -> &'static str;

    /// Whether requests leave this process, so that unwrapped data keys are worth caching.
    fn is_remote(&self) -> bool;

    /// Returns the id of the key under which new data keys are wrapped now.
    async fn current_key(&self) -> Result<String, VaultError>;

    /// Wraps a data key under the current key.
    async fn wrap(&self, data_key: &DataKey, place: &Place<'_>) -> Result<WrappedKey, VaultError>;

    /// Unwraps a data key. [`VaultError::UnknownKey`] if the service does not have the key,
    /// [`VaultError::NotOpened`] if the bytes were altered or wrapped for another place.
    async fn unwrap(&self, wrapped: &WrappedKey, place: &Place<'_>) -> Result<DataKey, VaultError>;
}
