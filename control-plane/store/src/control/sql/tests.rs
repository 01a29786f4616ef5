//! The control store on SQLite: the suite, and behaviour specific to a database.

use super::*;
use crate::control::{
    AuditQuery, Change, Commit, LimitRecord, MAX_OFFERS_PER_SERVER, MachineBound, MachineKeyRecord, Note,
    OfferRecord, RevocationRecord, StateUpdate, UnreadableIssuer, UnreadableMachine, suite,
};

#[tokio::test]
async fn the_port_suite_passes_in_memory() {
    suite::run(&ControlStore::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn the_port_suite_passes_on_a_file() {
    let dir = tempfile::tempdir().unwrap();
    suite::run(&ControlStore::file(&dir.path().join("asp.db")).await.unwrap()).await;
}

/// Invariant I-6 for policy and revocations.
#[tokio::test]
async fn a_reopened_file_has_everything_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("asp.db");
    let store = ControlStore::file(&path).await.unwrap();
    suite::run(&store).await;
    let before = store.load().await.unwrap();
    store.close().await;
    let again = ControlStore::file(&path).await.unwrap();
    assert_eq!(again.load().await.unwrap(), before);
    assert!(before.revision > 0);
}

#[tokio::test]
async fn two_processes_on_one_file_see_each_others_revision() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("asp.db");
    let here = ControlStore::file(&path).await.unwrap();
    let there = ControlStore::file(&path).await.unwrap();
    suite::run(&there).await;
    assert_eq!(here.load().await.unwrap(), there.load().await.unwrap());
}

fn limit(capacity: u64) -> LimitRecord {
    let any = || "*".to_owned();
    LimitRecord {
        server: any(),
        primitive: any(),
        user: any(),
        wcit: any(),
        issuer: any(),
        machine: any(),
        capacity,
        refill: "1/s".into(),
        observe: false,
        ..LimitRecord::default()
    }
}

fn by_ops() -> Change {
    Change::unconditional("ops", 1)
}

#[tokio::test]
async fn all_of_a_queue_of_thirty_are_written_and_a_revocation_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(ControlStore::file(&dir.path().join("asp.db")).await.unwrap());
    let change = by_ops();
    let held = store.write(&change, "held".to_owned()).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..30_u64 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            store.put_limits(&by_ops(), &format!("org-{writer}"), &[limit(1)]).await.unwrap().revision
        });
    }
    while store.writers.waiting() < 30 {
        tokio::task::yield_now().await;
    }
    let revoking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.add_revocation(&by_ops(), &suite::revocation("r", "acme", 9)).await.unwrap() }
    });
    while store.writers.waiting() < 31 {
        tokio::task::yield_now().await;
    }
    // Waiting writes have no connection.
    assert_eq!(store.limits("org-0").await.unwrap().value, []);
    held.unchanged().await.unwrap();
    assert_eq!(revoking.await.unwrap(), Commit { revision: 1, changed: true });
    let mut revisions = writers.join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=31).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_another_process_writes_for_too_long_is_busy_and_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("asp.db");
    let here = ControlStore::file(&path).await.unwrap();
    let there = ControlStore::file(&path).await.unwrap();
    // The only open connection does not wait at all.
    let mut open = here.pool.acquire().await.unwrap();
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut *open).await.unwrap();
    drop(open);
    while here.pool.num_idle() == 0 {
        tokio::task::yield_now().await;
    }
    let change = by_ops();
    let held = there.write(&change, "held".to_owned()).await.unwrap();
    let refused = here.put_limits(&change, "acme", &[limit(1)]).await;
    assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
    held.unchanged().await.unwrap();
    assert!(here.put_limits(&change, "acme", &[limit(1)]).await.unwrap().changed);
}

#[tokio::test]
async fn a_raised_revision_goes_on_from_there_and_is_never_lowered() {
    let store = ControlStore::in_memory().await.unwrap();
    let change = Change::unconditional("ops", 1);
    assert_eq!(store.raise_revision(&change, 500).await.unwrap(), Commit { revision: 500, changed: true });
    assert_eq!(store.revision().await.unwrap(), 500);
    let lower = store.raise_revision(&change, 499).await.unwrap();
    assert_eq!(lower, Commit { revision: 500, changed: false });
    assert_eq!(store.put_limits(&change, "acme", &[]).await.unwrap().revision, 0, "nothing to change");
    let record = crate::control::suite::revocation("r", "acme", 9);
    assert_eq!(store.add_revocation(&change, &record).await.unwrap().revision, 501);
    assert!(matches!(store.since(499).await.unwrap(), StateUpdate::All(_)));
    assert!(matches!(store.since(500).await.unwrap(), StateUpdate::Changed(_)));
    let audit = store.audit(&AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(audit.last().map(|row| (row.action.as_str(), row.revision)), Some(("revision.raise", 500)));
}

/// A copy of the file stands for a replica that missed the last commits.
#[tokio::test]
async fn a_revision_that_another_history_has_too_is_told_apart_by_its_stamp() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("asp.db"), dir.path().join("replica.db"));
    let change = Change::unconditional("ops", 1);
    let revoke = async |store: &ControlStore, id: &str| {
        store.add_revocation(&change, &suite::revocation(id, "acme", 9)).await.unwrap();
        store.position().await.unwrap()
    };
    let store = ControlStore::file(&path).await.unwrap();
    let nothing = store.position().await.unwrap();
    let shared = revoke(&store, "shared").await;
    store.close().await;
    std::fs::copy(&path, &copy).unwrap();
    let (store, replica) =
        (ControlStore::file(&path).await.unwrap(), ControlStore::file(&copy).await.unwrap());
    let first = revoke(&store, "lost").await;
    let lost = revoke(&store, "lost too").await;
    assert!(!replica.has(&lost).await.unwrap(), "it is not so far");
    let made = revoke(&replica, "made").await;
    assert_eq!((made.revision, made.stamp == first.stamp), (first.revision, false));
    assert!(!replica.has(&first).await.unwrap());
    revoke(&replica, "made too").await;
    revoke(&replica, "another").await;
    for known in [&nothing, &shared, &made] {
        assert!(replica.has(known).await.unwrap(), "{known:?}");
    }
    for known in [&first, &lost] {
        assert!(!replica.has(known).await.unwrap() && store.has(known).await.unwrap(), "{known:?}");
    }
}

#[tokio::test]
async fn one_servers_offers_leave_room_for_the_others() {
    let store = ControlStore::in_memory().await.unwrap();
    let change = Change::unconditional("ops", 1);
    for server in ["wide", "other"] {
        store.put_server(&change, server, &[], "h").await.unwrap();
    }
    let offer = |server: &str, org: usize| OfferRecord { server: server.into(), org: format!("org-{org}") };
    for org in 0..MAX_OFFERS_PER_SERVER {
        store.put_offer(&change, &offer("wide", org)).await.unwrap();
    }
    let late = offer("wide", MAX_OFFERS_PER_SERVER);
    for refused in [store.offer_fits(&late).await, store.put_offer(&change, &late).await.map(drop)] {
        let said = refused.unwrap_err().to_string();
        assert_eq!(said, "at most 1000 offers of one server");
    }
    let known = offer("wide", 1);
    store.offer_fits(&known).await.unwrap();
    assert!(!store.put_offer(&change, &known).await.unwrap().changed, "it is there already");
    store.offer_fits(&offer("other", 1)).await.unwrap();
    assert!(store.put_offer(&change, &offer("other", 1)).await.unwrap().changed);
}

/// Inserts rows of many servers and orgs that leave only the reserve.
const ALL_BUT_RESERVED: [&str; 2] = [
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39999) \
     INSERT INTO offers (server, org) SELECT 'wide' || (i / 1000), 'o' || i FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999) \
     INSERT INTO machine_keys (id, org, machine, hash, groups, scopes, created_at, expires_at) \
     SELECT 'k' || i, 'o' || (i / 50), 'm', 'h' || i, '[]', '[]', 0, 9 FROM n",
];

#[tokio::test]
async fn what_is_reserved_of_offers_and_machines_is_for_those_that_have_few() {
    let store = ControlStore::in_memory().await.unwrap();
    let change = Change::unconditional("ops", 1);
    for server in ["wide0", "few"] {
        store.put_server(&change, server, &[], "h").await.unwrap();
    }
    for sql in ALL_BUT_RESERVED {
        sqlx::query(sql).execute(&store.pool).await.unwrap();
    }
    sqlx::query("DELETE FROM offers WHERE org = 'o0'").execute(&store.pool).await.unwrap();
    let offer = |server: &str, org: &str| OfferRecord { server: server.into(), org: org.into() };
    store.put_offer(&change, &offer("few", "one")).await.unwrap();
    let full = store.put_offer(&change, &offer("wide0", "late")).await.unwrap_err();
    assert!(matches!(full, StoreError::Full { bound: 40_000, .. }), "{full}");
    assert!(store.put_offer(&change, &offer("few", "two")).await.unwrap().changed);
    let key = |org: &str| MachineKeyRecord {
        id: format!("new-{org}"),
        org: org.into(),
        machine: "arm".into(),
        hash: org.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 1,
        expires_at: 9,
    };
    let full = store.add_machine_key(&change, &key("o1")).await.unwrap_err();
    assert!(matches!(full, StoreError::Full { bound: 2_000, .. }), "{full}");
    assert!(store.add_machine_key(&change, &key("few")).await.unwrap().changed);
}

#[tokio::test]
async fn one_orgs_revocations_leave_room_for_the_others() {
    let store = ControlStore::in_memory().await.unwrap();
    sqlx::query(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
         INSERT INTO revocations (id, kind, org, target, issuer, reason, created_at, until_at) SELECT 'r' || i, 'token', 'acme', 't' || i, '', '', 0, 9 FROM n",
    )
    .execute(&store.pool)
    .await
    .unwrap();
    let change = Change::unconditional("test", 1);
    let record = |org: &str| RevocationRecord {
        id: format!("new-{org}"),
        kind: "token".into(),
        org: org.into(),
        target: "t".into(),
        issuer: String::new(),
        reason: String::new(),
        created_at: 1,
        until: 9,
        by_platform: false,
    };
    assert!(matches!(
        store.add_revocation(&change, &record("acme")).await,
        Err(StoreError::Full { bound: crate::control::MAX_REVOCATIONS_PER_ORG, .. })
    ));
    assert!(store.add_revocation(&change, &record("other")).await.unwrap().changed);
    assert!(store.add_revocation(&change, &record("")).await.unwrap().changed, "the platform's own");
}

/// Rows of a newer version: a member, a side, lists and a kind that this one does not know.
const NEWER: [&str; 8] = [
    "UPDATE servers SET sources = '[{\"path\":\"a\",\"text\":\"b\",\"mode\":\"x\"}]' WHERE name = 'newer'",
    "INSERT INTO issuers (side, name, document, updated_at) VALUES ('partners', 'third', '{}', 0)",
    "INSERT INTO resources (name, revision) VALUES ('issuer/partners/third', 1)",
    "INSERT INTO issuer_keys (side, name, source, content, fetched_at) VALUES ('partners', 'third', '', '', 0)",
    "INSERT INTO machine_keys (id, org, machine, hash, groups, scopes, created_at, expires_at) \
     VALUES ('k', 'acme', 'press', 'h', '{}', '[]', 0, 9)",
    "INSERT INTO machine_certificates (id, org, machine, kind, name, groups, scopes, created_at, expires_at) \
     VALUES ('u', 'acme', 'press', 'uri', 'urn:press', '{}', '[]', 0, 9)",
    "INSERT INTO machine_certificates (id, org, machine, kind, name, groups, scopes, created_at, expires_at) \
     VALUES ('t', 'acme', 'press', 'thumbprint', 'x', '[]', '[]', 0, 9)",
    "INSERT INTO machine_bounds (org, groups, scopes) VALUES ('acme', '[\"robots\"]', '{}')",
];

fn unread(rows: &[UnreadableMachine]) -> Vec<(&str, &str)> {
    let mut named: Vec<(&str, &str)> = rows.iter().map(|row| (row.kind, row.id.as_str())).collect();
    named.sort_unstable();
    named
}

#[tokio::test]
async fn a_row_that_this_version_cannot_read_keeps_no_other_one_from_being_read() {
    let store = ControlStore::in_memory().await.unwrap();
    let change = Change::unconditional("ops", 1);
    for server in ["known", "newer"] {
        store.put_server(&change, server, &[], "h").await.unwrap();
    }
    let record = MachineKeyRecord {
        id: "other".into(),
        org: "acme".into(),
        machine: "arm".into(),
        hash: "o".into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 1,
        expires_at: 9,
    };
    store.add_machine_key(&change, &record).await.unwrap();
    for sql in NEWER {
        sqlx::query(sql).execute(&store.pool).await.unwrap();
    }
    let expected = [("bound", ""), ("certificate", "t"), ("certificate", "u"), ("key", "k")];
    let issuer = UnreadableIssuer { side: "partners".into(), name: "third".into() };

    let all = store.load().await.unwrap();
    let faults: Vec<bool> = all.servers.iter().map(|server| server.unreadable.is_some()).collect();
    assert_eq!(faults, [false, true], "known, newer");
    assert_eq!((all.unreadable_issuers, all.issuer_keys.len()), (vec![issuer.clone()], 0));
    assert_eq!(unread(&all.machines.unreadable), expected);
    assert_eq!(all.machines.keys, std::slice::from_ref(&record));
    let [ended] = all.machines.certificates.as_slice() else { panic!() };
    assert_eq!((ended.id.as_str(), ended.expires_at), ("u", 0), "its URI stays its org's");
    assert_eq!(all.machines.bounds["acme"], MachineBound::default());

    let StateUpdate::Changed(changed) = store.since(1).await.unwrap() else { panic!() };
    let newer = changed.servers.into_iter().find(|(name, _)| name == "newer").unwrap().1;
    assert!(newer.unwrap().unreadable.is_some());
    assert_eq!(changed.unreadable_issuers, [issuer]);
    assert_eq!(unread(&changed.orgs[0].unreadable_machines), expected);
    assert_eq!(unread(&changed.machines.unwrap().unreadable), expected);

    assert_eq!(store.machine_keys("acme").await.unwrap(), [record]);
    store.delete_machine_key(&change, "acme", "k").await.unwrap();
    store.delete_machine_certificate(&change, "acme", "u").await.unwrap();
    let left = store.load().await.unwrap().machines.unreadable;
    assert_eq!(unread(&left), [("bound", ""), ("certificate", "t")]);
}

#[tokio::test]
async fn what_is_in_memory_outlives_the_connections_to_it() {
    let store = ControlStore::in_memory().await.unwrap();
    let other = ControlStore::in_memory().await.unwrap();
    store.put_server(&by_ops(), "demo", &[], "h").await.unwrap();
    let stored = store.revision().await.unwrap();
    assert!(stored > 0);
    store.pool.acquire().await.unwrap().close().await.unwrap();
    assert_eq!(store.revision().await.unwrap(), stored);
    assert_eq!(other.revision().await.unwrap(), 0, "each has its own");
}

#[tokio::test]
async fn a_store_whose_disk_was_full_accepts_writes_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = ControlStore::file(&dir.path().join("asp.db")).await.unwrap();
    let mut connections = Vec::new();
    let max_connections = store.pool.options().get_max_connections();
    for _ in 0..max_connections {
        let mut connection = store.pool.acquire().await.unwrap();
        // SQLite then fails as on a full disk. The limit ends with its connection.
        connection.execute("PRAGMA max_page_count = 1").await.unwrap();
        connections.push(connection);
    }
    drop(connections);
    let detail = "x".repeat(1 << 20);
    let mut failures = 0;
    loop {
        let note = Note { resource: "demo", org: "acme", action: "demo.note", detail: &detail };
        let Err(error) = store.note(&by_ops(), note).await else { break };
        failures += 1;
        assert!(failures <= max_connections, "{error}");
    }
    assert!(failures > 0, "the disk is full");
}
