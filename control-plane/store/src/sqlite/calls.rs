//! The gateway's durable store on SQLite: the ledger of mutating calls, the records of calls, and the audit log of all
//! calls.
//!
//! Owns three files, because SQLite has one writer per file: `calls.db` (ledger and records), a second one for the
//! gateways' leases and published keys, and the audit log ([`super::SqliteAudit`]). Several processes of one machine may share
//! them. Keeps true: whatever `complete` and `append` acknowledged survives a crash and a power loss (I-6); a renewal
//! of a lease never queues behind other writes; no statement holds the writer of `calls.db` for longer than a few rows
//! take.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteSynchronous;

use super::OpenError;
use super::file::{self, FileSettings};
use super::leases::Leases;
use crate::clock::{milliseconds, now_ms};
use crate::ledger::Budget;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::ledger::waiters::Waiters;
use crate::migrations;
use crate::records::CallQuotas;
use crate::records::KEEP_PAST;

/// Read-only connections: replays, records of calls, waits for a key.
const READERS: u32 = 3;
/// Maximum rows that one statement of a sweep deletes; it holds the writer for a few milliseconds.
pub(super) const SWEEP_ROWS: i64 = 200;
/// Pause between two statements of a sweep, which leaves the writer to others.
const SWEEP_REST: Duration = Duration::from_millis(20);

/// Ledger and records of calls in one SQLite file, leases and published keys in another.
pub struct SqliteCalls {
    /// A single connection: writes of this process queue in order instead of failing as busy.
    pub(super) write: SqlitePool,
    pub(super) read: SqlitePool,
    pub(super) leases: Leases,
    /// Calls of this process that wait for a key.
    pub(super) waiters: Waiters,
    pub(super) budget: Budget,
    /// Limits of the records of ended calls.
    pub(super) bounds: CallQuotas,
}

impl SqliteCalls {
    /// Opens or creates the file of calls, and the file of leases next to it.
    pub async fn open(path: &Path) -> Result<SqliteCalls, OpenError> {
        SqliteCalls::open_with(path, Budget::default(), CallQuotas::default()).await
    }

    /// Opens the files like [`SqliteCalls::open`], with other limits of ledger and records.
    pub async fn open_with(
        path: &Path,
        budget: Budget,
        bounds: CallQuotas,
    ) -> Result<SqliteCalls, OpenError> {
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
        let write = leases.beside(opening.pool(1)).connect_with(opening.options()?).await?;
        let read = leases.beside(opening.pool(READERS)).connect_with(opening.options()?).await?;
        Ok(SqliteCalls { write, read, leases, waiters: Waiters::default(), budget, bounds })
    }

    /// Closes the files after the current writes.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
        self.leases.close().await;
    }

    /// Deletes expired rows, a few at a time; run periodically.
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
             AND (owner IS NULL OR owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > $1)) LIMIT $2)",
            now,
        )
        .await?;
        // Deletes records even of live owners that failed to store the end of a call.
        self.delete(
            "DELETE FROM active_calls WHERE call_id IN \
             (SELECT call_id FROM active_calls WHERE expires_ms < $1 LIMIT $2)",
            now - milliseconds(KEEP_PAST),
        )
        .await?;
        // An owner without a lease needs no row: its calls were taken over or have ended.
        self.leases.forget(abandoned).await
    }

    /// Repeats a deletion until it deletes fewer than [`SWEEP_ROWS`] rows.
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
