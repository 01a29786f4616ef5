//! Conformance suite of [`PluginStorage`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{NewValue, PluginStorage, PutValue, StorageBounds, StorageSpace, WHOLE_ORG};

const HOUR: Duration = Duration::from_secs(3600);
const WIDE: StorageBounds = StorageBounds { keys: 1_000, bytes: 1 << 20 };

/// Returns the space of a plugin that no other test uses.
pub fn space(plugin: &str) -> StorageSpace {
    StorageSpace { org: "acme".into(), plugin: plugin.into(), holder: WHOLE_ORG }
}

/// Returns a value of as many bytes as the text has.
pub fn value(text: &'static str, version: i64) -> NewValue {
    NewValue {
        sealed: Bytes::from_static(text.as_bytes()),
        version,
        bytes: text.len() as u32,
        keep: HOUR,
        if_version: None,
    }
}

async fn put<S: PluginStorage>(store: &S, space: &StorageSpace, key: &str, value: &NewValue) -> PutValue {
    store.put_value(space, key, value, WIDE).await.unwrap()
}

/// Returns text and version of a key.
async fn get<S: PluginStorage>(store: &S, space: &StorageSpace, key: &str) -> Option<(String, i64)> {
    let found = store.get_value(space, key).await.unwrap()?;
    Some((String::from_utf8(found.sealed.to_vec()).unwrap(), found.version))
}

fn of(text: &str, version: i64) -> Option<(String, i64)> {
    Some((text.to_owned(), version))
}

/// Runs the suite against a store without keys. Leaves one key.
pub async fn run<S: PluginStorage>(store: &S) {
    keys_are_those_of_one_plugin_org_and_user(store).await;
    a_value_is_replaced_as_a_whole_or_not_at_all(store).await;
    an_expired_key_is_gone(store).await;
    keys_and_bytes_are_bounded(store).await;
    keys_are_listed_by_prefix_in_their_order(store).await;
    assert_eq!(put(store, &space("left"), "kept", &value("one", 1)).await, PutValue::Stored);
}

async fn keys_are_those_of_one_plugin_org_and_user<S: PluginStorage>(store: &S) {
    let own = space("spaces");
    let others = [
        StorageSpace { org: "globex".into(), ..own.clone() },
        StorageSpace { plugin: "other".into(), ..own.clone() },
        StorageSpace { holder: [7; 16], ..own.clone() },
        StorageSpace { holder: [8; 16], ..own.clone() },
    ];
    assert_eq!(put(store, &own, "k", &value("own", 1)).await, PutValue::Stored);
    for other in &others {
        assert_eq!(get(store, other, "k").await, None, "{other:?}");
        assert_eq!(store.list_keys(other, "", "", 10).await.unwrap(), Vec::<String>::new(), "{other:?}");
        assert!(!store.delete_value(other, "k").await.unwrap(), "{other:?}");
        assert_eq!(put(store, other, "k", &value("theirs", 2)).await, PutValue::Stored);
    }
    assert_eq!(get(store, &own, "k").await, of("own", 1));
    for other in &others {
        assert_eq!(get(store, other, "k").await, of("theirs", 2));
        assert!(store.delete_value(other, "k").await.unwrap());
        assert_eq!(get(store, other, "k").await, None);
    }
    assert_eq!(get(store, &own, "k").await, of("own", 1));
}

async fn a_value_is_replaced_as_a_whole_or_not_at_all<S: PluginStorage>(store: &S) {
    let space = space("versions");
    let when = |version: i64, value: NewValue| NewValue { if_version: Some(version), ..value };
    assert_eq!(put(store, &space, "k", &when(5, value("none", 1))).await, PutValue::Conflict);
    assert_eq!(get(store, &space, "k").await, None);
    assert_eq!(put(store, &space, "k", &when(0, value("first", 1))).await, PutValue::Stored);
    assert_eq!(put(store, &space, "k", &when(0, value("again", 2))).await, PutValue::Conflict);
    assert_eq!(put(store, &space, "k", &when(9, value("wrong", 2))).await, PutValue::Conflict);
    assert_eq!(get(store, &space, "k").await, of("first", 1));
    assert_eq!(put(store, &space, "k", &when(1, value("second", 3))).await, PutValue::Stored);
    assert_eq!(put(store, &space, "k", &when(1, value("late", 4))).await, PutValue::Conflict);
    assert_eq!(put(store, &space, "k", &value("third", 5)).await, PutValue::Stored);
    assert_eq!(get(store, &space, "k").await, of("third", 5));
    assert!(store.delete_value(&space, "k").await.unwrap());
    assert!(!store.delete_value(&space, "k").await.unwrap());
    assert_eq!(put(store, &space, "k", &when(5, value("gone", 6))).await, PutValue::Conflict);
    assert_eq!(put(store, &space, "k", &when(0, value("new", 7))).await, PutValue::Stored);
}

async fn an_expired_key_is_gone<S: PluginStorage>(store: &S) {
    let space = space("expired");
    let past = |text, version| NewValue { keep: Duration::ZERO, ..value(text, version) };
    assert_eq!(put(store, &space, "k", &past("past", 1)).await, PutValue::Stored);
    assert_eq!(get(store, &space, "k").await, None);
    assert_eq!(store.list_keys(&space, "", "", 10).await.unwrap(), Vec::<String>::new());
    assert!(!store.delete_value(&space, "k").await.unwrap());
    let on_it = NewValue { if_version: Some(1), ..value("on it", 2) };
    assert_eq!(put(store, &space, "k", &on_it).await, PutValue::Conflict);
    let new = NewValue { if_version: Some(0), ..value("new", 3) };
    assert_eq!(put(store, &space, "k", &new).await, PutValue::Stored);
    assert_eq!(get(store, &space, "k").await, of("new", 3));
}

async fn keys_and_bytes_are_bounded<S: PluginStorage>(store: &S) {
    let [org, user] = [space("full"), StorageSpace { holder: [7; 16], ..space("full") }];
    let small = StorageBounds { keys: 2, bytes: 10 };
    let put = async |space: &StorageSpace, key: &str, value: NewValue| {
        store.put_value(space, key, &value, small).await.unwrap()
    };
    let past = NewValue { keep: Duration::ZERO, ..value("123456789", 1) };
    assert_eq!(put(&org, "past", past).await, PutValue::Stored);
    assert_eq!(put(&org, "a", value("1234", 1)).await, PutValue::Stored, "what expired counts for nothing");
    assert_eq!(put(&user, "b", value("1234567", 1)).await, PutValue::Full, "users' keys count too");
    assert_eq!(put(&user, "b", value("123456", 1)).await, PutValue::Stored);
    assert_eq!(put(&org, "c", value("", 1)).await, PutValue::Full, "a third key");
    let absent = NewValue { if_version: Some(0), ..value("", 1) };
    assert_eq!(put(&org, "c", absent).await, PutValue::Full);
    let other = NewValue { if_version: Some(9), ..value("1", 1) };
    assert_eq!(put(&org, "a", other).await, PutValue::Conflict);
    assert_eq!(put(&org, "a", value("12345", 2)).await, PutValue::Full);
    assert_eq!(put(&org, "a", value("4321", 2)).await, PutValue::Stored, "in place of its own bytes");
    assert_eq!(put(&space("others"), "a", value("1234567890", 1)).await, PutValue::Stored);
    assert!(store.delete_value(&user, "b").await.unwrap());
    assert_eq!(put(&org, "c", value("123456", 1)).await, PutValue::Stored);
}

/// Runs against processes on one database.
pub async fn writes_at_once_keep_to_the_bounds<S: PluginStorage + 'static>(processes: &[Arc<S>]) {
    let spaces = [space("at once"), StorageSpace { holder: [7; 16], ..space("at once") }];
    let mut putting = JoinSet::new();
    for (n, process) in (0..16_usize).zip(processes.iter().cycle()) {
        let process = Arc::clone(process);
        let space = spaces[n % 2].clone();
        putting.spawn(async move {
            let small = StorageBounds { keys: 3, bytes: 100 };
            process.put_value(&space, &format!("k-{n}"), &value("x", 1), small).await.unwrap()
        });
    }
    let all = putting.join_all().await;
    assert_eq!(all.iter().filter(|put| **put == PutValue::Stored).count(), 3);
    let mut putting = JoinSet::new();
    for (n, process) in (0..16_usize).zip(processes.iter().cycle()) {
        let process = Arc::clone(process);
        putting.spawn(async move {
            let small = StorageBounds { keys: 100, bytes: 10 };
            let space = space("bytes at once");
            process.put_value(&space, &format!("k-{n}"), &value("four", 1), small).await.unwrap()
        });
    }
    let all = putting.join_all().await;
    assert_eq!(all.iter().filter(|put| **put == PutValue::Stored).count(), 2);
}

async fn keys_are_listed_by_prefix_in_their_order<S: PluginStorage>(store: &S) {
    let space = space("listed");
    for key in ["b/2", "ä", "b/10", "a_", "b", "b%", "B/1"] {
        assert_eq!(put(store, &space, key, &value("x", 1)).await, PutValue::Stored);
    }
    let list = async |prefix: &str, after: &str, limit: u32| {
        store.list_keys(&space, prefix, after, limit).await.unwrap()
    };
    assert_eq!(list("", "", 10).await, ["B/1", "a_", "b", "b%", "b/10", "b/2", "ä"]);
    assert_eq!(list("b/", "", 10).await, ["b/10", "b/2"]);
    assert_eq!(list("b%", "", 10).await, ["b%"]);
    assert_eq!(list("a", "", 10).await, ["a_"]);
    assert_eq!(list("", "b", 2).await, ["b%", "b/10"]);
    assert_eq!(list("b/", "b/10", 10).await, ["b/2"]);
    assert_eq!(list("b/", "b/2", 10).await, Vec::<String>::new());
}
