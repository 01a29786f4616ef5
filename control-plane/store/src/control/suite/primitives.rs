//! Servers that may have a primitive under an id.

use super::{change, files};
use crate::control::sql::ControlStore;
use crate::control::{Commit, DeniedId, MAX_IDS_PER_SERVER, PrimitiveServer, ServerIds, StoreError};

pub(super) async fn stay_with_the_server_that_stored_them_first(store: &ControlStore) {
    let of = |server: &str, first: bool| PrimitiveServer { id: "pay".into(), server: server.into(), first };
    let is_of = |owner: Option<&str>| DeniedId { id: "pay".into(), owner: owner.map(str::to_owned) };
    let team = async |server: &str, hash: &str, ids: &[&str]| {
        let ids = ServerIds { ids, by_platform: false };
        store.register_server(&change(), server, &files(hash), hash, ids).await
    };
    team("shop", "h1", &["pay", "refund"]).await.unwrap();
    assert_eq!(denied(team("evil", "e1", &["pay", "other"]).await), [is_of(Some("shop"))]);
    assert!(store.server("evil").await.unwrap().is_none(), "nothing of it is stored");
    assert_eq!(store.primitive_servers("other").await.unwrap().value, []);
    team("shop", "h2", &["refund"]).await.unwrap();
    store.delete_server(&change(), "shop").await.unwrap();
    assert!(team("evil", "e1", &["pay"]).await.is_err(), "it stays its own");

    let granted = store.grant_primitive(&change(), "pay", "kiosk").await.unwrap();
    assert!(!store.grant_primitive(&change(), "pay", "kiosk").await.unwrap().changed);
    let listed = store.primitive_servers("pay").await.unwrap();
    assert_eq!(
        (listed.revision, listed.value),
        (granted.revision, vec![of("kiosk", false), of("shop", true)])
    );
    team("kiosk", "k1", &["pay"]).await.unwrap();
    store.withdraw_primitive(&change(), "pay", "kiosk").await.unwrap();
    let gone = store.withdraw_primitive(&change(), "pay", "kiosk").await;
    assert!(matches!(gone, Err(StoreError::NotFound)));
    assert_eq!(denied(team("kiosk", "k2", &["pay"]).await), [is_of(None)]);
    assert_eq!(store.server("kiosk").await.unwrap().unwrap().content_hash, "k1", "what is stored stays");
    assert!(!store.take_primitives(&change(), "kiosk", &["pay"]).await.unwrap().changed);
    assert_eq!(store.primitive_servers("pay").await.unwrap().value, [of("shop", true)]);
    team("kiosk", "k3", &[]).await.unwrap();

    let ids = ServerIds { ids: &["pay"], by_platform: true };
    store.register_server(&change(), "stand", &files("s1"), "s1", ids).await.unwrap();
    let by_platform = [of("shop", true), of("stand", false)];
    assert_eq!(store.primitive_servers("pay").await.unwrap().value, by_platform);

    store.withdraw_primitive(&change(), "pay", "shop").await.unwrap();
    store.grant_primitive(&change(), "pay", "kiosk").await.unwrap();
    let handed_over = [of("kiosk", true), of("stand", false)];
    assert_eq!(store.primitive_servers("pay").await.unwrap().value, handed_over);
    for server in ["kiosk", "stand"] {
        store.delete_server(&change(), server).await.unwrap();
    }
}

pub(super) async fn are_bounded_for_each_server(store: &ControlStore) {
    let ids: Vec<String> = (0..=MAX_IDS_PER_SERVER).map(|number| format!("many.{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (last, most) = ids.split_last().unwrap();
    assert!(store.take_primitives(&change(), "many", most).await.unwrap().changed);
    let register = async |server: &str, hash: &str, ids: &[&str]| {
        let ids = ServerIds { ids, by_platform: false };
        store.register_server(&change(), server, &files(hash), hash, ids).await
    };
    register("many", "m1", &most[..2]).await.unwrap();
    let full = register("many", "m2", &[most[0], *last]).await;
    assert!(matches!(full, Err(StoreError::Full { bound: MAX_IDS_PER_SERVER, .. })), "{full:?}");
    store.delete_server(&change(), "many").await.unwrap();
    register("few", "f1", &[*last]).await.unwrap();
    store.delete_server(&change(), "few").await.unwrap();
}

fn denied(written: Result<Commit, StoreError>) -> Vec<DeniedId> {
    match written {
        Err(StoreError::DeniedIds(ids)) => ids,
        other => panic!("not refused for its ids: {other:?}"),
    }
}
