//! Opening of the gateway's SQLite files: write-ahead log, accessible to their owner only, brought up to date.

use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection, Database, SqlitePool};

use crate::migrations::{self, Schema};
use crate::private;

/// Timeout of SQLite for another process's write. Shorter than the gateway's timeout of a statement
/// (`durable/active.rs`), so that few statements complete after the gateway gave up on them; gateways tolerate those.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(1500);
/// The same timeout if no call waits for a statement and none is given up: SQLite's lock is not fair, and a process
/// that writes all the time may keep it for seconds.
pub(super) const PATIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a statement for its connection: writes queue for the only writer, and under full load the queue is as
/// long as the number of calls.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the write-ahead log after a checkpoint, in bytes, so that a burst does not occupy the disk for ever.
const MAX_LOG: &str = "67108864";

/// Settings with which a file is opened.
#[derive(Clone, Copy)]
pub(super) struct FileSettings<'a> {
    pub path: &'a Path,
    pub synchronous: SqliteSynchronous,
    /// Whether a new file returns free pages to the disk ([`SqliteAutoVacuum::Incremental`]).
    pub shrinks: bool,
    /// Timeout of a statement for another process's write.
    pub busy_timeout: Duration,
}

impl FileSettings<'_> {
    /// Returns the options of a connection; the file is created if needed.
    pub(super) fn options(&self) -> Result<SqliteConnectOptions, OpenError> {
        private::database(self.path)
            .map_err(|e| OpenError(format!("make {} private: {e}", self.path.display())))?;
        let options = SqliteConnectOptions::new()
            .filename(self.path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(self.synchronous)
            .pragma("journal_size_limit", MAX_LOG)
            .busy_timeout(self.busy_timeout);
        // Fixed by the first page; no effect on an existing file.
        Ok(if self.shrinks { options.auto_vacuum(SqliteAutoVacuum::Incremental) } else { options })
    }

    /// Returns the options of a pool whose connections stay open.
    pub(super) fn pool(&self, connections: u32) -> SqlitePoolOptions {
        replacing_stuck(SqlitePoolOptions::new())
            .max_connections(connections)
            .acquire_timeout(QUEUE_TIMEOUT + self.busy_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
    }
}

/// Makes a pool of SQLite connections replace those that can begin no transaction. On a full disk SQLite ends the
/// transaction by itself; the driver's rollback then fails, and the driver refuses every later transaction on that
/// connection, long after the disk has room again.
pub(super) fn replacing_stuck<DB: Database>(pool: PoolOptions<DB>) -> PoolOptions<DB> {
    pool.before_acquire(|connection, _| {
        let can_begin = !connection.is_in_transaction();
        Box::pin(async move { Ok(can_begin) })
    })
}

/// Brings a file's schema up to date.
pub(super) async fn migrate(pool: &SqlitePool, schema: &Schema) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await?;
    let migrated = migrations::bring_up_to_date(&mut *connection, &[schema]).await;
    migrated.map_err(|e| OpenError(e.to_string()))
}

/// Failure to open a file or to bring it up to date.
#[derive(Debug, thiserror::Error)]
#[error("calls store: {0}")]
pub struct OpenError(String);

from_failure!(sqlx::Error => OpenError);
