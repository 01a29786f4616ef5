//! The control store on SQL: one SQLite file (WAL) or memory for a single machine, PostgreSQL for several.
//!
//! Owns the shape of a write (`Write`); `sqlite/control.rs` and `postgres.rs` open the connections. The statements are
//! portable: `$n` parameters, TEXT and BIGINT, milliseconds, no functions of one database except for its time. Keeps
//! true: writes of this process run in the order of a queue and wait there without a connection; each sees the result of
//! the previous one (`write`), and on SQLite a read lock is never upgraded, which would fail as "busy"; values read
//! together are consistent.

/// Reads a record from a row: each field from the column of its name, or of the name given for it.
macro_rules! record {
    (@ $field:ident) => {
        stringify!($field)
    };
    (@ $field:ident $column:literal) => {
        $column
    };
    ($row:expr, $record:ident { $($field:ident $(: $column:literal)?),+ $(,)? }) => {
        Ok($record { $($field: rows::get($row, record!(@ $field $($column)?))?),+ })
    };
}

mod audit;
mod bounds;
mod certificates;
mod changes;
mod detail;
mod events;
mod forms;
mod issuers;
mod link_endings;
mod machines;
mod offers;
mod orgs;
mod placement;
mod policy;
mod primitives;
mod revocations;
mod rows;
mod servers;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sqlx::{Any, AnyConnection, AnyPool, Executor, Row, Transaction};
use tokio::time::timeout;

use crate::control::{Position, Result, StoreError};
use crate::database_error::has_code;
use write::{Write, WriteQueue};

/// Starts a write. On SQLite it waits for the file's lock, and holds it from the start.
const WRITE: &str = "BEGIN IMMEDIATE";
const WRITE_OF_POSTGRES: &str = "BEGIN";
/// Concurrent writes of this process per rank if several machines write: if the connection of one hangs, the other
/// continues, and half of the connections are left for reads.
const WRITES_OF_POSTGRES: usize = 2;
/// Starts a transaction that reads a consistent snapshot.
const SNAPSHOT: &str = "BEGIN";
const SNAPSHOT_OF_POSTGRES: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A transaction on either kind of database.
type Tx = Transaction<'static, Any>;

/// The control plane's store on a SQL database. Every write is atomic, audited and increments the revision by one, unless
/// it changes nothing.
pub struct ControlStore {
    pool: AnyPool,
    /// Pool for the data that is published.
    publishing: AnyPool,
    /// Pool for revocations, so that they do not wait for a connection of another write.
    revoking: AnyPool,
    /// Queue of revocations; the same as that of other writes if only one write runs at a time.
    revokers: Arc<WriteQueue>,
    writers: Arc<WriteQueue>,
    writing: &'static str,
    snapshot: &'static str,
    /// Number of events of topics that this process may record before it counts them again.
    event_room: AtomicUsize,
    /// Timeouts of operations; `None` for a file, which always answers.
    timeouts: Option<OperationTimeouts>,
    /// Keeps an in-memory database alive, which ends with its last connection: the pool closes a connection whose
    /// statement was cancelled.
    _holder: Option<Mutex<AnyConnection>>,
}

/// Timeouts of operations in this process. They exceed the database's own and end the wait for a database that vanished
/// without closing its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationTimeouts {
    /// Poll for a new revision.
    pub poll: Duration,
    pub operation: Duration,
}

/// Connection pools of a database that several machines share.
pub(crate) struct Pools {
    pub all_else: AnyPool,
    pub publishing: AnyPool,
    pub revoking: AnyPool,
}

impl ControlStore {
    /// Creates the store on a SQLite database whose schema is up to date. `holder` keeps a database in memory alive.
    pub(crate) fn of_sqlite(pool: AnyPool, holder: Option<AnyConnection>) -> ControlStore {
        let writers = WriteQueue::new(1);
        ControlStore {
            publishing: pool.clone(),
            revoking: pool.clone(),
            pool,
            revokers: Arc::clone(&writers),
            writers,
            writing: WRITE,
            snapshot: SNAPSHOT,
            event_room: AtomicUsize::new(0),
            timeouts: None,
            _holder: holder.map(Mutex::new),
        }
    }

    /// Creates the store on a PostgreSQL database whose schema is up to date.
    pub(crate) fn of_postgres(pools: Pools, timeouts: OperationTimeouts) -> ControlStore {
        let Pools { all_else, publishing, revoking } = pools;
        ControlStore {
            pool: all_else,
            publishing,
            revoking,
            revokers: WriteQueue::new(WRITES_OF_POSTGRES),
            writers: WriteQueue::new(WRITES_OF_POSTGRES),
            writing: WRITE_OF_POSTGRES,
            snapshot: SNAPSHOT_OF_POSTGRES,
            event_room: AtomicUsize::new(0),
            timeouts: Some(timeouts),
            _holder: None,
        }
    }

    /// Runs an operation; fails if the database does not answer in time.
    fn within<'a, T: Send + 'a>(
        &self,
        operation: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        answered(self.timeouts.map(|timeouts| timeouts.operation), operation)
    }

    /// Starts a transaction in which all reads are consistent.
    async fn snapshot(&self) -> Result<Tx> {
        Ok(self.pool.begin_with(self.snapshot).await?)
    }

    /// Starts such a transaction and reads a resource's revision; 0 if it never had an entry.
    async fn snapshot_of(&self, resource: &str) -> Result<(Tx, u64)> {
        let mut tx = self.snapshot().await?;
        let revision = resource_revision(&mut tx, resource).await?.unwrap_or(0);
        Ok((tx, revision))
    }

    /// Starts such a transaction for the data that is published.
    async fn published_snapshot(&self) -> Result<Tx> {
        Ok(self.publishing.begin_with(self.snapshot).await?)
    }

    /// Returns `at`, or the database's time if that is earlier: the clock of one of several machines may be ahead, and
    /// must not end what is valid for the others.
    async fn not_after_database(&self, at: u64) -> Result<u64> {
        if self.timeouts.is_none() {
            // A file has the clock of this machine.
            return Ok(at);
        }
        let row = sqlx::query("SELECT now_ms() AS now").fetch_one(&self.pool).await?;
        Ok(at.min(rows::get(&row, "now")?))
    }

    /// Closes the pools after pending writes.
    pub async fn close(&self) {
        self.publishing.close().await;
        self.revoking.close().await;
        self.pool.close().await;
    }
}

/// Waits for an operation. Boxed, because operations are large and their callers keep them.
fn answered<'a, T: Send + 'a>(
    longest: Option<Duration>,
    operation: impl Future<Output = Result<T>> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    Box::pin(async move {
        let Some(longest) = longest else { return operation.await };
        timeout(longest, operation).await.unwrap_or_else(|_| {
            let why = format!("the database does not answer within {} s", longest.as_secs());
            Err(StoreError::Backend(why))
        })
    })
}

/// Returns the current revision and its stamp.
async fn position<'e>(executor: impl Executor<'e, Database = Any>) -> Result<Position> {
    let row = sqlx::query("SELECT revision, stamp FROM control_revision WHERE id = 1").fetch_one(executor);
    let row = row.await?;
    record!(&row, Position { revision, stamp })
}

async fn resource_revision(tx: &mut Tx, resource: &str) -> Result<Option<u64>> {
    let row = query!("SELECT revision FROM resources WHERE name = $1", resource);
    row.fetch_optional(&mut **tx).await?.map(|row| rows::get(&row, "revision")).transpose()
}

async fn count(tx: &mut Tx, sql: &'static str, key: &str) -> Result<usize> {
    let row = sqlx::query(sql).bind(key).fetch_one(&mut **tx).await?;
    let count: i64 = row.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Fails if the statement counts as many rows of the key as may be stored.
async fn check_bound(
    tx: &mut Tx,
    (sql, key): (&'static str, &str),
    what: &'static str,
    bound: usize,
) -> Result<()> {
    if count(tx, sql, key).await? >= bound { Err(StoreError::Full { what, bound }) } else { Ok(()) }
}

/// Error codes for a conflict with others. SQLite: another process has the file (SQLITE_BUSY and SQLITE_LOCKED with
/// their extended codes). PostgreSQL: lock timeout, statement or transaction timeout, and no free connection.
const BUSY: [&str; 10] = ["5", "6", "261", "262", "517", "773", "55P03", "57014", "25P03", "53300"];
/// Error codes of PostgreSQL for a transaction that was aborted because of another one: `deadlock_detected` and
/// `serialization_failure`.
const ABORTED: [&str; 2] = ["40P01", "40001"];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        let text = error.to_string();
        if has_code(&error, &ABORTED) {
            StoreError::Aborted(text)
        } else if has_code(&error, &BUSY) || matches!(error, sqlx::Error::PoolTimedOut) {
            StoreError::Busy(text)
        } else {
            StoreError::Backend(text)
        }
    }
}

#[cfg(test)]
mod tests;
