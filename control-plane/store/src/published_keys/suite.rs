//! Conformance suite of [`PublishedKeys`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::{
    MAX_JWK, MAX_KEYS, MAX_KID, MAX_OF_GATEWAY, PublicJwk, PublishError, PublishedKey, PublishedKeys,
};
use crate::records::OwnerId;

const ONE: OwnerId = OwnerId([1; 16]);
const OTHER: OwnerId = OwnerId([2; 16]);
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than anything in the suite takes.
const SLACK: Duration = Duration::from_secs(30);

/// Returns a key with this id.
pub fn key(kid: &str) -> PublicJwk {
    PublicJwk { kid: kid.into(), jwk: format!(r#"{{"kty":"EC","kid":"{kid}"}}"#) }
}

/// Returns the published keys by owner and id, and how long each lasts.
async fn all(keys: &dyn PublishedKeys) -> Vec<(OwnerId, String, Duration)> {
    let mut all: Vec<(OwnerId, String, Duration)> = Vec::new();
    for PublishedKey { owner, key: found, left } in keys.published().await.unwrap() {
        assert_eq!(found, key(&found.kid), "what was written is read");
        all.push((owner, found.kid, left));
    }
    all.sort_by_key(|(owner, kid, _)| (owner.0, kid.clone()));
    all
}

async fn names(keys: &dyn PublishedKeys) -> Vec<(OwnerId, String)> {
    all(keys).await.into_iter().map(|(owner, kid, _)| (owner, kid)).collect()
}

fn is_about(left: Duration, wanted: Duration) -> bool {
    left <= wanted && left + SLACK >= wanted
}

/// Runs the suite against an empty store.
pub async fn run(keys: &dyn PublishedKeys) {
    assert_eq!(all(keys).await, []);
    keys.publish(ONE, &key("a"), HOUR).await.unwrap();
    keys.publish(OTHER, &key("a"), MINUTE).await.unwrap();
    keys.publish(OTHER, &key("b"), HOUR).await.unwrap();
    let whole = [(ONE, "a".to_owned()), (OTHER, "a".to_owned()), (OTHER, "b".to_owned())];
    assert_eq!(names(keys).await, whole, "the union, of one key for each gateway that has it");
    let first = all(keys).await;
    assert!(is_about(first[0].2, HOUR) && is_about(first[1].2, MINUTE), "{first:?}");

    // A renewal extends it, and nothing shortens it.
    keys.publish(OTHER, &key("a"), HOUR).await.unwrap();
    keys.publish(ONE, &key("a"), Duration::ZERO).await.unwrap();
    assert!(all(keys).await.iter().all(|(_, _, left)| is_about(*left, HOUR)));

    // Only its gateway can, for all of its own keys; those that expire sooner stay unchanged.
    keys.withdraw(OTHER, 2 * MINUTE).await.unwrap();
    keys.withdraw(OTHER, HOUR).await.unwrap();
    let left = all(keys).await;
    assert!(is_about(left[0].2, HOUR), "{left:?}");
    assert!(is_about(left[1].2, 2 * MINUTE) && is_about(left[2].2, 2 * MINUTE), "{left:?}");
    keys.withdraw(OTHER, Duration::ZERO).await.unwrap();
    assert_eq!(names(keys).await, whole[..1], "what is over is not told any more");
    keys.publish(OTHER, &key("b"), MINUTE).await.unwrap();
    assert_eq!(names(keys).await.len(), 2, "a key whose time was over may come back");

    for large in [
        PublicJwk { kid: "k".repeat(MAX_KID + 1), ..key("c") },
        PublicJwk { jwk: "k".repeat(MAX_JWK + 1), ..key("c") },
    ] {
        let refused = keys.publish(ONE, &large, HOUR).await;
        assert!(matches!(refused, Err(PublishError::TooLarge)), "{refused:?}");
    }
}

/// Invariant I-4: keys are bounded per gateway and in total. Runs against an empty store.
pub async fn keeps_to_its_bounds(keys: &dyn PublishedKeys) {
    let owner = |n: u32| OwnerId([u8::try_from(n).unwrap(); 16]);
    let publish = async |n, kid: &str, lasts| keys.publish(owner(n), &key(kid), lasts).await;
    for kid in 0..MAX_OF_GATEWAY {
        publish(0, &kid.to_string(), if kid == 0 { Duration::ZERO } else { HOUR }).await.unwrap();
    }
    // One had expired from the start.
    publish(0, "next", HOUR).await.unwrap();
    assert!(matches!(publish(0, "more", HOUR).await, Err(PublishError::Full)));
    for n in 1..=MAX_KEYS - MAX_OF_GATEWAY {
        publish(n, "a", HOUR).await.unwrap();
    }
    assert_eq!(keys.published().await.unwrap().len(), usize::try_from(MAX_KEYS).unwrap());
    assert!(matches!(publish(255, "a", HOUR).await, Err(PublishError::Full)));
    publish(0, "next", 2 * HOUR).await.expect("what is published may be renewed");
    keys.withdraw(owner(1), Duration::ZERO).await.unwrap();
    publish(255, "a", HOUR).await.expect("what is over makes room");
}
