//! What every [`ActiveCalls`] must do.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;

use super::{ActiveCalls, ActiveKey, Saved};

fn key(n: u8) -> ActiveKey {
    ActiveKey { call: [n; 16], org: "acme".into(), plugin: "sweep@1.0.0".into(), expires_ms: i64::MAX }
}

/// Runs the suite against an empty store.
pub async fn run(active: &dyn ActiveCalls) {
    keeps_the_newest_capsule(active).await;
    keeps_answers_beside_the_capsule(active).await;
    keeps_calls_apart_and_forgets_ended_ones(active).await;
}

async fn keeps_the_newest_capsule(active: &dyn ActiveCalls) {
    for (seq, text, expected) in
        [(2, "b", Saved::Stored), (1, "a", Saved::Stale), (2, "x", Saved::Stale), (5, "c", Saved::Stored)]
    {
        assert_eq!(active.save_capsule(&key(1), seq, Bytes::from(text)).await.unwrap(), expected, "{seq}");
    }
    let found = active.find(key(1).call).await.unwrap().unwrap();
    assert_eq!((found.seq, found.capsule), (5, Bytes::from("c")));
    assert_eq!((found.org.as_str(), found.plugin.as_str()), ("acme", "sweep@1.0.0"));
}

async fn keeps_answers_beside_the_capsule(active: &dyn ActiveCalls) {
    active.save_answers(&key(2), Bytes::from("one")).await.unwrap();
    assert_eq!(active.save_capsule(&key(2), 1, Bytes::from("a")).await.unwrap(), Saved::Stored);
    active.save_answers(&key(2), Bytes::from("two")).await.unwrap();
    let found = active.find(key(2).call).await.unwrap().unwrap();
    assert_eq!((found.seq, found.capsule, found.answers), (1, Bytes::from("a"), Bytes::from("two")));
}

async fn keeps_calls_apart_and_forgets_ended_ones(active: &dyn ActiveCalls) {
    active.end(key(1).call).await.unwrap();
    active.end(key(9).call).await.unwrap();
    assert_eq!(active.find(key(1).call).await.unwrap(), None);
    assert!(active.find(key(2).call).await.unwrap().is_some());
    assert_eq!(active.save_capsule(&key(1), 1, Bytes::from("again")).await.unwrap(), Saved::Stored);
}
