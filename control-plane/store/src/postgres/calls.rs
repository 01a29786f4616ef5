//! Ledger and records of calls on PostgreSQL (`calls/`), and the leases of the gateways.
//!
//! Keeps true: a lease is judged by the database's clock while its row is locked, so that a gateway whose renewal
//! reports that the lease had held has lost no record, regardless of other gateways' clocks; leases have connections of
//! their own, so that no load delays a renewal; a gateway whose own lease has just lapsed takes over nothing; one
//! process sweeps at a time.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::task::TaskTracker;

use super::{has_turn, within};
use crate::calls::{CONTINUED, CallStatement, CallsDatabase, PAST, delete_past, steady};
use crate::clock::milliseconds;
use crate::columns::Columns;
use crate::ledger::Budget;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::ledger::waiters::Waiters;
use crate::records::{CallId, CallQuotas, Lease, MAX_LEASE, OwnerId, RecordKey};

/// Time after the start of a sweep in which no other process sweeps.
const TURN: Duration = Duration::from_secs(60);
/// Deletion of owners without a lease, whose calls were taken over or have ended. See [`PAST`].
const PAST_LEASES: (&str, Duration) = (
    "DELETE FROM gateways WHERE owner IN (SELECT owner FROM gateways \
     WHERE lease_ms < now_ms() - $2 AND since_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
    KEEP_ABANDONED,
);
/// Shortens leases that end more than $1 ms from now.
const SHORTEN_LEASES: &str = "UPDATE gateways SET lease_ms = now_ms() + $1 WHERE lease_ms > now_ms() + $1";
/// Distinguishes the locks of transactions that count from others of the database.
const COUNT_LOCK: i64 = 0x63_6e_74;
/// The current time. Unlike the start of the statement, it is right after a wait for a lock.
const CLOCK: &str = "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// Ledger and records of calls; leases and published keys of gateways.
pub struct PostgresCalls {
    pub(super) pool: PgPool,
    pub(super) leases: PgPool,
    /// Calls of this process that wait for a key.
    pub(super) waiters: Waiters,
    pub(super) budget: Budget,
    /// Limits of the records of ended calls.
    pub(super) bounds: CallQuotas,
    pub(super) longest: Duration,
    /// Running deletions of records beyond the limits.
    pub(super) making_room: TaskTracker,
}

impl PostgresCalls {
    /// Deletes expired rows, a few at a time, unless another process does; run periodically. Skips locked rows, so that
    /// it waits for no other deletion, and deletes nothing that a gateway with a lease runs.
    pub async fn sweep(&self) -> sqlx::Result<()> {
        if !self.in_time(has_turn(&self.pool, "calls", TURN)).await? {
            return Ok(());
        }
        self.execute(CallStatement::new(SHORTEN_LEASES).bind(MAX_LEASE)).await?;
        delete_past(self, &PAST).await?;
        delete_past(self, &[PAST_LEASES]).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        within(self.longest, answer).await
    }

    /// Returns the connections for a statement.
    fn pool_for(&self, statement: &CallStatement) -> &PgPool {
        if statement.judges_leases { &self.leases } else { &self.pool }
    }
}

impl CallsDatabase for PostgresCalls {
    type Row = PgRow;

    /// Reads one index entry per owner, and more only for owners whose lease has expired. The owner is compared as a
    /// range: with an equality PostgreSQL may instead read all records in the order of their expiry and filter them.
    const ORPHANS: &'static str = "WITH RECURSIVE owners AS (\
        (SELECT owner FROM call_records WHERE owner IS NOT NULL AND resumable ORDER BY owner LIMIT 1) \
        UNION ALL SELECT (SELECT r.owner FROM call_records r WHERE r.owner > o.owner AND r.resumable \
        ORDER BY r.owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL), \
        gone AS MATERIALIZED (SELECT o.owner FROM owners o WHERE o.owner IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.owner = o.owner AND g.lease_ms > now_ms())) \
        SELECT r.call_id, g.owner FROM gone g CROSS JOIN LATERAL \
        (SELECT r.call_id, r.expires_ms FROM call_records r WHERE r.owner >= g.owner AND r.owner <= g.owner AND r.resumable \
        AND r.expires_ms > now_ms() ORDER BY r.owner, r.expires_ms LIMIT $1) r \
        ORDER BY r.expires_ms LIMIT $1";
    const CLOCK: &'static str = CLOCK;
    const SWEEP_ROWS: i64 = super::SWEEP_ROWS;

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn budget(&self) -> Budget {
        self.budget
    }

    fn quotas(&self) -> CallQuotas {
        self.bounds
    }

    async fn execute(&self, statement: CallStatement) -> sqlx::Result<u64> {
        let pool = self.pool_for(&statement);
        Ok(self.in_time(statement.postgres().execute(pool)).await?.rows_affected())
    }

    async fn execute_in_turn(
        &self,
        lock: Option<&str>,
        statements: Vec<CallStatement>,
    ) -> sqlx::Result<usize> {
        self.in_time(Box::pin(async {
            let mut transaction = self.pool.begin().await?;
            if let Some(lock) = lock {
                // A statement of its own: the next one sees what the former holder of the lock has committed.
                let locking = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))");
                locking.bind(lock.to_owned()).bind(COUNT_LOCK).execute(&mut *transaction).await?;
            }
            let mut changed = 0;
            for statement in statements {
                if statement.postgres().execute(&mut *transaction).await?.rows_affected() == 0 {
                    break;
                }
                changed += 1;
            }
            transaction.commit().await?;
            Ok(changed)
        }))
        .await
    }

    async fn rows(&self, statement: CallStatement) -> sqlx::Result<Vec<PgRow>> {
        let pool = self.pool_for(&statement);
        self.in_time(statement.postgres().fetch_all(pool)).await
    }

    async fn renew_lease(&self, owner: OwnerId, lease: Duration) -> sqlx::Result<Lease> {
        // A process that takes over a record of this owner holds the row until it has it. The row is locked before the
        // values are computed, so they are as of a time after that.
        let statement = format!(
            "INSERT INTO gateways AS g (owner, lease_ms, since_ms, held) VALUES ($1, {CLOCK} + $2, {CLOCK}, TRUE) \
             ON CONFLICT (owner) DO UPDATE SET lease_ms = {CLOCK} + $2, held = g.lease_ms > {CLOCK}, \
             since_ms = CASE WHEN g.lease_ms > {CLOCK} THEN LEAST(g.since_ms, {CLOCK}) ELSE {CLOCK} END \
             WHERE g.lease_ms > 0 RETURNING g.held"
        );
        let renewed = sqlx::query_scalar(AssertSqlSafe(statement))
            .bind(owner.0.to_vec())
            .bind(milliseconds(lease))
            .fetch_optional(&self.leases);
        let held: Option<bool> = self.in_time(renewed).await?;
        Ok(if held == Some(true) { Lease::Held } else { Lease::Lapsed })
    }

    async fn end_lease(&self, owner: OwnerId) -> sqlx::Result<()> {
        let statement =
            format!("UPDATE gateways SET lease_ms = 0, since_ms = {CLOCK}, held = FALSE WHERE owner = $1");
        self.execute(CallStatement::new(statement).bind(owner.0).judging_leases()).await?;
        Ok(())
    }

    /// A single statement, so that a process that freezes holds no lock. A renewal in progress finishes first, and the
    /// next one waits until this has ended.
    fn of_orphan(sets: &str) -> String {
        format!(
            "WITH former AS MATERIALIZED (SELECT lease_ms FROM gateways WHERE owner = $3 FOR SHARE), \
             lapsed AS (SELECT COALESCE(MAX(lease_ms), 0) AS lease_ms FROM former) \
             UPDATE call_records AS r SET {sets} FROM lapsed WHERE r.call_id = $2 AND r.owner = $3 \
             AND r.resumable AND lapsed.lease_ms <= {CLOCK} AND (lapsed.lease_ms = 0 OR {})",
            steady("$1")
        )
    }

    async fn find_owners(&self, calls: &[CallId]) -> sqlx::Result<Vec<(CallId, Option<OwnerId>)>> {
        let ids: Vec<Vec<u8>> = calls.iter().map(|call| call.to_vec()).collect();
        let found = sqlx::query("SELECT call_id, owner FROM call_records WHERE call_id = ANY($1)").bind(ids);
        let rows = self.in_time(found.fetch_all(&self.leases)).await?;
        let owner = |row: &PgRow| Ok((row.id("call_id")?, row.optional_id("owner")?.map(OwnerId)));
        rows.iter().map(owner).collect()
    }

    async fn find_continued(&self, calls: &[CallId]) -> sqlx::Result<Vec<CallId>> {
        let ids: Vec<Vec<u8>> = calls.iter().map(|call| call.to_vec()).collect();
        let find = format!("SELECT r.call_id FROM call_records r WHERE r.call_id = ANY($1) AND {CONTINUED}");
        let found = sqlx::query(AssertSqlSafe(find)).bind(ids);
        let rows = self.in_time(found.fetch_all(&self.leases)).await?;
        rows.iter().map(|row| row.id("call_id")).collect()
    }

    fn make_room(&self, key: &RecordKey) {
        self.make_room_later(key);
    }

    async fn room_made(&self) {
        self.making_room.close();
        self.making_room.wait().await;
        self.making_room.reopen();
    }

    async fn publish_key(&self, past: CallStatement, key: CallStatement) -> sqlx::Result<bool> {
        let mut transaction = self.pool.begin().await?;
        // Gateways publish every half hour; that they wait for each other makes the counts of the insertion exact.
        let alone = sqlx::query("LOCK TABLE token_keys IN SHARE ROW EXCLUSIVE MODE");
        alone.execute(&mut *transaction).await?;
        past.postgres().execute(&mut *transaction).await?;
        let published = key.postgres().execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(published.rows_affected() == 1)
    }

    async fn execute_on_keys(&self, statement: CallStatement) -> sqlx::Result<u64> {
        self.execute(statement).await
    }

    async fn key_rows(&self, statement: CallStatement) -> sqlx::Result<Vec<PgRow>> {
        self.rows(statement).await
    }
}
