//! Disabled servers and primitives.

use super::changes::Follower;
use super::{change, files};
use crate::control::sql::ControlStore;
use crate::control::{AuditQuery, StoreError, WHOLE_SERVER};

pub(super) async fn stay_so_until_they_are_enabled(store: &ControlStore, followed: &mut Follower) {
    let set_by = async |by_platform: bool, entry: &str, is_disabled: bool| {
        let written = store.set_disabled(&change(), "broken", (entry, is_disabled), by_platform).await;
        written.map(|written| written.changed)
    };
    let set = async |entry: &str, is_disabled: bool| set_by(false, entry, is_disabled).await;
    let stored = async || store.server("broken").await.unwrap().unwrap();
    assert!(matches!(set(WHOLE_SERVER, true).await, Err(StoreError::NotFound)));
    store.put_server(&change(), "broken", &files("a"), "a").await.unwrap();
    assert!(stored().await.disabled.is_empty());
    assert!(set("echo", true).await.unwrap() && set(WHOLE_SERVER, true).await.unwrap());
    assert!(!set("echo", true).await.unwrap(), "it is disabled already");
    followed.catch_up(store).await;
    store.put_server(&change(), "broken", &files("b"), "b").await.unwrap();
    followed.catch_up(store).await;
    let record = stored().await;
    assert_eq!(record.disabled, [WHOLE_SERVER, "echo"], "a new version does not enable it");
    assert!(record.a2a_confirmed, "A2A stays as it was");
    assert!(store.server_version("broken", record.revision).await.unwrap().unwrap().disabled.is_empty());
    assert!(set(WHOLE_SERVER, false).await.unwrap() && !set("other", false).await.unwrap());
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    let row = (rows[0].action.as_str(), rows[0].resource.as_str(), rows[0].detail.as_str());
    assert_eq!(row, ("server.enable", "server/broken", WHOLE_SERVER));
    assert_eq!(stored().await.disabled, ["echo"]);
    assert!(!store.is_disabled_by_platform("broken").await.unwrap());
    assert!(set_by(true, "echo", true).await.unwrap(), "the platform takes it over");
    assert!(!set("echo", true).await.unwrap() && !set_by(true, "echo", true).await.unwrap());
    assert!(matches!(set("echo", false).await, Err(StoreError::DisabledByPlatform)));
    assert!(store.is_disabled_by_platform("broken").await.unwrap());
    store.put_server(&change(), "broken", &files("c"), "c").await.unwrap();
    assert!(matches!(set("echo", false).await, Err(StoreError::DisabledByPlatform)), "nor by a new version");
    assert_eq!(stored().await.disabled, ["echo"]);
    assert!(set_by(true, "echo", false).await.unwrap() && stored().await.disabled.is_empty());
    followed.catch_up(store).await;
    store.delete_server(&change(), "broken").await.unwrap();
    followed.catch_up(store).await;
}
