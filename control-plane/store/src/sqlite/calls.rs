//! The gateway's durable store on SQLite: the ledger of mutating calls and the records of calls (`calls/`).
//!
//! Owns two files, because SQLite has one writer per file: `calls.db` (ledger and records), and one for the gateways'
//! leases and published keys. Several processes of one machine may share them. Keeps true: whatever `complete`
//! acknowledged survives a crash and a power loss (I-6); a renewal of a lease never queues behind other writes; no
//! statement holds the writer of `calls.db` for longer than a few rows take.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteRow, SqliteSynchronous};

use super::file::{self, FileSettings};
use super::leases::Leases;
use super::quotas::ExcessDeletion;
use super::{Result, SWEEP_ROWS};
use crate::calls::{CONTINUED, CallStatement, CallsDatabase, PAST, delete_past, steady};
use crate::clock::{milliseconds, now_ms};
use crate::columns::Columns;
use crate::ledger::Budget;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::ledger::waiters::Waiters;
use crate::migrations;
use crate::records::{CallId, CallQuotas, Lease, OwnerId, RecordKey};

/// Read-only connections: replays, records of calls, waits for a key.
const READERS: u32 = 3;
/// Resumable records of owners without a lease. Reads one index entry per owner, and more only for owners whose lease
/// has expired. $1 is the limit.
const ORPHANS: &str = "WITH RECURSIVE owners (owner) AS (\
    SELECT MIN(owner) FROM call_records WHERE owner IS NOT NULL AND resumable = 1 \
    UNION ALL SELECT (SELECT MIN(a.owner) FROM call_records a WHERE a.owner > o.owner AND a.owner IS NOT NULL \
    AND a.resumable = 1) FROM owners o WHERE o.owner IS NOT NULL) \
    SELECT a.call_id, a.owner FROM owners o CROSS JOIN call_records a ON a.owner = o.owner \
    WHERE o.owner IS NOT NULL AND a.owner IS NOT NULL AND a.resumable = 1 AND a.expires_ms > now_ms() \
    AND o.owner NOT IN (SELECT owner FROM gateways WHERE lease_ms > now_ms()) ORDER BY a.expires_ms LIMIT $1";

/// Ledger and records of calls in one SQLite file, leases and published keys in another.
pub struct SqliteCalls {
    /// A single connection: writes of this process queue in order instead of failing as busy.
    write: SqlitePool,
    read: SqlitePool,
    leases: Leases,
    /// Calls of this process that wait for a key.
    waiters: Waiters,
    budget: Budget,
    /// Limits of the records of ended calls.
    bounds: CallQuotas,
    /// Deletion of records beyond them.
    excess: ExcessDeletion,
}

impl SqliteCalls {
    /// Opens or creates the file of calls, and the file of leases next to it.
    pub async fn open(path: &Path) -> Result<SqliteCalls> {
        SqliteCalls::open_with(path, Budget::default(), CallQuotas::default()).await
    }

    /// Opens the files like [`SqliteCalls::open`], with other limits of ledger and records.
    pub async fn open_with(path: &Path, budget: Budget, bounds: CallQuotas) -> Result<SqliteCalls> {
        let leases = Leases::open(path).await?;
        let opening = FileSettings {
            path,
            synchronous: SqliteSynchronous::Full,
            shrinks: false,
            busy_timeout: file::BUSY_TIMEOUT,
        };
        let plain = opening.pool(1).connect_with(opening.options()?).await?;
        file::migrate(&plain, &migrations::CALLS).await?;
        plain.close().await;
        let write = leases.attach_to(opening.pool(1)).connect_with(opening.options()?).await?;
        let read = leases.attach_to(opening.pool(READERS)).connect_with(opening.options()?).await?;
        let excess = ExcessDeletion::new(&read, &write, bounds);
        Ok(SqliteCalls { write, read, leases, waiters: Waiters::default(), budget, bounds, excess })
    }

    /// Closes the files after the current writes.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
        self.leases.close().await;
    }

    /// Deletes expired rows, a few at a time; run periodically.
    pub async fn sweep(&self) -> Result<()> {
        delete_past(self, &PAST).await?;
        // An owner without a lease needs no row: its calls were taken over or have ended.
        self.leases.forget(now_ms() - milliseconds(KEEP_ABANDONED)).await
    }
}

impl CallsDatabase for SqliteCalls {
    type Row = SqliteRow;

    const ORPHANS: &'static str = ORPHANS;
    const CLOCK: &'static str = "now_ms()";
    const SWEEP_ROWS: i64 = SWEEP_ROWS;

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
        Ok(statement.sqlite().execute(&self.write).await?.rows_affected())
    }

    async fn execute_in_turn(
        &self,
        _lock: Option<&str>,
        statements: Vec<CallStatement>,
    ) -> sqlx::Result<usize> {
        // One at a time in any case: it has the file's only writer from its start.
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        let mut changed = 0;
        for statement in statements {
            if statement.sqlite().execute(&mut *transaction).await?.rows_affected() == 0 {
                break;
            }
            changed += 1;
        }
        transaction.commit().await?;
        Ok(changed)
    }

    async fn rows(&self, statement: CallStatement) -> sqlx::Result<Vec<SqliteRow>> {
        statement.sqlite().fetch_all(&self.read).await
    }

    async fn renew_lease(&self, owner: OwnerId, lease: Duration) -> sqlx::Result<Lease> {
        let renewed = self.leases.renew(owner, lease).await?;
        if renewed == Lease::Lapsed {
            // A take-over that saw the lapsed lease is the current writer or was an earlier one. It has finished once
            // this write is done, which deletes nothing, so later reads see the rows that it took.
            self.execute(CallStatement::new("DELETE FROM call_records WHERE call_id = x''")).await?;
        }
        Ok(renewed)
    }

    async fn end_lease(&self, owner: OwnerId) -> sqlx::Result<()> {
        self.leases.retire(owner).await
    }

    fn of_orphan(sets: &str) -> String {
        format!(
            "UPDATE call_records AS r SET {sets} WHERE r.call_id = $2 AND r.owner = $3 AND r.resumable \
             AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > now_ms()) \
             AND (NOT EXISTS (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > 0) OR {})",
            steady("$1")
        )
    }

    async fn find_owners(&self, calls: &[CallId]) -> sqlx::Result<Vec<(CallId, Option<OwnerId>)>> {
        let mut owners = Vec::with_capacity(calls.len());
        for call in calls {
            let find = CallStatement::new("SELECT owner FROM call_records WHERE call_id = $1").bind(*call);
            for row in self.rows(find).await? {
                owners.push((*call, row.optional_id("owner")?.map(OwnerId)));
            }
        }
        Ok(owners)
    }

    async fn find_continued(&self, calls: &[CallId]) -> sqlx::Result<Vec<CallId>> {
        let mut continued = Vec::with_capacity(calls.len());
        for call in calls {
            let find = format!("SELECT r.call_id FROM call_records r WHERE r.call_id = $1 AND {CONTINUED}");
            let rows = self.rows(CallStatement::new(find).bind(*call)).await?;
            continued.extend(rows.first().map(|_| *call));
        }
        Ok(continued)
    }

    fn make_room(&self, key: &RecordKey) {
        self.excess.request(key);
    }

    async fn room_made(&self) {
        self.excess.done().await;
    }

    async fn publish_key(&self, past: CallStatement, key: CallStatement) -> sqlx::Result<bool> {
        self.execute_on_keys(past).await?;
        Ok(self.execute_on_keys(key).await? == 1)
    }

    async fn execute_on_keys(&self, statement: CallStatement) -> sqlx::Result<u64> {
        Ok(statement.sqlite().execute(self.leases.pool()).await?.rows_affected())
    }

    async fn key_rows(&self, statement: CallStatement) -> sqlx::Result<Vec<SqliteRow>> {
        statement.sqlite().fetch_all(self.leases.pool()).await
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::calls::QuotaHolder;
    use crate::push::{PushStore, ReceiverRow};
    use crate::records::{CallRecords, State, suite};

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn what_ends_often_is_looked_for_in_an_index_of_its_own_and_in_no_row() {
        let directory = tempfile::tempdir().unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let [user, org] = QuotaHolder::of(&suite::key(1), CallQuotas::default());
        for (statement, index) in [
            (CallStatement::new(ORPHANS).bind(1_u32), "active_calls_of_owner"),
            (user.deletion(1), "active_calls_ended_of_user"),
            (org.deletion(1), "active_calls_ended_of_org"),
        ] {
            // SQLite's query plan.
            let rows = calls.rows(statement.explained()).await.unwrap();
            let plan = rows.iter().map(|row| row.text("detail").unwrap()).collect::<Vec<_>>().join("\n");
            assert!(plan.contains(&format!(" USING COVERING INDEX {index} ")), "{plan}");
            assert!(!plan.contains(" USING INDEX active_calls"), "{plan}");
            assert!(!plan.contains("SCAN active_calls") && !plan.contains("SCAN a "), "{plan}");
        }
    }

    /// Every gateway looks often, and the file has one writer.
    #[tokio::test]
    async fn a_look_that_finds_no_delivery_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let writing = calls.write.begin_with("BEGIN IMMEDIATE").await.unwrap();
        assert_eq!(calls.claim_deliveries([1; 16], HOUR, 10).await.unwrap(), []);
        drop(writing);
    }

    /// A task may get a thousand states while its receiver is away, and each claim would read all of them.
    #[tokio::test]
    async fn what_follows_a_delivery_is_due_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let key = suite::key(1);
        let enter = async |state: State| {
            calls.put(&key, OwnerId([9; 16]), state, Bytes::from_static(b"r")).await.unwrap();
        };
        enter(State::Working).await;
        let config = "a".to_owned();
        let origin = "https://example.com".to_owned();
        let receiver = ReceiverRow { config, origin, sealed: Bytes::from_static(b"sealed") };
        calls.put_receiver(key.call, "acme", &receiver).await.unwrap();
        enter(State::InputRequired).await;
        let first = calls.claim_deliveries([1; 16], HOUR, 10).await.unwrap().pop().unwrap();
        assert!(calls.retry_delivery(&first, HOUR, "503").await.unwrap());
        enter(State::Working).await;
        enter(State::InputRequired).await;
        let times =
            CallStatement::new("SELECT due_ms, COUNT(*) AS all_of FROM push_deliveries GROUP BY due_ms");
        let times = calls.rows(times).await.unwrap();
        assert_eq!((times.len(), times[0].number("all_of").unwrap()), (1, 3));
        assert!(times[0].number("due_ms").unwrap() > now_ms() + milliseconds(HOUR) / 2);
    }
}
