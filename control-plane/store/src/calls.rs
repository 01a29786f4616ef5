//! The gateway's durable store on SQLite: the ledger of mutating calls, the records of calls, and the audit log of all
//! calls.
//!
//! Owns three files, because SQLite has one writer a file: `calls.db` (ledger and records), beside it the
//! leases of the gateways with the keys that they publish, and the audit log ([`SqliteAudit`]). Several processes of one machine may share them.
//! Keeps true: what `complete` and `append` acknowledged survives a crash and a power loss (I-6); a lease is never
//! renewed behind anything else; nothing holds the writer of `calls.db` for longer than a statement on few rows.

pub(crate) mod file;
mod keys;
mod leases;
mod ledger;
mod records;
mod room;

use crate::clock::milliseconds;
use crate::clock::now_ms;
use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteSynchronous;

pub use file::OpenError;

use crate::ledger::Budget;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::ledger::waiters::Waiters;
use crate::migrations;
use crate::records::Bounds;
use crate::records::KEEP_PAST;
use file::Opening;
use leases::Leases;

/// Connections that only read: replays, records of calls, waits for a key.
const READERS: u32 = 3;
/// Most rows that one statement of a sweep deletes: it holds the writer for a few milliseconds.
const SWEEP_ROWS: i64 = 200;
/// How long a sweep leaves the writer to others between two statements.
const SWEEP_REST: Duration = Duration::from_millis(20);

/// Ledger and records of calls in one SQLite file, leases and published keys in another.
pub struct SqliteCalls {
    /// One connection: writes of this process queue in order instead of turning each other away.
    pub(crate) write: SqlitePool,
    pub(crate) read: SqlitePool,
    leases: Leases,
    /// Those of this process who wait for a key.
    waiters: Waiters,
    budget: Budget,
    /// Of the records of ended calls.
    bounds: Bounds,
}

impl SqliteCalls {
    /// Opens or creates the file, and the one of the leases beside it.
    pub async fn open(path: &Path) -> Result<SqliteCalls, OpenError> {
        SqliteCalls::open_with(path, Budget::default(), Bounds::default()).await
    }

    /// As [`SqliteCalls::open`], with other bounds of what the ledger and the records keep.
    pub async fn open_with(path: &Path, budget: Budget, bounds: Bounds) -> Result<SqliteCalls, OpenError> {
        let leases = Leases::open(path).await?;
        let opening = Opening {
            path,
            synchronous: SqliteSynchronous::Full,
            shrinks: false,
            busy_timeout: file::BUSY_TIMEOUT,
        };
        let plain = opening.pool(1).connect_with(opening.options()?).await?;
        file::migrate(&plain, &migrations::CALLS).await?;
        plain.close().await;
        let write = leases.beside(opening.pool(1)).connect_with(opening.options()?).await?;
        let read = leases.beside(opening.pool(READERS)).connect_with(opening.options()?).await?;
        Ok(SqliteCalls { write, read, leases, waiters: Waiters::default(), budget, bounds })
    }

    /// Closes the files; writes under way finish first.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
        self.leases.close().await;
    }

    /// Deletes what is past its retention, few rows at a time; run from time to time.
    pub async fn sweep(&self) -> Result<(), OpenError> {
        let now = now_ms();
        let abandoned = now - milliseconds(KEEP_ABANDONED);
        self.delete(
            "DELETE FROM ledger WHERE claim_key IN \
             (SELECT claim_key FROM ledger WHERE expires_ms < $1 AND state = 1 LIMIT $2)",
            now,
        )
        .await?;
        self.delete(
            "DELETE FROM ledger WHERE claim_key IN \
             (SELECT claim_key FROM ledger WHERE expires_ms < $1 LIMIT $2)",
            abandoned,
        )
        .await?;
        self.delete(
            "DELETE FROM active_calls WHERE call_id IN \
             (SELECT call_id FROM active_calls WHERE expires_ms < $1 \
             AND (owner IS NULL OR owner NOT IN (SELECT owner FROM living WHERE lease_ms > $1)) LIMIT $2)",
            now,
        )
        .await?;
        // Whatever kept the gateway that ran it from storing its end.
        self.delete(
            "DELETE FROM active_calls WHERE call_id IN \
             (SELECT call_id FROM active_calls WHERE expires_ms < $1 LIMIT $2)",
            now - milliseconds(KEEP_PAST),
        )
        .await?;
        // An owner without a lease owns nothing it needs to know of: what it left was taken or has ended.
        self.delete(
            "DELETE FROM active_owners WHERE owner IN \
             (SELECT owner FROM active_owners WHERE lease_ms < $1 LIMIT $2)",
            abandoned,
        )
        .await?;
        self.leases.forget(abandoned).await
    }

    /// Runs a deletion of few rows until it finds fewer.
    async fn delete(&self, statement: &'static str, before: i64) -> Result<(), OpenError> {
        loop {
            let deleted = sqlx::query(statement).bind(before).bind(SWEEP_ROWS);
            let deleted = deleted.execute(&self.write).await?;
            if deleted.rows_affected() < SWEEP_ROWS.unsigned_abs() {
                return Ok(());
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
    }
}
