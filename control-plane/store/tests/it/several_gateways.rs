//! Interaction of several gateways on a real PostgreSQL: judging each other's leases, the cost of a busy or frozen
//! gateway to the others, and the order of deletion after concurrent writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use asp_e2e::stores::Postgres as Server;
use asp_e2e::wait;
use asp_store::audit::{AuditLog, CallEvent};
use asp_store::ledger::{self, Budget, Claim, Holder, Ledger, LedgerKey, LedgerRequest};
use asp_store::postgres::{Postgres, PostgresCalls, Waits};
use asp_store::published_keys::{self, PublishedKeys};
use asp_store::records::{self, CallQuota, CallQuotas, CallRecords, End, Lease, Orphan, OwnerId, State};
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

const LEASE: Duration = Duration::from_secs(60);
/// Time left of a lease of 8 s if the first statement is not answered in time.
const SOON: Duration = Duration::from_secs(5);
const HASH: [u8; 32] = [1; 32];

/// Timeouts that do not elapse within a test.
const PATIENT: Waits = {
    let long = Duration::from_secs(120);
    Waits { statement: long, lock: long, idle: long, acquire: long }
};

fn calls(database: &Postgres) -> PostgresCalls {
    database.calls(Budget::default(), CallQuotas::default())
}

async fn renew(calls: &PostgresCalls, owner: OwnerId, lease: Duration) -> Lease {
    CallRecords::renew(calls, owner, lease).await.unwrap()
}

async fn begin(calls: &PostgresCalls, n: u8, owner: OwnerId) -> Orphan {
    let key = records::suite::key(n);
    calls.put(&key, owner, State::Working, "asked".into()).await.unwrap();
    Orphan { call: key.call, owner }
}

/// Returns the single number that the superuser's statement yields.
async fn number(server: &Server, statement: &str) -> i64 {
    server.ask(statement).await.unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_ledger_judges_holders_by_their_leases() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    ledger::suite::judges_holders_by_their_leases(&calls(&database)).await;
}

/// The rows are then as if written in the future.
#[tokio::test]
async fn a_clock_that_is_set_back_by_an_hour_delays_takeovers_only_until_the_next_sweep() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    let calls = calls(&database);
    let [gone, living] = [OwnerId([1; 16]), OwnerId([2; 16])];
    let orphan = begin(&calls, 1, gone).await;
    for owner in [gone, living] {
        renew(&calls, owner, LEASE).await;
    }
    calls.sweep().await.unwrap();
    server
        .ask("UPDATE gateways SET lease_ms = lease_ms + 3600000, since_ms = since_ms + 3600000")
        .await
        .unwrap();
    server.ask("UPDATE turns SET until_ms = until_ms + 3600000").await.unwrap();
    calls.sweep().await.unwrap();
    assert_eq!(renew(&calls, living, LEASE).await, Lease::Held);
    let is_old = "SELECT COUNT(*) FROM gateways WHERE since_ms <= now_ms()";
    assert_eq!(number(&server, is_old).await, 1, "the one that was renewed");
    // A minute later.
    server.ask("UPDATE gateways SET lease_ms = lease_ms - 60000, since_ms = since_ms - 60000").await.unwrap();
    renew(&calls, living, LEASE).await;
    server.ask("UPDATE gateways SET since_ms = since_ms - 9000").await.unwrap();
    assert!(calls.take(&orphan, living).await.unwrap());
}

#[tokio::test]
async fn a_gateway_judges_the_others_again_once_its_lease_has_held_for_a_while() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    let calls = calls(&database);
    let [slow, quick] = [OwnerId([1; 16]), OwnerId([2; 16])];
    let holder = |n: u8, owner: OwnerId| Holder { call: [n; 16], owner: owner.0, org: [1; 16] };
    let claim = async |holder: Holder| {
        calls
            .claim(LedgerRequest { key: LedgerKey([1; 32]), hash: HASH }, holder, Instant::now(), LEASE)
            .await
            .unwrap()
    };
    assert_eq!(claim(holder(1, slow)).await, Claim::New);
    let orphan = begin(&calls, 2, slow).await;
    // Both were cut off, and one of them has returned.
    for owner in [slow, quick] {
        renew(&calls, owner, Duration::ZERO).await;
    }
    assert_eq!(renew(&calls, quick, LEASE).await, Lease::Lapsed);
    assert_eq!(claim(holder(9, quick)).await, Claim::InFlight);
    assert!(!calls.take(&orphan, quick).await.unwrap());
    server.ask("UPDATE gateways SET since_ms = since_ms - 9000").await.unwrap();
    assert_eq!(claim(holder(9, quick)).await, Claim::Abandoned);
    assert!(calls.take(&orphan, quick).await.unwrap());
}

/// Steps of more than a lease in both directions.
#[tokio::test]
async fn a_step_of_the_databases_clock_costs_no_living_gateway_a_call() {
    const STEP_SECONDS: i64 = 120;
    // The call itself does not expire.
    const LONG: Duration = Duration::from_secs(3600);
    let server = Server::start_with_own_clock().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    let calls = calls(&database);
    let [living, other] = [OwnerId([1; 16]), OwnerId([2; 16])];
    let claim = async |n: u8, owner: OwnerId| {
        let holder = Holder { call: [n; 16], owner: owner.0, org: [1; 16] };
        calls
            .claim(LedgerRequest { key: LedgerKey([1; 32]), hash: HASH }, holder, Instant::now(), LONG)
            .await
            .unwrap()
    };
    for owner in [living, other] {
        assert_eq!(renew(&calls, owner, LEASE).await, Lease::Held);
    }
    assert_eq!(claim(1, living).await, Claim::New);
    let call = begin(&calls, 2, living).await;
    assert!(calls.orphans(9).await.unwrap().is_empty());

    server.step_clock(STEP_SECONDS).unwrap();
    // By that clock all leases have lapsed.
    assert_eq!(calls.orphans(9).await.unwrap(), [call]);
    assert_eq!(renew(&calls, other, LEASE).await, Lease::Lapsed);
    assert!(!calls.take(&call, other).await.unwrap());
    assert_eq!(claim(9, other).await, Claim::InFlight);
    assert_eq!(renew(&calls, living, LEASE).await, Lease::Lapsed);

    server.step_clock(0).unwrap();
    for owner in [other, living] {
        assert!(!calls.take(&call, other).await.unwrap());
        assert_eq!(claim(9, other).await, Claim::InFlight);
        assert_eq!(renew(&calls, owner, LEASE).await, Lease::Held);
    }
    assert!(calls.orphans(9).await.unwrap().is_empty());
    let found = calls.find(call.call).await.unwrap();
    assert_eq!(found.and_then(|record| record.owner), Some(living));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_and_a_takeover_wait_for_no_connection_of_calls() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect_with(&server.url(), 1, PATIENT).await.unwrap();
    let calls = Arc::new(calls(&database));
    let orphan = begin(&calls, 1, OwnerId([2; 16])).await;
    // One call has the connection and waits for a lock, and others wait for the connection.
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE ledger").execute(&mut *locked).await.unwrap();
    let mut claims = JoinSet::new();
    for n in 10..15_u8 {
        let calls = calls.clone();
        let holder = Holder { call: [n; 16], owner: [4; 16], org: [1; 16] };
        claims.spawn(async move {
            calls
                .claim(LedgerRequest { key: LedgerKey([n; 32]), hash: HASH }, holder, Instant::now(), LEASE)
                .await
                .unwrap()
        });
    }
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let is_waiting = wait::until("a call waits for the lock", wait::CONVERGE, || async {
        (number(&server, waiting).await == 1).then_some(())
    });
    is_waiting.await.unwrap();
    let [living, taker] = [OwnerId([1; 16]), OwnerId([3; 16])];
    let leases = async {
        assert_eq!(renew(&calls, living, LEASE).await, Lease::Held);
        assert_eq!(calls.orphans(9).await.unwrap(), [orphan]);
        assert!(calls.take(&orphan, taker).await.unwrap());
        calls.retire(living).await.unwrap();
    };
    timeout(wait::CONVERGE, leases).await.expect("no call delays it");
    assert!(claims.try_join_next().is_none(), "the calls wait");
    locked.rollback().await.unwrap();
    while let Some(claimed) = claims.join_next().await {
        assert_eq!(claimed.unwrap(), Claim::New);
    }
}

#[tokio::test]
async fn who_looks_for_orphans_does_not_read_the_running_calls_of_the_others() {
    /// Index entries and rows of the table read by all sessions, current ones excluded.
    const READ: &str = "SELECT CAST(SUM(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_user_tables \
                        WHERE relname = 'call_records') AS BIGINT) FROM pg_stat_user_indexes WHERE relname = 'call_records'";
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 2).await.unwrap();
    let calls = calls(&database);
    renew(&calls, OwnerId([1; 16]), LEASE).await;
    // They expire before the orphan.
    let running = "INSERT INTO call_records (call_id, org, principal, user_digest, server, plugin, context, state, created_ms, \
                   updated_ms, expires_ms, resumable, seq, bytes, owner, record) \
                   SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 'acme', decode('01', 'hex'), decode('01', 'hex'), 'demo', \
                   'sweep@1.0.0', '', 'working', 1, 1, 9000000000000 + n, TRUE, 0, 0, decode(repeat('01', 16), 'hex'), \
                   decode('01', 'hex') FROM generate_series(1, 20000) AS n";
    server.ask(running).await.unwrap();
    let orphan = begin(&calls, 200, OwnerId([2; 16])).await;
    server.ask("ANALYZE call_records").await.unwrap();
    let before = number(&server, READ).await;
    for _ in 0..3 {
        assert_eq!(calls.orphans(256).await.unwrap(), [orphan]);
    }
    // A session reports its reads at its end at the latest.
    database.close().await;
    let sessions = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'asp'";
    let ended = wait::until("the sessions end", wait::CONVERGE, || async {
        (number(&server, sessions).await == 0).then_some(())
    });
    ended.await.unwrap();
    let read = number(&server, READ).await - before;
    assert!(read < 1_000, "{read} of 20,000 running calls were read for one orphan");
}

/// The last to end stay, even after concurrent ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_to_end_go_and_no_more_than_that_where_many_end_at_once() {
    const AT_ONCE: u8 = 8;
    const ROUNDS: u8 = 12;
    // Two rounds of records.
    let share = CallQuota { records: 16, bytes: 1 << 20, receivers: 1 };
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 12).await.unwrap();
    let bounds = CallQuotas { of_user: share, of_org: share };
    let calls = Arc::new(database.calls(Budget::default(), bounds));
    for round in 0..ROUNDS {
        let mut ending = JoinSet::new();
        for n in 0..AT_ONCE {
            let calls = calls.clone();
            let key = records::suite::key(round * AT_ONCE + n);
            let end =
                End { state: State::Completed, record: "r".into(), outcome: "done".into(), keep: LEASE };
            ending.spawn(async move { calls.finish(&key, OwnerId([1; 16]), end).await.unwrap() });
        }
        while let Some(ended) = ending.join_next().await {
            ended.unwrap();
        }
        calls.room_made().await;
        let mut kept = Vec::new();
        for n in 0..(round + 1) * AT_ONCE {
            kept.extend(calls.find([n; 16]).await.unwrap().map(|_| n));
        }
        let last_two: Vec<u8> = (round.saturating_sub(1) * AT_ONCE..(round + 1) * AT_ONCE).collect();
        // A call that ends during a deletion may leave its excess to the next one.
        let excess = kept.len().checked_sub(last_two.len());
        let is_bounded = excess.is_some_and(|excess| excess < usize::from(AT_ONCE));
        assert!(is_bounded && kept.ends_with(&last_two), "round {round}: {kept:?}");
        // The next round ends later, because the clock has a resolution of milliseconds.
        let millisecond = || UNIX_EPOCH.elapsed().unwrap().as_millis();
        let ended = millisecond();
        while millisecond() == ended {
            tokio::task::yield_now().await;
        }
    }
}

/// A client's connection to the database that can freeze: until it is dropped, neither the client's data nor its
/// disconnection is forwarded.
struct Link {
    directory: tempfile::TempDir,
    /// Number of further messages that are forwarded.
    left: Arc<AtomicUsize>,
    withheld: Arc<Notify>,
    carrying: JoinHandle<()>,
}

impl Link {
    fn to(server: &Server) -> Link {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
        let (left, withheld) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::<Notify>::default());
        let (socket, shared) = (server.socket(), (left.clone(), withheld.clone()));
        let carrying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let database = UnixStream::connect(&socket).await.unwrap();
                connections.spawn(carry(client, database, shared.clone()));
            }
        });
        Link { directory, left, withheld, carrying }
    }

    fn url(&self) -> String {
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://asp@{host}/postgres")
    }

    fn freeze_after(&self, messages: u8) {
        self.left.store(messages.into(), Ordering::Release);
    }

    /// Returns the result, or `None` if the client freezes first.
    async fn unless_frozen<T>(&self, doing: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            done = doing => Some(done),
            () = self.withheld.notified() => None,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

async fn carry(client: UnixStream, database: UnixStream, (left, withheld): (Arc<AtomicUsize>, Arc<Notify>)) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_database, mut to_database) = database.into_split();
    // Err: one of them has disconnected.
    tokio::spawn(async move { tokio::io::copy(&mut from_database, &mut to_client).await });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
        let one_less = |left: usize| left.checked_sub(1);
        if left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_err() {
            withheld.notify_one();
            std::future::pending::<()>().await;
        }
        if to_database.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Tries every possible point of the freeze.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_freezes_in_a_takeover_keeps_no_owner_from_its_lease() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    let calls = calls(&database);
    // Each iteration freezes one message later.
    for messages in 0..30_u8 {
        let owner = OwnerId([100 + messages; 16]);
        let orphan = begin(&calls, messages, owner).await;
        renew(&calls, owner, Duration::ZERO).await;
        let link = Link::to(&server);
        let its = Postgres::connect_with(&link.url(), 1, PATIENT).await.unwrap();
        let taker = its.calls(Budget::default(), CallQuotas::default());
        // Opens its connection.
        taker.orphans(1).await.unwrap();
        link.freeze_after(messages);
        let mut taking = taker.take(&orphan, OwnerId([99; 16]));
        let taken = link.unless_frozen(&mut taking).await;
        // The frozen gateway holds no lock that blocks it.
        let renewed = timeout(wait::CONVERGE, CallRecords::renew(&calls, owner, LEASE)).await;
        renewed.expect("an answer").unwrap();
        if let Some(taken) = taken {
            assert!(taken.unwrap() && messages > 0, "it froze {messages} times before");
            return;
        }
    }
    panic!("no call was taken over");
}

/// Concurrent work of several gateways: publications run one after another, appends in parallel.
#[derive(Clone, Copy, Debug)]
enum Work {
    PublishesAKey,
    Audits,
}

impl Work {
    async fn once(self, database: &Postgres, owner: OwnerId) -> Result<(), String> {
        match self {
            Work::PublishesAKey => {
                let key = published_keys::suite::key("a");
                calls(database).publish(owner, &key, LEASE).await.map_err(|error| error.to_string())
            }
            Work::Audits => {
                let event = CallEvent { at_ms: i64::MAX / 2, org: "acme".into(), event: "{}".into() };
                database.audit(1 << 30).append(&[event]).await.map_err(|error| error.to_string())
            }
        }
    }

    /// Returns whether others complete the work soon after one froze after `messages`; `None` if it was done before.
    async fn costs_others(self, server: &Server, others: &Postgres, messages: u8) -> Option<bool> {
        let link = Link::to(server);
        let its = Postgres::connect(&link.url(), 1).await.unwrap();
        link.freeze_after(messages);
        let done = link.unless_frozen(&mut Box::pin(self.once(&its, OwnerId([2; 16])))).await;
        let do_it = || async { self.once(others, OwnerId([1; 16])).await.ok() };
        let is_free = do_it().await.is_some();
        if !is_free {
            wait::until("the others go on", SOON, do_it).await.unwrap();
        }
        done.is_none().then_some(!is_free)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gateways_do_in_turn_goes_on_within_a_lease_of_one_that_freezes() {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 4).await.unwrap();
    for messages in 0..=30_u8 {
        match Work::PublishesAKey.costs_others(&server, &database, messages).await {
            // The case has been shown.
            Some(true) | None => break,
            Some(false) => assert!(messages < 30, "it never ends"),
        }
    }
    // Whenever one gateway freezes, the others still append.
    for messages in 0..=30_u8 {
        match Work::Audits.costs_others(&server, &database, messages).await {
            None => break,
            Some(costs) => assert!(!costs && messages < 30, "frozen after {messages}: {costs}"),
        }
    }
}
