//! What every [`ActiveCalls`] must do.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{ActiveCalls, ActiveKey, CallId, Lease, Orphan, OwnerId, Saved};

const LIVING: OwnerId = OwnerId([1; 16]);
const LEASE: Duration = Duration::from_secs(60);

fn key(n: u8) -> ActiveKey {
    ActiveKey { call: [n; 16], org: "acme".into(), plugin: "sweep@1.0.0".into(), expires_ms: i64::MAX }
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Runs the suite against an empty store.
pub async fn run(active: &dyn ActiveCalls) {
    assert_eq!(active.renew(LIVING, LEASE).await.unwrap(), Lease::Held);
    keeps_the_newest_capsule_and_the_state_beside_it(active).await;
    only_the_owner_changes_a_row(active).await;
    keeps_calls_apart_and_forgets_ended_ones(active).await;
    an_orphan_has_exactly_one_taker(active).await;
    an_owner_that_was_away_too_long_is_told(active).await;
}

async fn keeps_the_newest_capsule_and_the_state_beside_it(active: &dyn ActiveCalls) {
    let call = key(1).call;
    let early = active.save_capsule(call, LIVING, (1, text("x")), text("x")).await.unwrap();
    assert_eq!(early, Saved::NotOwner, "there is no row yet");
    assert_eq!(active.put(&key(1), LIVING, text("asked")).await.unwrap(), Saved::Stored);
    for (seq, capsule, expected) in
        [(2, "b", Saved::Stored), (1, "a", Saved::Stale), (2, "x", Saved::Stale), (5, "c", Saved::Stored)]
    {
        let saved = active.save_capsule(call, LIVING, (seq, text(capsule)), text("state")).await.unwrap();
        assert_eq!(saved, expected, "{seq}");
    }
    assert_eq!(active.save_state(call, LIVING, text("newer")).await.unwrap(), Saved::Stored);
    assert_eq!(active.put(&key(1), LIVING, text("asked again")).await.unwrap(), Saved::Stored);
    let found = active.find(call).await.unwrap().unwrap();
    assert_eq!((found.seq, found.capsule, found.state), (5, text("c"), text("newer")));
    assert_eq!((found.org.as_str(), found.plugin.as_str()), ("acme", "sweep@1.0.0"));
    assert_eq!((found.owner, found.record), (LIVING, text("asked again")));
}

async fn only_the_owner_changes_a_row(active: &dyn ActiveCalls) {
    let call = key(1).call;
    let other = OwnerId([2; 16]);
    assert_eq!(active.put(&key(1), other, text("x")).await.unwrap(), Saved::NotOwner);
    assert_eq!(active.save_state(call, other, text("x")).await.unwrap(), Saved::NotOwner);
    let saved = active.save_capsule(call, other, (9, text("x")), text("x")).await.unwrap();
    assert_eq!(saved, Saved::NotOwner);
    active.end(call, other).await.unwrap();
    let found = active.find(call).await.unwrap().unwrap();
    assert_eq!((found.owner, found.seq, found.record), (LIVING, 5, text("asked again")));
}

async fn keeps_calls_apart_and_forgets_ended_ones(active: &dyn ActiveCalls) {
    active.put(&key(2), LIVING, text("two")).await.unwrap();
    active.end(key(1).call, LIVING).await.unwrap();
    active.end(key(9).call, LIVING).await.unwrap();
    assert_eq!(active.find(key(1).call).await.unwrap(), None);
    assert!(active.find(key(2).call).await.unwrap().is_some());
    assert_eq!(active.save_state(key(1).call, LIVING, text("late")).await.unwrap(), Saved::NotOwner);
}

async fn an_orphan_has_exactly_one_taker(active: &dyn ActiveCalls) {
    let dead = OwnerId([3; 16]);
    let another = OwnerId([4; 16]);
    assert_eq!(active.renew(dead, LEASE).await.unwrap(), Lease::Held);
    active.renew(another, LEASE).await.unwrap();
    for n in [3, 4] {
        active.put(&key(n), dead, text("asked")).await.unwrap();
    }
    let past = ActiveKey { expires_ms: 1, ..key(5) };
    active.put(&past, dead, text("asked")).await.unwrap();
    let orphan = Orphan { call: key(3).call, owner: dead };
    assert!(active.orphans(9).await.unwrap().is_empty(), "every owner lives");
    assert!(!active.take(&orphan, LIVING).await.unwrap(), "its owner lives");

    active.retire(dead).await.unwrap();
    let mut calls: Vec<CallId> = active.orphans(9).await.unwrap().iter().map(|orphan| orphan.call).collect();
    calls.sort_unstable();
    assert_eq!(calls, [key(3).call, key(4).call]);
    assert_eq!(active.orphans(1).await.unwrap().len(), 1);
    let (first, second) = tokio::join!(active.take(&orphan, LIVING), active.take(&orphan, another));
    assert!(first.unwrap() ^ second.unwrap(), "one of them takes it");
    assert!(!active.take(&orphan, LIVING).await.unwrap(), "it is no orphan any more");
    assert_eq!(active.save_state(key(3).call, dead, text("late")).await.unwrap(), Saved::NotOwner);
    let gone = Orphan { call: key(8).call, owner: dead };
    assert!(!active.take(&gone, LIVING).await.unwrap());
}

async fn an_owner_that_was_away_too_long_is_told(active: &dyn ActiveCalls) {
    let away = OwnerId([6; 16]);
    active.put(&key(6), away, text("asked")).await.unwrap();
    assert_eq!(active.renew(away, Duration::ZERO).await.unwrap(), Lease::Held);
    let orphans = active.orphans(9).await.unwrap();
    assert!(orphans.contains(&Orphan { call: key(6).call, owner: away }));
    assert_eq!(active.renew(away, LEASE).await.unwrap(), Lease::Lapsed);
    assert_eq!(active.renew(away, LEASE).await.unwrap(), Lease::Held);
    assert_eq!(active.save_state(key(6).call, away, text("kept")).await.unwrap(), Saved::Stored);
}
