//! Seals and opens records.

use std::fmt;
use std::sync::Arc;

use asp_platform::secret::SecretBytes;
use zeroize::Zeroizing;

use crate::cache::{Cache, CacheBounds, CacheKey, CachedKey};
use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::place::Place;
use crate::record::{self, MAX_PLAIN, Record};

/// An opened record.
#[derive(Debug)]
pub struct Opened {
    pub plain: SecretBytes,
    /// Sealed under a key that is not the current one: the user seals the record again and stores it if it has not
    /// changed since.
    pub outdated: bool,
}

/// Seals and opens records. Cheap to clone.
#[derive(Clone)]
pub struct Vault(Arc<Inner>);

struct Inner {
    /// Service that wraps new data keys.
    current: Arc<dyn KeyService>,
    /// Services that were current before; they only unwrap.
    former: Vec<Arc<dyn KeyService>>,
    cache: Cache,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({})", self.0.current.name())
    }
}

impl Vault {
    /// Creates a vault over one key service, with the default cache.
    pub fn new(current: Arc<dyn KeyService>) -> Vault {
        Vault::with_services(current, Vec::new(), CacheBounds::default())
    }

    /// Creates a vault that seals with `current`, and opens with `former` too.
    pub fn with_services(
        current: Arc<dyn KeyService>,
        former: Vec<Arc<dyn KeyService>>,
        bounds: CacheBounds,
    ) -> Vault {
        Vault(Arc::new(Inner { current, former, cache: Cache::new(bounds) }))
    }

    /// Seals a record under a data key of its own.
    pub async fn seal(&self, place: &Place<'_>, plain: &[u8]) -> Result<Vec<u8>, VaultError> {
        if plain.len() > MAX_PLAIN {
            return Err(VaultError::TooLarge { length: plain.len(), limit: MAX_PLAIN });
        }
        let data_key = DataKey::random()?;
        let service = &self.0.current;
        let wrapped = service.wrap(&data_key, place).await?;
        let sealed = record::encrypt((service.name(), &wrapped), &data_key, place, plain)?;
        if service.is_remote() {
            self.0.cache.put(Cache::key(&Record::parse(&sealed)?, place), data_key);
        }
        Ok(sealed)
    }

    /// Seals a new version of a record, given its former version. Needs no key service if the data key of the former
    /// version is cached and under the current key, so that tokens can be renewed while the service is unavailable.
    pub async fn reseal(
        &self,
        place: &Place<'_>,
        former: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, VaultError> {
        let Some((wrapped, data_key)) = self.cached_key_of(place, former).await else {
            return self.seal(place, plain).await;
        };
        record::encrypt((self.0.current.name(), &wrapped), &data_key, place, plain)
    }

    /// Opens a record at its place.
    pub async fn open(&self, place: &Place<'_>, sealed: &[u8]) -> Result<Opened, VaultError> {
        let record = Record::parse(sealed)?;
        let service = self.service_of(&record)?;
        let mut plain = match service.is_remote() {
            true => self.open_cached(service.as_ref(), &record, place).await?,
            false => record.decrypt(&service.unwrap(&record.wrapped_key(), place).await?, place)?,
        };
        let outdated = !self.is_current(&record).await;
        Ok(Opened { plain: SecretBytes::new(std::mem::take(&mut *plain)), outdated })
    }

    /// Opens a record whose service is remote, with its cached data key if that is fresh or the service unavailable.
    async fn open_cached(
        &self,
        service: &dyn KeyService,
        record: &Record<'_>,
        place: &Place<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let key = Cache::key(record, place);
        let cached = self.0.cache.get(&key);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.is_fresh) {
            return record.decrypt(&cached.data_key, place);
        }
        match service.unwrap(&record.wrapped_key(), place).await {
            Ok(data_key) => {
                let plain = record.decrypt(&data_key, place)?;
                self.0.cache.put(key, data_key);
                Ok(plain)
            }
            Err(error) => self.open_offline(record, place, (&key, cached), error),
        }
    }

    /// Opens a record although its service failed, if the failure is temporary and the data key cached.
    fn open_offline(
        &self,
        record: &Record<'_>,
        place: &Place<'_>,
        (key, cached): (&CacheKey, Option<CachedKey>),
        error: VaultError,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        match cached {
            Some(cached) if error.is_temporary() => {
                self.0.cache.postpone(key);
                record.decrypt(&cached.data_key, place)
            }
            // The service answered that the key must not be used any more, or not by this process.
            Some(_) => {
                self.0.cache.remove(key);
                Err(error)
            }
            None => Err(error),
        }
    }

    /// Returns the wrapped and the plain data key of a record, if it is cached and under the current key.
    async fn cached_key_of(&self, place: &Place<'_>, sealed: &[u8]) -> Option<(WrappedKey, DataKey)> {
        let record = Record::parse(sealed).ok()?;
        if record.service != self.0.current.name() || !self.is_current(&record).await {
            return None;
        }
        let cached = self.0.cache.get(&Cache::key(&record, place))?;
        Some((record.wrapped_key(), cached.data_key))
    }

    /// Returns the configured service that a record names.
    fn service_of(&self, record: &Record<'_>) -> Result<&Arc<dyn KeyService>, VaultError> {
        let mut services = std::iter::once(&self.0.current).chain(&self.0.former);
        let unknown =
            || VaultError::UnknownKey { key_id: record::full_key_id(record.service, record.key_id) };
        services.find(|service| service.name() == record.service).ok_or_else(unknown)
    }

    /// Whether a record is sealed under the current key. If the service cannot tell, the record counts as current: it
    /// could not be sealed again now.
    async fn is_current(&self, record: &Record<'_>) -> bool {
        if record.service != self.0.current.name() {
            return false;
        }
        self.0.current.current_key().await.map_or(true, |current| current == record.key_id)
    }

    /// Removes cached data keys that are no longer usable from memory. The owner calls it at intervals.
    pub fn sweep(&self) {
        self.0.cache.sweep();
    }
}
