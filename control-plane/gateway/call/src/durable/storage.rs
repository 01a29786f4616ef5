//! Storage of plugins, sealed: the keys and values of a call's plugin in its caller's org.
//!
//! Owns: sealing, and whose the keys are. Refuses: requests beyond the bounds (`asp_proto::storage`). Keeps true: org, plugin
//! and user are those of the call, whatever the plugin says (I-12); a put is answered after it is stored (I-13); the store
//! cannot read values, and a value opens only under its own key.

use std::sync::Arc;

use asp_proto::plugin::{DeliverStorageAnswer, Json as JsonText, StorageRequested};
use asp_proto::storage::{MAX_BYTES, MAX_KEYS, PAGE, StorageFault, StorageOperation};
use asp_store::plugin_storage::{NewValue, PluginStorage, PutValue, StorageBounds, StorageSpace, WHOLE_ORG};
use bytes::Bytes;

use super::active::{ActiveFault, in_time};
use crate::call::{Call, content, principal};
use crate::digest;
use crate::outage_log::OutageLog;
use crate::seal::{Purpose, Sealer};

const BOUNDS: StorageBounds = StorageBounds { keys: MAX_KEYS, bytes: MAX_BYTES };

/// The store of plugins' keys and values, and what seals them.
pub struct SealedStorage {
    store: Arc<dyn PluginStorage>,
    sealer: Arc<Sealer>,
    outage: OutageLog,
    unopened: OutageLog,
}

impl SealedStorage {
    pub fn new(store: Arc<dyn PluginStorage>, sealer: Arc<Sealer>) -> SealedStorage {
        SealedStorage { store, sealer, outage: OutageLog::default(), unopened: OutageLog::default() }
    }

    /// Answers a request of the plugin that runs the call.
    pub async fn answer(&self, call: &Call, asked: StorageRequested) -> DeliverStorageAnswer {
        let empty = asked.empty_answer();
        match self.run(&space(call, asked.of_user), asked, empty.clone()).await {
            Ok(answer) => answer,
            Err(fault) => DeliverStorageAnswer { error: fault.word().to_owned(), ..empty },
        }
    }

    /// Runs the operation, and adds its result to the empty answer.
    async fn run(
        &self,
        space: &StorageSpace,
        asked: StorageRequested,
        answer: DeliverStorageAnswer,
    ) -> Result<DeliverStorageAnswer, StorageFault> {
        Ok(match asked.checked()? {
            StorageOperation::Get { key } => {
                match self.noted(in_time(self.store.get_value(space, &key)).await)? {
                    None => answer,
                    Some(found) => DeliverStorageAnswer {
                        value: Some(JsonText { value: self.open(space, &key, &found.sealed)? }),
                        version: found.version.unsigned_abs(),
                        ..answer
                    },
                }
            }
            StorageOperation::Put { key, value, ttl, if_version } => {
                let new = NewValue {
                    version: random_version(),
                    bytes: u32::try_from(key.len() + value.len()).unwrap_or(u32::MAX),
                    sealed: self.seal(space, &key, value)?,
                    keep: ttl,
                    if_version: if_version.map(|version| i64::try_from(version).unwrap_or(i64::MAX)),
                };
                match self.noted(in_time(self.store.put_value(space, &key, &new, BOUNDS)).await)? {
                    PutValue::Stored => {
                        DeliverStorageAnswer { version: new.version.unsigned_abs(), ..answer }
                    }
                    PutValue::Conflict => return Err(StorageFault::Conflict),
                    PutValue::Full => return Err(StorageFault::Full),
                }
            }
            StorageOperation::List { prefix, after } => {
                let found = in_time(self.store.list_keys(space, &prefix, &after, PAGE + 1)).await;
                let mut keys = self.noted(found)?;
                let has_more = keys.len() > PAGE as usize;
                keys.truncate(PAGE as usize);
                DeliverStorageAnswer { keys, has_more, ..answer }
            }
            StorageOperation::Delete { key } => {
                let deleted = self.noted(in_time(self.store.delete_value(space, &key)).await)?;
                DeliverStorageAnswer { deleted, ..answer }
            }
        })
    }

    fn seal(&self, space: &StorageSpace, key: &str, value: Vec<u8>) -> Result<Bytes, StorageFault> {
        let text = JsonText { value };
        content::parse(Some(&text)).ok().flatten().ok_or(StorageFault::BadValue)?;
        let sealed = self.sealer.seal_bytes(Purpose::Storage, &context(space, key), &text.value);
        sealed.map(Bytes::from).map_err(|_| StorageFault::Unavailable)
    }

    fn open(&self, space: &StorageSpace, key: &str, sealed: &[u8]) -> Result<Vec<u8>, StorageFault> {
        let opened = self.sealer.open_bytes(Purpose::Storage, &context(space, key), sealed);
        let say = |()| {
            tracing::warn!(
                plugin = space.plugin,
                "a stored value of a plugin does not open with the seal keys of this gateway; until the plugin replaces or deletes it, its requests fail: add the key that sealed it as the previous one"
            );
        };
        self.unopened.noted(opened.ok_or(()), say).ok_or(StorageFault::Unavailable)
    }

    /// Reports the first failure of an outage in the log.
    fn noted<T>(&self, answered: Result<T, ActiveFault>) -> Result<T, StorageFault> {
        let say = |error: ActiveFault| {
            tracing::warn!(%error, "the storage of plugins is not available, and their requests fail until it is: check the store");
        };
        self.outage.noted(answered, say).ok_or(StorageFault::Unavailable)
    }
}

/// Returns the space of the call's plugin, or of its caller's user there.
fn space(call: &Call, of_user: bool) -> StorageSpace {
    StorageSpace {
        org: call.caller.org.clone(),
        // An id means one primitive everywhere (`asp_registry::conflicts`), and outlives its versions.
        plugin: call.entry.primitive.id.clone(),
        holder: if of_user { principal::user(&call.caller) } else { WHOLE_ORG },
    }
}

/// Returns the context of a seal, which opens only for its own key.
fn context(space: &StorageSpace, key: &str) -> Vec<u8> {
    let StorageSpace { org, plugin, holder } = space;
    digest::of_parts(&[org.as_bytes(), plugin.as_bytes(), holder.as_slice(), key.as_bytes()]).to_vec()
}

/// Returns a number above 0 that languages with floating-point numbers represent exactly.
fn random_version() -> i64 {
    i64::try_from(rand::random::<u64>() >> 11).unwrap_or_default().max(1)
}
