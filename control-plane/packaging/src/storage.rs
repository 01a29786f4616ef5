//! Storage of plugins in memory, for calls without a gateway.
//!
//! Keeps true: a plugin gets the answers of a gateway, except that all users are one; nothing outlives the command.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use asp_proto::plugin::{DeliverStorageAnswer, Json, StorageRequested};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::storage::{MAX_BYTES, MAX_KEYS, PAGE, StorageFault, StorageOperation};
use serde::de::IgnoredAny;

use super::Unit;

/// Keys and values of the plugins of one command.
#[derive(Default)]
pub(super) struct MemoryStorage {
    /// Ids of the primitives whose spec grants it.
    granted: BTreeSet<String>,
    spaces: BTreeMap<String, BTreeMap<Key, StoredValue>>,
    last_version: u64,
}

/// Whether it is a user's, and its name.
type Key = (bool, String);

struct StoredValue {
    text: Vec<u8>,
    version: u64,
    expires: Instant,
}

impl MemoryStorage {
    /// Creates an empty storage for the primitives of these units.
    pub(super) fn of(units: &[Unit]) -> MemoryStorage {
        let granted = units.iter().flat_map(|unit| &unit.primitives).filter(|primitive| {
            let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
            matches!(mode, Some(Mode::Plugin(plugin)) if plugin.storage)
        });
        let granted = granted.map(|primitive| primitive.id.clone()).collect();
        MemoryStorage { granted, ..MemoryStorage::default() }
    }

    /// Answers a request in a call of this primitive.
    pub(super) fn answer(&mut self, primitive: &str, asked: StorageRequested) -> DeliverStorageAnswer {
        let empty = asked.empty_answer();
        let answered = match self.granted.contains(primitive) {
            true => self.run(primitive, asked, empty.clone()),
            false => Err(StorageFault::NotGranted),
        };
        answered.unwrap_or_else(|fault| DeliverStorageAnswer { error: fault.word().to_owned(), ..empty })
    }

    fn run(
        &mut self,
        primitive: &str,
        asked: StorageRequested,
        answer: DeliverStorageAnswer,
    ) -> Result<DeliverStorageAnswer, StorageFault> {
        let of_user = asked.of_user;
        let operation = asked.checked()?;
        let space = self.spaces.entry(primitive.to_owned()).or_default();
        let now = Instant::now();
        space.retain(|_, stored| stored.expires > now);
        Ok(match operation {
            StorageOperation::Get { key } => match space.get(&(of_user, key)) {
                None => answer,
                Some(StoredValue { text, version, .. }) => DeliverStorageAnswer {
                    value: Some(Json { value: text.clone() }),
                    version: *version,
                    ..answer
                },
            },
            StorageOperation::Put { key, value, ttl, if_version } => {
                let key = (of_user, key);
                check_put(space, &key, &value, if_version)?;
                self.last_version += 1;
                let version = self.last_version;
                space.insert(key, StoredValue { text: value, version, expires: now + ttl });
                DeliverStorageAnswer { version, ..answer }
            }
            StorageOperation::List { prefix, after } => {
                let fits = |key: &&Key| key.0 == of_user && key.1.starts_with(&prefix) && key.1 > after;
                let mut keys: Vec<String> = space.keys().filter(fits).map(|key| key.1.clone()).collect();
                let has_more = keys.len() > PAGE as usize;
                keys.truncate(PAGE as usize);
                DeliverStorageAnswer { keys, has_more, ..answer }
            }
            StorageOperation::Delete { key } => {
                DeliverStorageAnswer { deleted: space.remove(&(of_user, key)).is_some(), ..answer }
            }
        })
    }
}

/// Checks a value against the condition and the bounds.
fn check_put(
    space: &BTreeMap<Key, StoredValue>,
    key: &Key,
    value: &[u8],
    if_version: Option<u64>,
) -> Result<(), StorageFault> {
    serde_json::from_slice::<IgnoredAny>(value).map_err(|_| StorageFault::BadValue)?;
    let known = space.get(key);
    let version = known.map_or(0, |stored| stored.version);
    if if_version.is_some_and(|wanted| wanted != version) {
        return Err(StorageFault::Conflict);
    }
    let size = |key: &Key, text: &[u8]| key.1.len() + text.len();
    let others = space.iter().filter(|(other, _)| *other != key);
    let bytes: usize = others.map(|(key, stored)| size(key, &stored.text)).sum();
    let keys = space.len() + usize::from(known.is_none());
    if keys > MAX_KEYS as usize || bytes + size(key, value) > MAX_BYTES as usize {
        return Err(StorageFault::Full);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asp_proto::plugin::storage_requested::Operation;
    use asp_proto::plugin::{StorageDelete, StorageGet, StorageList, StoragePut};

    use super::*;

    fn storage() -> MemoryStorage {
        MemoryStorage { granted: ["own".to_owned(), "other".to_owned()].into(), ..MemoryStorage::default() }
    }

    fn ask(storage: &mut MemoryStorage, primitive: &str, operation: Operation) -> DeliverStorageAnswer {
        let asked = StorageRequested { operation: Some(operation), ..StorageRequested::default() };
        storage.answer(primitive, asked)
    }

    fn put(key: &str, value: &str, if_version: Option<u64>) -> Operation {
        let value = Some(Json { value: value.as_bytes().to_vec() });
        Operation::Put(StoragePut { key: key.into(), value, ttl: None, if_version })
    }

    fn get(key: &str) -> Operation {
        Operation::Get(StorageGet { key: key.into() })
    }

    #[test]
    fn a_value_is_kept_for_its_plugin() {
        let mut storage = storage();
        let stored = ask(&mut storage, "own", put("k", "[1]", Some(0)));
        assert_eq!((stored.error.as_str(), stored.version), ("", 1));
        let found = ask(&mut storage, "own", get("k"));
        assert_eq!((found.value.unwrap().value, found.version), (b"[1]".to_vec(), 1));
        assert_eq!(ask(&mut storage, "other", get("k")).value, None);
        assert_eq!(ask(&mut storage, "ungranted", get("k")).error, "not_granted");
        assert_eq!(ask(&mut storage, "own", put("k", "2", Some(0))).error, "conflict");
        assert_eq!(ask(&mut storage, "own", put("k", "{", None)).error, "bad_value");
        let of_user = StorageRequested { of_user: true, operation: Some(get("k")), ..Default::default() };
        assert_eq!(storage.answer("own", of_user).value, None);
        assert!(ask(&mut storage, "own", Operation::Delete(StorageDelete { key: "k".into() })).deleted);
        assert_eq!(ask(&mut storage, "own", get("k")).value, None);
    }

    #[test]
    fn keys_are_bounded_listed_in_pages_and_expire() {
        let mut storage = storage();
        for number in 0..MAX_KEYS {
            assert_eq!(ask(&mut storage, "own", put(&format!("k{number:04}"), "1", None)).error, "");
        }
        assert_eq!(ask(&mut storage, "own", put("more", "1", None)).error, "storage_full");
        assert_eq!(ask(&mut storage, "own", put("k0000", "2", None)).error, "");
        let list = |after: &str| Operation::List(StorageList { prefix: "k09".into(), after: after.into() });
        let page = ask(&mut storage, "own", list(""));
        assert_eq!((page.keys.len(), page.has_more, page.keys[0].as_str()), (100, false, "k0900"));
        let all = Operation::List(StorageList::default());
        assert!(ask(&mut storage, "own", all).has_more);
        let past = Instant::now() - Duration::from_millis(1);
        let space = storage.spaces.get_mut("own").unwrap();
        space.values_mut().for_each(|stored| stored.expires = past);
        assert_eq!(ask(&mut storage, "own", list("")).keys, Vec::<String>::new());
    }
}
