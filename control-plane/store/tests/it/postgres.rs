//! The port suites on a real PostgreSQL, and requirements specific to a shared database.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use asp_e2e::stores::Postgres as Server;
use asp_store::approvals;
use asp_store::control;
use asp_store::control::sql::ControlStore;
use asp_store::gateway_registry::{self, GatewayRegistry, GatewayReport};
use asp_store::ledger::{self, Answer, Budget, Claim, Holder, Ledger, LedgerKey, LedgerRequest};
use asp_store::linked_accounts;
use asp_store::plugin_storage::{self, NewValue, PluginStorage, PutValue, StorageBounds};
use asp_store::postgres::{ConnectError, Postgres, PostgresCalls, SchemaError, Waits};
use asp_store::published_keys::{self, PublishedKeys};
use asp_store::push;
use asp_store::records::{self, CallQuotas, CallRecords, End, Lease, Orphan, OwnerId, RecordKey, State};
use bytes::Bytes;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[path = "postgres/audit.rs"]
mod audit;
#[path = "postgres/opening.rs"]
mod opening;
#[path = "postgres/receivers.rs"]
mod receivers;

const LEASE: Duration = Duration::from_secs(60);

struct Fresh {
    server: Server,
    database: Postgres,
}

impl Fresh {
    async fn start() -> Fresh {
        let server = Server::start().await.unwrap();
        let database = Postgres::connect(&server.url(), 8).await.unwrap();
        Fresh { server, database }
    }

    async fn control(&self) -> ControlStore {
        self.database.control().await.unwrap()
    }

    fn calls(&self) -> PostgresCalls {
        self.database.calls(Budget::default(), CallQuotas::default())
    }

    /// Runs one statement of another session.
    async fn run(&self, statement: &'static str) {
        let mut connection = PgConnection::connect(&self.server.url()).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }

    async fn number(&self, statement: &'static str) -> i64 {
        let mut connection = PgConnection::connect(&self.server.url()).await.unwrap();
        sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap()
    }
}

async fn renew(
    calls: &PostgresCalls,
    owner: OwnerId,
    lease: Duration,
) -> Result<Lease, records::RecordError> {
    CallRecords::renew(calls, owner, lease).await
}

/// Invariants I-6 and I-13 for policy and revocations.
#[tokio::test]
async fn the_control_store_passes_the_suite_and_another_process_has_all_of_it() {
    let fresh = Fresh::start().await;
    let here = fresh.control().await;
    control::suite::run(&here).await;
    let there = Postgres::connect(&fresh.server.url(), 1).await.unwrap();
    let there = there.control().await.unwrap();
    let state = there.load().await.unwrap();
    assert_eq!(state, here.load().await.unwrap());
    assert!(state.revision > 0 && !state.servers.is_empty());
}

/// Invariant I-6 for records of calls with effects.
#[tokio::test]
async fn the_ledger_passes_the_suite() {
    let fresh = Fresh::start().await;
    ledger::suite::run(Arc::new(fresh.calls())).await;
}

/// A process of the database that is suspended, like one whose machine has vanished.
struct Frozen(String);

impl Frozen {
    fn of(process: i64) -> Frozen {
        let frozen = Frozen(process.to_string());
        frozen.signal("-STOP");
        frozen
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// Invariant I-4: a silent database blocks no caller for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_machine_is_gone_is_an_error_and_gives_its_place_back() {
    let server = Server::start().await.unwrap();
    let second = Duration::from_secs(1);
    let waits = Waits { statement: 5 * second, lock: 5 * second, idle: second, acquire: 5 * second };
    let database = Postgres::connect_with(&server.url(), 1, waits).await.unwrap();
    let calls = Arc::new(database.calls(Budget::default(), CallQuotas::default()));
    let claim = |calls: Arc<PostgresCalls>| async move {
        let holder = Holder { call: [1; 16], owner: [1; 16], org: [1; 16] };
        calls
            .claim(LedgerRequest { key: LedgerKey([1; 32]), hash: [1; 32] }, holder, Instant::now(), LEASE)
            .await
    };
    let fresh = Fresh { server, database };
    // A statement waits in the database, which then sends nothing more.
    let mut other = PgConnection::connect(&fresh.server.url()).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE ledger").execute(&mut *locked).await.unwrap();
    let claiming = tokio::spawn(claim(calls.clone()));
    let waiting = "SELECT COALESCE(MAX(pid), 0)::BIGINT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let process = loop {
        match fresh.number(waiting).await {
            0 => {
                assert!(!claiming.is_finished(), "the claim ended before it was seen to wait");
                tokio::task::yield_now().await;
            }
            process => break process,
        }
    };
    let _frozen = Frozen::of(process);
    locked.rollback().await.unwrap();
    let error = claiming.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("does not answer within"), "{error}");
    // The only connection is free again, though that process is still silent.
    let until = Instant::now() + LEASE;
    while let Err(error) = claim(calls.clone()).await {
        assert!(Instant::now() < until, "{error}");
    }
}

#[tokio::test]
async fn the_ledger_keeps_to_its_budget() {
    let fresh = Fresh::start().await;
    let calls = fresh.database.calls(ledger::suite::SMALL, CallQuotas::default());
    ledger::suite::keeps_to_its_budget(&calls).await;
}

#[tokio::test]
async fn the_records_pass_the_suite_and_end_with_their_time() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    records::suite::run(&calls).await;
    let past = End { state: State::Failed, record: "r".into(), outcome: "o".into(), keep: Duration::ZERO };
    let key = |n: u8, expires_ms| RecordKey { expires_ms, ..records::suite::key(n) };
    let [gone, living] = [OwnerId([70; 16]), OwnerId([72; 16])];
    CallRecords::renew(&calls, living, Duration::from_secs(60)).await.unwrap();
    let late = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() - 60_000;
    calls.put(&key(72, late), living, State::Working, Bytes::from_static(b"x")).await.unwrap();
    calls.put(&key(70, 1), gone, State::Working, Bytes::from_static(b"x")).await.unwrap();
    calls.finish(&key(71, i64::MAX), OwnerId([1; 16]), past).await.unwrap();
    assert!(calls.find([71; 16]).await.unwrap().is_some());
    calls.sweep().await.unwrap();
    assert_eq!(calls.find([71; 16]).await.unwrap(), None);
    assert_eq!(calls.find([70; 16]).await.unwrap(), None);
    assert!(calls.find([72; 16]).await.unwrap().is_some(), "a gateway still runs it");
    assert!(calls.find([2; 16]).await.unwrap().is_some());
}

#[tokio::test]
async fn the_records_keep_to_their_bounds() {
    let fresh = Fresh::start().await;
    let calls = fresh.database.calls(Budget::default(), records::suite::SMALL);
    records::suite::keeps_to_its_bounds(&calls).await;
    records::suite::an_owner_is_alone_until_another_one_has_a_lease(&calls).await;
}

#[tokio::test]
async fn the_published_keys_pass_the_suite_and_end_by_the_databases_clock() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    published_keys::suite::run(&calls).await;
    fresh.run("UPDATE token_keys SET until_ms = now_ms() - 1").await;
    assert_eq!(calls.published().await.unwrap(), []);
    let key = published_keys::suite::key("new");
    calls.publish(OwnerId([1; 16]), &key, LEASE).await.unwrap();
    assert_eq!(fresh.number("SELECT COUNT(*) FROM token_keys").await, 1, "what is over is deleted");
}

#[tokio::test]
async fn the_pushes_pass_the_suite() {
    let fresh = Fresh::start().await;
    push::suite::run(&fresh.calls()).await;
}

#[tokio::test]
async fn the_receivers_keep_to_their_bounds() {
    let fresh = Fresh::start().await;
    let calls = fresh.database.calls(Budget::default(), records::suite::SMALL);
    push::suite::keeps_to_its_bounds(&calls).await;
}

/// Invariant I-4, for gateways that write at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_and_keys_at_once_keep_to_their_bounds() {
    let fresh = Fresh::start().await;
    let calls = || Arc::new(fresh.database.calls(Budget::default(), records::suite::SMALL));
    let processes = [calls(), calls()];
    push::suite::receivers_at_once_keep_to_the_bounds(&processes).await;
    plugin_storage::suite::writes_at_once_keep_to_the_bounds(&processes).await;
}

#[tokio::test]
async fn the_storage_of_plugins_passes_the_suite_and_loses_what_has_expired() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    plugin_storage::suite::run(&calls).await;
    let past = "SELECT COUNT(*) FROM plugin_storage WHERE expires_ms <= now_ms()";
    assert_eq!(fresh.number(past).await, 1);
    calls.sweep().await.unwrap();
    assert_eq!(fresh.number(past).await, 0);
    assert!(fresh.number("SELECT COUNT(*) FROM plugin_storage").await > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_approvals_pass_the_suite() {
    let fresh = Fresh::start().await;
    approvals::suite::run(Arc::new(fresh.calls())).await;
}

#[tokio::test]
async fn an_expired_approval_is_neither_decided_nor_used() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    approvals::suite::request_and_grant(&calls).await;
    fresh
        .number("WITH past AS (UPDATE approvals SET expires_ms = 1 RETURNING 1) SELECT COUNT(*) FROM past")
        .await;
    approvals::suite::what_has_expired_is_void(&calls).await;
}

#[tokio::test]
async fn the_linked_accounts_pass_the_suite() {
    let fresh = Fresh::start().await;
    linked_accounts::suite::run(&fresh.calls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_gateways_that_refresh_one_link_at_once_one_does() {
    let fresh = Fresh::start().await;
    let processes = [Arc::new(fresh.calls()), Arc::new(fresh.calls())];
    linked_accounts::suite::one_of_many_claims_the_refresh(&processes).await;
}

/// Each of several gateways counts up at the same time.
#[tokio::test]
async fn of_two_writes_on_one_version_of_a_key_one_is_stored() {
    let fresh = Fresh::start().await;
    let calls = Arc::new(fresh.calls());
    let space = plugin_storage::suite::space("counted");
    let mut counting = JoinSet::new();
    for version in 1..=20 {
        let calls = Arc::clone(&calls);
        let space = space.clone();
        counting.spawn(async move {
            let value = plugin_storage::suite::value("x", version);
            let value = NewValue { if_version: Some(0), ..value };
            calls.put_value(&space, "k", &value, StorageBounds { keys: 9, bytes: 9 }).await.unwrap()
        });
    }
    let stored = counting.join_all().await.into_iter().filter(|put| *put == PutValue::Stored).count();
    assert_eq!(stored, 1);
}

#[tokio::test]
async fn the_gateways_that_control_planes_hear_pass_the_suite() {
    let fresh = Fresh::start().await;
    gateway_registry::suite::run(&fresh.database.gateway_registry()).await;
}

/// The clock of the database was set back since it had left.
#[tokio::test]
async fn a_gateway_that_is_back_after_it_left_in_the_future_is_there() {
    let fresh = Fresh::start().await;
    let heard = fresh.database.gateway_registry();
    let gateway = GatewayReport { pool: "gateway".into(), address: "10.0.0.1:1".into(), opened: LEASE };
    heard.leave(&gateway.pool, &gateway.address, Duration::ZERO).await.unwrap();
    fresh.run("UPDATE heard_gateways SET left_ms = left_ms + 3600000").await;
    heard.report("one", &[gateway]).await.unwrap();
    let known = heard.list_recent(LEASE).await.unwrap();
    assert!(known.len() == 1 && known[0].left.is_none(), "{known:?}");
}

/// It is three hours ahead of the gateways' clocks.
#[tokio::test]
async fn only_the_databases_clock_decides_how_long_a_key_is_published() {
    let fresh = Fresh::start().await;
    let ahead = "CREATE OR REPLACE FUNCTION now_ms() RETURNS BIGINT LANGUAGE SQL STABLE PARALLEL SAFE AS \
         'SELECT CAST(FLOOR(EXTRACT(EPOCH FROM statement_timestamp()) * 1000) AS BIGINT) + 10800000'";
    fresh.run(ahead).await;
    published_keys::suite::run(&fresh.calls()).await;
}

/// Including many concurrent publications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_keys_keep_to_their_bounds() {
    let fresh = Fresh::start().await;
    published_keys::suite::keeps_to_its_bounds(&fresh.calls()).await;
    fresh.run("DELETE FROM token_keys WHERE kid <> 'a'").await;
    let calls = Arc::new(fresh.calls());
    let mut starting = JoinSet::new();
    for n in 0..12_u8 {
        let calls = calls.clone();
        let key = published_keys::suite::key("another");
        starting.spawn(async move { calls.publish(OwnerId([n; 16]), &key, LEASE).await.is_ok() });
    }
    let mut published = 0;
    while let Some(started) = starting.join_next().await {
        published += u32::from(started.unwrap());
    }
    let room = i64::from(published_keys::MAX_OF_GATEWAY);
    assert_eq!(i64::from(published), room, "as many as had gone");
    assert_eq!(fresh.number("SELECT COUNT(*) FROM token_keys").await, i64::from(published_keys::MAX_KEYS));
}

/// The counters match the rows, even after concurrent calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_say_what_is_there_after_many_calls_at_once() {
    let fresh = Fresh::start().await;
    let share = records::CallQuota { records: 20, bytes: 1 << 20, receivers: 1 };
    let bounds = CallQuotas { of_user: share, of_org: share };
    let calls = Arc::new(fresh.database.calls(Budget::default(), bounds));
    let mut running = JoinSet::new();
    for n in 0..8_u8 {
        let calls = calls.clone();
        running.spawn(async move {
            for round in 0..25_u8 {
                let call = [n, round, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, n, round];
                let holder = Holder { call, owner: [n; 16], org: [round % 3; 16] };
                let key = LedgerKey([[n, round]; 16].concat().try_into().unwrap());
                let claimed = calls
                    .claim(LedgerRequest { key, hash: [1; 32] }, holder, Instant::now(), LEASE)
                    .await
                    .unwrap();
                assert_eq!(claimed, Claim::New);
                let own = RecordKey { call, user: [round % 2; 16], ..records::suite::key(1) };
                calls.put(&own, OwnerId([n; 16]), State::Working, "asked".into()).await.unwrap();
                if round % 5 == 0 {
                    calls.release(key, holder).await.unwrap();
                } else {
                    let answer = Answer::whole(Bytes::from(vec![b'x'; usize::from(round)]));
                    assert!(calls.complete(key, holder, answer, LEASE).await.unwrap());
                }
                let end =
                    End { state: State::Completed, record: "r".into(), outcome: "done".into(), keep: LEASE };
                calls.finish(&own, OwnerId([n; 16]), end).await.unwrap();
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    calls.room_made().await;
    assert_eq!(fresh.number("SELECT COUNT(*) FROM ledger").await, 8 * 20);
    let counted = "SELECT CAST(SUM(claim_keys) AS BIGINT) FROM ledger_usage";
    assert_eq!(fresh.number(counted).await, 8 * 20);
    let bytes = "SELECT CAST(SUM(bytes) AS BIGINT) - (SELECT SUM(LENGTH(answer)) FROM ledger)::BIGINT FROM ledger_usage";
    assert_eq!(fresh.number(bytes).await, 0);
    let differing = "SELECT COUNT(*) FROM (SELECT of_org(org) AS holder, COUNT(*) AS n, SUM(bytes) AS b FROM call_records \
                     GROUP BY 1 UNION ALL SELECT of_user(user_digest), COUNT(*), SUM(bytes) FROM call_records GROUP BY 1) t \
                     FULL JOIN (SELECT holder, SUM(records) AS n, SUM(bytes) AS b FROM record_usage GROUP BY 1) u \
                     USING (holder) WHERE t.n IS DISTINCT FROM u.n OR t.b IS DISTINCT FROM u.b";
    assert_eq!(fresh.number(differing).await, 0);
    let kept = fresh.number("SELECT COUNT(*) FROM call_records").await;
    // A call that ends during a deletion may leave its excess to the next one.
    assert!((20..20 + 8).contains(&kept), "what the org may keep, and nothing less: {kept}");
}

/// A gateway whose renewal reports that its lease had held has lost no record, in whatever order its renewal and a
/// take-over arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_that_its_lease_held_has_lost_nothing() {
    let fresh = Fresh::start().await;
    let calls = Arc::new(fresh.calls());
    let owner = OwnerId([1; 16]);
    let taker = OwnerId([2; 16]);
    let mut held = 0;
    let mut taken = 0;
    for n in 0..60_u8 {
        let key = records::suite::key(n);
        // Expires at about the time when both arrive.
        renew(&calls, owner, Duration::from_millis(u64::from(n % 4))).await.unwrap();
        calls.put(&key, owner, State::Working, "asked".into()).await.unwrap();
        let orphan = Orphan { call: key.call, owner };
        let (renewed, took) = tokio::join!(renew(&calls, owner, LEASE), calls.take(&orphan, taker));
        let (renewed, took) = (renewed.unwrap(), took.unwrap());
        assert!(!(renewed == Lease::Held && took), "round {n}");
        held += u32::from(renewed == Lease::Held);
        taken += u32::from(took);
    }
    println!("{held} leases held, {taken} records were taken");
    // Without a renewal it is taken over.
    let key = records::suite::key(60);
    renew(&calls, OwnerId([3; 16]), Duration::ZERO).await.unwrap();
    calls.put(&key, OwnerId([3; 16]), State::Working, "asked".into()).await.unwrap();
    assert!(calls.take(&Orphan { call: key.call, owner: OwnerId([3; 16]) }, taker).await.unwrap());
}

#[tokio::test]
async fn a_lease_ends_by_the_databases_clock_alone() {
    let fresh = Fresh::start().await;
    let calls = fresh.calls();
    let owner = OwnerId([1; 16]);
    renew(&calls, owner, LEASE).await.unwrap();
    calls.put(&records::suite::key(1), owner, State::Working, "asked".into()).await.unwrap();
    assert!(calls.orphans(9).await.unwrap().is_empty());
    fresh.run("UPDATE gateways SET lease_ms = now_ms() - 1").await;
    assert_eq!(calls.orphans(9).await.unwrap().len(), 1);
    assert_eq!(renew(&calls, owner, LEASE).await.unwrap(), Lease::Lapsed);
}

#[tokio::test]
async fn a_server_whose_commits_do_not_wait_is_named() {
    let fresh = Fresh::start().await;
    for (value, named) in [("on", false), ("off", true)] {
        let set = format!("ALTER DATABASE postgres SET synchronous_commit = {value}");
        fresh.server.ask(&set).await.unwrap();
        let database = Postgres::connect(&fresh.server.url(), 1).await.unwrap();
        let why = database.may_lose_commits().await.unwrap();
        assert_eq!(
            why.is_some_and(|why| why.contains("synchronous_commit is off")),
            named,
            "{value}: {why:?}"
        );
    }
}

#[tokio::test]
async fn several_processes_may_start_at_once() {
    let server = Server::start().await.unwrap();
    let mut starting = JoinSet::new();
    for _ in 0..4 {
        let url = server.url();
        starting.spawn(async move { Postgres::connect(&url, 2).await.map(drop) });
    }
    while let Some(started) = starting.join_next().await {
        started.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused_and_left_as_it_is() {
    let fresh = Fresh::start().await;
    fresh
        .run(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (999999, 'of the future', TRUE, '', 0)",
        )
        .await;
    let refused = Postgres::connect(&fresh.server.url(), 2).await.map(drop);
    let newer = matches!(refused, Err(ConnectError::Schema(SchemaError::Newer { number: 999_999, .. })));
    assert!(newer, "{refused:?}");
}

#[tokio::test]
async fn a_newer_schema_that_names_this_version_as_compatible_is_used() {
    let fresh = Fresh::start().await;
    // Written by a newer version: the compatible version follows the 48 bytes of the checksum.
    fresh
        .run(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (999999, 'of the future', TRUE, CAST(REPEAT('x', 48) || '0.1.0' AS BYTEA), 0)",
        )
        .await;
    Postgres::connect(&fresh.server.url(), 2).await.map(drop).unwrap();
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_its_password() {
    for url in [
        "postgres://asp:secret@host:port/db",
        "mysql://asp:secret@host/db",
        "postgres://asp:secret@127.0.0.1:1/db",
        // The driver would log this one.
        "postgres://asp@127.0.0.1:1/db?sslmode=disable&sslpassword=secret",
        "postgres://asp:ques?secret@127.0.0.1:1/db",
    ] {
        let error = Postgres::connect(url, 1).await.map(drop).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
