//! Key-encryption keys in a file of this machine.
//!
//! Owns: the file and its reading. Keeps true: a key that was ever used for wrapping stays in the file until an operator
//! removes it; a changed file is in force within five seconds, and at once if a record names a key that is not known
//! yet, so that a rotation needs no restart on any machine that has the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use parking_lot::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::place::Place;

mod key_file;

use key_file::{FileIdentity, KeyRing, LocalKey};
pub use key_file::{KeyDescription, forget, list, rotate};

/// Name of this service in records.
const NAME: &str = "local";
/// Interval at which the file is read again.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Label of the associated data of wrapped keys.
const LABEL: &[u8] = b"asp/vault-key/1\0";

/// Key service whose keys are in a file.
pub struct LocalKeys {
    /// `None`: the keys are in memory only.
    path: Option<PathBuf>,
    /// Whether the file is created at first use, because no other machine needs it.
    creates: bool,
    loaded: Mutex<Option<KeyRingReading>>,
}

#[derive(Clone)]
struct KeyRingReading {
    keys: Arc<KeyRing>,
    /// The file that was read; `None` if it did not exist before.
    identity: Option<FileIdentity>,
    /// Whether the last attempt to read the file succeeded.
    is_in_file: bool,
    at: Instant,
}

impl LocalKeys {
    /// Uses the keys of a file, which is created with a first key when something is sealed.
    pub fn of_this_machine(path: &Path) -> LocalKeys {
        LocalKeys { path: Some(path.to_owned()), creates: true, loaded: Mutex::default() }
    }

    /// Uses the keys of a file that an operator gives to several machines; it is never created here.
    pub fn shared(path: &Path) -> LocalKeys {
        LocalKeys { path: Some(path.to_owned()), creates: false, loaded: Mutex::default() }
    }

    /// Creates a key that ends with this process, for records that do so too.
    pub fn in_memory() -> Result<LocalKeys, VaultError> {
        let keys = Arc::new(KeyRing::generate()?);
        let loaded = KeyRingReading { keys, identity: None, is_in_file: true, at: Instant::now() };
        Ok(LocalKeys { path: None, creates: false, loaded: Mutex::new(Some(loaded)) })
    }

    /// Returns the keys for opening. Keys that are known stay in force while the file cannot be read.
    async fn keys_for_opening(&self) -> Result<Arc<KeyRing>, VaultError> {
        let loaded = self.loaded.lock().clone();
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.at.elapsed() < CHECK_EVERY) {
            return Ok(Arc::clone(&loaded.keys));
        }
        match (self.read(false).await, loaded) {
            (Ok(keys), _) => Ok(keys),
            (Err(error), Some(loaded)) => {
                tracing::warn!(%error, "vault key file could not be read again; its former keys still open records");
                let keys = Arc::clone(&loaded.keys);
                *self.loaded.lock() =
                    Some(KeyRingReading { is_in_file: false, at: Instant::now(), ..loaded });
                Ok(keys)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the keys for sealing. What is sealed with a key that is not in the file any more would be lost with this
    /// process.
    async fn keys_for_sealing(&self) -> Result<Arc<KeyRing>, VaultError> {
        let loaded = self.loaded.lock().clone();
        let is_recent = |loaded: &&KeyRingReading| loaded.is_in_file && loaded.at.elapsed() < CHECK_EVERY;
        if let Some(loaded) = loaded.as_ref().filter(is_recent) {
            return Ok(Arc::clone(&loaded.keys));
        }
        // A file that was there is restored by an operator, not replaced by one with another key.
        self.read(self.creates && loaded.is_none()).await
    }

    /// Reads the file.
    async fn read(&self, creates: bool) -> Result<Arc<KeyRing>, VaultError> {
        let Some(path) = self.path.clone() else {
            let loaded = self.loaded.lock().clone();
            return loaded.map(|loaded| loaded.keys).ok_or(VaultError::Crypto);
        };
        let reading = tokio::task::spawn_blocking(move || {
            // Before the content: a file that is replaced in between counts as changed once more.
            let identity = FileIdentity::of(&path);
            let keys = if creates { key_file::read_or_create(&path) } else { key_file::read(&path) };
            keys.map(|keys| (Arc::new(keys), identity))
        });
        let (keys, identity) = reading.await.map_err(|error| VaultError::KeyFile(error.to_string()))??;
        let reading =
            KeyRingReading { keys: Arc::clone(&keys), identity, is_in_file: true, at: Instant::now() };
        *self.loaded.lock() = Some(reading);
        Ok(keys)
    }

    /// Whether the file is another than the one that was read.
    async fn is_changed(&self) -> bool {
        let Some(path) = self.path.clone() else { return false };
        let known = self.loaded.lock().as_ref().and_then(|loaded| loaded.identity);
        let looking = tokio::task::spawn_blocking(move || FileIdentity::of(&path));
        looking.await.is_ok_and(|found| found != known)
    }

    /// Returns a key that a record names.
    async fn key(&self, id: &str) -> Result<LocalKey, VaultError> {
        if let Some(key) = self.keys_for_opening().await?.key(id) {
            return Ok(key.clone());
        }
        // Another process may have sealed with a key that was added since. A forged record costs no more than a look.
        if self.is_changed().await
            && let Some(key) = self.read(false).await?.key(id)
        {
            return Ok(key.clone());
        }
        Err(VaultError::UnknownKey { key_id: format!("{NAME}:{id}") })
    }
}

#[async_trait]
impl KeyService for LocalKeys {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_remote(&self) -> bool {
        false
    }

    async fn current_key(&self) -> Result<String, VaultError> {
        let keys = self.keys_for_opening().await?;
        Ok(keys.current()?.id.clone())
    }

    async fn wrap(&self, data_key: &DataKey, place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        let keys = self.keys_for_sealing().await?;
        let current = keys.current()?;
        Ok(WrappedKey { key_id: current.id.clone(), bytes: wrap(current, data_key, place)? })
    }

    async fn unwrap(&self, wrapped: &WrappedKey, place: &Place<'_>) -> Result<DataKey, VaultError> {
        unwrap(&self.key(&wrapped.key_id).await?, &wrapped.bytes, place)
    }
}

/// Wraps a data key. AES-256-GCM-SIV (RFC 8452) allows random nonces for more data keys than a key ever wraps.
fn wrap(key: &LocalKey, data_key: &DataKey, place: &Place<'_>) -> Result<Vec<u8>, VaultError> {
    let mut nonce = [0_u8; NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| VaultError::Crypto)?;
    // With room for the tag, so that no copy of the key stays in memory.
    let mut buffer = Zeroizing::new(Vec::with_capacity(64));
    buffer.extend_from_slice(data_key.expose());
    let aad = Aad::from(associated(&key.id, place));
    let sealed = aead_key(key)?;
    sealed
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut *buffer)
        .map_err(|_| VaultError::Crypto)?;
    Ok([nonce.as_slice(), buffer.as_slice()].concat())
}

fn unwrap(key: &LocalKey, wrapped: &[u8], place: &Place<'_>) -> Result<DataKey, VaultError> {
    let (nonce, sealed) = wrapped.split_at_checked(NONCE_LEN).ok_or(VaultError::NotOpened)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::NotOpened)?;
    let mut buffer = Zeroizing::new(sealed.to_vec());
    let aad = Aad::from(associated(&key.id, place));
    let opened = aead_key(key)?.open_in_place(nonce, aad, &mut buffer).map_err(|_| VaultError::NotOpened)?;
    DataKey::from_slice(opened).ok_or(VaultError::NotOpened)
}

fn aead_key(key: &LocalKey) -> Result<LessSafeKey, VaultError> {
    let key = UnboundKey::new(&AES_256_GCM_SIV, key.key.expose()).map_err(|_| VaultError::Crypto)?;
    Ok(LessSafeKey::new(key))
}

fn associated(key_id: &str, place: &Place<'_>) -> Vec<u8> {
    let length = (key_id.len() as u64).to_be_bytes();
    [LABEL, length.as_slice(), key_id.as_bytes(), place.to_bytes().as_slice()].concat()
}

#[cfg(test)]
mod tests;
