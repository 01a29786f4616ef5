//! Events of a topic: recorded with their revocations, and parked.

use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{Change, MAX_PARKED, ParkedEvent, RevocationEvent};

/// An event's revocation that is lifted does not come back with a repetition; deletes what it adds.
pub(super) async fn become_a_revocation_once(store: &ControlStore) {
    let event = RevocationEvent { id: "event-1".into(), until: 4_000 };
    let first = revocation("of-event", "acme", 9_000);
    assert!(!store.has_revocation_event("event-1").await.unwrap());
    let added = store.add_revocation_of(&change(), &first, Some(&event)).await.unwrap();
    assert!(added.changed && store.has_revocation_event("event-1").await.unwrap());
    let revision = store.revision().await.unwrap();
    let other = revocation("of-repetition", "acme", 9_000);
    for repeated in [&first, &other] {
        assert!(!store.add_revocation_of(&change(), repeated, Some(&event)).await.unwrap().changed);
    }
    assert_eq!(store.revision().await.unwrap(), revision, "a repetition has no revision");
    store.delete_revocation(&change(), "of-event").await.unwrap();
    assert!(!store.add_revocation_of(&change(), &first, Some(&event)).await.unwrap().changed);
    assert_eq!(store.revocation("of-event").await.unwrap(), None, "it stays lifted");
    store.prune(&Change { at: 3_999, ..change() }, u64::MAX).await.unwrap();
    assert!(store.has_revocation_event("event-1").await.unwrap());
    store.prune(&Change { at: 4_000, ..change() }, u64::MAX).await.unwrap();
    assert!(!store.has_revocation_event("event-1").await.unwrap(), "a repetition is too old now");
}

/// Parked messages; deletes them again.
pub(super) async fn that_are_parked_are_bounded_and_deleted(store: &ControlStore) {
    let parked = |n: u64| ParkedEvent {
        id: format!("topic:0:{n}"),
        parked_at: 1_000 + n,
        fault: "it is not JSON".into(),
        payload: "{".into(),
    };
    let bound = u64::try_from(MAX_PARKED).unwrap();
    for n in 0..bound {
        assert_eq!(store.park_event(&parked(n)).await.unwrap(), 0);
    }
    assert_eq!(store.park_event(&parked(5)).await.unwrap(), 0, "the same message is parked once");
    assert_eq!(store.park_event(&parked(bound)).await.unwrap(), 1, "the oldest goes");
    assert_eq!(store.parked_event("topic:0:0").await.unwrap(), None);
    let newest = store.parked_events(2).await.unwrap();
    assert_eq!(newest, [parked(bound), parked(bound - 1)]);
    assert_eq!(store.parked_event("topic:0:5").await.unwrap(), Some(parked(5)));
    assert!(store.delete_parked_event("topic:0:5").await.unwrap());
    assert!(!store.delete_parked_event("topic:0:5").await.unwrap());
    for parked in store.parked_events(1_000).await.unwrap() {
        assert!(store.delete_parked_event(&parked.id).await.unwrap());
    }
}
