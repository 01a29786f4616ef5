//! The servers that may have a primitive under an id.

use super::{change, files};
use crate::control::{ControlStore, PrimitiveServer, StoreError};

pub(super) async fn stay_with_the_server_that_stored_them_first(store: &dyn ControlStore) {
    let of = |server: &str, first: bool| PrimitiveServer { id: "pay".into(), server: server.into(), first };
    let register = async |server: &str, hash: &str, ids: &[&str]| {
        store.register_server(&change(), server, &files(hash), hash, ids).await.unwrap()
    };
    assert_eq!(store.primitives_of_others("shop", &["pay"]).await.unwrap(), []);
    register("shop", "h1", &["pay", "refund"]).await;
    assert_eq!(store.primitives_of_others("shop", &["pay"]).await.unwrap(), []);
    assert_eq!(store.primitives_of_others("evil", &["pay", "other"]).await.unwrap(), [of("shop", true)]);
    register("shop", "h2", &["refund"]).await;
    store.delete_server(&change(), "shop").await.unwrap();
    let kept = store.primitives_of_others("evil", &["pay"]).await.unwrap();
    assert_eq!(kept, [of("shop", true)], "it stays its own");

    let granted = store.grant_primitive(&change(), "pay", "kiosk").await.unwrap();
    assert!(!store.grant_primitive(&change(), "pay", "kiosk").await.unwrap().changed);
    let listed = store.primitive_servers("pay").await.unwrap();
    assert_eq!(
        (listed.revision, listed.value),
        (granted.revision, vec![of("kiosk", false), of("shop", true)])
    );
    assert_eq!(store.primitives_of_others("kiosk", &["pay"]).await.unwrap(), []);
    store.withdraw_primitive(&change(), "pay", "kiosk").await.unwrap();
    let gone = store.withdraw_primitive(&change(), "pay", "kiosk").await;
    assert!(matches!(gone, Err(StoreError::NotFound)));
    assert_eq!(store.primitives_of_others("kiosk", &["pay"]).await.unwrap(), [of("shop", true)]);
}
