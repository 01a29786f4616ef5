//! What every [`Ledger`] must do. Uses short real times, because not every backend has a clock to pause.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Claim, Ledger, LedgerKey};

const HASH: [u8; 32] = [2; 32];
const KEEP: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

fn key(n: u8) -> LedgerKey {
    LedgerKey([n; 32])
}

async fn claim(ledger: &dyn Ledger, n: u8, hash: [u8; 32], wait: Duration) -> Claim {
    ledger.claim(key(n), hash, Instant::now() + wait, LEASE).await.unwrap()
}

const NOW: Duration = Duration::ZERO;
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);

/// Runs the suite against an empty ledger.
pub async fn run(ledger: Arc<dyn Ledger>) {
    replays_until_it_expires(&*ledger).await;
    refuses_another_request(&*ledger).await;
    waits_for_the_running_one(&ledger).await;
    frees_a_released_key_for_exactly_one(&ledger).await;
    says_that_a_dead_holder_left_the_outcome_open(&*ledger).await;
}

async fn replays_until_it_expires(ledger: &dyn Ledger) {
    assert_eq!(claim(ledger, 1, HASH, NOW).await, Claim::New);
    ledger.complete(key(1), Bytes::from_static(b"42"), KEEP).await.unwrap();
    for _ in 0..2 {
        assert_eq!(claim(ledger, 1, HASH, NOW).await, Claim::Replay(Bytes::from_static(b"42")));
    }
    assert_eq!(claim(ledger, 2, HASH, NOW).await, Claim::New);
    ledger.complete(key(2), Bytes::new(), Duration::ZERO).await.unwrap();
    assert_eq!(claim(ledger, 2, HASH, NOW).await, Claim::New);
}

async fn refuses_another_request(ledger: &dyn Ledger) {
    assert_eq!(claim(ledger, 3, HASH, NOW).await, Claim::New);
    assert_eq!(claim(ledger, 3, [9; 32], NOW).await, Claim::Conflict);
    ledger.complete(key(3), Bytes::new(), KEEP).await.unwrap();
    assert_eq!(claim(ledger, 3, [9; 32], NOW).await, Claim::Conflict);
}

async fn waits_for_the_running_one(ledger: &Arc<dyn Ledger>) {
    assert_eq!(claim(&**ledger, 4, HASH, NOW).await, Claim::New);
    assert_eq!(claim(&**ledger, 4, HASH, NOW).await, Claim::InFlight);
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { claim(&*ledger, 4, HASH, LONG).await }
    });
    tokio::task::yield_now().await;
    ledger.complete(key(4), Bytes::from_static(b"ok"), KEEP).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Claim::Replay(Bytes::from_static(b"ok")));
}

async fn frees_a_released_key_for_exactly_one(ledger: &Arc<dyn Ledger>) {
    assert_eq!(claim(&**ledger, 5, HASH, NOW).await, Claim::New);
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { claim(&*ledger, 5, HASH, Duration::from_millis(500)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    ledger.release(key(5)).await.unwrap();
    let mut new = 0;
    for waiter in waiters {
        match waiter.await.unwrap() {
            Claim::New => new += 1,
            Claim::InFlight => {}
            other => panic!("unexpected claim {other:?}"),
        }
    }
    assert_eq!(new, 1);
}

async fn says_that_a_dead_holder_left_the_outcome_open(ledger: &dyn Ledger) {
    let claimed = ledger.claim(key(6), HASH, Instant::now(), Duration::ZERO).await.unwrap();
    assert_eq!(claimed, Claim::New);
    assert_eq!(claim(ledger, 6, HASH, LONG).await, Claim::Abandoned);
    assert_eq!(claim(ledger, 6, [9; 32], LONG).await, Claim::Conflict);
}
