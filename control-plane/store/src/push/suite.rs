//! Conformance suite of [`PushStore`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{ClaimId, Delivery, MAX_OF_CALL, PushStore, PutReceiver, ReceiverBound, ReceiverRow};
use crate::records::{self, CallId, CallRecords, End, OwnerId, RecordKey, Save, State};

const OWNER: OwnerId = OwnerId([9; 16]);
const HOUR: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;
const FIRST: ClaimId = [1; 16];
const SECOND: ClaimId = [2; 16];

fn key(n: u8) -> RecordKey {
    RecordKey { resumes: false, ..records::suite::key(n) }
}

fn receiver(config: &str) -> ReceiverRow {
    ReceiverRow {
        config: config.into(),
        origin: "https://example.com".into(),
        sealed: Bytes::from_static(b"sealed"),
    }
}

async fn enter<S: CallRecords>(store: &S, n: u8, state: State) {
    let put = store.put(&key(n), OWNER, state, Bytes::from_static(b"r")).await.unwrap();
    assert_eq!(put, Save::Stored);
}

async fn end<S: CallRecords>(store: &S, n: u8) {
    let record = Bytes::from_static(b"r");
    let outcome = Bytes::from_static(b"o");
    let end = End { state: State::Completed, record, outcome, keep: HOUR };
    assert_eq!(store.finish(&key(n), OWNER, end).await.unwrap(), Save::Stored);
}

async fn receives<S: PushStore>(store: &S, n: u8, config: &str) {
    let put = store.put_receiver([n; 16], "acme", &receiver(config)).await.unwrap();
    assert_eq!(put, PutReceiver::Stored);
}

/// Returns what is due, for this lease.
async fn claim<S: PushStore>(store: &S, claim: ClaimId, lease: Duration) -> Vec<Delivery> {
    let mut claimed = store.claim_deliveries(claim, lease, 100).await.unwrap();
    claimed.sort_by(|one, other| (one.call, &one.config).cmp(&(other.call, &other.config)));
    claimed
}

/// Returns the states that are due, and receives them.
async fn taken<S: PushStore>(store: &S) -> Vec<(CallId, String, State)> {
    let mut taken = Vec::new();
    for delivery in claim(store, FIRST, HOUR).await {
        assert!(store.end_delivery(&delivery).await.unwrap());
        taken.push((delivery.call, delivery.config, delivery.state));
    }
    taken
}

/// Runs the suite against a store without receivers. Leaves one with a delivery.
pub async fn run<S: PushStore + CallRecords>(store: &S) {
    assert!(!store.has_receivers().await.unwrap());
    states_are_delivered_in_their_order(store).await;
    a_delivery_has_one_sender_at_a_time(store).await;
    a_receiver_that_fails_delays_itself_alone(store).await;
    a_dead_letter_is_read_replayed_and_dropped_in_its_org(store).await;
    receivers_are_bounded_replaced_and_removed(store).await;
    receivers_end_with_the_record_of_their_call(store).await;
    a_state_of_the_moment_comes_once_and_in_its_order(store).await;
    a_lost_call_has_failed(store).await;
    enter(store, 219, State::Working).await;
    receives(store, 219, "kept").await;
    enter(store, 219, State::InputRequired).await;
}

async fn states_are_delivered_in_their_order<S: PushStore + CallRecords>(store: &S) {
    let unknown = store.put_receiver([211; 16], "acme", &receiver("a")).await.unwrap();
    assert_eq!(unknown, PutReceiver::NoCall);
    enter(store, 211, State::Working).await;
    receives(store, 211, "a").await;
    assert!(store.has_receivers().await.unwrap());
    assert_eq!(taken(store).await, [], "nothing of what was before");
    // The same state is none that is new, unless it is another question.
    for state in [State::Working, State::InputRequired, State::InputRequired, State::Working] {
        enter(store, 211, state).await;
    }
    end(store, 211).await;
    receives(store, 211, "late").await;
    let mut states = Vec::new();
    for _ in 0..4 {
        let now = taken(store).await;
        states.extend(now.into_iter().map(|(call, config, state)| {
            assert_eq!(call, [211; 16]);
            (config, state)
        }));
    }
    let late = ("late".to_owned(), State::Completed);
    let of = |state| ("a".to_owned(), state);
    let expected = [of(State::InputRequired), late, of(State::InputRequired), of(State::Working)];
    assert_eq!(states, [&expected[..], &[of(State::Completed)]].concat());
    assert_eq!(taken(store).await, []);
}

async fn a_delivery_has_one_sender_at_a_time<S: PushStore + CallRecords>(store: &S) {
    enter(store, 212, State::Working).await;
    receives(store, 212, "a").await;
    end(store, 212).await;
    let first = claim(store, FIRST, NOW).await;
    assert_eq!((first.len(), first[0].attempts, first[0].org.as_str()), (1, 1, "acme"));
    assert_eq!(first[0].sealed, receiver("a").sealed);
    assert_eq!(first[0].bytes, 2, "those of record and outcome");
    // Its lease has ended.
    let second = claim(store, SECOND, HOUR).await;
    assert_eq!((second.len(), second[0].seq, second[0].attempts), (1, first[0].seq, 2));
    assert!(!store.end_delivery(&first[0]).await.unwrap());
    assert!(!store.retry_delivery(&first[0], NOW, "late").await.unwrap());
    assert!(!store.postpone_delivery(&first[0], NOW).await.unwrap());
    assert!(!store.bury_delivery(&first[0], "late").await.unwrap());
    assert_eq!(claim(store, FIRST, HOUR).await, [], "another sender has it");
    assert!(store.end_delivery(&second[0]).await.unwrap());
    assert_eq!(claim(store, FIRST, HOUR).await, []);
}

async fn a_receiver_that_fails_delays_itself_alone<S: PushStore + CallRecords>(store: &S) {
    enter(store, 213, State::Working).await;
    receives(store, 213, "a").await;
    receives(store, 213, "b").await;
    enter(store, 213, State::InputRequired).await;
    let both = claim(store, FIRST, HOUR).await;
    assert_eq!(both.len(), 2);
    enter(store, 213, State::Working).await;
    assert!(store.retry_delivery(&both[0], HOUR, "503").await.unwrap());
    assert!(store.end_delivery(&both[1]).await.unwrap());
    assert_eq!(taken(store).await, [([213; 16], "b".to_owned(), State::Working)]);
    end(store, 213).await;
    assert_eq!(taken(store).await, [([213; 16], "b".to_owned(), State::Completed)]);
    assert!(store.remove_receiver([213; 16], "a").await.unwrap());

    enter(store, 214, State::Working).await;
    receives(store, 214, "a").await;
    end(store, 214).await;
    let first = claim(store, FIRST, HOUR).await;
    assert!(store.postpone_delivery(&first[0], NOW).await.unwrap());
    let again = claim(store, SECOND, HOUR).await;
    assert_eq!(again[0].attempts, 1, "it was not tried");
    assert!(store.retry_delivery(&again[0], NOW, "503").await.unwrap());
    let again = claim(store, SECOND, HOUR).await;
    assert_eq!(again[0].attempts, 2);
    assert!(store.end_delivery(&again[0]).await.unwrap());
}

async fn a_dead_letter_is_read_replayed_and_dropped_in_its_org<S: PushStore + CallRecords>(store: &S) {
    enter(store, 215, State::Working).await;
    receives(store, 215, "a").await;
    enter(store, 215, State::InputRequired).await;
    end(store, 215).await;
    let first = claim(store, FIRST, HOUR).await;
    assert!(store.bury_delivery(&first[0], "HTTP 410").await.unwrap());
    let next = claim(store, FIRST, HOUR).await;
    assert_eq!(next.len(), 1, "the next state is due");
    assert_eq!(next[0].state, State::Completed);
    assert!(store.retry_delivery(&next[0], NOW, "503").await.unwrap());

    let seq = first[0].seq;
    for org in ["", "acme"] {
        let dead = store.dead_letters(org, i64::MAX, 10).await.unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!((dead[0].seq, dead[0].state, dead[0].attempts), (seq, State::InputRequired, 1));
        assert_eq!((dead[0].origin.as_str(), dead[0].fault.as_str()), ("https://example.com", "HTTP 410"));
        assert_eq!(store.dead_letter(org, seq).await.unwrap(), dead.into_iter().next());
    }
    assert_eq!(store.dead_letters("", seq, 10).await.unwrap(), []);
    assert_eq!(store.dead_letters("other", i64::MAX, 10).await.unwrap(), []);
    assert_eq!(store.dead_letter("other", seq).await.unwrap(), None);
    assert!(!store.replay_dead_letter("other", seq).await.unwrap());
    assert!(!store.drop_dead_letter("other", seq).await.unwrap());

    assert!(store.replay_dead_letter("acme", seq).await.unwrap());
    assert!(!store.replay_dead_letter("acme", seq).await.unwrap());
    let replayed = claim(store, FIRST, HOUR).await;
    assert_eq!((replayed.len(), replayed[0].seq), (1, seq), "again before what follows it");
    assert!(store.bury_delivery(&replayed[0], "HTTP 410").await.unwrap());
    assert!(store.drop_dead_letter("", seq).await.unwrap());
    assert_eq!(store.dead_letters("", i64::MAX, 10).await.unwrap(), []);
    assert_eq!(taken(store).await, [([215; 16], "a".to_owned(), State::Completed)]);
}

/// Invariant I-4.
async fn receivers_are_bounded_replaced_and_removed<S: PushStore + CallRecords>(store: &S) {
    enter(store, 216, State::Working).await;
    for n in 0..MAX_OF_CALL {
        receives(store, 216, &format!("r-{n}")).await;
    }
    let full = store.put_receiver([216; 16], "acme", &receiver("more")).await.unwrap();
    assert_eq!(full, PutReceiver::Full(ReceiverBound::OfCall));
    let other = ReceiverRow { origin: "https://other.example".into(), ..receiver("r-0") };
    let replaced = store.put_receiver([216; 16], "acme", &other).await.unwrap();
    assert_eq!(replaced, PutReceiver::Stored);
    let all = store.receivers([216; 16]).await.unwrap();
    assert_eq!(all.len(), usize::try_from(MAX_OF_CALL).unwrap());
    assert!(all.contains(&other) && all.contains(&receiver("r-1")), "{all:?}");

    enter(store, 216, State::InputRequired).await;
    assert!(store.remove_receiver([216; 16], "r-0").await.unwrap());
    assert!(!store.remove_receiver([216; 16], "r-0").await.unwrap());
    receives(store, 216, "more").await;
    let configs: Vec<String> = taken(store).await.into_iter().map(|(_, config, _)| config).collect();
    assert!(!configs.contains(&"r-0".to_owned()) && configs.contains(&"more".to_owned()), "{configs:?}");
    assert_eq!(store.receivers([217; 16]).await.unwrap(), []);
}

/// Runs against an empty store with the quotas [`SMALL`](records::suite::SMALL) (I-4).
pub async fn keeps_to_its_bounds<S: PushStore + CallRecords>(store: &S) {
    for (n, user) in [(1, 17), (2, 17), (3, 18), (4, 19)] {
        let key = RecordKey { user: [user; 16], ..key(n) };
        let put = store.put(&key, OWNER, State::Working, Bytes::from_static(b"r")).await.unwrap();
        assert_eq!(put, Save::Stored);
    }
    let put = async |n: u8, org: &str, config: &str| {
        store.put_receiver([n; 16], org, &receiver(config)).await.unwrap()
    };
    let (stored, of_user, of_org) = (
        PutReceiver::Stored,
        PutReceiver::Full(ReceiverBound::OfUser),
        PutReceiver::Full(ReceiverBound::OfOrg),
    );
    for (n, config, expected) in [
        (1, "a", stored),
        (2, "a", stored),
        (2, "b", stored),
        (1, "b", of_user),
        (2, "a", stored),
        (3, "a", stored),
        (3, "b", stored),
        (3, "c", of_org),
        (4, "a", of_org),
        (3, "b", stored),
    ] {
        assert_eq!(put(n, "acme", config).await, expected, "{n} {config}");
    }
    assert_eq!(put(4, "other", "a").await, stored);
    assert!(store.remove_receiver([3; 16], "a").await.unwrap());
    assert_eq!(put(1, "acme", "b").await, of_user, "what others leave is not for one user");
    assert!(store.remove_receiver([2; 16], "a").await.unwrap());
    assert_eq!(put(1, "acme", "b").await, stored);
}

/// Runs against processes on one empty database with the quotas [`SMALL`](records::suite::SMALL) (I-4).
pub async fn receivers_at_once_keep_to_the_bounds<S>(processes: &[Arc<S>])
where
    S: PushStore + CallRecords + 'static,
{
    let mut putting = JoinSet::new();
    for (n, process) in (1..=16_u8).zip(processes.iter().cycle()) {
        let process = Arc::clone(process);
        putting.spawn(async move {
            let user = n % 2;
            let key = RecordKey { user: [user; 16], ..key(n) };
            let put = process.put(&key, OWNER, State::Working, Bytes::from_static(b"r")).await.unwrap();
            assert_eq!(put, Save::Stored);
            let put = process.put_receiver([n; 16], "acme", &receiver("a")).await.unwrap();
            (user, put == PutReceiver::Stored)
        });
    }
    let all = putting.join_all().await;
    let of_user = |user: u8| all.iter().filter(|one| **one == (user, true)).count();
    let users = [of_user(0), of_user(1)];
    assert!(users == [2, 3] || users == [3, 2], "{users:?}");
}

async fn receivers_end_with_the_record_of_their_call<S: PushStore + CallRecords>(store: &S) {
    enter(store, 217, State::Working).await;
    receives(store, 217, "a").await;
    enter(store, 217, State::InputRequired).await;
    assert!(store.drop_record([217; 16], key(217).created_ms, OWNER).await.unwrap());
    assert_eq!(store.receivers([217; 16]).await.unwrap(), []);
    assert_eq!(taken(store).await, []);
}

/// The call ends while the receiver is being stored.
async fn a_state_of_the_moment_comes_once_and_in_its_order<S: PushStore + CallRecords>(store: &S) {
    for n in 220..236 {
        enter(store, n, State::InputRequired).await;
        tokio::join!(receives(store, n, "a"), end(store, n));
        let mut states = Vec::new();
        loop {
            let now = taken(store).await;
            if now.is_empty() {
                break;
            }
            states.extend(now.into_iter().map(|(_, _, state)| state));
        }
        let expected: [&[State]; 2] = [&[State::Completed], &[State::InputRequired, State::Completed]];
        assert!(expected.contains(&states.as_slice()), "{states:?}");
    }
}

/// Its gateway has no lease.
async fn a_lost_call_has_failed<S: PushStore + CallRecords>(store: &S) {
    end(store, 216).await;
    taken(store).await;
    enter(store, 218, State::Working).await;
    receives(store, 218, "a").await;
    assert_eq!(store.fail_lost_calls(OWNER).await.unwrap(), 0, "of the gateway itself");
    assert_eq!(store.fail_lost_calls(OwnerId([8; 16])).await.unwrap(), 1);
    assert_eq!(store.fail_lost_calls(OwnerId([8; 16])).await.unwrap(), 0);
    assert_eq!(taken(store).await, [([218; 16], "a".to_owned(), State::Failed)]);
    // Its gateway is back: the receiver has got the end.
    let text = Bytes::from_static(b"r");
    let put = store.put(&key(218), OWNER, State::Working, text.clone()).await.unwrap();
    assert_eq!(put, Save::NotOwner);
    let end = End { state: State::Completed, record: text.clone(), outcome: text, keep: HOUR };
    assert_eq!(store.finish(&key(218), OWNER, end).await.unwrap(), Save::NotOwner);
    assert_eq!(taken(store).await, []);
}
