//! How every SQLite file of the gateway is opened: write-ahead log, owner only, brought up to date.

use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};

use crate::migrations::{self, Schema};
use crate::private;

/// How long SQLite waits for another process's write. Shorter than gateways wait for a statement
/// (`durable/active.rs`), so that few are done after they were given up; gateways reckon with those.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(1500);
/// The same where no call waits for a statement and none is given up: SQLite's lock is not fair, and another process
/// that writes all the time may keep it for seconds.
pub(crate) const PATIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a statement waits for its connection: writes queue for the one writer, and under full load the queue
/// is as long as there are calls.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// What stays of a write-ahead log after a checkpoint, in bytes: a burst does not cost the disk for ever.
const MAX_LOG: &str = "67108864";

/// One file.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub path: &'a Path,
    pub synchronous: SqliteSynchronous,
    /// Whether a new file gives space back ([`SqliteAutoVacuum::Incremental`]).
    pub shrinks: bool,
    /// How long a statement waits for another process's write.
    pub busy_timeout: Duration,
}

impl Opening<'_> {
    /// Makes the file where there is none.
    pub(crate) fn options(&self) -> Result<SqliteConnectOptions, OpenError> {
        private::database(self.path)
            .map_err(|e| OpenError(format!("make {} private: {e}", self.path.display())))?;
        let options = SqliteConnectOptions::new()
            .filename(self.path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(self.synchronous)
            .pragma("journal_size_limit", MAX_LOG)
            .busy_timeout(self.busy_timeout);
        // Decided by the first page: for a file that has one it changes nothing.
        Ok(if self.shrinks { options.auto_vacuum(SqliteAutoVacuum::Incremental) } else { options })
    }

    /// Connections that stay open.
    pub(crate) fn pool(&self, connections: u32) -> SqlitePoolOptions {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(QUEUE_TIMEOUT + self.busy_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
    }
}

/// Brings a file's schema up to date.
pub(crate) async fn migrate(pool: &SqlitePool, schema: &Schema) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await?;
    let migrated = migrations::bring_up_to_date(&mut *connection, &[schema]).await;
    migrated.map_err(|e| OpenError(e.to_string()))
}

/// The file could not be opened or brought up to date.
#[derive(Debug, thiserror::Error)]
#[error("calls store: {0}")]
pub struct OpenError(String);

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> OpenError {
        OpenError(error.to_string())
    }
}
