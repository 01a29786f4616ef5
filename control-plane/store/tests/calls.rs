//! The gateway's durable store on a real SQLite file.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asp_store::active::{ActiveCalls, ActiveKey, OwnerId};
use asp_store::calls::{AuditLog, CallEvent, SqliteCalls};
use asp_store::ledger::{Claim, Holder, Ledger, LedgerKey, suite};
use bytes::Bytes;
use tokio::time::Instant;

#[tokio::test]
async fn the_sqlite_ledger_passes_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    suite::run(Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap())).await;
}

#[tokio::test]
async fn the_sqlite_active_calls_pass_the_suite_and_end_with_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    asp_store::active::suite::run(&calls).await;
    let key = ActiveKey { call: [7; 16], org: "acme".into(), plugin: "p@1".into(), expires_ms: 1 };
    calls.put(&key, OwnerId([1; 16]), Bytes::from_static(b"x")).await.unwrap();
    calls.sweep().await.unwrap();
    assert_eq!(calls.find(key.call).await.unwrap(), None);
    assert!(calls.find([2; 16]).await.unwrap().is_some());
}

/// Invariant I-6: records of calls with effects.
#[tokio::test]
async fn an_answer_survives_a_restart_and_is_seen_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let (key, hash) = (LedgerKey([1; 32]), [2; 32]);
    let holder = Holder { call: [3; 16], owner: [5; 16] };
    let another = Holder { call: [4; 16], ..holder };
    let lease = Duration::from_secs(60);
    let first = SqliteCalls::open(&path).await.unwrap();
    let other = Arc::new(SqliteCalls::open(&path).await.unwrap());
    assert_eq!(first.claim(key, hash, holder, Instant::now(), lease).await.unwrap(), Claim::New);
    let waiting = tokio::spawn({
        let other = other.clone();
        async move {
            let until = Instant::now() + Duration::from_secs(30);
            other.claim(key, hash, another, until, lease).await.unwrap()
        }
    });
    assert!(first.complete(key, holder, Bytes::from_static(b"done"), lease).await.unwrap());
    assert_eq!(waiting.await.unwrap(), Claim::Replay(Bytes::from_static(b"done")));
    drop(first);
    let again = SqliteCalls::open(&path).await.unwrap();
    again.sweep().await.unwrap();
    let claim = again.claim(key, hash, another, Instant::now(), lease).await.unwrap();
    assert_eq!(claim, Claim::Replay(Bytes::from_static(b"done")));
}

#[tokio::test]
async fn audit_events_are_durable_in_order_and_end_with_their_retention() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let event = |at_ms: i64, n: i64| CallEvent { at_ms, org: "acme".into(), event: format!("{{\"n\":{n}}}") };
    let calls = SqliteCalls::open(&path).await.unwrap();
    calls.append(&[event(0, 0), event(now, 1), event(now, 2)]).await.unwrap();
    drop(calls);
    let calls = SqliteCalls::open(&path).await.unwrap();
    let texts = |events: Vec<CallEvent>| events.into_iter().map(|event| event.event).collect::<Vec<_>>();
    assert_eq!(texts(calls.events("acme", 10).await.unwrap()), [r#"{"n":2}"#, r#"{"n":1}"#, r#"{"n":0}"#]);
    assert_eq!(texts(calls.events("globex", 10).await.unwrap()), Vec::<String>::new());
    calls.sweep().await.unwrap();
    assert_eq!(texts(calls.events("acme", 10).await.unwrap()), [r#"{"n":2}"#, r#"{"n":1}"#]);
}
