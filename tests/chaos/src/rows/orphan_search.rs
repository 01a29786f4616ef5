//! F42: 50 gateways renew their leases and look for calls of gateways that are gone, every two seconds as they do, while 25,000
//! calls of theirs run. Looking does not read these calls.
//!
//! The gateways are the store's own code in this process. What is read is PostgreSQL's own count.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::spread::percentile;
use asp_e2e::stores::Postgres;
use asp_e2e::wait;
use asp_store::ledger::Budget;
use asp_store::postgres::{Postgres as Database, PostgresCalls};
use asp_store::records::{CallQuotas, CallRecords, Lease, OwnerId};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

use crate::sheet::Sheet;

const GATEWAYS: u8 = 50;
/// Running calls, as many at each gateway.
const CALLS: u32 = 25_000;
const LENGTH: Duration = Duration::from_secs(60);
/// Settings of a gateway: the time between two renewals, its lease, and the most records that a search returns.
const TICK: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(8);
const LOOKS: u32 = 256;
/// Gateways that share connections, which changes nothing of what is read: PostgreSQL has 100.
const SHARING: usize = 5;
/// Most that a gateway reads of running calls in a tick.
const READ: f64 = 100.0;

/// Rows of `call_records` that were read; and the same counted by entries of its indexes, where no row may be read.
const ROWS: &str = "SELECT COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables \
                    WHERE relname = 'call_records'";
const ENTRIES: &str = "SELECT CAST(SUM(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_user_tables \
                       WHERE relname = 'call_records') AS BIGINT) FROM pg_stat_user_indexes WHERE relname = 'call_records'";
/// Rows of the gateways' leases that were read.
const LEASES: &str = "SELECT COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables \
                      WHERE relname = 'gateways'";
/// No index has what this reads.
const READ_ALL: &str = "SELECT COUNT(record) FROM call_records";
const SESSIONS: &str = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'asp'";

/// Reads that PostgreSQL has counted so far.
struct Reads {
    rows: f64,
    entries: f64,
    leases: f64,
}

impl Reads {
    async fn of(server: &Postgres) -> Result<Reads> {
        Ok(Reads {
            rows: number(server, ROWS).await?,
            entries: number(server, ENTRIES).await?,
            leases: number(server, LEASES).await?,
        })
    }
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let server = Postgres::start().await?;
    let (databases, stores) = connect(&server).await?;
    server.ask(&running_calls()).await?;
    server.ask("VACUUM ANALYZE call_records").await?;
    for (number, store) in (1..=GATEWAYS).zip(&stores) {
        ensure!(store.renew(owner(number), LEASE).await? == Lease::Held, "the first lease of a gateway");
    }
    let before = Reads::of(&server).await?;
    let mut ticks = Vec::new();
    let mut gateways = JoinSet::new();
    for (number, store) in (1..=GATEWAYS).zip(stores) {
        gateways.spawn(live(owner(number), store));
    }
    while let Some(lived) = gateways.join_next().await {
        ticks.extend(lived??);
    }
    close(&server, databases).await?;
    let after = Reads::of(&server).await?;
    let each = |before: f64, after: f64| (after - before) / ticks.len() as f64;
    sheet.note("ticks of gateways", ticks.len() as f64);
    sheet.note("a tick, p99, ms", percentile(&ticks, 0.99).context("no tick")?);
    let rows = each(before.rows, after.rows);
    sheet.at_most("rows of running calls that a gateway reads in a tick", rows, READ);
    let entries = each(before.entries, after.entries);
    sheet.at_most("the same, entries of their indexes", entries, READ);
    sheet.note("rows of leases that a gateway reads in a tick", each(before.leases, after.leases));
    reads_are_counted(&server, sheet).await?;
    orphans_are_found(&server, sheet).await
}

/// A store for each gateway, and the connections that several of them share.
async fn connect(server: &Postgres) -> Result<(Vec<Database>, Vec<Arc<PostgresCalls>>)> {
    let (mut databases, mut stores) = (Vec::new(), Vec::new());
    for _ in 0..usize::from(GATEWAYS).div_ceil(SHARING) {
        let database = Database::connect(&server.url(), 1).await?;
        let calls = Arc::new(database.calls(Budget::default(), CallQuotas::default()));
        stores.extend(std::iter::repeat_n(calls, SHARING));
        databases.push(database);
    }
    Ok((databases, stores))
}

/// Ends the connections: a session says at its end at the latest what it has read.
async fn close(server: &Postgres, databases: Vec<Database>) -> Result<()> {
    for database in databases {
        database.close().await;
    }
    let ended = || async { (number(server, SESSIONS).await.ok()? < 1.0).then_some(()) };
    wait::until("the sessions of the gateways end", wait::CONVERGE, ended).await
}

fn owner(number: u8) -> OwnerId {
    OwnerId([number; 16])
}

/// Renews the lease and searches for orphans as a gateway does; milliseconds of every tick.
async fn live(owner: OwnerId, store: Arc<PostgresCalls>) -> Result<Vec<f64>> {
    let phase = TICK.mul_f64(rand::random());
    let mut ticks = interval_at(Instant::now() + phase, TICK);
    let mut took = Vec::new();
    for _ in 0..LENGTH.as_secs() / TICK.as_secs() {
        ticks.tick().await;
        let began = Instant::now();
        ensure!(store.renew(owner, LEASE).await? == Lease::Held, "the lease of a gateway lapsed");
        let orphans = store.orphans(LOOKS).await?;
        ensure!(orphans.is_empty(), "{} calls of living gateways are orphans", orphans.len());
        took.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(took)
}

/// Inserts calls that run until long after this and can be taken over, as many of each gateway.
fn running_calls() -> String {
    format!(
        "INSERT INTO call_records (call_id, org, principal, user_digest, server, plugin, context, state, created_ms, \
         updated_ms, expires_ms, resumable, seq, bytes, owner, record) \
         SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 'acme', decode('01', 'hex'), decode('01', 'hex'), 'demo', \
         'sweep@1.0.0', '', 'working', 1, 1, 9000000000000 + n, TRUE, 0, 0, \
         decode(repeat(lpad(to_hex(n % {GATEWAYS} + 1), 2, '0'), 16), 'hex'), decode('01', 'hex') \
         FROM generate_series(1, {CALLS}) AS n"
    )
}

/// Reads every running call once: the count must show it.
async fn reads_are_counted(server: &Postgres, sheet: &mut Sheet) -> Result<()> {
    let before = number(server, ROWS).await?;
    server.ask(READ_ALL).await?;
    let read = number(server, ROWS).await? - before;
    sheet.at_least("rows that are counted where all are read once", read, CALLS.into());
    Ok(())
}

/// Ends the lease of one gateway: what it leaves must be found.
async fn orphans_are_found(server: &Postgres, sheet: &mut Sheet) -> Result<()> {
    let database = Database::connect(&server.url(), 1).await?;
    let store = database.calls(Budget::default(), CallQuotas::default());
    for number in 1..GATEWAYS {
        store.renew(owner(number), 60 * LEASE).await?;
    }
    store.retire(owner(GATEWAYS)).await?;
    let orphans = store.orphans(LOOKS).await?;
    ensure!(
        orphans.iter().all(|orphan| orphan.owner == owner(GATEWAYS)),
        "calls of living gateways are orphans"
    );
    sheet.at_least("orphans that are found where a gateway is gone", orphans.len() as f64, LOOKS.into());
    database.close().await;
    Ok(())
}

/// The one number that a statement comes to.
async fn number(server: &Postgres, statement: &str) -> Result<f64> {
    Ok(server.ask(statement).await?.parse()?)
}
