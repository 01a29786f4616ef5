//! Keys of machines, and the revocations that match them.

use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{Change, MAX_MACHINE_KEYS_PER_ORG, MachineKeyRecord, RevocationRecord, StoreError};

/// Milliseconds, like all times here.
const CREATED: u64 = 50_500;
const EXPIRES: u64 = 900_000;

fn key(id: &str, org: &str, machine: &str) -> MachineKeyRecord {
    MachineKeyRecord {
        id: id.into(),
        org: org.into(),
        machine: machine.into(),
        hash: format!("{id:0>64}"),
        groups: vec!["robots".into()],
        scopes: vec![],
        created_at: CREATED,
        expires_at: EXPIRES,
    }
}

fn at(at: u64) -> Change {
    Change { at, ..change() }
}

pub(super) async fn are_kept_by_org_until_they_end(store: &ControlStore) {
    let (old, new) = (key("k1", "robots", "press"), key("k2", "robots", "press"));
    for record in [&old, &new] {
        store.add_machine_key(&at(CREATED), record).await.unwrap();
    }
    assert_eq!(store.machine_keys("robots").await.unwrap(), [old.clone(), new.clone()], "both are in force");
    assert_eq!(store.machine_keys("others").await.unwrap(), []);
    assert_eq!(store.load().await.unwrap().machines.keys, [old.clone(), new.clone()]);
    for (org, id) in [("others", "k1"), ("robots", "k3")] {
        let gone = store.delete_machine_key(&at(CREATED), org, id).await;
        assert!(matches!(gone, Err(StoreError::NotFound)), "{org} {id}");
    }
    store.delete_machine_key(&at(CREATED), "robots", "k1").await.unwrap();
    assert_eq!(store.machine_keys("robots").await.unwrap(), [new]);
    // Expired keys free capacity.
    for number in 0..MAX_MACHINE_KEYS_PER_ORG - 1 {
        store.add_machine_key(&at(CREATED), &key(&format!("n{number}"), "robots", "arm")).await.unwrap();
    }
    let full = store.add_machine_key(&at(CREATED), &key("more", "robots", "arm")).await;
    assert!(matches!(full, Err(StoreError::Full { .. })));
    let later =
        MachineKeyRecord { created_at: EXPIRES, expires_at: 2 * EXPIRES, ..key("more", "robots", "arm") };
    store.add_machine_key(&at(EXPIRES), &later).await.unwrap();
    assert_eq!(store.machine_keys("robots").await.unwrap(), [later]);
    store.delete_machine_key(&at(EXPIRES), "robots", "more").await.unwrap();
}

/// Otherwise a key would be valid again when its revocation is deleted after a day, which suffices for tokens.
pub(super) async fn stay_revoked_as_long_as_they_live(store: &ControlStore) {
    let press = key("k4", "robots", "press");
    store.add_machine_key(&at(CREATED), &press).await.unwrap();
    let of = |id: &str, kind: &str, org: &str, target: &str| RevocationRecord {
        kind: kind.into(),
        target: target.into(),
        created_at: CREATED + 5_000,
        by_platform: false,
        ..revocation(id, org, 100_000)
    };
    let hash = press.hash.clone();
    for (id, kind, org, target, until) in [
        ("m1", "user", "robots", "press", EXPIRES),
        ("m2", "user", "robots", "arm", 100_000),
        ("m3", "user", "others", "press", 100_000),
        ("m4", "org", "", "robots", EXPIRES),
        ("m5", "org", "robots", "robots", EXPIRES),
        ("m6", "org", "", "others", 100_000),
        ("m7", "token", "", "k4", EXPIRES),
        ("m8", "token", "robots", "k4", EXPIRES),
        ("m9", "token", "others", "k4", 100_000),
        ("ma", "token_hash", "", hash.as_str(), EXPIRES),
        ("mb", "token_hash", "others", hash.as_str(), 100_000),
        ("mc", "token", "", "another", 100_000),
    ] {
        store.add_revocation(&at(CREATED), &of(id, kind, org, target)).await.unwrap();
        assert_eq!(store.revocation(id).await.unwrap().unwrap().until, until, "{id}");
    }
    // Keys created in the same second as the revocation, or earlier, match too, in either order of writing.
    let late = |id: &str, created_at| MachineKeyRecord {
        created_at,
        expires_at: EXPIRES + 1,
        ..key(id, "robots", "arm")
    };
    let until = async || store.revocation("m2").await.unwrap().unwrap().until;
    store.add_machine_key(&at(CREATED), &late("k5", CREATED + 6_000)).await.unwrap();
    assert_eq!(until().await, 100_000, "a key of a later second is not hit");
    store.add_machine_key(&at(CREATED), &late("k6", CREATED + 5_400)).await.unwrap();
    assert_eq!(until().await, EXPIRES + 1);
    assert_eq!(store.revocation("m4").await.unwrap().unwrap().until, EXPIRES + 1, "of the org too");
    assert_eq!(store.revocation("m3").await.unwrap().unwrap().until, 100_000, "of another org not");
    for id in ["k4", "k5", "k6"] {
        store.delete_machine_key(&at(CREATED), "robots", id).await.unwrap();
    }
    for id in ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "ma", "mb", "mc"] {
        store.delete_revocation(&at(CREATED), id).await.unwrap();
    }
}
