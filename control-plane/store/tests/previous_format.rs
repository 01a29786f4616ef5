//! The calls, leases and events in a state directory of commit 03f3e640 are kept without loss.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;
use std::time::Duration;

use asp_store::audit::{AuditLog, AuditQuery, CallEvent};
use asp_store::ledger::{Claim, Holder, Ledger, LedgerKey};
use asp_store::records::{CallRecords, OwnerId};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use bytes::Bytes;
use sqlx::SqlitePool;
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::Instant;

const ROWS: i64 = 1_203;

/// Creates `calls.db` of commit 03f3e640, readable by all.
async fn earlier(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/03f3e640/calls");
    Migrator::new(migrations).await.unwrap().run(&pool).await.unwrap();
    pool
}

fn far() -> i64 {
    i64::MAX / 2
}

#[tokio::test]
async fn answers_leases_and_events_of_an_earlier_version_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let before = earlier(&path).await;
    sqlx::query("INSERT INTO ledger (claim_key, hash, state, answer, expires_ms) VALUES ($1, $2, 1, $3, $4)")
        .bind([1_u8; 32].as_slice())
        .bind([2_u8; 32].as_slice())
        .bind(b"42".as_slice())
        .bind(far())
        .execute(&before)
        .await
        .unwrap();
    for (call, owner) in [(3_u8, 5_u8), (4, 6)] {
        sqlx::query("INSERT INTO active_calls (call_id, org, plugin, seq, expires_ms, owner) VALUES ($1, 'acme', 'p@1', 0, $2, $3)")
            .bind([call; 16].as_slice())
            .bind(far())
            .bind([owner; 16].as_slice())
            .execute(&before)
            .await
            .unwrap();
    }
    // A gateway of the earlier version that still runs.
    sqlx::query("INSERT INTO active_owners (owner, lease_ms) VALUES ($1, $2)")
        .bind([5_u8; 16].as_slice())
        .bind(far())
        .execute(&before)
        .await
        .unwrap();
    let mut events = before.begin().await.unwrap();
    for n in 0..ROWS {
        sqlx::query("INSERT INTO call_events (at_ms, org, event) VALUES ($1, 'acme', $2)")
            .bind(n)
            .bind(n.to_string())
            .execute(&mut *events)
            .await
            .unwrap();
    }
    events.commit().await.unwrap();
    before.close().await;

    let calls = SqliteCalls::open(&path).await.unwrap();
    let holder = Holder { call: [9; 16], owner: [9; 16], org: [1; 16] };
    let claim =
        calls.claim(LedgerKey([1; 32]), [2; 32], holder, Instant::now(), Duration::ZERO).await.unwrap();
    assert_eq!(claim, Claim::Replay(Bytes::from_static(b"42")));
    let orphans = calls.orphans(10).await.unwrap();
    assert_eq!(orphans.len(), 1, "the other's gateway lives");
    assert!(calls.take(&orphans[0], OwnerId([9; 16])).await.unwrap());

    let log = SqliteAudit::open(&directory.path().join("audit.db"), 1 << 30).await.unwrap();
    let new = CallEvent { at_ms: far(), org: "acme".into(), event: "new".into() };
    log.append(&[new]).await.unwrap();
    assert_eq!(log.take_over(&calls).await.unwrap() as i64, ROWS);
    assert_eq!(log.take_over(&calls).await.unwrap(), 0, "once");
    let query = |before| AuditQuery { org: Some("acme".into()), before, limit: 1_000 };
    let first = log.page(&query(None)).await.unwrap();
    let second = log.page(&query(first.last().map(|row| row.seq))).await.unwrap();
    let texts: Vec<String> = first.into_iter().chain(second).map(|row| row.event.event).collect();
    let expected: Vec<String> =
        std::iter::once("new".to_owned()).chain((0..ROWS).rev().map(|n| n.to_string())).collect();
    assert_eq!(texts, expected, "in the old order, before what came since");
}

/// Writes events like a gateway of an earlier version that still runs, or runs again.
async fn write_events(earlier: &SqlitePool, times: std::ops::Range<i64>) {
    for n in times {
        sqlx::query("INSERT INTO call_events (at_ms, org, event) VALUES ($1, 'acme', $2)")
            .bind(n)
            .bind(n.to_string())
            .execute(earlier)
            .await
            .unwrap();
    }
}

/// Returns the log's events, oldest first.
async fn kept(log: &SqliteAudit) -> Vec<i64> {
    let page = log.page(&AuditQuery { org: None, before: None, limit: 1_000 }).await.unwrap();
    page.iter().rev().map(|row| row.event.event.parse().unwrap()).collect()
}

fn event(n: i64) -> CallEvent {
    CallEvent { at_ms: n, org: "acme".into(), event: n.to_string() }
}

/// Opens both versions' files in one state directory, with the earlier version's own connection to its file.
async fn both(directory: &Path) -> (SqlitePool, SqliteCalls, SqliteAudit) {
    let path = directory.join("calls.db");
    earlier(&path).await.close().await;
    let calls = SqliteCalls::open(&path).await.unwrap();
    let before = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path)).await.unwrap();
    let log = SqliteAudit::open(&directory.join("audit.db"), 1 << 30).await.unwrap();
    (before, calls, log)
}

/// The former table restarts at 1 whenever it was emptied.
#[tokio::test]
async fn events_of_an_earlier_version_that_writes_on_are_all_kept_in_the_order_they_came() {
    let directory = tempfile::tempdir().unwrap();
    let (before, calls, log) = both(directory.path()).await;
    write_events(&before, 0..3).await;
    assert_eq!(log.take_over(&calls).await.unwrap(), 3);
    write_events(&before, 3..5).await;
    assert_eq!(log.take_over(&calls).await.unwrap(), 2);
    log.append(&[event(5), event(6)]).await.unwrap();
    write_events(&before, 7..9).await;
    assert_eq!(log.take_over(&calls).await.unwrap(), 2);
    log.append(&[event(9)]).await.unwrap();
    assert_eq!(kept(&log).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn events_that_come_while_former_ones_are_moved_take_no_place_of_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let (before, calls, log) = both(directory.path()).await;
    write_events(&before, 0..2).await;
    assert_eq!(log.take_over(&calls).await.unwrap(), 2);
    log.append(&[event(900)]).await.unwrap();
    // The rest of a table that is moved in several steps: its numbers continue.
    for n in [2, 3] {
        sqlx::query("INSERT INTO call_events (seq, at_ms, org, event) VALUES ($1 + 1, $1, 'acme', $1)")
            .bind(n)
            .execute(&before)
            .await
            .unwrap();
    }
    assert_eq!(log.take_over(&calls).await.unwrap(), 2);
    assert_eq!(kept(&log).await, [0, 1, 2, 3, 900]);
}

#[tokio::test]
async fn an_event_that_was_moved_and_not_deleted_in_a_crash_is_kept_once() {
    let directory = tempfile::tempdir().unwrap();
    let (before, calls, log) = both(directory.path()).await;
    write_events(&before, 0..2).await;
    sqlx::query("CREATE TABLE copy AS SELECT * FROM call_events").execute(&before).await.unwrap();
    log.append(&[event(0)]).await.unwrap();
    assert_eq!(log.take_over(&calls).await.unwrap(), 2);
    log.append(&[event(7)]).await.unwrap();
    // State after a crash before the deletion.
    sqlx::query("INSERT INTO call_events SELECT * FROM copy").execute(&before).await.unwrap();
    write_events(&before, 8..9).await;
    assert_eq!(log.take_over(&calls).await.unwrap(), 1);
    assert_eq!(kept(&log).await, [0, 0, 1, 7, 8]);
}
