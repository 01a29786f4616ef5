//! Conformance suite of [`Followers`]. Uses short real times, because not every backend has a clock to pause.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::Followers;
use crate::records::OwnerId;

/// Long enough for every test.
const KEEP: Duration = Duration::from_secs(3600);
/// Expires soon.
const SHORT: Duration = Duration::from_millis(20);
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);
const FIRST: OwnerId = OwnerId([1; 16]);
const SECOND: OwnerId = OwnerId([2; 16]);

/// Runs the suite against an empty registry.
pub async fn run(followers: &dyn Followers) {
    is_followed_until_the_last_gateway_leaves(followers).await;
    a_gateway_that_does_not_renew_is_forgotten(followers).await;
}

async fn is_followed_until_the_last_gateway_leaves(followers: &dyn Followers) {
    let (call, other) = ([1; 16], [2; 16]);
    followers.leave(call, FIRST).await.unwrap();
    assert!(!followers.any(call).await.unwrap());
    followers.enter(call, FIRST, KEEP).await.unwrap();
    followers.enter(call, FIRST, KEEP).await.unwrap();
    followers.enter(call, SECOND, KEEP).await.unwrap();
    assert!(followers.any(call).await.unwrap() && !followers.any(other).await.unwrap());
    followers.leave(call, FIRST).await.unwrap();
    assert!(followers.any(call).await.unwrap(), "at the second gateway");
    followers.leave(call, FIRST).await.unwrap();
    assert!(followers.any(call).await.unwrap(), "who leaves twice leaves for itself alone");
    followers.leave(call, SECOND).await.unwrap();
    assert!(!followers.any(call).await.unwrap());
}

async fn a_gateway_that_does_not_renew_is_forgotten(followers: &dyn Followers) {
    let call = [3; 16];
    followers.enter(call, FIRST, SHORT).await.unwrap();
    ends(followers, call).await;
    followers.enter(call, FIRST, SHORT).await.unwrap();
    followers.enter(call, FIRST, KEEP).await.unwrap();
    followers.enter(call, SECOND, SHORT).await.unwrap();
    tokio::time::sleep(SHORT * 2).await;
    assert!(followers.any(call).await.unwrap(), "one that is renewed stays, whatever becomes of another");
    followers.leave(call, FIRST).await.unwrap();
    ends(followers, call).await;
}

async fn ends(followers: &dyn Followers, call: [u8; 16]) {
    let ended = async {
        while followers.any(call).await.unwrap() {
            tokio::time::sleep(SHORT).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("its time is over");
}
