//! The gateway's durable store on SQLite: the ledger of mutating calls, the audit log of all calls, and what
//! running ones have saved.
//!
//! Owns one file of its own, so that calls never wait for the control plane's writer. Several processes of
//! one machine may share the file. Keeps true: what `complete` and `append` acknowledged survives a crash
//! and a power loss (I-6).

mod active;
mod audit;
mod ledger;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqlSafeStr, SqlitePool};
use tokio::sync::Notify;

pub use audit::{AuditError, AuditLog, CallEvent, MemoryAudit};

const MAX_CONNECTIONS: u32 = 4;
/// Shorter than gateways wait for a statement (`call/active.rs`): one that they gave up must not be done later.
const BUSY_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long events of calls are kept.
const KEEP_EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a claim whose holder died is remembered: as long as an answer would be.
const KEEP_ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// The migrations, oldest first. A published one is never edited.
const MIGRATIONS: [(i64, &str, &str); 4] = [
    (1, "calls", include_str!("../migrations/calls/0001_calls.sql")),
    (2, "active", include_str!("../migrations/calls/0002_active.sql")),
    (3, "owners", include_str!("../migrations/calls/0003_owners.sql")),
    (4, "holders", include_str!("../migrations/calls/0004_holders.sql")),
];

/// The file could not be opened or brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("calls store: {0}")]
pub struct OpenError(String);

/// Ledger, audit log and active calls in one SQLite file.
pub struct SqliteCalls {
    pool: SqlitePool,
    /// Wakes waiters of this process when one of its claims ends; others poll.
    ended: Notify,
}

impl SqliteCalls {
    /// Opens or creates the file.
    pub async fn open(path: &Path) -> Result<SqliteCalls, OpenError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await
            .map_err(|e| OpenError(e.to_string()))?;
        let migrations = MIGRATIONS
            .iter()
            .map(|(version, name, sql)| {
                Migration::new(*version, (*name).into(), MigrationType::Simple, (*sql).into_sql_str(), false)
            })
            .collect();
        Migrator::with_migrations(migrations)
            .run(&pool)
            .await
            .map_err(|e| OpenError(format!("migrate: {e}")))?;
        Ok(SqliteCalls { pool, ended: Notify::new() })
    }

    /// Deletes what is past its retention; run from time to time.
    pub async fn sweep(&self) -> Result<(), OpenError> {
        let now = now_ms();
        sqlx::query("DELETE FROM ledger WHERE (state = 1 AND expires_ms < $1) OR expires_ms < $2")
            .bind(now)
            .bind(now - milliseconds(KEEP_ABANDONED))
            .execute(&self.pool)
            .await
            .map_err(|e| OpenError(e.to_string()))?;
        sqlx::query("DELETE FROM active_calls WHERE expires_ms < $1")
            .bind(now)
            .execute(&self.pool)
            .await
            .map_err(|e| OpenError(e.to_string()))?;
        // An owner without a lease owns nothing it needs to know of: what it left was taken or has ended.
        sqlx::query("DELETE FROM active_owners WHERE lease_ms < $1")
            .bind(now - milliseconds(KEEP_ABANDONED))
            .execute(&self.pool)
            .await
            .map_err(|e| OpenError(e.to_string()))?;
        sqlx::query("DELETE FROM call_events WHERE at_ms < $1")
            .bind(now - milliseconds(KEEP_EVENTS))
            .execute(&self.pool)
            .await
            .map_err(|e| OpenError(e.to_string()))?;
        Ok(())
    }
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
