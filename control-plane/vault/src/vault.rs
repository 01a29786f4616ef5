//! Seals and opens records.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_platform::secret::SecretBytes;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::cache::{Cache, CacheBounds, CacheKey, CachedKey};
use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::local::LocalKeys;
use crate::metrics::{KeyRequest, Operation, VaultMetrics};
use crate::place::Place;
use crate::record::{self, MAX_PLAIN, Record};

/// An opened record.
#[derive(Debug)]
pub struct OpenedRecord {
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
    metrics: VaultMetrics,
    /// Whether the last request failed because a service is unavailable, so that the log names the change only.
    is_offline: AtomicBool,
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

    /// Creates a vault whose only key ends with this process.
    pub fn in_memory() -> Result<Vault, VaultError> {
        Ok(Vault::new(Arc::new(LocalKeys::in_memory()?)))
    }

    /// Creates a vault that seals with `current`, and opens with `former` too.
    pub fn with_services(
        current: Arc<dyn KeyService>,
        former: Vec<Arc<dyn KeyService>>,
        bounds: CacheBounds,
    ) -> Vault {
        let inner = Inner {
            current,
            former,
            cache: Cache::new(bounds),
            metrics: VaultMetrics::default(),
            is_offline: AtomicBool::new(false),
        };
        Vault(Arc::new(inner))
    }

    /// Adds the metrics of the vault to a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    /// Checks with one request whether the current key service wraps data keys.
    pub async fn check(&self) -> Result<(), VaultError> {
        let place = Place { tenant: "-", table: "check", row: "-" };
        self.wrap(&DataKey::random()?, &place).await.map(drop)
    }

    /// Whether a key service outside of this process wraps data keys.
    pub fn is_remote(&self) -> bool {
        self.0.current.is_remote()
    }

    /// Removes cached data keys that are no longer usable from memory. The owner calls it at intervals.
    pub fn sweep(&self) {
        self.0.cache.sweep();
        self.0.metrics.set_cached(self.0.cache.len());
    }

    /// Seals a record under a data key of its own.
    pub async fn seal(&self, place: &Place<'_>, plain: &[u8]) -> Result<Vec<u8>, VaultError> {
        let sealed = self.seal_new(place, plain).await;
        self.0.metrics.ended(Operation::Seal, &sealed, false);
        sealed
    }

    /// Seals a new version of a record, given its former version. Needs no key service if the data key of the former
    /// version is cached and under the current key, so that tokens can be renewed while the service is unavailable.
    pub async fn reseal(
        &self,
        place: &Place<'_>,
        former: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, VaultError> {
        let sealed = match self.cached_key_of(place, former).await {
            Some((wrapped, data_key)) => {
                record::encrypt((self.0.current.name(), &wrapped), &data_key, place, plain)
            }
            None => self.seal_new(place, plain).await,
        };
        self.0.metrics.ended(Operation::Seal, &sealed, false);
        sealed
    }

    /// Opens a record at its place.
    pub async fn open(&self, place: &Place<'_>, sealed: &[u8]) -> Result<OpenedRecord, VaultError> {
        let mut offline = false;
        let opened = self.open_record(place, sealed, &mut offline).await;
        self.0.metrics.ended(Operation::Open, &opened, offline);
        opened
    }

    async fn seal_new(&self, place: &Place<'_>, plain: &[u8]) -> Result<Vec<u8>, VaultError> {
        if plain.len() > MAX_PLAIN {
            return Err(VaultError::TooLarge { length: plain.len(), limit: MAX_PLAIN });
        }
        let data_key = DataKey::random()?;
        let wrapped = self.wrap(&data_key, place).await?;
        let service = &self.0.current;
        let sealed = record::encrypt((service.name(), &wrapped), &data_key, place, plain)?;
        if service.is_remote() {
            self.cache(Cache::key(&Record::parse(&sealed)?, place), data_key);
        }
        Ok(sealed)
    }

    async fn open_record(
        &self,
        place: &Place<'_>,
        sealed: &[u8],
        offline: &mut bool,
    ) -> Result<OpenedRecord, VaultError> {
        let record = Record::parse(sealed)?;
        let mut plain = match self.is_cacheable(&record) {
            true => self.open_cached(&record, place, offline).await?,
            false => record.decrypt(&self.unwrap(&record, place).await?, place)?,
        };
        let outdated = !self.is_current(&record).await;
        Ok(OpenedRecord { plain: SecretBytes::new(std::mem::take(&mut *plain)), outdated })
    }

    /// Opens a record whose service is remote, with its cached data key if that is fresh or the service unavailable.
    async fn open_cached(
        &self,
        record: &Record<'_>,
        place: &Place<'_>,
        offline: &mut bool,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let key = Cache::key(record, place);
        let cached = self.0.cache.get(&key);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.is_fresh) {
            return record.decrypt(&cached.data_key, place);
        }
        match self.unwrap(record, place).await {
            Ok(data_key) => {
                let plain = record.decrypt(&data_key, place)?;
                self.cache(key, data_key);
                Ok(plain)
            }
            Err(error) => {
                let data_key = self.offline_key(&key, cached, error)?;
                *offline = true;
                record.decrypt(&data_key, place)
            }
        }
    }

    /// Returns the cached data key of a record whose service failed, if the failure is temporary.
    fn offline_key(
        &self,
        key: &CacheKey,
        cached: Option<CachedKey>,
        error: VaultError,
    ) -> Result<DataKey, VaultError> {
        match cached {
            Some(cached) if error.is_temporary() => {
                self.0.cache.postpone(key);
                Ok(cached.data_key)
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
        if !self.is_current(&record).await {
            return None;
        }
        let cached = self.0.cache.get(&Cache::key(&record, place))?;
        // Only a key that opens the record is the record's.
        record.decrypt(&cached.data_key, place).ok()?;
        Some((record.wrapped_key(), cached.data_key))
    }

    fn cache(&self, key: CacheKey, data_key: DataKey) {
        self.0.cache.put(key, data_key);
        self.0.metrics.set_cached(self.0.cache.len());
    }

    /// Returns the configured services that may have the key of a record: those of its kind.
    fn services_of(&self, record: &Record<'_>) -> impl Iterator<Item = &Arc<dyn KeyService>> {
        let name = record.service;
        let services = std::iter::once(&self.0.current).chain(&self.0.former);
        services.filter(move |service| service.name() == name)
    }

    fn is_cacheable(&self, record: &Record<'_>) -> bool {
        self.services_of(record).any(|service| service.is_remote())
    }

    async fn wrap(&self, data_key: &DataKey, place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        let service = &self.0.current;
        let started = Instant::now();
        let wrapped = service.wrap(data_key, place).await;
        self.0.metrics.requested(service.name(), KeyRequest::Wrap, &wrapped, started.elapsed());
        self.note(service.as_ref(), wrapped.as_ref().err());
        wrapped
    }

    /// Unwraps the data key of a record at the first service that has its key.
    async fn unwrap(&self, record: &Record<'_>, place: &Place<'_>) -> Result<DataKey, VaultError> {
        let wrapped = record.wrapped_key();
        let mut failed =
            VaultError::UnknownKey { key_id: record::full_key_id(record.service, record.key_id) };
        let services: Vec<Arc<dyn KeyService>> = self.services_of(record).cloned().collect();
        for service in services {
            let started = Instant::now();
            let unwrapped = service.unwrap(&wrapped, place).await;
            self.0.metrics.requested(service.name(), KeyRequest::Unwrap, &unwrapped, started.elapsed());
            self.note(service.as_ref(), unwrapped.as_ref().err());
            match unwrapped {
                Ok(data_key) => return Ok(data_key),
                Err(VaultError::UnknownKey { .. }) => {}
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Whether a record is sealed under the current key. If the service cannot tell, the record counts as current: it
    /// could not be sealed again now.
    async fn is_current(&self, record: &Record<'_>) -> bool {
        if record.service != self.0.current.name() {
            return false;
        }
        self.0.current.current_key().await.map_or(true, |current| current == record.key_id)
    }

    /// Logs that a service became unavailable, or answers again.
    fn note(&self, service: &dyn KeyService, error: Option<&VaultError>) {
        if !service.is_remote() {
            return;
        }
        let is_offline = error.is_some_and(VaultError::is_temporary);
        let was_offline = self.0.is_offline.swap(is_offline, Ordering::Relaxed);
        match error {
            Some(error) if is_offline && !was_offline => tracing::warn!(
                %error,
                "key service does not answer; records used recently still open for ASP_VAULT_OFFLINE_SECONDS, others do not"
            ),
            None if was_offline => tracing::info!(service = service.name(), "key service answers again"),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;
