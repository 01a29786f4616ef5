//! Conformance suite of [`LiveStore`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::{LiveError, LiveKind, LiveQuery, LiveStore, LiveWork, MAX_LISTED, MAX_STOPS};

fn work(kind: LiveKind, id: &str, org: &str, user: &str, since_ms: i64) -> LiveWork {
    LiveWork {
        kind,
        id: id.into(),
        org: org.into(),
        user: user.into(),
        issuer: "login".into(),
        server: "shop".into(),
        primitive: if kind == LiveKind::Call { "pay@1.0.0".into() } else { String::new() },
        protocol: "mcp".into(),
        state: "working".into(),
        since_ms,
    }
}

fn all(kind: LiveKind) -> LiveQuery {
    LiveQuery { kind, org: None, user: None, server: None, primitive: None, id: None, limit: 100 }
}

async fn ids<S: LiveStore>(store: &S, query: &LiveQuery) -> Vec<String> {
    store.live(query).await.unwrap().into_iter().map(|work| work.id).collect()
}

/// Runs the suite against an empty store.
pub async fn run<S: LiveStore>(store: &S) {
    a_report_replaces_the_gateways_last_one(store).await;
    requests_are_bounded_for_each_org_and_hide_no_other_orgs(store).await;
    store.sweep_live().await.unwrap();
}

async fn a_report_replaces_the_gateways_last_one<S: LiveStore>(store: &S) {
    let call = LiveKind::Call;
    let session = LiveKind::Session;
    let first = [
        work(call, "c1", "acme", "ann", 20),
        work(call, "c2", "globex", "bob", 10),
        work(session, "s1", "acme", "ann", 5),
    ];
    store.report_live([1; 16], &first).await.unwrap();
    let many: Vec<LiveWork> =
        (0..600).map(|n| work(call, &format!("n{n:03}"), "initech", "x", 100)).collect();
    store.report_live([2; 16], &many).await.unwrap();
    assert_eq!(ids(store, &LiveQuery { limit: 2, ..all(call) }).await, ["c2", "c1"], "the longest first");
    assert_eq!(ids(store, &all(session)).await, ["s1"]);
    let of = |org: &str| LiveQuery { org: Some(org.into()), ..all(call) };
    assert_eq!(ids(store, &LiveQuery { limit: 1_000, ..of("initech") }).await.len(), 600);
    assert_eq!(store.live(&of("acme")).await.unwrap(), first[..1]);
    for (query, found) in [
        (LiveQuery { user: Some("ann".into()), ..of("acme") }, 1),
        (LiveQuery { user: Some("bob".into()), ..of("acme") }, 0),
        (LiveQuery { server: Some("shop".into()), ..of("acme") }, 1),
        (LiveQuery { server: Some("shops".into()), ..of("acme") }, 0),
        (LiveQuery { primitive: Some("pay".into()), ..of("acme") }, 1),
        (LiveQuery { primitive: Some("pay@1.0.0".into()), ..of("acme") }, 1),
        (LiveQuery { primitive: Some("pa".into()), ..of("acme") }, 0),
        (LiveQuery { id: Some("c1".into()), ..of("acme") }, 1),
        (LiveQuery { id: Some("c2".into()), ..of("acme") }, 0),
    ] {
        assert_eq!(ids(store, &query).await.len(), found, "{query:?}");
    }
    store.report_live([1; 16], &first[1..2]).await.unwrap();
    store.report_live([2; 16], &[]).await.unwrap();
    assert_eq!(ids(store, &all(call)).await, ["c2"]);
    assert_eq!(ids(store, &all(session)).await, Vec::<String>::new());
}

async fn requests_are_bounded_for_each_org_and_hide_no_other_orgs<S: LiveStore>(store: &S) {
    store.request_stop(LiveKind::Call, "c1", "acme").await.unwrap();
    store.request_stop(LiveKind::Call, "c1", "acme").await.unwrap();
    store.request_stop(LiveKind::Session, "s1", "globex").await.unwrap();
    let found = store.stop_requests(0, None).await.unwrap();
    let found: Vec<_> = found.iter().map(|stop| (stop.kind, stop.id.as_str(), stop.org.as_str())).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&(LiveKind::Session, "s1", "globex")), "{found:?}");
    let of_future = store.stop_requests(i64::MAX, None).await.unwrap();
    assert_eq!(of_future.len(), 2, "a reader whose clock was ahead misses none: {of_future:?}");
    for n in 1..MAX_STOPS {
        store.request_stop(LiveKind::Call, &format!("n{n}"), "acme").await.unwrap();
    }
    let full = store.request_stop(LiveKind::Call, "one more", "acme").await.unwrap_err();
    assert!(matches!(full, LiveError::TooMany), "{full}");
    store.request_stop(LiveKind::Call, "c9", "globex").await.unwrap();
    let mut read = store.stop_requests(0, None).await.unwrap();
    assert_eq!(read.len(), MAX_LISTED as usize, "a page");
    let rest = store.stop_requests(0, read.last()).await.unwrap();
    assert_eq!(rest.len(), 2, "the page after it");
    read.extend(rest);
    for (id, org) in [("c1", "acme"), ("n999", "acme"), ("s1", "globex"), ("c9", "globex")] {
        let found = read.iter().filter(|stop| (stop.id.as_str(), stop.org.as_str()) == (id, org)).count();
        assert_eq!(found, 1, "{id} of {org}");
    }
}
