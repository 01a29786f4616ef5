//! A change keeps what it removes and stores for its undo, and an undo is one write.

use super::policy::limit;
use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{
    AuditQuery, BindingRecord, Change, ExposureRecord, ListChange, ListDifference, Precondition, StoreError,
};

const ORG: &str = "undoer";

async fn kept(store: &ControlStore, revision: u64) -> Option<ListChange> {
    store.audited(revision).await.unwrap().unwrap().1
}

pub(super) async fn of_exposure_is_one_write_that_can_be_undone(store: &ControlStore) {
    let exposure =
        |enabled| ExposureRecord { org: ORG.into(), server: "demo".into(), protocol: "mcp".into(), enabled };
    let on = store.put_exposure(&change(), &exposure(true)).await.unwrap();
    let first = ListChange::Exposure(ListDifference::of([], [exposure(true)]));
    assert_eq!(kept(store, on.revision).await, Some(first));
    let off = store.put_exposure(&change(), &exposure(false)).await.unwrap();
    let switched = ListDifference::of([exposure(true)], [exposure(false)]);
    assert_eq!(kept(store, off.revision).await, Some(ListChange::Exposure(switched.clone())));

    let undo =
        Change { undoes: Some(off.revision), precondition: Precondition::At(off.revision), ..change() };
    let back = switched.reversed();
    let undone = store.replace_exposure(&undo, ORG, &back).await.unwrap();
    assert_eq!(store.exposure(ORG).await.unwrap().value, [exposure(true)]);
    let (row, replaced) = store.audited(undone.revision).await.unwrap().unwrap();
    assert_eq!(replaced, Some(ListChange::Exposure(back.clone())), "an undo can be undone");
    let detail = format!("undoes {}: - demo mcp enabled=false\n+ demo mcp enabled=true", off.revision);
    assert_eq!((row.detail, row.undoable), (detail, true));
    let again = store.replace_exposure(&undo, ORG, &back).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "the list has changed since");

    let gone = store.delete_exposure(&change(), ORG).await.unwrap();
    let removed = ListChange::Exposure(ListDifference::of([exposure(true)], []));
    assert_eq!(kept(store, gone.revision).await, Some(removed));
    let query = AuditQuery { resources: &["exposure/undoer"], limit: 9, ..AuditQuery::default() };
    let revisions: Vec<u64> = store.audit(&query).await.unwrap().iter().map(|row| row.revision).collect();
    assert_eq!(revisions, [gone.revision, undone.revision, off.revision, on.revision]);
    let query = AuditQuery { resources: &["exposure/undoer", "bindings/"], limit: 1_000, ..query };
    let rows = store.audit(&query).await.unwrap();
    assert!(rows.iter().any(|row| row.action == "binding.put"), "{rows:?}");
    assert!(rows.iter().all(|row| !row.resource.starts_with("limits/")), "{rows:?}");
}

pub(super) async fn of_bindings_and_limits_restores_what_they_replaced(store: &ControlStore) {
    let binding = |target: &str, allowed| BindingRecord {
        org: ORG.into(),
        target_type: "user".into(),
        target: target.into(),
        primitive: "demo".into(),
        protocol: "*".into(),
        allowed,
        ..BindingRecord::default()
    };
    store.put_binding(&change(), &binding("a", false)).await.unwrap();
    let put = store.put_binding(&change(), &binding("a", true)).await.unwrap();
    let replaced = ListChange::Bindings(ListDifference::of([binding("a", false)], [binding("a", true)]));
    assert_eq!(kept(store, put.revision).await, Some(replaced));
    store.put_binding(&change(), &binding("b", true)).await.unwrap();
    let one = store.delete_binding(&change(), &binding("b", false)).await.unwrap();
    let removed = ListDifference::of([binding("b", true)], []);
    assert_eq!(kept(store, one.revision).await, Some(ListChange::Bindings(removed.clone())), "as stored");
    let back = store.replace_bindings(&change(), ORG, &removed.reversed()).await.unwrap();
    let both = [binding("a", true), binding("b", true)];
    assert_eq!(store.bindings(ORG).await.unwrap().value, both);
    assert!(kept(store, back.revision).await.is_some());
    let all = store.delete_bindings(&change(), ORG).await.unwrap();
    let Some(ListChange::Bindings(gone)) = kept(store, all.revision).await else {
        panic!("nothing is kept of {all:?}");
    };
    store.replace_bindings(&change(), ORG, &gone.clone().reversed()).await.unwrap();
    assert_eq!(store.bindings(ORG).await.unwrap().value, both, "all of them in one write");
    store.replace_bindings(&change(), ORG, &gone).await.unwrap();
    assert_eq!(store.bindings(ORG).await.unwrap().revision, 0, "the empty list is no resource");

    store.put_limits(&change(), ORG, &[limit("a", 1), limit("b", 1)]).await.unwrap();
    let put = store.put_limits(&change(), ORG, &[limit("b", 1), limit("c", 1)]).await.unwrap();
    let replaced = ListDifference::of([limit("a", 1)], [limit("c", 1)]);
    assert_eq!(kept(store, put.revision).await, Some(ListChange::Limits(replaced)));
    let order = store.put_limits(&change(), ORG, &[limit("c", 1), limit("b", 1)]).await.unwrap();
    assert_eq!(kept(store, order.revision).await, None, "an order is nothing to undo");
    store.put_limits(&change(), ORG, &[]).await.unwrap();
}

pub(super) async fn of_revocations_lifts_all_of_a_write(store: &ControlStore) {
    let list = [revocation("u1", ORG, 9_000), revocation("u2", ORG, 9_000)];
    let added = store.add_revocations(&change(), &list).await.unwrap();
    let kept_list = ListChange::Revocations(ListDifference::of([], list.clone()));
    assert_eq!(kept(store, added.revision).await, Some(kept_list));
    let ids = list.clone().map(|record| record.id);
    let unknown = [ids[0].clone(), "unknown".to_owned()];
    let refused = store.delete_revocations(&change(), &unknown).await;
    assert!(matches!(refused, Err(StoreError::NotFound)), "all of them or none");
    assert!(store.revocation("u1").await.unwrap().is_some());
    let lifted = store.delete_revocations(&change(), &ids).await.unwrap();
    assert_eq!(store.revocations(Some(ORG), 9).await.unwrap(), []);
    let Some(ListChange::Revocations(gone)) = kept(store, lifted.revision).await else {
        panic!("nothing is kept of {lifted:?}");
    };
    assert_eq!((gone.before.len(), gone.after.len()), (2, 0));
    let one = store.add_revocation(&change(), &list[0]).await.unwrap();
    let alone = ListChange::Revocations(ListDifference::of([], [list[0].clone()]));
    assert_eq!(kept(store, one.revision).await, Some(alone));
    let lifted = store.delete_revocation(&change(), "u1").await.unwrap();
    let gone = ListChange::Revocations(ListDifference::of([list[0].clone()], []));
    assert_eq!(kept(store, lifted.revision).await, Some(gone));
    assert_eq!(store.audited(u64::MAX).await.unwrap(), None);
}
