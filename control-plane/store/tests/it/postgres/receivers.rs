//! Receivers of push notifications that are stored while their call changes its state.

use std::sync::Arc;
use std::time::Duration;

use asp_store::push::{PushStore, PutReceiver, ReceiverRow};
use asp_store::records::{self, CallRecords, OwnerId, State};
use bytes::Bytes;
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

use super::{Fresh, LEASE};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn receiver(config: &str) -> ReceiverRow {
    ReceiverRow {
        config: config.into(),
        origin: "https://example.com".into(),
        sealed: Bytes::from_static(b"sealed"),
    }
}

#[tokio::test]
async fn a_replayed_dead_letter_has_its_whole_time_again() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    let key = records::suite::key(1);
    calls.put(&key, OwnerId([9; 16]), State::InputRequired, Bytes::from_static(b"r")).await.unwrap();
    calls.put_receiver(key.call, "acme", &receiver("a")).await.unwrap();
    fresh.run("UPDATE push_deliveries SET at_ms = at_ms - 86400000, since_ms = since_ms - 86400000").await;
    let claim = async || calls.claim_deliveries([1; 16], LEASE, 10).await.unwrap().pop().unwrap();
    let old = claim().await;
    assert!(old.age >= DAY && old.pending >= DAY, "{old:?}");
    assert!(calls.bury_delivery(&old, "no room").await.unwrap());
    assert!(calls.replay_dead_letter("acme", old.seq).await.unwrap());
    let replayed = claim().await;
    assert!(replayed.age >= DAY && replayed.pending < DAY, "{replayed:?}");
}

/// A task may get a thousand states while its receiver is away, and each claim would read all of them.
#[tokio::test]
async fn what_follows_a_delivery_is_due_with_it() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    let key = records::suite::key(1);
    let enter = async |state: State| {
        calls.put(&key, OwnerId([9; 16]), state, Bytes::from_static(b"r")).await.unwrap();
    };
    enter(State::Working).await;
    calls.put_receiver(key.call, "acme", &receiver("a")).await.unwrap();
    enter(State::InputRequired).await;
    let first = calls.claim_deliveries([1; 16], LEASE, 10).await.unwrap().pop().unwrap();
    assert!(calls.retry_delivery(&first, DAY, "503").await.unwrap());
    enter(State::Working).await;
    enter(State::InputRequired).await;
    assert_eq!(
        fresh.number("SELECT COUNT(*) FROM push_deliveries WHERE due_ms > now_ms() + 3600000").await,
        3
    );
    assert_eq!(fresh.number("SELECT COUNT(DISTINCT due_ms) FROM push_deliveries").await, 1);
}

#[tokio::test]
async fn a_receiver_is_removed_with_its_deliveries_or_not_at_all() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    let key = records::suite::key(1);
    calls.put(&key, OwnerId([9; 16]), State::InputRequired, Bytes::from_static(b"r")).await.unwrap();
    calls.put_receiver(key.call, "acme", &receiver("a")).await.unwrap();
    let mut other = PgConnection::connect(&fresh.server.url()).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    sqlx::query("SELECT seq FROM push_deliveries FOR UPDATE").execute(&mut *locked).await.unwrap();
    assert!(calls.remove_receiver(key.call, "a").await.is_err(), "another session has its delivery");
    locked.rollback().await.unwrap();
    assert_eq!(calls.receivers(key.call).await.unwrap(), [receiver("a")]);
    assert!(calls.remove_receiver(key.call, "a").await.unwrap());
    assert_eq!(fresh.number("SELECT COUNT(*) FROM push_deliveries").await, 0);
}

/// The statement that stores the end has read the receivers before this one is stored, and commits afterwards.
#[tokio::test]
async fn a_receiver_gets_the_state_that_is_stored_at_the_same_moment() {
    let fresh = Fresh::start().await;
    let calls = Arc::new(fresh.calls());
    let key = records::suite::key(1);
    calls.put(&key, OwnerId([9; 16]), State::Working, Bytes::from_static(b"r")).await.unwrap();
    let put = calls.put_receiver(key.call, "acme", &receiver("first")).await.unwrap();
    assert_eq!(put, PutReceiver::Stored);

    // The second receiver waits for the table.
    let mut other = PgConnection::connect(&fresh.server.url()).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    let lock = "LOCK TABLE push_configs IN SHARE ROW EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *locked).await.unwrap();
    let putting = calls.clone();
    let putting =
        tokio::spawn(async move { putting.put_receiver([1; 16], "acme", &receiver("second")).await });
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while fresh.number(waiting).await < 1 {
        tokio::task::yield_now().await;
    }

    let (executed, mut has_executed) = oneshot::channel();
    let (commit, may_commit) = oneshot::channel::<()>();
    let url = fresh.server.url();
    let ending = tokio::spawn(async move {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let end = "UPDATE call_records SET state = 'completed', updated_ms = now_ms(), owner = NULL";
        sqlx::query(end).execute(&mut *transaction).await.unwrap();
        executed.send(()).unwrap();
        may_commit.await.unwrap();
        transaction.commit().await.unwrap();
    });
    // It has read the receivers, or waits for the one that is being stored.
    while has_executed.try_recv().is_err() && fresh.number(waiting).await < 2 {
        tokio::task::yield_now().await;
    }
    locked.rollback().await.unwrap();
    assert_eq!(putting.await.unwrap().unwrap(), PutReceiver::Stored);
    commit.send(()).unwrap();
    ending.await.unwrap();

    let due = calls.claim_deliveries([1; 16], LEASE, 10).await.unwrap();
    let mut seen: Vec<_> = due.into_iter().map(|delivery| (delivery.config, delivery.state)).collect();
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    let completed = |config: &str| (config.to_owned(), State::Completed);
    assert_eq!(seen, [completed("first"), completed("second")]);
}
