//! Linked accounts that end with revocations.

use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{EndedLinks, RevocationRecord};

/// Invariant I-6. Leaves nothing.
pub(super) async fn are_recorded_with_their_revocations_until_they_are_done(store: &ControlStore) {
    let waiting = async || store.link_endings(1_000).await.unwrap();
    let done = async |endings: Vec<EndedLinks>| {
        let ids: Vec<String> = endings.into_iter().map(|ending| ending.id).collect();
        store.delete_link_endings(&ids).await.unwrap();
    };
    // Earlier parts of the suite revoke more than one read returns.
    loop {
        let endings = waiting().await;
        if endings.is_empty() {
            break;
        }
        done(endings).await;
    }
    let token = revocation("ends-0", "acme", 9_000);
    let user = RevocationRecord {
        kind: "block_user".into(),
        target: "bob".into(),
        ..revocation("ends-1", "acme", 9_000)
    };
    for record in [&token, &user] {
        store.add_revocation(&change(), record).await.unwrap();
    }
    let found = waiting().await;
    let expected: Vec<EndedLinks> = [&token, &user].into_iter().filter_map(EndedLinks::of).collect();
    assert_eq!(found, expected);
    let after = async |last: &EndedLinks| store.link_endings_after(Some(last), 1_000).await.unwrap();
    assert_eq!(after(&expected[0]).await, expected[1..]);
    assert!(after(&expected[1]).await.is_empty());
    // A lifted revocation has ended its links all the same.
    store.delete_revocation(&change(), "ends-1").await.unwrap();
    let lifted = EndedLinks { is_lifted: true, ..expected[1].clone() };
    assert_eq!(waiting().await, [expected[0].clone(), lifted.clone()]);
    store.delete_link_endings(&["ends-0".to_owned()]).await.unwrap();
    assert_eq!(waiting().await, [lifted]);
    store.delete_link_endings(&[]).await.unwrap();
    done(waiting().await).await;
    assert!(waiting().await.is_empty());
    store.delete_revocation(&change(), "ends-0").await.unwrap();
}
