//! Exposure, bindings and limits of orgs.

use super::{change, change_if};
use crate::control::sql::ControlStore;
use crate::control::{
    AuditQuery, BindingRecord, ExposureRecord, FIXED_WINDOW, LimitRecord, MAX_LIMITS_PER_ORG,
    MAX_RULES_PER_ORG, Precondition, StoreError,
};

pub(super) async fn exposure_is_upserted_by_key(store: &ControlStore) {
    let mut record =
        ExposureRecord { org: "acme".into(), server: "demo".into(), protocol: "mcp".into(), enabled: false };
    let first = store.put_exposure(&change(), &record).await.unwrap();
    assert!(!store.put_exposure(&change(), &record).await.unwrap().changed);
    record.enabled = true;
    let second = store.put_exposure(&change(), &record).await.unwrap();
    assert!(second.revision > first.revision);
    record.protocol = "a2a".into();
    let third = store.put_exposure(&change(), &record).await.unwrap();
    let listed = store.exposure("acme").await.unwrap();
    assert_eq!(listed.value.len(), 2, "one per key");
    assert_eq!(listed.revision, third.revision);
    assert_eq!(store.exposure("other").await.unwrap().value, []);
    assert!(store.delete_exposure(&change(), "acme").await.unwrap().changed);
    assert!(!store.delete_exposure(&change(), "acme").await.unwrap().changed);
    store.put_exposure(&change(), &record).await.unwrap();
    let other = ExposureRecord { server: "other".into(), ..record.clone() };
    store.put_exposure(&change(), &other).await.unwrap();
    assert!(store.delete_exposure_of(&change(), &other).await.unwrap().changed);
    assert!(matches!(store.delete_exposure_of(&change(), &other).await, Err(StoreError::NotFound)));
    assert_eq!(store.exposure("acme").await.unwrap().value, [record], "the others stay");
}

pub(super) async fn bindings_are_upserted_by_key(store: &ControlStore) {
    let mut record = BindingRecord {
        org: "acme".into(),
        target_type: "user".into(),
        target: "*".into(),
        primitive: "demo.*".into(),
        protocol: "mcp".into(),
        allowed: true,
        ..BindingRecord::default()
    };
    store.put_binding(&change(), &record).await.unwrap();
    assert!(!store.put_binding(&change(), &record).await.unwrap().changed);
    record.allowed = false;
    assert!(store.put_binding(&change(), &record).await.unwrap().changed);
    assert_eq!(store.bindings("acme").await.unwrap().value, [record.clone()]);
    let other = BindingRecord { org: "other".into(), ..record.clone() };
    store.put_binding(&change(), &other).await.unwrap();
    store.delete_bindings(&change(), "other").await.unwrap();
    assert_eq!(store.bindings("other").await.unwrap().value, []);
    assert_eq!(store.bindings("acme").await.unwrap().value, [record], "other orgs are untouched");
}

pub(super) async fn named_bindings_stand_beside_each_other(store: &ControlStore) {
    let plain = store.bindings("acme").await.unwrap().value[0].clone();
    let rule = BindingRecord { name: "large".into(), when: "[1]".into(), approval: true, ..plain.clone() };
    store.put_binding(&change(), &rule).await.unwrap();
    assert!(!store.put_binding(&change(), &rule).await.unwrap().changed);
    assert_eq!(store.bindings("acme").await.unwrap().value, [plain.clone(), rule.clone()]);
    for changed in [
        BindingRecord { observed: true, ..rule.clone() },
        BindingRecord { approval: false, ..rule.clone() },
        BindingRecord { approvers: "finance".into(), approvers_issuer: "login".into(), ..rule.clone() },
        BindingRecord { when: "[2]".into(), ..rule.clone() },
    ] {
        assert!(store.put_binding(&change(), &changed).await.unwrap().changed, "{changed:?}");
        assert_eq!(store.bindings("acme").await.unwrap().value, [plain.clone(), changed.clone()]);
        assert!(store.load().await.unwrap().bindings.contains(&changed));
    }
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert!(rows[0].detail.ends_with("name=large approval when=[2]"), "{}", rows[0].detail);
    // Up to their limit, which plain bindings do not count towards.
    let of_org =
        |number: usize| BindingRecord { org: "rules".into(), name: format!("r{number}"), ..rule.clone() };
    for number in 0..MAX_RULES_PER_ORG {
        store.put_binding(&change(), &of_org(number)).await.unwrap();
    }
    let more = of_org(MAX_RULES_PER_ORG);
    for full in [more.clone(), BindingRecord { when: String::new(), observed: true, ..more.clone() }] {
        assert!(matches!(store.put_binding(&change(), &full).await, Err(StoreError::Full { .. })));
    }
    let turned = BindingRecord { observed: true, ..of_org(0) };
    assert!(store.put_binding(&change(), &turned).await.unwrap().changed, "it was one before");
    let now_plain = BindingRecord { when: String::new(), approval: false, ..more.clone() };
    store.put_binding(&change(), &now_plain).await.unwrap();
    let again = store.put_binding(&change(), &more).await;
    assert!(matches!(again, Err(StoreError::Full { .. })), "a plain one that becomes a rule counts");
    store.delete_bindings(&change(), "rules").await.unwrap();
    store.delete_binding(&change(), &rule).await.unwrap();
    assert_eq!(store.bindings("acme").await.unwrap().value, [plain], "the plain one stays");
}

pub(super) async fn one_binding_is_removed_by_its_key(store: &ControlStore) {
    let kept = store.bindings("acme").await.unwrap();
    let other = BindingRecord { target: "bob".into(), ..kept.value[0].clone() };
    let put = store.put_binding(&change(), &other).await.unwrap();
    let stale = change_if(Precondition::At(kept.revision));
    assert!(matches!(store.delete_binding(&stale, &other).await, Err(StoreError::Conflict { .. })));
    let unknown = BindingRecord { protocol: "rest".into(), ..other.clone() };
    assert!(matches!(store.delete_binding(&change(), &unknown).await, Err(StoreError::NotFound)));
    let current = change_if(Precondition::At(put.revision));
    let whatever_it_says = BindingRecord { allowed: !other.allowed, ..other };
    let gone = store.delete_binding(&current, &whatever_it_says).await.unwrap();
    let left = store.bindings("acme").await.unwrap();
    assert_eq!((left.value, left.revision), (kept.value, gone.revision));
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(rows[0].action, "binding.delete");
    assert!(rows[0].detail.contains("user:bob demo.* mcp allowed=false"), "{}", rows[0].detail);
}

pub(super) fn limit(primitive: &str, capacity: u64) -> LimitRecord {
    LimitRecord {
        server: "*".into(),
        primitive: primitive.into(),
        user: "*".into(),
        wcit: "*".into(),
        issuer: "*".into(),
        machine: "*".into(),
        capacity,
        refill: "100/s".into(),
        observe: false,
        ..LimitRecord::default()
    }
}

pub(super) async fn limits_are_replaced_as_a_list(store: &ControlStore) {
    let budget = LimitRecord {
        group: "finance".into(),
        kind: FIXED_WINDOW.into(),
        window_seconds: 86_400,
        ..limit("a", 5)
    };
    let list = [limit("z", 1), limit("a", 2), LimitRecord { observe: true, ..limit("a", 1) }, budget];
    let first = store.put_limits(&change(), "acme", &list).await.unwrap();
    assert!(!store.put_limits(&change(), "acme", &list).await.unwrap().changed);
    let read = store.limits("acme").await.unwrap();
    assert_eq!((read.value.as_slice(), read.revision), (list.as_slice(), first.revision), "order is kept");
    store.put_limits(&change(), "acme", &[limit("b", 3)]).await.unwrap();
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    for line in ["- server=* primitive=z", "- server=* primitive=a", "+ server=* primitive=b"] {
        assert!(rows[0].detail.contains(line), "{}", rows[0].detail);
    }
    assert_eq!(store.limits("acme").await.unwrap().value, [limit("b", 3)]);
    store.put_limits(&change(), "acme", &[]).await.unwrap();
    assert_eq!(store.limits("acme").await.unwrap().value, []);
    let many = vec![limit("a", 1); MAX_LIMITS_PER_ORG + 1];
    assert!(matches!(store.put_limits(&change(), "acme", &many).await, Err(StoreError::Full { .. })));
    store.put_limits(&change(), "acme", &list).await.unwrap();
}
