//! Renewal of leases on real SQLite files under the full load of audit, ledger and sweeps. A program of its own, because the
//! test measures latencies under a load that would slow down the tests in `it.rs`, and would be slowed down by them.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asp_store::audit::{AuditLog, CallEvent};
use asp_store::ledger::{Answer, Claim, Holder, Ledger, LedgerKey, LedgerRequest};
use asp_store::records::{CallRecords, Lease, OwnerId};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use bytes::Bytes;
use tokio::time::Instant;

/// Lease and timeout of a gateway (`call/active.rs`), which renews every two seconds.
const LEASE: Duration = Duration::from_secs(8);
const STATEMENT: Duration = Duration::from_secs(2);
const RENEWALS: usize = 200;
/// Concurrent calls, and concurrent writers of audit batches.
const CALLS: usize = 64;
const WRITERS: usize = 4;

fn key(n: usize) -> LedgerKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&n.to_be_bytes());
    LedgerKey(key)
}

/// Claims and answers one key after another, leaving answers that the next sweep finds expired.
async fn calls(calls: Arc<SqliteCalls>, next: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let holder = Holder { call: (n as u128).to_be_bytes(), owner: [9; 16], org: [1; 16] };
        let claimed = calls
            .claim(LedgerRequest { key: key(n), hash: [2; 32] }, holder, Instant::now(), LEASE)
            .await
            .unwrap();
        assert_eq!(claimed, Claim::New);
        let answer = Answer::whole(Bytes::from(vec![b'x'; 2048]));
        assert!(calls.complete(key(n), holder, answer, Duration::ZERO).await.unwrap());
    }
}

async fn events(log: Arc<SqliteAudit>, stop: Arc<AtomicBool>) {
    let event = CallEvent { at_ms: 0, org: "acme".into(), event: "x".repeat(300) };
    let batch = vec![event; 512];
    while !stop.load(Ordering::Relaxed) {
        log.append(&batch).await.unwrap();
    }
}

async fn sweeps(calls: Arc<SqliteCalls>, log: Arc<SqliteAudit>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        calls.sweep().await.unwrap();
        log.sweep().await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// Two gateways on one machine, both under full load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gateway_falls_silent_while_audit_ledger_and_sweeps_take_all_they_can() {
    let directory = tempfile::tempdir().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = tokio::task::JoinSet::new();
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let ledger = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
        let log = SqliteAudit::open(&directory.path().join("audit.db"), 16 << 20).await.unwrap();
        let log = Arc::new(log);
        for _ in 0..CALLS / 2 {
            load.spawn(calls(ledger.clone(), next.clone(), stop.clone()));
        }
        for _ in 0..WRITERS / 2 {
            load.spawn(events(log.clone(), stop.clone()));
        }
        load.spawn(sweeps(ledger.clone(), log, stop.clone()));
        gateways.push(ledger);
    }
    let mut slowest = Duration::ZERO;
    let mut was_late = [false; 2];
    for n in 0..RENEWALS {
        for (gateway, store) in gateways.iter().enumerate() {
            let before = Instant::now();
            let renewed = CallRecords::renew(&**store, OwnerId([gateway as u8; 16]), LEASE);
            let renewed = tokio::time::timeout(LEASE, renewed).await;
            let is_late = before.elapsed() > STATEMENT;
            slowest = slowest.max(before.elapsed());
            // A gateway whose statements fail twice in a row counts as cut off.
            assert!(!(is_late && was_late[gateway]), "{n}: {slowest:?}");
            was_late[gateway] = is_late;
            assert_eq!(renewed.expect("a renewal within its time").unwrap(), Lease::Held, "{n}");
        }
        // Leaves time to the load between two renewals.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }
    let answered = next.load(Ordering::Relaxed);
    println!("{answered} calls beside {RENEWALS} renewals of each gateway, the slowest took {slowest:?}");
    assert!(answered > CALLS, "there was no load");
}
