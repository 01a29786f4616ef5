//! The gateway's durable store on a real SQLite file.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asp_store::approvals;
use asp_store::audit::{AuditLog, AuditQuery, CallEvent};
use asp_store::ledger::{Answer, Budget, Claim, Holder, Ledger, LedgerKey, LedgerRequest, suite};
use asp_store::linked_accounts;
use asp_store::plugin_storage;
use asp_store::published_keys::{self, PublishedKeys};
use asp_store::push;
use asp_store::records::{self, CallQuotas, CallRecords, End, Lease, Orphan, OwnerId, RecordKey, State};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use bytes::Bytes;
use sqlx::{Connection, SqliteConnection};
use tokio::time::Instant;

const GIBIBYTE: u64 = 1 << 30;

fn event(at_ms: i64, n: i64) -> CallEvent {
    CallEvent { at_ms, org: "acme".into(), event: format!("{{\"n\":{n}}}") }
}

/// Returns the key of call number `n`.
fn row(n: u8, expires_ms: i64) -> RecordKey {
    RecordKey { expires_ms, ..records::suite::key(n) }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

async fn texts(log: &SqliteAudit, org: &str) -> Vec<String> {
    let query = AuditQuery { org: Some(org.into()), before: None, limit: 10 };
    log.page(&query).await.unwrap().into_iter().map(|stored| stored.event.event).collect()
}

#[tokio::test]
async fn the_sqlite_ledger_passes_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    suite::run(Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap())).await;
}

#[tokio::test]
async fn the_sqlite_ledger_keeps_to_its_budget() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open_with(&path, suite::SMALL, CallQuotas::default()).await.unwrap();
    suite::keeps_to_its_budget(&calls).await;
}

#[tokio::test]
async fn the_sqlite_records_pass_the_suite_and_end_with_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    records::suite::run(&calls).await;
    let past = End { state: State::Failed, record: "r".into(), outcome: "o".into(), keep: Duration::ZERO };
    let [gone, living] = [OwnerId([70; 16]), OwnerId([72; 16])];
    CallRecords::renew(&calls, living, Duration::from_secs(60)).await.unwrap();
    let late = now_ms() - 60_000;
    calls.put(&row(72, late), living, State::Working, Bytes::from_static(b"x")).await.unwrap();
    calls.put(&row(70, 1), gone, State::Working, Bytes::from_static(b"x")).await.unwrap();
    calls.finish(&row(71, i64::MAX), OwnerId([1; 16]), past).await.unwrap();
    while calls.find([71; 16]).await.unwrap().is_some() {
        calls.sweep().await.unwrap();
    }
    assert_eq!(calls.find([70; 16]).await.unwrap(), None);
    assert!(calls.find([72; 16]).await.unwrap().is_some(), "a gateway still runs it");
    assert!(calls.find([2; 16]).await.unwrap().is_some());
}

#[tokio::test]
async fn the_sqlite_records_keep_to_their_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open_with(&path, Budget::default(), records::suite::SMALL).await.unwrap();
    records::suite::keeps_to_its_bounds(&calls).await;
    records::suite::an_owner_is_alone_until_another_one_has_a_lease(&calls).await;
}

#[tokio::test]
async fn the_sqlite_published_keys_pass_the_suite_and_outlive_their_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open(&path).await.unwrap();
    published_keys::suite::run(&calls).await;
    let seen: Vec<_> = calls.published().await.unwrap().into_iter().map(|one| (one.owner, one.key)).collect();
    assert!(!seen.is_empty());
    calls.retire(seen[0].0).await.unwrap();
    drop(calls);
    let again = SqliteCalls::open(&path).await.unwrap();
    again.sweep().await.unwrap();
    let still: Vec<_> =
        again.published().await.unwrap().into_iter().map(|one| (one.owner, one.key)).collect();
    assert_eq!(still, seen);
}

#[tokio::test]
async fn the_sqlite_pushes_pass_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    push::suite::run(&SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap()).await;
}

#[tokio::test]
async fn the_sqlite_receivers_keep_to_their_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open_with(&path, Budget::default(), records::suite::SMALL).await.unwrap();
    push::suite::keeps_to_its_bounds(&calls).await;
}

/// Invariant I-4, for processes that write at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_receivers_and_keys_at_once_keep_to_their_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let open = async || {
        let calls = SqliteCalls::open_with(&path, Budget::default(), records::suite::SMALL).await;
        Arc::new(calls.unwrap())
    };
    let processes = [open().await, open().await];
    push::suite::receivers_at_once_keep_to_the_bounds(&processes).await;
    plugin_storage::suite::writes_at_once_keep_to_the_bounds(&processes).await;
}

#[tokio::test]
async fn the_sqlite_storage_of_plugins_passes_the_suite_and_loses_what_has_expired() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open(&path).await.unwrap();
    plugin_storage::suite::run(&calls).await;
    calls.sweep().await.unwrap();
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let count = "SELECT SUM(bytes > 0 AND plugin = 'left'), SUM(entry_key = 'past') FROM plugin_storage";
    let counts: (i64, i64) = sqlx::query_as(count).fetch_one(&mut connection).await.unwrap();
    assert_eq!(counts, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_approvals_pass_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    approvals::suite::run(Arc::new(calls)).await;
}

#[tokio::test]
async fn an_expired_approval_of_sqlite_is_neither_decided_nor_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open(&path).await.unwrap();
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let past = async |connection: &mut SqliteConnection| {
        sqlx::query("UPDATE approvals SET expires_ms = 1").execute(connection).await.unwrap();
    };
    approvals::suite::request_and_grant(&calls).await;
    past(&mut connection).await;
    approvals::suite::what_has_expired_is_void(&calls).await;
}

#[tokio::test]
async fn the_sqlite_linked_accounts_pass_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    linked_accounts::suite::run(&calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sqlite_processes_that_refresh_one_link_at_once_one_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let open = async || Arc::new(SqliteCalls::open(&path).await.unwrap());
    linked_accounts::suite::one_of_many_claims_the_refresh(&[open().await, open().await]).await;
}

#[tokio::test]
async fn the_sqlite_published_keys_keep_to_their_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    published_keys::suite::keeps_to_its_bounds(&calls).await;
}

/// Invariants I-6 and I-13 for the outcome of a call.
#[tokio::test]
async fn how_a_call_ended_survives_a_restart_and_is_seen_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let first = SqliteCalls::open(&path).await.unwrap();
    let other = SqliteCalls::open(&path).await.unwrap();
    let keep = Duration::from_secs(3600);
    let end = End { state: State::Completed, record: "r".into(), outcome: "done".into(), keep };
    first.finish(&row(1, i64::MAX), OwnerId([1; 16]), end).await.unwrap();
    let seen = other.find([1; 16]).await.unwrap().unwrap();
    drop(first);
    drop(other);
    let again = SqliteCalls::open(&path).await.unwrap();
    again.sweep().await.unwrap();
    assert_eq!(again.find([1; 16]).await.unwrap(), Some(seen.clone()));
    assert_eq!((seen.state, seen.outcome), (State::Completed, Bytes::from_static(b"done")));
}

/// Invariant I-6 for records of calls with effects.
#[tokio::test]
async fn an_answer_survives_a_restart_and_is_seen_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let key = LedgerKey([1; 32]);
    let hash = [2; 32];
    let holder = Holder { call: [3; 16], owner: [5; 16], org: [1; 16] };
    let another = Holder { call: [4; 16], ..holder };
    let lease = Duration::from_secs(60);
    let first = SqliteCalls::open(&path).await.unwrap();
    let other = Arc::new(SqliteCalls::open(&path).await.unwrap());
    assert_eq!(
        first.claim(LedgerRequest { key, hash }, holder, Instant::now(), lease).await.unwrap(),
        Claim::New
    );
    let waiting = tokio::spawn({
        let other = other.clone();
        async move {
            let until = Instant::now() + Duration::from_secs(30);
            other.claim(LedgerRequest { key, hash }, another, until, lease).await.unwrap()
        }
    });
    let answer = Answer::whole(Bytes::from_static(b"done"));
    assert!(first.complete(key, holder, answer, lease).await.unwrap());
    assert_eq!(waiting.await.unwrap(), Claim::Replay(Bytes::from_static(b"done")));
    drop(first);
    let again = SqliteCalls::open(&path).await.unwrap();
    again.sweep().await.unwrap();
    let claim = again.claim(LedgerRequest { key, hash }, another, Instant::now(), lease).await.unwrap();
    assert_eq!(claim, Claim::Replay(Bytes::from_static(b"done")));
}

#[tokio::test]
async fn who_waits_for_a_key_needs_no_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open(&path).await.unwrap();
    let holder = Holder { call: [3; 16], owner: [5; 16], org: [1; 16] };
    let key = LedgerKey([1; 32]);
    let lease = Duration::from_secs(60);
    assert_eq!(
        calls.claim(LedgerRequest { key, hash: [2; 32] }, holder, Instant::now(), lease).await.unwrap(),
        Claim::New
    );
    // Another process holds the writer for as long as this one waits.
    let mut other = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let until = Instant::now() + Duration::from_millis(300);
    let retry = Holder { call: [4; 16], ..holder };
    assert_eq!(
        calls.claim(LedgerRequest { key, hash: [2; 32] }, retry, until, lease).await.unwrap(),
        Claim::InFlight
    );
}

#[tokio::test]
async fn a_lease_is_renewed_while_another_process_writes_calls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = SqliteCalls::open(&path).await.unwrap();
    let mut other = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    for _ in 0..2 {
        let renewed = CallRecords::renew(&calls, OwnerId([5; 16]), Duration::from_secs(60)).await;
        assert_eq!(renewed.unwrap(), Lease::Held);
    }
}

#[tokio::test]
async fn the_sqlite_ledger_judges_holders_by_their_leases() {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    suite::judges_holders_by_their_leases(&calls).await;
}

#[tokio::test]
async fn a_gateway_whose_lease_lapsed_sees_what_was_taken_before_it_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let [paused, other] = [OwnerId([5; 16]), OwnerId([6; 16])];
    let [its, taker] = [SqliteCalls::open(&path).await.unwrap(), SqliteCalls::open(&path).await.unwrap()];
    CallRecords::renew(&its, paused, Duration::ZERO).await.unwrap();
    its.put(&row(1, i64::MAX), paused, State::Working, Bytes::from_static(b"x")).await.unwrap();
    let orphan = Orphan { call: [1; 16], owner: paused };
    let lease = Duration::from_secs(60);
    let (taken, renewed) = tokio::join!(taker.take(&orphan, other), CallRecords::renew(&its, paused, lease));
    assert_eq!(renewed.unwrap(), Lease::Lapsed);
    let owner = its.find([1; 16]).await.unwrap().unwrap().owner;
    assert_eq!(owner, Some(if taken.unwrap() { other } else { paused }));
    assert!(!taker.take(&Orphan { call: [1; 16], owner: paused }, other).await.unwrap(), "it lives again");
}

#[tokio::test]
async fn audit_events_are_durable_in_order_and_end_with_their_retention() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.db");
    let now = now_ms();
    let log = SqliteAudit::open(&path, GIBIBYTE).await.unwrap();
    log.append(&[event(0, 0), event(now, 1), event(now, 2)]).await.unwrap();
    drop(log);
    let log = SqliteAudit::open(&path, GIBIBYTE).await.unwrap();
    assert_eq!(texts(&log, "acme").await, [r#"{"n":2}"#, r#"{"n":1}"#, r#"{"n":0}"#]);
    assert_eq!(texts(&log, "globex").await, Vec::<String>::new());
    log.sweep().await.unwrap();
    assert_eq!(texts(&log, "acme").await, [r#"{"n":2}"#, r#"{"n":1}"#]);
}

#[tokio::test]
async fn usage_is_summed_and_running_work_listed() {
    let directory = tempfile::tempdir().unwrap();
    let log = SqliteAudit::open(&directory.path().join("audit.db"), GIBIBYTE).await.unwrap();
    asp_store::usage::suite::run(&log).await;
    asp_store::live::suite::run(&log).await;
}

#[tokio::test]
async fn usage_takes_a_quarter_of_the_limit_and_loses_the_oldest_days_first() {
    use asp_store::usage::{UsageBatch, UsageCounts, UsageDimension, UsageKey, UsageQuery, UsageStore};

    let directory = tempfile::tempdir().unwrap();
    let log = SqliteAudit::open(&directory.path().join("audit.db"), 5 * 1_600).await.unwrap();
    let counts = UsageCounts::of_call(Duration::from_millis(1), false, false);
    let row = |n: i64| {
        let key = UsageKey { org: "acme".into(), day: n / 2, user: format!("u{n}"), ..UsageKey::default() };
        (key, counts)
    };
    let batch = UsageBatch { writer: [1; 16], number: 1, rows: (0..8).map(row).collect() };
    log.add_usage(&batch).await.unwrap();
    log.sweep_usage(3).await.unwrap();
    let query = UsageQuery {
        org: None,
        days: (0, 9),
        user: None,
        server: None,
        primitive: None,
        by: UsageDimension::Day,
        limit: 9,
    };
    let days = log.usage(&query).await.unwrap();
    let days: Vec<&str> = days.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(days, ["3", "2"]);
}

#[tokio::test]
async fn an_org_with_many_callers_shortens_no_other_orgs_usage() {
    use asp_store::usage::{UsageBatch, UsageCounts, UsageDimension, UsageKey, UsageQuery, UsageStore};

    let directory = tempfile::tempdir().unwrap();
    let log = SqliteAudit::open(&directory.path().join("audit.db"), 5 * 1_600).await.unwrap();
    let counts = UsageCounts::of_call(Duration::from_millis(1), false, false);
    let row = |org: &str, day: i64, user: i64| {
        (UsageKey { org: org.into(), day, user: format!("u{user}"), ..UsageKey::default() }, counts)
    };
    let many = (0..9).map(|user| row("many", 1 + user / 3, user));
    let few = [row("few", 0, 0), row("few", 1, 0)];
    let batch = UsageBatch { writer: [1; 16], number: 1, rows: many.chain(few).collect() };
    log.add_usage(&batch).await.unwrap();
    log.sweep_usage(3).await.unwrap();
    let query = UsageQuery {
        org: None,
        days: (0, 9),
        user: None,
        server: None,
        primitive: None,
        by: UsageDimension::Org,
        limit: 9,
    };
    let orgs = log.usage(&query).await.unwrap();
    let orgs: Vec<_> = orgs.iter().map(|group| (group.name.as_str(), group.counts.calls)).collect();
    assert_eq!(orgs, [("many", 3), ("few", 2)]);
}

#[tokio::test]
async fn the_audit_is_read_in_pages_that_meet_without_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let log = SqliteAudit::open(&directory.path().join("audit.db"), GIBIBYTE).await.unwrap();
    let now = now_ms();
    let events: Vec<CallEvent> = (0..25)
        .map(|n| CallEvent { org: if n % 2 == 0 { "acme" } else { "globex" }.into(), ..event(now, n) })
        .collect();
    log.append(&events).await.unwrap();
    for org in [None, Some("acme".to_owned())] {
        let wanted: Vec<&CallEvent> =
            events.iter().rev().filter(|event| org.as_ref().is_none_or(|org| event.org == *org)).collect();
        let mut before = None;
        let mut read = Vec::new();
        loop {
            let page = log.page(&AuditQuery { org: org.clone(), before, limit: 7 }).await.unwrap();
            assert!(page.len() <= 7);
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            read.extend(page.into_iter().map(|stored| stored.event));
        }
        assert_eq!(read.iter().collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn the_sqlite_audit_is_searched_and_knows_its_writers() {
    let directory = tempfile::tempdir().unwrap();
    let log = SqliteAudit::open(&directory.path().join("audit.db"), GIBIBYTE).await.unwrap();
    asp_store::audit::suite::run(&log).await;
    asp_store::audit::suite::replays(&log).await;
}

#[tokio::test]
async fn the_audit_stays_below_its_bound_of_bytes_and_loses_the_oldest_first() {
    const MOST: u64 = 1024 * 1024;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.db");
    let log = SqliteAudit::open(&path, MOST).await.unwrap();
    let now = now_ms();
    let long = "x".repeat(400);
    for batch in 0..40 {
        let events: Vec<CallEvent> = (0..200)
            .map(|n| CallEvent {
                at_ms: now,
                org: "acme".into(),
                event: format!("{}-{long}", batch * 200 + n),
            })
            .collect();
        log.append(&events).await.unwrap();
    }
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < MOST * 3 / 2, "3.3 MB were written, {size} bytes are there");
    let page = log.page(&AuditQuery { org: None, before: None, limit: 1000 }).await.unwrap();
    let numbers: Vec<usize> =
        page.iter().map(|stored| stored.event.event.split('-').next().unwrap().parse().unwrap()).collect();
    let newest: Vec<usize> = (0..8000).rev().take(numbers.len()).collect();
    assert_eq!(numbers, newest, "nothing but the oldest is missing");
    // The next sweep reaches a lowered limit and returns the space to the disk.
    log.close().await;
    let log = SqliteAudit::open(&path, MOST / 2).await.unwrap();
    log.sweep().await.unwrap();
    log.close().await;
    let log = SqliteAudit::open(&path, MOST / 2).await.unwrap();
    assert!(!log.page(&AuditQuery { org: None, before: None, limit: 1 }).await.unwrap().is_empty());
    log.close().await;
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < MOST * 3 / 4, "{size}");
}

/// Counts the rows that each statement deletes from `table`; SQLite's clock does not advance within a statement.
async fn count_deletions(path: &Path, table: &str) -> SqliteConnection {
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    for statement in [
        "CREATE TABLE deleted (at REAL)".to_owned(),
        format!(
            "CREATE TRIGGER count AFTER DELETE ON {table} BEGIN INSERT INTO deleted VALUES (julianday('now')); END"
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
    connection
}

/// Returns the number of deleted rows, and the maximum of one statement.
async fn deletions(connection: &mut SqliteConnection) -> (i64, i64) {
    let statement = "SELECT SUM(n), MAX(n) FROM (SELECT COUNT(*) AS n FROM deleted GROUP BY at)";
    sqlx::query_as(statement).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn a_sweep_holds_the_writer_for_few_rows_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let [path, log_path] = ["calls.db", "audit.db"].map(|name| directory.path().join(name));
    let calls = SqliteCalls::open(&path).await.unwrap();
    let log = SqliteAudit::open(&log_path, GIBIBYTE).await.unwrap();
    log.append(&vec![event(0, 0); 1500]).await.unwrap();
    let mut ledger = count_deletions(&path, "ledger").await;
    let mut events = count_deletions(&log_path, "events").await;
    sqlx::query(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
         INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, expires_ms) \
         SELECT randomblob(32), zeroblob(32), randomblob(16), zeroblob(16), zeroblob(16), 1, 1 FROM n",
    )
    .execute(&mut ledger)
    .await
    .unwrap();
    calls.sweep().await.unwrap();
    log.sweep().await.unwrap();
    for (table, (all, most)) in
        [("ledger", deletions(&mut ledger).await), ("events", deletions(&mut events).await)]
    {
        assert!(all == 1500 && most <= 500, "{table}: {most} of {all} rows in one statement");
    }
}
