//! Offers of servers to orgs.

use super::{change, change_if, files};
use crate::control::sql::ControlStore;
use crate::control::{OfferRecord, Precondition, StoreError};

fn offer(server: &str, org: &str) -> OfferRecord {
    OfferRecord { server: server.into(), org: org.into() }
}

pub(super) async fn are_of_a_server_and_go_with_it(store: &ControlStore) {
    let unknown = store.put_offer(&change(), &offer("offered", "acme")).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)), "there is no such server yet");
    store.put_server(&change(), "offered", &files("a"), "h1").await.unwrap();
    let first = store.put_offer(&change(), &offer("offered", "b")).await.unwrap();
    let again = store.put_offer(&change(), &offer("offered", "b")).await.unwrap();
    assert!(first.changed && !again.changed);
    let second = store.put_offer(&change(), &offer("offered", "a")).await.unwrap();
    let listed = store.offers("offered").await.unwrap();
    assert_eq!(
        (listed.revision, listed.value),
        (second.revision, vec![offer("offered", "a"), offer("offered", "b")])
    );
    assert_eq!(store.offers_to("a").await.unwrap(), [offer("offered", "a")]);
    let stale = change_if(Precondition::At(first.revision));
    let stale = store.delete_offer(&stale, &offer("offered", "a")).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })));
    store.delete_offer(&change(), &offer("offered", "a")).await.unwrap();
    let gone = store.delete_offer(&change(), &offer("offered", "a")).await;
    assert!(matches!(gone, Err(StoreError::NotFound)));
    assert_eq!(store.load().await.unwrap().offers, [offer("offered", "b")]);

    store.delete_server(&change(), "offered").await.unwrap();
    store.put_server(&change(), "offered", &files("a"), "h1").await.unwrap();
    let listed = store.offers("offered").await.unwrap();
    assert_eq!((listed.revision, listed.value), (0, Vec::new()), "the new one is offered to nobody");
    store.delete_server(&change(), "offered").await.unwrap();
}
