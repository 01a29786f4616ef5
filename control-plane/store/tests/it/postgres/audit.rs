//! The audit log of calls: its order, its limits, and the effects of backups and of gateways of the previous version.

use std::sync::Arc;

use asp_store::audit::{AuditLog, AuditQuery, CallEvent};
use asp_store::postgres::PostgresAudit;
use asp_store::{live, usage};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use super::Fresh;

const GIBIBYTE: u64 = 1 << 30;
const MEBIBYTE: u64 = 1 << 20;
/// Number of the first event.
const FIRST: i64 = 1 << 44;
/// Numbers of a partition.
const WIDTH: i64 = 1 << 28;
const COUNT: &str = "SELECT COUNT(*) FROM all_call_events";
/// Size of the partitions on disk.
const SIZE: &str = "SELECT CAST(SUM(pg_total_relation_size(inhrelid)) AS BIGINT) FROM pg_inherits \
                    WHERE inhparent = CAST('call_audit' AS REGCLASS)";

/// Sweeps as if no process had swept recently.
async fn sweep(fresh: &Fresh, log: &PostgresAudit) {
    fresh.run("UPDATE turns SET until_ms = 0").await;
    log.sweep().await.unwrap();
}

async fn connection(fresh: &Fresh) -> PgConnection {
    PgConnection::connect(&fresh.server.url()).await.unwrap()
}

fn event(org: &str, at_ms: i64, n: i64) -> CallEvent {
    CallEvent { at_ms, org: org.into(), event: format!("{{\"n\":{n}}}") }
}

/// Returns more than a sixteenth of a MiB.
fn batch() -> Vec<CallEvent> {
    (0..200).map(|_| CallEvent { at_ms: 1, org: "acme".into(), event: "x".repeat(400) }).collect()
}

async fn numbers(log: &PostgresAudit, org: Option<&str>, before: Option<i64>, limit: u32) -> Vec<i64> {
    let query = AuditQuery { org: org.map(str::to_owned), before, limit };
    log.page(&query).await.unwrap().iter().map(|stored| stored.seq).collect()
}

#[tokio::test]
async fn usage_is_summed_and_running_work_listed() {
    let fresh = Fresh::start().await;
    usage::suite::run(&fresh.database.audit(GIBIBYTE)).await;
    live::suite::run(&fresh.database.audit(GIBIBYTE)).await;
}

#[tokio::test]
async fn the_audit_log_is_read_page_by_page_and_in_the_order_in_which_it_came() {
    let fresh = Fresh::start().await;
    let log = fresh.database.audit(GIBIBYTE);
    log.append(&[event("acme", 1, 1), event("globex", 2, 2), event("acme", 3, 3)]).await.unwrap();
    log.append(&[event("acme", 4, 4)]).await.unwrap();
    log.append(&[]).await.unwrap();
    assert_eq!(numbers(&log, None, None, 9).await, [FIRST + 3, FIRST + 2, FIRST + 1, FIRST]);
    assert_eq!(numbers(&log, Some("acme"), None, 2).await, [FIRST + 3, FIRST + 2]);
    assert_eq!(numbers(&log, Some("acme"), Some(FIRST + 2), 2).await, [FIRST]);
    let query = AuditQuery { org: Some("globex".into()), before: None, limit: 1 };
    assert_eq!(log.page(&query).await.unwrap()[0].event, event("globex", 2, 2));

    // A restored backup may have a number of a partition that it lacks.
    fresh
        .run("SELECT setval('call_audit_seq', 3 * call_audit_width() + last_value) FROM call_audit_seq")
        .await;
    log.append(&[event("acme", 5, 5)]).await.unwrap();
    // The first attempt has used up a number.
    assert_eq!(numbers(&log, None, None, 2).await, [FIRST + 3 * WIDTH + 5, FIRST + 3]);
    sweep(&fresh, &log).await;
    log.append(&[event("acme", 6, 6)]).await.unwrap();
    assert_eq!(numbers(&log, None, None, 1).await, [FIRST + 3 * WIDTH + 6]);
}

#[tokio::test]
async fn the_audit_log_is_searched_and_knows_its_writers() {
    let fresh = Fresh::start().await;
    let log = fresh.database.audit(GIBIBYTE);
    asp_store::audit::suite::run(&log).await;
    asp_store::audit::suite::replays(&log).await;
}

/// Adds to `seen` the events that are newer than its last one.
async fn follow(log: &PostgresAudit, seen: &mut Vec<i64>) {
    let last = seen.last().copied().unwrap_or_default();
    let page = numbers(log, None, None, 1000).await;
    seen.extend(page.into_iter().rev().filter(|seq| *seq > last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_do_not_wait_for_a_slow_one_and_a_reader_misses_none_of_it() {
    let fresh = Fresh::start().await;
    let log = Arc::new(fresh.database.audit(GIBIBYTE));
    log.append(&[event("acme", 1, 0)]).await.unwrap();
    let mut other = connection(&fresh).await;
    let mut slow = other.begin().await.unwrap();
    let append =
        "SELECT append_call_audit(ARRAY[CAST(1 AS BIGINT), 2], ARRAY['acme', 'acme'], ARRAY['{}', '{}'])";
    sqlx::query(append).execute(&mut *slow).await.unwrap();
    let mut appending = JoinSet::new();
    for _ in 0..4 {
        let log = Arc::clone(&log);
        appending.spawn(async move {
            for n in 0..20 {
                log.append(&[event("acme", 1, n), event("globex", 1, n)]).await.unwrap();
            }
        });
    }
    let mut seen = Vec::new();
    follow(&log, &mut seen).await;
    while let Some(appended) = appending.join_next().await {
        appended.unwrap();
        follow(&log, &mut seen).await;
    }
    assert_eq!(seen, [FIRST], "the slow one has the numbers after it");
    slow.commit().await.unwrap();
    follow(&log, &mut seen).await;
    assert_eq!(seen, (FIRST..FIRST + 163).collect::<Vec<i64>>());
}

async fn count(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(COUNT).fetch_one(connection).await.unwrap()
}

/// A backup reads every table in one snapshot, for as long as it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_snapshot_refuses_no_event_and_what_it_kept_is_dropped_after_it() {
    let fresh = Fresh::start().await;
    let log = fresh.database.audit(MEBIBYTE);
    let append_and_sweep = async || {
        log.append(&batch()).await.unwrap();
        sweep(&fresh, &log).await;
    };
    for _ in 0..20 {
        append_and_sweep().await;
    }
    let bound = i64::try_from(MEBIBYTE + MEBIBYTE / 16).unwrap();
    let kept = fresh.number(SIZE).await;
    assert!(kept <= bound, "{kept} bytes");
    assert!(fresh.number("SELECT MIN(seq) FROM call_audit").await > FIRST, "the oldest went");

    let mut backup = connection(&fresh).await;
    sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut backup).await.unwrap();
    let held = count(&mut backup).await;
    for _ in 0..8 {
        append_and_sweep().await;
        // Concurrently with sweeps, too.
        let sweeping = async {
            sweep(&fresh, &log).await;
        };
        let appending = async {
            for _ in 0..5 {
                log.append(&[event("acme", 1, 1)]).await.unwrap();
            }
        };
        tokio::join!(sweeping, appending);
    }
    assert!(fresh.number(SIZE).await > bound, "nothing that is read was dropped");
    assert_eq!(count(&mut backup).await, held);
    assert_eq!(fresh.number(COUNT).await, held + 8 * 205);
    sqlx::query("ROLLBACK").execute(&mut backup).await.unwrap();
    sweep(&fresh, &log).await;
    let kept = fresh.number(SIZE).await;
    assert!(kept <= bound, "{kept} bytes");
    assert_eq!(numbers(&log, None, None, 205).await.len(), 205, "the newest are there");
}

#[tokio::test]
async fn a_partition_goes_when_all_of_it_is_too_old_and_one_process_sweeps() {
    let fresh = Fresh::start().await;
    let log = fresh.database.audit(GIBIBYTE);
    let partitions = async || {
        fresh
            .number("SELECT COUNT(*) FROM pg_inherits WHERE inhparent = CAST('call_audit' AS REGCLASS)")
            .await
    };
    log.append(&[event("acme", 1, 1)]).await.unwrap();
    sweep(&fresh, &log).await;
    assert_eq!(partitions().await, 1);
    fresh.run("UPDATE call_audit_partitions SET since_ms = since_ms - 25 * 3600000").await;
    // Another process has just swept.
    fresh.run("UPDATE turns SET until_ms = now_ms() + 15000").await;
    log.sweep().await.unwrap();
    assert_eq!(partitions().await, 1);
    sweep(&fresh, &log).await;
    assert_eq!(partitions().await, 2);
    // An empty partition stays in use, whatever its age.
    fresh.run("UPDATE call_audit_partitions SET since_ms = since_ms - 29 * CAST(86400000 AS BIGINT)").await;
    sweep(&fresh, &log).await;
    assert_eq!(partitions().await, 2);
    log.append(&[event("acme", 1, 2)]).await.unwrap();
    assert_eq!(numbers(&log, None, None, 9).await, [FIRST + WIDTH, FIRST], "29 days");
    fresh.run("UPDATE call_audit_partitions SET since_ms = since_ms - 2 * CAST(86400000 AS BIGINT)").await;
    sweep(&fresh, &log).await;
    assert_eq!(numbers(&log, None, None, 9).await, [FIRST + WIDTH]);
}

#[tokio::test]
async fn events_of_the_version_before_are_read_and_removed_first() {
    let fresh = Fresh::start().await;
    // Some are from 1970.
    fresh
        .run(
            "INSERT INTO call_events (seq, at_ms, org, event) \
             SELECT n, CASE WHEN n > 600 THEN now_ms() ELSE n END, 'acme', REPEAT('x', 276) FROM generate_series(1, 6000) AS n",
        )
        .await;
    fresh.run("UPDATE call_log SET last = 6000, bytes = 6000 * 400").await;
    let log = fresh.database.audit(16 * MEBIBYTE);
    log.append(&[event("acme", 1, 1)]).await.unwrap();
    assert_eq!(numbers(&log, None, None, 3).await, [FIRST, 6000, 5999]);
    // Appended by a gateway of the previous version.
    fresh.run("INSERT INTO call_events (seq, at_ms, org, event) SELECT last + 1, now_ms(), 'globex', '{}' FROM call_log").await;
    assert_eq!(numbers(&log, Some("globex"), None, 3).await, [6001]);

    sweep(&fresh, &log).await;
    assert_eq!(fresh.number("SELECT MIN(seq) FROM call_events").await, 601, "30 days");
    assert_eq!(fresh.number("SELECT bytes FROM call_log").await, 5400 * 400);
    // Partitions count against the limit, too.
    let log = fresh.database.audit(MEBIBYTE);
    sweep(&fresh, &log).await;
    let size = fresh.number(SIZE).await;
    let held = fresh.number("SELECT bytes FROM call_log").await;
    let bound = i64::try_from(MEBIBYTE).unwrap();
    assert!(held + size <= bound && held > bound / 2, "{held} bytes of former events beside {size}");
    assert_eq!(numbers(&log, None, None, 3).await, [FIRST, 6001, 6000]);
}
