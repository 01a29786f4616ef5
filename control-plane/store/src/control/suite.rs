//! The conformance suite of [`ControlStore`]: every backend passes it, from an empty store.
//!
//! A failed expectation panics with what was expected: this is test code that backends in other crates
//! call too, hence not `#[cfg(test)]` alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod certificates;
mod changes;
mod disabled;
mod events;
mod forms;
mod link_endings;
mod machines;
mod offers;
mod placement;
mod policy;
mod primitives;
mod revocations;
mod undo;

use super::sql::ControlStore;
use super::{
    AuditQuery, Change, ExposureRecord, IssuerKeysRecord, KEEP_VERSIONS_OF_GONE, LimitRecord, MAX_VERSIONS,
    Note, Precondition, RevocationRecord, Side, SourceFile, StoreError,
};

/// Runs the whole suite. Leaves the store with a few records.
pub async fn run(store: &ControlStore) {
    assert_eq!(store.revision().await.unwrap(), 0, "an empty store is at revision 0");
    let mut followed = changes::Follower::default();
    servers_are_idempotent_by_content(store).await;
    followed.catch_up(store).await;
    versions_of_a_server_are_kept_the_newest_first(store).await;
    followed.catch_up(store).await;
    a2a_is_confirmed_for_a_server_that_another_version_wrote(store, &mut followed).await;
    disabled::stay_so_until_they_are_enabled(store, &mut followed).await;
    preconditions_hold_or_refuse(store).await;
    followed.catch_up(store).await;
    a_server_that_was_evaluated_beside_others_is_refused_when_they_changed(store).await;
    followed.catch_up(store).await;
    offers::are_of_a_server_and_go_with_it(store).await;
    followed.catch_up(store).await;
    forms::are_kept_and_never_replaced_by_those_of_an_earlier_revision(store).await;
    forms::go_with_what_they_are_of(store).await;
    followed.catch_up(store).await;
    primitives::stay_with_the_server_that_stored_them_first(store).await;
    followed.catch_up(store).await;
    primitives::are_bounded_for_each_server(store).await;
    followed.catch_up(store).await;
    policy::exposure_is_upserted_by_key(store).await;
    followed.catch_up(store).await;
    policy::bindings_are_upserted_by_key(store).await;
    followed.catch_up(store).await;
    policy::named_bindings_stand_beside_each_other(store).await;
    followed.catch_up(store).await;
    policy::one_binding_is_removed_by_its_key(store).await;
    followed.catch_up(store).await;
    policy::limits_are_replaced_as_a_list(store).await;
    followed.catch_up(store).await;
    revocations_are_durable_and_pruned(store).await;
    followed.catch_up(store).await;
    of_several_revocations(store, &mut followed).await;
    undo::of_exposure_is_one_write_that_can_be_undone(store).await;
    followed.catch_up(store).await;
    undo::of_bindings_and_limits_restores_what_they_replaced(store).await;
    followed.catch_up(store).await;
    undo::of_revocations_lifts_all_of_a_write(store).await;
    followed.catch_up(store).await;
    of_machines(store, &mut followed).await;
    issuers_are_kept_with_what_was_fetched_from_them(store).await;
    followed.catch_up(store).await;
    placement::routes_and_regions_are_replaced_as_lists(store).await;
    followed.catch_up(store).await;
    placement::homes_are_kept_by_org(store).await;
    placement::what_was_evaluated_beside_others_is_refused_when_they_changed(store).await;
    followed.catch_up(store).await;
    a_change_kept_elsewhere_is_audited(store).await;
    followed.catch_up(store).await;
    every_change_is_audited_at_its_revision(store).await;
    followed.catch_up(store).await;
    a_load_is_one_consistent_picture(store).await;
    followed.catch_up(store).await;
    concurrent_writers_all_land(store).await;
    followed.catch_up(store).await;
    changes::of_machines_are_those_of_every_org(store).await;
    changes::of_an_unknown_revision_are_everything(store).await;
}

async fn of_several_revocations(store: &ControlStore, followed: &mut changes::Follower) {
    revocations::of_several_tokens_are_one_write(store, followed).await;
    revocations::of_blocks_are_listed_by_org_and_outlive_every_prune(store, followed).await;
    events::become_a_revocation_once(store).await;
    followed.catch_up(store).await;
    events::that_are_parked_are_bounded_and_deleted(store).await;
    link_endings::are_recorded_with_their_revocations_until_they_are_done(store).await;
    followed.catch_up(store).await;
}

async fn of_machines(store: &ControlStore, followed: &mut changes::Follower) {
    machines::are_kept_by_org_until_they_end(store).await;
    followed.catch_up(store).await;
    machines::stay_revoked_as_long_as_they_live(store).await;
    followed.catch_up(store).await;
    certificates::are_one_machines_until_they_end(store).await;
    certificates::keep_their_uri_after_they_have_ended(store).await;
    certificates::are_whose_who_proves_to_hold_the_key(store).await;
    followed.catch_up(store).await;
    certificates::stay_revoked_as_long_as_they_are_registered(store).await;
    followed.catch_up(store).await;
}

fn change() -> Change {
    Change::unconditional("suite", 1_000)
}

fn change_if(precondition: Precondition) -> Change {
    Change { precondition, ..change() }
}

fn files(text: &str) -> Vec<SourceFile> {
    vec![SourceFile { path: "demo/server.yaml".into(), text: text.into() }]
}

async fn issuers_are_kept_with_what_was_fetched_from_them(store: &ControlStore) {
    let put = async |side, document| store.put_issuer(&change(), side, "login", document).await.unwrap();
    let first = put(Side::Clients, "a").await;
    assert!(first.changed && !put(Side::Clients, "a").await.changed, "the same again changes nothing");
    let second = put(Side::Clients, "b").await;
    assert_eq!(second.revision, first.revision + 1);
    put(Side::Admins, "c").await;
    let one = store.issuer(Side::Clients, "login").await.unwrap().unwrap();
    assert_eq!((one.document.as_str(), one.revision, one.updated_at), ("b", second.revision, 1_000));
    assert_eq!(store.issuers().await.unwrap().len(), 2, "the two sides have names of their own");
    let stale = Change { precondition: Precondition::At(first.revision), ..change() };
    assert!(matches!(
        store.put_issuer(&stale, Side::Clients, "login", "d").await,
        Err(StoreError::Conflict { .. })
    ));
    let keys = |content: &str, fetched_at| IssuerKeysRecord {
        side: Side::Clients,
        name: "login".into(),
        source: "https://login.example/keys".into(),
        content: content.into(),
        fetched_at,
    };
    let fetch =
        async |content, at| store.put_issuer_keys(&change(), &keys(content, at)).await.unwrap().changed;
    assert!(fetch("k1", 10).await);
    let revision = store.revision().await.unwrap();
    assert!(!fetch("k1", 20).await, "the same content only says when");
    assert_eq!(store.revision().await.unwrap(), revision);
    assert!(!fetch("k0", 15).await, "what was said before is no news");
    assert_eq!(store.issuer_keys().await.unwrap(), [keys("k1", 20)]);
    assert!(fetch("k2", 30).await);
    assert_eq!(store.load().await.unwrap().issuer_keys, [keys("k2", 30)]);
    // From a control plane whose clock is ahead by a day.
    assert!(fetch("k3", 86_400_000).await);
    assert!(fetch("k4", 40).await);
    assert!(!fetch("k4", 86_400_000).await && !fetch("k4", 50).await);
    assert_eq!(store.issuer_keys().await.unwrap(), [keys("k4", 50)]);
    store.delete_issuer(&change(), Side::Clients, "login").await.unwrap();
    assert!(store.issuer_keys().await.unwrap().is_empty(), "they go with it");
    let again = store.delete_issuer(&change(), Side::Clients, "login").await;
    assert!(matches!(again, Err(StoreError::NotFound)));
    assert_eq!(store.load().await.unwrap().issuers.len(), 1);
    for iss in ["https://one.example", "https://two.example"] {
        assert_ne!(store.former_iss(Side::Clients, "staff").await.unwrap().as_deref(), Some(iss));
        let document = format!("{{\"iss\":\"{iss}\"}}");
        store.put_issuer(&change(), Side::Clients, "staff", &document).await.unwrap();
        store.delete_issuer(&change(), Side::Clients, "staff").await.unwrap();
        assert_eq!(store.former_iss(Side::Clients, "staff").await.unwrap().as_deref(), Some(iss));
    }
    assert_eq!(store.former_iss(Side::Admins, "staff").await.unwrap(), None);
    assert_eq!(store.former_iss(Side::Clients, "login").await.unwrap(), None, "its document says none");
}

async fn servers_are_idempotent_by_content(store: &ControlStore) {
    assert_eq!(store.server("demo").await.unwrap(), None);
    let first = store.put_server(&change(), "demo", &files("a"), "h1").await.unwrap();
    assert!(first.changed);
    assert_eq!(first.revision, store.revision().await.unwrap());

    let again = store.put_server(&change(), "demo", &files("a"), "h1").await.unwrap();
    assert!(!again.changed, "the same content changes nothing");
    assert_eq!(again.revision, first.revision);
    assert_eq!(store.revision().await.unwrap(), first.revision, "nothing is bumped");

    let second = store.put_server(&change(), "demo", &files("b"), "h2").await.unwrap();
    assert_eq!(second.revision, first.revision + 1);
    let stored = store.server("demo").await.unwrap().unwrap();
    assert_eq!((stored.files, stored.content_hash.as_str()), (files("b"), "h2"));
    assert_eq!((stored.revision, stored.updated_at), (second.revision, 1_000));

    store.delete_server(&change(), "demo").await.unwrap();
    assert_eq!(store.server("demo").await.unwrap(), None);
    assert!(matches!(store.delete_server(&change(), "demo").await, Err(StoreError::NotFound)));
}

async fn versions_of_a_server_are_kept_the_newest_first(store: &ControlStore) {
    let mut written = Vec::new();
    for version in 0..MAX_VERSIONS + 2 {
        let change = Change { at: u64::from(version), ..change() };
        let text = version.to_string();
        written.push(store.put_server(&change, "kept", &files(&text), &text).await.unwrap().revision);
    }
    // A write without changes makes no version.
    let last = (MAX_VERSIONS + 1).to_string();
    assert!(!store.put_server(&change(), "kept", &files(&last), &last).await.unwrap().changed);
    let versions = store.server_versions("kept").await.unwrap();
    let revisions: Vec<u64> = versions.iter().map(|version| version.revision).collect();
    let expected: Vec<u64> = written[2..].iter().rev().copied().collect();
    assert_eq!(revisions, expected, "the last {MAX_VERSIONS} stay");
    let newest = &versions[0];
    assert_eq!(
        (newest.stored_at, newest.content_hash.as_str()),
        (u64::from(MAX_VERSIONS + 1), last.as_str())
    );
    assert_eq!(newest.actor, change().actor);
    let old = store.server_version("kept", written[5]).await.unwrap().unwrap();
    assert_eq!((old.name.as_str(), old.files, old.revision), ("kept", files("5"), written[5]));
    assert_eq!(store.server_version("kept", written[0]).await.unwrap(), None, "it is gone");
    assert_eq!(store.server_version("other", written[5]).await.unwrap(), None, "it is another's");
    assert_eq!(store.server_version("kept", u64::MAX).await.unwrap(), None);
    let deleted = Change { at: 100, ..change() };
    store.delete_server(&deleted, "kept").await.unwrap();
    let prune_at = async |at: u64| {
        store.prune(&Change { at, ..change() }, 1_000_000).await.unwrap();
        store.server_versions("kept").await.unwrap().len()
    };
    assert_eq!(prune_at(100 + KEEP_VERSIONS_OF_GONE).await, usize::try_from(MAX_VERSIONS).unwrap());
    // A recreated server keeps its earlier versions.
    store.put_server(&change(), "kept", &files("again"), "again").await.unwrap();
    assert_eq!(prune_at(101 + KEEP_VERSIONS_OF_GONE).await, usize::try_from(MAX_VERSIONS).unwrap());
    store.delete_server(&deleted, "kept").await.unwrap();
    assert_eq!(prune_at(101 + KEEP_VERSIONS_OF_GONE).await, 0);
}

async fn a2a_is_confirmed_for_a_server_that_another_version_wrote(
    store: &ControlStore,
    followed: &mut changes::Follower,
) {
    let put =
        async |text: &str| store.put_server(&change(), "talker", &files(text), text).await.unwrap().changed;
    let confirmed = async || store.server("talker").await.unwrap().unwrap().a2a_confirmed;
    assert!(matches!(store.confirm_a2a(&change(), "talker").await, Err(StoreError::NotFound)));
    assert!(put("a").await && confirmed().await, "it is for a new server");
    assert!(put("b").await && confirmed().await, "a write of this version keeps it");
    assert!(!store.confirm_a2a(&change(), "talker").await.unwrap().changed);
    store.touch_server(&change(), "talker").await.unwrap();
    followed.catch_up(store).await;
    assert!(!confirmed().await, "another version wrote it");
    assert!(!put("b").await && !confirmed().await, "the same content does not confirm it");
    assert!(put("c").await && !confirmed().await, "nor does other content");
    let stale = change_if(Precondition::At(1));
    assert!(matches!(store.confirm_a2a(&stale, "talker").await, Err(StoreError::Conflict { .. })));
    let later = Change { at: 2_000, ..change() };
    let written = store.confirm_a2a(&later, "talker").await.unwrap();
    followed.catch_up(store).await;
    let stored = store.server("talker").await.unwrap().unwrap();
    assert!(written.changed && stored.a2a_confirmed);
    assert_eq!((stored.files, stored.revision, stored.updated_at), (files("c"), written.revision, 2_000));
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!((rows[0].action.as_str(), rows[0].resource.as_str()), ("server.confirm_a2a", "server/talker"));
    store.delete_server(&change(), "talker").await.unwrap();
    assert!(put("c").await && confirmed().await, "a server of that name is a new one");
    store.delete_server(&change(), "talker").await.unwrap();
    followed.catch_up(store).await;
}

async fn preconditions_hold_or_refuse(store: &ControlStore) {
    let absent = change_if(Precondition::Absent);
    let exists = change_if(Precondition::Exists);
    assert!(matches!(
        store.put_server(&exists, "demo", &files("a"), "h1").await,
        Err(StoreError::Conflict { current: None })
    ));
    let first = store.put_server(&absent, "demo", &files("a"), "h1").await.unwrap();
    let before = store.revision().await.unwrap();
    match store.put_server(&absent, "demo", &files("b"), "h2").await {
        Err(StoreError::Conflict { current }) => assert_eq!(current, Some(first.revision)),
        other => panic!("a second create must conflict, got {other:?}"),
    }
    let stale = change_if(Precondition::At(first.revision + 7));
    assert!(matches!(
        store.put_server(&stale, "demo", &files("b"), "h2").await,
        Err(StoreError::Conflict { .. })
    ));
    assert_eq!(store.revision().await.unwrap(), before, "a refused write leaves no trace");
    let current = change_if(Precondition::At(first.revision));
    let second = store.put_server(&current, "demo", &files("b"), "h2").await.unwrap();
    assert!(second.revision > first.revision);
}

async fn a_server_that_was_evaluated_beside_others_is_refused_when_they_changed(store: &ControlStore) {
    let seen = store.revision().await.unwrap();
    let evaluated = |at| Change { based_on: Some(at), ..change() };
    let other = store.put_server(&evaluated(seen), "other", &files("o"), "o1").await.unwrap();
    let late = store.put_server(&evaluated(seen), "third", &files("t"), "t1").await;
    assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
    assert_eq!(store.revision().await.unwrap(), other.revision, "a refused write leaves no trace");
    let policy =
        ExposureRecord { org: "moved".into(), server: "other".into(), protocol: "mcp".into(), enabled: true };
    store.put_exposure(&change(), &policy).await.unwrap();
    let fits = store.put_server(&evaluated(other.revision), "third", &files("t"), "t1").await.unwrap();
    assert!(fits.changed, "policy is no server");
    for name in ["other", "third"] {
        store.delete_server(&change(), name).await.unwrap();
    }
    store.delete_exposure(&change(), "moved").await.unwrap();
}

pub(crate) fn revocation(id: &str, org: &str, until: u64) -> RevocationRecord {
    RevocationRecord {
        id: id.into(),
        kind: "token".into(),
        org: org.into(),
        target: format!("jti-{id}"),
        issuer: String::new(),
        reason: "lost laptop".into(),
        created_at: 1_000,
        until,
        by_platform: id == "r3",
    }
}

/// Invariant I-6.
async fn revocations_are_durable_and_pruned(store: &ControlStore) {
    store.add_revocation(&change(), &revocation("r1", "acme", 5_000)).await.unwrap();
    store.add_revocation(&change(), &revocation("r2", "other", 9_000)).await.unwrap();
    store.add_revocation(&change(), &revocation("r3", "acme", 9_000)).await.unwrap();
    assert!(!store.add_revocation(&change(), &revocation("r3", "acme", 9_000)).await.unwrap().changed);
    let of_acme = store.revocations(Some("acme"), 10).await.unwrap();
    assert_eq!(of_acme.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["r3", "r1"]);
    assert_eq!(store.revocations(None, 2).await.unwrap().len(), 2, "the page is bounded");

    let at = |at| Change { at, ..change() };
    let before = store.revision().await.unwrap();
    assert_eq!(store.prune(&at(4_999), u64::from(u32::MAX)).await.unwrap(), 0);
    assert_eq!(store.revision().await.unwrap(), before, "an empty prune bumps nothing");
    assert_eq!(store.prune(&at(5_000), u64::from(u32::MAX)).await.unwrap(), 1);
    assert_eq!(store.revocation("r1").await.unwrap(), None);
    store.delete_revocation(&change(), "r2").await.unwrap();
    assert!(matches!(store.delete_revocation(&change(), "r2").await, Err(StoreError::NotFound)));
    assert_eq!(store.revocation("r3").await.unwrap(), Some(revocation("r3", "acme", 9_000)));
}

async fn every_change_is_audited_at_its_revision(store: &ControlStore) {
    let revision = store.revision().await.unwrap();
    let all = store.audit(&AuditQuery { limit: 1_000, ..AuditQuery::default() }).await.unwrap();
    let revisions: Vec<u64> = all.iter().map(|row| row.revision).collect();
    assert_eq!(revisions, (1..=revision).rev().collect::<Vec<_>>(), "one row a revision, newest first");
    assert_eq!((all[0].actor.as_str(), all[0].at), ("suite", 1_000));
    let actor = |actor: &str| Some(actor.to_owned());
    let of =
        async |query: AuditQuery| store.audit(&AuditQuery { limit: 1_000, ..query }).await.unwrap().len();
    assert_eq!(of(AuditQuery { actor: actor("suite"), ..AuditQuery::default() }).await, all.len());
    assert_eq!(of(AuditQuery { actor: actor("suit"), ..AuditQuery::default() }).await, 0);
    let early = all.iter().filter(|row| row.at < 1_000).count();
    assert_eq!(of(AuditQuery { to: Some(1_000), ..AuditQuery::default() }).await, early);
    assert_eq!(of(AuditQuery { from: Some(1_000), ..AuditQuery::default() }).await, all.len() - early);
    let action = all.iter().filter(|row| row.action == all[0].action).count();
    let query = AuditQuery { action: Some(all[0].action.clone()), ..AuditQuery::default() };
    assert_eq!(of(query).await, action);
    let page = store
        .audit(&AuditQuery {
            org: Some("acme".into()),
            before: Some(revision),
            limit: 2,
            ..AuditQuery::default()
        })
        .await
        .unwrap();
    assert_eq!(page.len(), 2);
    assert!(page.iter().all(|row| row.org == "acme" && row.revision < revision));
}

async fn a_change_kept_elsewhere_is_audited(store: &ControlStore) {
    let before = store.revision().await.unwrap();
    let note =
        Note { action: "artifact.put", resource: "artifact/ab", org: "acme", detail: "a.whl api_key=b" };
    let written = store.note(&change(), note).await.unwrap();
    assert_eq!((written.revision, written.changed), (before + 1, true));
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    let row = &rows[0];
    assert_eq!((row.action.as_str(), row.resource.as_str()), ("artifact.put", "artifact/ab"));
    assert_eq!((row.org.as_str(), row.detail.as_str()), ("acme", "a.whl api_key=***"));
}

async fn a_load_is_one_consistent_picture(store: &ControlStore) {
    let state = store.load().await.unwrap();
    assert_eq!(state.revision, store.revision().await.unwrap());
    assert_eq!(state.servers, [store.server("demo").await.unwrap().unwrap()]);
    let servers = store.servers().await.unwrap();
    assert_eq!((servers.revision, servers.value), (state.revision, state.servers.clone()));
    let issuers = store.issuers_of_now().await.unwrap();
    assert_eq!((&issuers.issuers, &issuers.issuer_keys), (&state.issuers, &state.issuer_keys));
    assert_eq!(state.exposure, store.exposure("acme").await.unwrap().value);
    assert_eq!(state.bindings, store.bindings("acme").await.unwrap().value);
    let limits: Vec<LimitRecord> = state.limits.iter().map(|(_, limit)| limit.clone()).collect();
    assert_eq!(limits, store.limits("acme").await.unwrap().value);
    assert_eq!(state.revocations, [revocation("r3", "acme", 9_000)]);
}

async fn concurrent_writers_all_land(store: &ControlStore) {
    let before = store.revision().await.unwrap();
    let change = change();
    let records: Vec<ExposureRecord> = (0..4)
        .map(|i| ExposureRecord {
            org: format!("org-{i}"),
            server: "demo".into(),
            protocol: "rest".into(),
            enabled: true,
        })
        .collect();
    let put = |i: usize| store.put_exposure(&change, &records[i]);
    let (a, b, c, d) = tokio::join!(put(0), put(1), put(2), put(3));
    let mut revisions = [a, b, c, d].map(|written| written.unwrap().revision);
    revisions.sort_unstable();
    assert_eq!(revisions, [before + 1, before + 2, before + 3, before + 4]);
}
