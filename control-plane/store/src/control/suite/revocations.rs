//! Several revocations in one write, and those since a revision.

use super::changes::Follower;
use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{Change, MAX_REVOCATIONS_AT_ONCE, MachineKeyRecord, RevocationRecord, StoreError};

/// Several tokens' revocations in one write; deletes them again.
pub(super) async fn of_several_tokens_are_one_write(store: &ControlStore, followed: &mut Follower) {
    let change = Change { at: 7_000, ..change() };
    let key = MachineKeyRecord {
        id: "jti-key".into(),
        org: "acme".into(),
        machine: "press".into(),
        hash: "h".into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 1,
        expires_at: 60_000,
    };
    store.add_machine_key(&change, &key).await.unwrap();
    followed.catch_up(store).await;
    let of = |id: &str| RevocationRecord { created_at: 7_000, ..revocation(id, "acme", 9_000) };
    let before = store.revision().await.unwrap();
    let alone = store.add_revocation(&change, &of("alone")).await.unwrap();
    let list = [of("first"), of("second"), of("key")];
    let written = store.add_revocations(&change, &list).await.unwrap();
    assert_eq!((alone.revision, written.revision, written.changed), (before + 1, before + 2, true));
    assert_eq!(store.revocation("first").await.unwrap(), Some(of("first")));
    let until = store.revocation("key").await.unwrap().map(|record| record.until);
    assert_eq!(until, Some(60_000), "as long as the key lives that it names");
    followed.catch_up(store).await;

    let named = |revision: u64| async move {
        let since = store.revoked_since(revision).await.unwrap();
        let mut ids: Vec<String> = since.records.into_iter().map(|record| record.id).collect();
        ids.sort_unstable();
        assert!(since.is_whole);
        (since.through, ids)
    };
    let ids = |of: &[&str]| of.iter().map(|id| (*id).to_owned()).collect::<Vec<String>>();
    let whole = ids(&["alone", "first", "key", "second"]);
    assert_eq!(named(before).await, (before + 2, whole), "each once, though all have one moment");
    assert_eq!(named(before + 1).await, (before + 2, ids(&["first", "key", "second"])));
    assert_eq!(named(before + 2).await, (before + 2, Vec::new()));
    store.delete_revocation(&change, "second").await.unwrap();
    assert!(named(before + 1).await.1.iter().all(|id| id != "second"), "it was taken back");
    let since = store.revoked_since(before).await.unwrap();
    assert_eq!((since.through, since.newest), (before + 3, before + 2), "the withdrawal adds none");

    assert!(!store.add_revocations(&change, &[]).await.unwrap().changed);
    let many = vec![of("many"); MAX_REVOCATIONS_AT_ONCE + 1];
    let full = store.add_revocations(&change, &many).await;
    assert!(matches!(full, Err(StoreError::Full { bound: MAX_REVOCATIONS_AT_ONCE, .. })), "{full:?}");
    for other in [
        RevocationRecord { org: "other".into(), ..of("stranger") },
        RevocationRecord { kind: "user".into(), ..of("user") },
        RevocationRecord { created_at: 7_001, ..of("late") },
    ] {
        let refused = store.add_revocations(&change, &[of("more"), other]).await;
        assert!(matches!(refused, Err(StoreError::Backend(_))), "{refused:?}");
    }
    for id in ["alone", "first", "key"] {
        store.delete_revocation(&change, id).await.unwrap();
    }
    store.delete_machine_key(&change, "acme", "jti-key").await.unwrap();
    followed.catch_up(store).await;
    batches_of_one_moment_are_read_one_after_the_other(store).await;
    followed.catch_up(store).await;
}

/// Blocks of two orgs beside a revocation; deletes them again.
pub(super) async fn of_blocks_are_listed_by_org_and_outlive_every_prune(
    store: &ControlStore,
    followed: &mut Follower,
) {
    const FOREVER: u64 = 253_402_300_799_000;
    let change = Change { at: 7_000, ..change() };
    let of = |id: &str, kind: &str, org: &str, created_at: u64| RevocationRecord {
        kind: kind.into(),
        created_at,
        by_platform: true,
        ..revocation(id, org, FOREVER)
    };
    let bob = of("b1", "block_user", "acme", 7_000);
    let other = of("b2", "block_org", "other", 7_001);
    let token = RevocationRecord { created_at: 7_002, ..revocation("t1", "acme", 7_100) };
    for record in [&bob, &other, &token] {
        store.add_revocation(&change, record).await.unwrap();
    }
    assert_eq!(store.blocks(None, 10).await.unwrap(), [other.clone(), bob.clone()]);
    assert_eq!(store.blocks(Some("acme"), 10).await.unwrap(), std::slice::from_ref(&bob));
    assert_eq!(store.blocks(None, 1).await.unwrap(), std::slice::from_ref(&other));
    let later = Change { at: 7_200, ..change.clone() };
    assert_eq!(store.prune(&later, u64::from(u32::MAX)).await.unwrap(), 1, "the token's");
    followed.catch_up(store).await;
    for id in ["b1", "b2"] {
        store.delete_revocation(&change, id).await.unwrap();
    }
    followed.catch_up(store).await;
}

/// Two batches of the same time, together as many as one read returns; deletes them again.
async fn batches_of_one_moment_are_read_one_after_the_other(store: &ControlStore) {
    let change = Change { at: 7_000, ..change() };
    let before = store.revision().await.unwrap();
    for batch in ["a", "b"] {
        let of = |n: usize| RevocationRecord {
            created_at: 7_000,
            ..revocation(&format!("{batch}-{n}"), "acme", 7_100)
        };
        let list: Vec<RevocationRecord> = (0..MAX_REVOCATIONS_AT_ONCE).map(of).collect();
        store.add_revocations(&change, &list).await.unwrap();
    }
    let first = store.revoked_since(before).await.unwrap();
    assert_eq!((first.through, first.is_whole), (before + 1, false), "the first batch is complete");
    assert_eq!(first.newest, before + 1);
    assert_eq!(first.records.len(), 2 * MAX_REVOCATIONS_AT_ONCE);
    let second = store.revoked_since(first.through).await.unwrap();
    assert_eq!((second.through, second.is_whole), (before + 2, true));
    assert_eq!(second.records.len(), MAX_REVOCATIONS_AT_ONCE);
    let ended = Change { at: 7_200, ..change };
    let pruned = store.prune(&ended, u64::from(u32::MAX)).await.unwrap();
    assert_eq!(usize::try_from(pruned).unwrap(), 2 * MAX_REVOCATIONS_AT_ONCE);
}
