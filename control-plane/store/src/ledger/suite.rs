//! Conformance suite of [`Ledger`]. Uses short real times, because not every backend has a clock to pause.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Answer, Budget, Claim, Holder, Ledger, LedgerError, LedgerKey, LedgerRequest};
use crate::records::{self, CallRecords, Lease, OwnerId, State};

const HASH: [u8; 32] = [2; 32];
const KEEP: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

fn key(n: u8) -> LedgerKey {
    LedgerKey([n; 32])
}

fn request(n: u8) -> LedgerRequest {
    LedgerRequest { key: key(n), hash: HASH }
}

/// The first claimant in every case, and all others.
const HOLDER: Holder = Holder { call: [1; 16], owner: [7; 16], org: [1; 16] };
const ANOTHER: Holder = Holder { call: [2; 16], owner: [7; 16], org: [1; 16] };
/// HOLDER's call on another gateway.
const SUCCESSOR: Holder = Holder { owner: [8; 16], ..HOLDER };

fn text(answer: &'static [u8]) -> Answer {
    Answer::whole(Bytes::from_static(answer))
}

/// Claims as HOLDER, without waiting.
async fn hold(ledger: &dyn Ledger, n: u8) -> Claim {
    ledger.claim(request(n), HOLDER, Instant::now(), LEASE).await.unwrap()
}

/// Claims as ANOTHER.
async fn claim(ledger: &dyn Ledger, n: u8, hash: [u8; 32], wait: Duration) -> Claim {
    ledger.claim(LedgerRequest { hash, ..request(n) }, ANOTHER, Instant::now() + wait, LEASE).await.unwrap()
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
    is_ended_by_its_holder_alone(&*ledger).await;
    goes_on_with_its_call(&*ledger).await;
    an_abandoned_key_is_reclaimed_by_exactly_one(&*ledger).await;
}

/// Runs against an empty ledger in a store with leases of gateways.
pub async fn judges_holders_by_their_leases<S: Ledger + CallRecords>(store: &S) {
    abandons_keys_of_a_gateway_that_is_gone_unless_the_call_goes_on(store).await;
    abandons_at_once_what_a_gateway_left_that_gave_its_lease_back(store).await;
    abandons_nothing_by_the_judgement_of_who_has_just_lapsed(store).await;
}

/// A gateway without a lease, which judges like one whose lease is steady.
const JUDGE: OwnerId = OwnerId([99; 16]);

fn holder_at(n: u8, owner: OwnerId) -> Holder {
    Holder { call: [n; 16], owner: owner.0, org: [1; 16] }
}

async fn hold_at<S: Ledger>(store: &S, n: u8, owner: OwnerId) {
    let claimed = store.claim(request(n), holder_at(n, owner), Instant::now(), LEASE).await.unwrap();
    assert_eq!(claimed, Claim::New, "{n}");
}

async fn lease<S: CallRecords>(store: &S, owner: OwnerId, length: Duration) -> Lease {
    store.renew(owner, length).await.unwrap()
}

/// Returns what a retry at a gateway finds, and whether it may run again there.
async fn retried<S: Ledger>(store: &S, n: u8, at: OwnerId) -> (Claim, bool) {
    let retry = holder_at(n + 100, at);
    let claim = store.claim(request(n), retry, Instant::now(), LEASE).await.unwrap();
    (claim, store.reclaim(request(n), retry, LEASE).await.unwrap())
}

async fn abandons_keys_of_a_gateway_that_is_gone_unless_the_call_goes_on<S: Ledger + CallRecords>(store: &S) {
    let [gone, living] = [OwnerId([50; 16]), OwnerId([51; 16])];
    // A lease of zero duration has lapsed at once.
    lease(store, gone, NOW).await;
    lease(store, living, LEASE).await;
    for (n, owner) in [(60, gone), (61, living), (62, gone)] {
        hold_at(store, n, owner).await;
    }
    // Another gateway can resume the third.
    let row = records::suite::key(62);
    store.put(&row, gone, State::Working, Bytes::from_static(b"x")).await.unwrap();
    for (n, expected) in
        [(60, (Claim::Abandoned, true)), (61, (Claim::InFlight, false)), (62, (Claim::InFlight, false))]
    {
        assert_eq!(retried(store, n, JUDGE).await, expected, "{n}");
    }
}

async fn abandons_at_once_what_a_gateway_left_that_gave_its_lease_back<S: Ledger + CallRecords>(store: &S) {
    let [ending, new] = [OwnerId([52; 16]), OwnerId([53; 16])];
    for owner in [ending, new] {
        assert_eq!(lease(store, owner, LEASE).await, Lease::Held);
    }
    hold_at(store, 63, ending).await;
    assert_eq!(retried(store, 63, new).await, (Claim::InFlight, false), "it runs");
    store.retire(ending).await.unwrap();
    assert_eq!(retried(store, 63, new).await, (Claim::Abandoned, true), "nobody has to judge that");
}

/// After an outage of the store all leases have lapsed, and the live gateways return one after the other.
async fn abandons_nothing_by_the_judgement_of_who_has_just_lapsed<S: Ledger + CallRecords>(store: &S) {
    let [slow, quick] = [OwnerId([54; 16]), OwnerId([55; 16])];
    hold_at(store, 64, slow).await;
    for owner in [slow, quick] {
        lease(store, owner, NOW).await;
    }
    assert_eq!(retried(store, 64, quick).await, (Claim::InFlight, false), "its own lease has lapsed");
    assert_eq!(lease(store, quick, LEASE).await, Lease::Lapsed);
    assert_eq!(retried(store, 64, quick).await, (Claim::InFlight, false), "it has only just come back");
    assert_eq!(lease(store, slow, LEASE).await, Lease::Lapsed);
    assert!(store.complete(key(64), holder_at(64, slow), text(b"42"), KEEP).await.unwrap());
    let answer = (Claim::Replay(Bytes::from_static(b"42")), false);
    assert_eq!(retried(store, 64, quick).await, answer, "nothing ran a second time");
}

async fn an_abandoned_key_is_reclaimed_by_exactly_one(ledger: &dyn Ledger) {
    let claimed = ledger.claim(request(9), HOLDER, Instant::now(), Duration::ZERO).await.unwrap();
    assert_eq!(claimed, Claim::New);
    assert!(
        !ledger.reclaim(LedgerRequest { hash: [9; 32], ..request(9) }, ANOTHER, LEASE).await.unwrap(),
        "another request"
    );
    assert!(ledger.reclaim(request(9), ANOTHER, LEASE).await.unwrap());
    assert!(!ledger.reclaim(request(9), SUCCESSOR, LEASE).await.unwrap(), "it runs again");
    assert!(!ledger.complete(key(9), HOLDER, text(b"late"), KEEP).await.unwrap());
    assert!(ledger.complete(key(9), ANOTHER, text(b"42"), KEEP).await.unwrap());
    assert!(!ledger.reclaim(request(9), SUCCESSOR, LEASE).await.unwrap(), "answered");
    assert!(!ledger.reclaim(request(10), SUCCESSOR, LEASE).await.unwrap(), "a free key is claimed");
}

/// Budget that [`keeps_to_its_budget`] expects.
pub const SMALL: Budget = Budget { keys: 3, bytes: 10 };

/// Runs against an empty ledger with the budget [`SMALL`].
pub async fn keeps_to_its_budget(ledger: &dyn Ledger) {
    let other_org = Holder { org: [2; 16], ..HOLDER };
    let answer = || Answer { whole: Bytes::from_static(b"12345678"), short: Bytes::from_static(b"-") };
    for n in [1, 2] {
        assert_eq!(hold(ledger, n).await, Claim::New);
        assert!(ledger.complete(key(n), HOLDER, answer(), KEEP).await.unwrap());
    }
    assert_eq!(hold(ledger, 1).await, Claim::Replay(answer().whole));
    assert_eq!(hold(ledger, 2).await, Claim::Replay(answer().short), "there was no room for the whole");
    assert_eq!(hold(ledger, 3).await, Claim::New);
    let refused = ledger.claim(request(4), HOLDER, Instant::now(), LEASE).await;
    assert!(matches!(refused, Err(LedgerError::Full)), "{refused:?}");
    // Another org has its own.
    let claimed = ledger.claim(request(4), other_org, Instant::now(), LEASE).await.unwrap();
    assert_eq!(claimed, Claim::New);
    assert!(ledger.complete(key(4), other_org, answer(), KEEP).await.unwrap());
    assert_eq!(hold(ledger, 4).await, Claim::Replay(answer().whole));
    // Ended keys free capacity.
    ledger.release(key(3), HOLDER).await.unwrap();
    assert_eq!(hold(ledger, 5).await, Claim::New);
}

async fn replays_until_it_expires(ledger: &dyn Ledger) {
    assert_eq!(hold(ledger, 1).await, Claim::New);
    assert!(ledger.complete(key(1), HOLDER, text(b"42"), KEEP).await.unwrap());
    let answer = Claim::Replay(Bytes::from_static(b"42"));
    assert_eq!((claim(ledger, 1, HASH, NOW).await, hold(ledger, 1).await), (answer.clone(), answer));
    assert_eq!(ledger.answer(request(1)).await.unwrap(), Some(Bytes::from_static(b"42")));
    assert_eq!(
        ledger.answer(LedgerRequest { hash: [9; 32], ..request(1) }).await.unwrap(),
        None,
        "of another request"
    );
    assert_eq!(ledger.answer(request(2)).await.unwrap(), None, "asking claims nothing");
    assert_eq!(hold(ledger, 2).await, Claim::New);
    assert_eq!(ledger.answer(request(2)).await.unwrap(), None, "it runs");
    assert_eq!(ledger.running(request(2)).await.unwrap(), Some(HOLDER.call));
    assert_eq!(
        ledger.running(LedgerRequest { hash: [9; 32], ..request(2) }).await.unwrap(),
        None,
        "of another request"
    );
    assert_eq!(ledger.running(request(1)).await.unwrap(), None, "it has its answer");
    assert!(ledger.complete(key(2), HOLDER, text(b""), Duration::ZERO).await.unwrap());
    assert_eq!(ledger.answer(request(2)).await.unwrap(), None, "its time has ended");
    assert_eq!(claim(ledger, 2, HASH, NOW).await, Claim::New);
}

async fn refuses_another_request(ledger: &dyn Ledger) {
    assert_eq!(hold(ledger, 3).await, Claim::New);
    assert_eq!(claim(ledger, 3, [9; 32], NOW).await, Claim::Conflict);
    assert!(ledger.complete(key(3), HOLDER, text(b""), KEEP).await.unwrap());
    assert_eq!(claim(ledger, 3, [9; 32], NOW).await, Claim::Conflict);
}

async fn waits_for_the_running_one(ledger: &Arc<dyn Ledger>) {
    assert_eq!(hold(&**ledger, 4).await, Claim::New);
    assert_eq!(claim(&**ledger, 4, HASH, NOW).await, Claim::InFlight);
    assert_eq!(claim(&**ledger, 4, HASH, Duration::from_millis(50)).await, Claim::InFlight);
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { claim(&*ledger, 4, HASH, LONG).await }
    });
    tokio::task::yield_now().await;
    assert!(ledger.complete(key(4), HOLDER, text(b"ok"), KEEP).await.unwrap());
    assert_eq!(waiting.await.unwrap(), Claim::Replay(Bytes::from_static(b"ok")));
}

async fn frees_a_released_key_for_exactly_one(ledger: &Arc<dyn Ledger>) {
    assert_eq!(hold(&**ledger, 5).await, Claim::New);
    let waiters: Vec<_> = (10..20)
        .map(|n| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                let holder = Holder { call: [n; 16], ..HOLDER };
                let until = Instant::now() + LONG;
                let claimed = ledger.claim(request(5), holder, until, LEASE).await.unwrap();
                if claimed == Claim::New {
                    assert!(ledger.complete(key(5), holder, text(b"done"), KEEP).await.unwrap());
                }
                claimed
            })
        })
        .collect();
    tokio::task::yield_now().await;
    ledger.release(key(5), HOLDER).await.unwrap();
    let mut new = 0;
    for waiter in waiters {
        match waiter.await.unwrap() {
            Claim::New => new += 1,
            Claim::Replay(answer) => assert_eq!(answer, "done"),
            other => panic!("unexpected claim {other:?}"),
        }
    }
    assert_eq!(new, 1);
}

async fn says_that_a_dead_holder_left_the_outcome_open(ledger: &dyn Ledger) {
    let claimed = ledger.claim(request(6), HOLDER, Instant::now(), Duration::ZERO).await.unwrap();
    assert_eq!(claimed, Claim::New);
    assert_eq!(claim(ledger, 6, HASH, LONG).await, Claim::Abandoned);
    assert_eq!(ledger.running(request(6)).await.unwrap(), None);
    assert_eq!(claim(ledger, 6, [9; 32], LONG).await, Claim::Conflict);
    assert!(ledger.renew(key(6), HOLDER, LEASE).await.unwrap(), "nobody else has it");
    assert_eq!(claim(ledger, 6, HASH, NOW).await, Claim::InFlight);
}

async fn goes_on_with_its_call(ledger: &dyn Ledger) {
    assert!(!ledger.seize(request(8), HOLDER, LEASE).await.unwrap(), "a free key is nobody's");
    let claimed = ledger.claim(request(8), HOLDER, Instant::now(), Duration::ZERO).await.unwrap();
    assert_eq!(claimed, Claim::New);
    assert!(!ledger.seize(request(8), ANOTHER, LEASE).await.unwrap(), "another call");
    assert!(
        !ledger.seize(LedgerRequest { hash: [9; 32], ..request(8) }, SUCCESSOR, LEASE).await.unwrap(),
        "another request"
    );
    assert!(ledger.seize(request(8), SUCCESSOR, LEASE).await.unwrap());
    assert_eq!(claim(ledger, 8, HASH, NOW).await, Claim::InFlight, "its lease begins anew");
    assert!(!ledger.renew(key(8), HOLDER, LEASE).await.unwrap());
    ledger.release(key(8), HOLDER).await.unwrap();
    assert!(!ledger.complete(key(8), HOLDER, text(b"late"), KEEP).await.unwrap());
    assert!(ledger.renew(key(8), SUCCESSOR, LEASE).await.unwrap());
    assert!(ledger.complete(key(8), SUCCESSOR, text(b"42"), KEEP).await.unwrap());
    assert!(!ledger.seize(request(8), HOLDER, LEASE).await.unwrap(), "answered");
    assert_eq!(claim(ledger, 8, HASH, NOW).await, Claim::Replay(Bytes::from_static(b"42")));
}

async fn is_ended_by_its_holder_alone(ledger: &dyn Ledger) {
    assert_eq!(hold(ledger, 7).await, Claim::New);
    ledger.release(key(7), ANOTHER).await.unwrap();
    assert!(!ledger.complete(key(7), ANOTHER, text(b"not its own"), KEEP).await.unwrap());
    assert_eq!(claim(ledger, 7, HASH, NOW).await, Claim::InFlight);
    ledger.release(key(7), HOLDER).await.unwrap();
    assert_eq!(claim(ledger, 7, HASH, NOW).await, Claim::New);
    assert!(!ledger.complete(key(7), HOLDER, text(b"late"), KEEP).await.unwrap());
    assert!(ledger.complete(key(7), ANOTHER, text(b"42"), KEEP).await.unwrap());
    assert!(!ledger.complete(key(7), ANOTHER, text(b"twice"), KEEP).await.unwrap());
    ledger.release(key(7), ANOTHER).await.unwrap();
    assert_eq!(hold(ledger, 7).await, Claim::Replay(Bytes::from_static(b"42")), "an answer stays");
}
