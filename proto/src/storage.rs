//! Bounds of the storage of plugins, and the requests that keep to them: for gateways, and for trials of plugins without one.
//!
//! Refuses: keys, times to live and values beyond their bounds. Whether a value is JSON is checked by whoever stores it.

use std::time::Duration;

use crate::plugin::storage_requested::Operation;
use crate::plugin::{
    DeliverStorageAnswer, StorageDelete, StorageGet, StorageList, StoragePut, StorageRequested,
};

/// Maximum length of a key in bytes.
pub const MAX_KEY: usize = 256;
/// Maximum length of a value in bytes, as JSON text.
pub const MAX_VALUE: usize = 64 << 10;
/// Maximum number of keys of a plugin and org, those of users included.
pub const MAX_KEYS: u32 = 1_000;
/// Maximum bytes of all keys and values of a plugin and org.
pub const MAX_BYTES: u32 = 4 << 20;
/// Maximum number of keys in one list.
pub const PAGE: u32 = 100;
/// Maximum number of requests that are not answered yet, in one call.
pub const MAX_OPEN: usize = 16;
/// Maximum number of requests of one call: what a loop without end costs the store.
pub const MAX_REQUESTS: u32 = 1_000;
/// Time after which a key expires whose plugin states none.
const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(90 * 24 * 3600);

/// Reason why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFault {
    BadKey,
    BadValue,
    BadTtl,
    TooLarge,
    Full,
    Conflict,
    /// The spec does not say `storage: true`.
    NotGranted,
    /// The call has sent [`MAX_REQUESTS`].
    TooMany,
    Unavailable,
}

impl StorageFault {
    /// Returns the word of `DeliverStorageAnswer.error`.
    pub fn word(self) -> &'static str {
        match self {
            StorageFault::BadKey => "bad_key",
            StorageFault::BadValue => "bad_value",
            StorageFault::BadTtl => "bad_ttl",
            StorageFault::TooLarge => "too_large",
            StorageFault::Full => "storage_full",
            StorageFault::Conflict => "conflict",
            StorageFault::NotGranted => "not_granted",
            StorageFault::TooMany => "too_many",
            StorageFault::Unavailable => "unavailable",
        }
    }
}

/// Operation of a request that keeps to the bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageOperation {
    Get { key: String },
    Put { key: String, value: Vec<u8>, ttl: Duration, if_version: Option<u64> },
    List { prefix: String, after: String },
    Delete { key: String },
}

impl StorageRequested {
    /// Returns an answer to the request without a result.
    pub fn empty_answer(&self) -> DeliverStorageAnswer {
        DeliverStorageAnswer {
            request_id: self.request_id.clone(),
            correlation_id: self.correlation_id.clone(),
            ..DeliverStorageAnswer::default()
        }
    }

    /// Returns the answer that refuses the request.
    pub fn refused(&self, fault: StorageFault) -> DeliverStorageAnswer {
        DeliverStorageAnswer { error: fault.word().to_owned(), ..self.empty_answer() }
    }

    /// Checks the request against the bounds, and fills in the default time to live.
    pub fn checked(self) -> Result<StorageOperation, StorageFault> {
        match self.operation {
            Some(Operation::Get(StorageGet { key })) => Ok(StorageOperation::Get { key: checked_key(key)? }),
            Some(Operation::Put(put)) => checked_put(put),
            Some(Operation::List(StorageList { prefix, after })) => {
                Ok(StorageOperation::List { prefix: checked_text(prefix)?, after: checked_text(after)? })
            }
            Some(Operation::Delete(StorageDelete { key })) => {
                Ok(StorageOperation::Delete { key: checked_key(key)? })
            }
            // An operation of a later version.
            None => Err(StorageFault::Unavailable),
        }
    }
}

fn checked_put(put: StoragePut) -> Result<StorageOperation, StorageFault> {
    let StoragePut { key, value, ttl, if_version } = put;
    let key = checked_key(key)?;
    let value = value.map(|json| json.value).unwrap_or_default();
    if value.len() > MAX_VALUE {
        return Err(StorageFault::TooLarge);
    }
    let ttl = match ttl {
        None => DEFAULT_TTL,
        Some(ttl) => Duration::try_from(ttl).map_err(|_| StorageFault::BadTtl)?,
    };
    if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Err(StorageFault::BadTtl);
    }
    Ok(StorageOperation::Put { key, value, ttl, if_version })
}

fn checked_key(key: String) -> Result<String, StorageFault> {
    if key.is_empty() { Err(StorageFault::BadKey) } else { checked_text(key) }
}

fn checked_text(text: String) -> Result<String, StorageFault> {
    let fits = text.len() <= MAX_KEY && !text.contains(char::is_control);
    if fits { Ok(text) } else { Err(StorageFault::BadKey) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Json;

    fn asked(operation: Operation) -> Result<StorageOperation, StorageFault> {
        StorageRequested { operation: Some(operation), ..StorageRequested::default() }.checked()
    }

    fn put(value: usize, seconds: Option<i64>) -> Result<StorageOperation, StorageFault> {
        let ttl = seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        let value = Some(Json { value: vec![b'1'; value] });
        asked(Operation::Put(StoragePut { key: "k".into(), value, ttl, if_version: None }))
    }

    #[test]
    fn keys_have_a_length_and_no_control_characters() {
        let get = |key: &str| asked(Operation::Get(StorageGet { key: key.into() }));
        for good in ["k", "a b/ä", &"ä".repeat(MAX_KEY / 2)] {
            assert_eq!(get(good), Ok(StorageOperation::Get { key: good.into() }));
        }
        for bad in ["", "a\n", "\0", "\u{7f}", "\u{85}", &"x".repeat(MAX_KEY + 1)] {
            assert_eq!(get(bad), Err(StorageFault::BadKey), "{bad:?}");
            assert_eq!(
                asked(Operation::Delete(StorageDelete { key: bad.into() })),
                Err(StorageFault::BadKey)
            );
        }
        let all = StorageOperation::List { prefix: String::new(), after: String::new() };
        assert_eq!(asked(Operation::List(StorageList::default())), Ok(all));
        let list = StorageList { prefix: "a\n".into(), after: String::new() };
        assert_eq!(asked(Operation::List(list)), Err(StorageFault::BadKey));
    }

    #[test]
    fn values_and_times_to_live_have_bounds() {
        let day = 24 * 3600;
        for (seconds, ttl) in [(None, 30 * day), (Some(1), 1), (Some(90 * day), 90 * day)] {
            let Ok(StorageOperation::Put { ttl: found, .. }) = put(MAX_VALUE, seconds) else {
                panic!("{seconds:?}")
            };
            assert_eq!(found.as_secs(), ttl.unsigned_abs());
        }
        for seconds in [0, -1, 90 * day + 1, i64::MAX] {
            assert_eq!(put(1, Some(seconds)), Err(StorageFault::BadTtl), "{seconds}");
        }
        assert_eq!(put(MAX_VALUE + 1, None), Err(StorageFault::TooLarge));
    }

    #[test]
    fn an_operation_of_a_later_version_has_an_answer() {
        let unknown = StorageRequested {
            request_id: "r".into(),
            correlation_id: "c".into(),
            ..StorageRequested::default()
        };
        let answer = unknown.refused(StorageFault::Unavailable);
        assert_eq!((&*answer.request_id, &*answer.correlation_id, &*answer.error), ("r", "c", "unavailable"));
        assert_eq!(unknown.checked(), Err(StorageFault::Unavailable));
    }
}
