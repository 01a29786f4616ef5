//! The control store on SQL: one SQLite file (WAL) or memory for a single machine, PostgreSQL for several.
//!
//! Owns the connections and the shape of a write (`Write`). The statements are portable: `$n`
//! parameters, TEXT and BIGINT, milliseconds, no functions of one database.
//! Keeps true: writes of this process have their turns one after the other (`queue`) and wait for those without a
//! connection; each sees what the one before it wrote (`write`), and on SQLite a read lock is never upgraded (which
//! is refused with "busy"); what is read together is one picture.

mod audit;
mod bounds;
mod certificates;
mod changes;
mod detail;
mod forms;
mod issuers;
mod machines;
mod offers;
mod placement;
mod policy;
mod port;
mod primitives;
mod queue;
mod revocations;
mod rows;
mod servers;
mod write;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Executor, Row, Transaction};
use tokio::time::timeout;

use crate::control::{Change, StoreError, Written};
use crate::migrations;
use crate::private;
use queue::WriteQueue;
use write::Write;

/// Reads run beside the single writer; more connections only cost memory.
const MAX_CONNECTIONS: u32 = 4;
/// A file that survives a power loss: revocations and policy must (I-6). SQLite waits 5 s for another process's write,
/// longer than any takes.
const OF_A_FILE: [&str; 2] = ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"];
/// Begins a write. On SQLite it has the file's lock from the beginning, and waits for another process's.
const WRITE: &str = "BEGIN IMMEDIATE";
const WRITE_OF_POSTGRES: &str = "BEGIN";
/// Writes of this process at a time, of either rank, where several machines write: when the connection of one hangs, another
/// goes on, and half of the connections are left for reads.
const WRITES_OF_POSTGRES: usize = 2;
/// Attempts of a write of an org's policy. A control plane of the version before takes its locks in the other order, and then each
/// may wait for the other; one that is tried again waits before it has any.
const POLICY_ATTEMPTS: u32 = 4;
/// Begins a transaction that sees one picture of what is stored.
const SNAPSHOT: &str = "BEGIN";
const SNAPSHOT_OF_POSTGRES: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The control store on a SQL database.
pub struct SqlStore {
    pool: AnyPool,
    /// For what is published.
    publishing: AnyPool,
    /// For revocations, so that they wait for no other write's connection.
    revoking: AnyPool,
    /// The queue of revocations, which is that of the other writes where one writes at a time.
    revokers: Arc<WriteQueue>,
    writers: Arc<WriteQueue>,
    writing: &'static str,
    snapshot: &'static str,
    /// Time limits of operations; `None` for a file, which always answers.
    longest: Option<Longest>,
    /// Holds a database in memory, which ends with its last connection: the pool closes one whose statement was given up.
    _holder: Option<Mutex<AnyConnection>>,
}

/// Time limits of operations in this process. They exceed the database's own limits and end a wait for a database that is gone
/// without closing its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    /// The look whether there is something new.
    pub look: Duration,
    pub operation: Duration,
}

/// The connections to a database of several machines.
pub(crate) struct Pools {
    pub all_else: AnyPool,
    pub publishing: AnyPool,
    pub revoking: AnyPool,
}

impl SqlStore {
    /// Opens or creates the SQLite file and brings its schema up to date.
    pub async fn file(path: &Path) -> Result<SqlStore, StoreError> {
        let failed = |error: String| StoreError::Backend(format!("open {}: {error}", path.display()));
        private::database(path).map_err(|error| failed(format!("make it private: {error}")))?;
        let whole = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
        let url = SqliteConnectOptions::new().filename(whole).to_url_lossy();
        SqlStore::sqlite(AnyConnectOptions::from_url(&url)?, MAX_CONNECTIONS, &OF_A_FILE).await
    }

    /// A store that lives as long as the value.
    pub async fn in_memory() -> Result<SqlStore, StoreError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Connections see the same database by its name.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let url = format!("sqlite:file:asp-control-{number}?mode=memory");
        let options = AnyConnectOptions::from_str(&url)?;
        sqlx::any::install_default_drivers();
        let holder = AnyConnection::connect_with(&options).await?;
        // Two of them would lock each other's tables at once, without a wait.
        let store = SqlStore::sqlite(options, 1, &[]).await?;
        Ok(SqlStore { _holder: Some(Mutex::new(holder)), ..store })
    }

    /// The store in a PostgreSQL database whose schema is up to date.
    pub(crate) fn of_postgres(pools: Pools, longest: Longest) -> SqlStore {
        let Pools { all_else, publishing, revoking } = pools;
        SqlStore {
            pool: all_else,
            publishing,
            revoking,
            revokers: WriteQueue::new(WRITES_OF_POSTGRES),
            writers: WriteQueue::new(WRITES_OF_POSTGRES),
            writing: WRITE_OF_POSTGRES,
            snapshot: SNAPSHOT_OF_POSTGRES,
            longest: Some(longest),
            _holder: None,
        }
    }

    /// The result of an operation that is given up where the database does not answer.
    async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        answered(self.longest.map(|longest| longest.operation), operation).await
    }

    /// The result of a write of an org's policy, which is tried again where the database ended it because of another write.
    async fn policy_write<F>(&self, write: impl Fn() -> F) -> Result<Written, StoreError>
    where
        F: Future<Output = Result<Written, StoreError>>,
    {
        self.within(async {
            for _ in 1..POLICY_ATTEMPTS {
                match write().await {
                    Err(StoreError::Aborted(error)) => {
                        tracing::debug!(%error, "a policy write is tried again");
                    }
                    done => return done,
                }
            }
            write().await
        })
        .await
    }

    async fn sqlite(
        options: AnyConnectOptions,
        connections: u32,
        settings: &'static [&'static str],
    ) -> Result<SqlStore, StoreError> {
        sqlx::any::install_default_drivers();
        let pool = AnyPoolOptions::new()
            // No `min_connections`: the pool would open one beside the first, and of two that bring a new file into
            // WAL mode at once SQLite turns one away, whatever the busy timeout says. What is open stays open.
            .max_connections(connections)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    for setting in settings {
                        connection.execute(*setting).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(options)
            .await?;
        let mut connection = pool.acquire().await?;
        let migrated = migrations::bring_up_to_date(&mut *connection, &[&migrations::CONTROL]).await;
        migrated.map_err(|e| StoreError::Backend(e.to_string()))?;
        drop(connection);
        let (publishing, revoking) = (pool.clone(), pool.clone());
        let writers = WriteQueue::new(1);
        let revokers = Arc::clone(&writers);
        Ok(SqlStore {
            pool,
            publishing,
            revoking,
            revokers,
            writers,
            writing: WRITE,
            snapshot: SNAPSHOT,
            longest: None,
            _holder: None,
        })
    }

    async fn raise(&self, change: &Change, to: u64) -> Result<Written, StoreError> {
        let mut write = self.write(change, changes::REVISION.to_owned()).await?;
        if write.revision > to {
            return Ok(Written { revision: write.revision - 1, ..write.unchanged().await? });
        }
        let from = write.revision - 1;
        sqlx::query("UPDATE control_revision SET revision = $1 WHERE id = 1")
            .bind(rows::signed(to)?)
            .execute(&mut *write.tx)
            .await?;
        write.revision = to;
        write.commit("revision.raise", &format!("from {from}")).await
    }

    /// A transaction in which everything read is of one moment.
    async fn snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.pool.begin_with(self.snapshot).await?)
    }

    /// The same for what is published.
    async fn published_snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.publishing.begin_with(self.snapshot).await?)
    }

    /// Closes the pool; pending writes finish first.
    pub async fn close(&self) {
        self.publishing.close().await;
        self.revoking.close().await;
        self.pool.close().await;
    }
}

async fn answered<T>(
    longest: Option<Duration>,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(longest) = longest else { return operation.await };
    let late =
        |_| StoreError::Backend(format!("the database does not answer within {} s", longest.as_secs()));
    timeout(longest, operation).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

async fn resource_revision(
    tx: &mut Transaction<'static, Any>,
    resource: &str,
) -> Result<Option<u64>, StoreError> {
    let row = sqlx::query("SELECT revision FROM resources WHERE name = $1")
        .bind(resource)
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| rows::unsigned(&row, "revision")).transpose()
}

async fn count(
    tx: &mut Transaction<'static, Any>,
    sql: &'static str,
    key: &str,
) -> Result<usize, StoreError> {
    let row = sqlx::query(sql).bind(key).fetch_one(&mut **tx).await?;
    let count: i64 = row.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Codes of databases for others in the way: SQLite where another process has the file (SQLITE_BUSY and SQLITE_LOCKED with
/// their extended codes), PostgreSQL where a lock was not had in time, where a statement or a transaction was ended because it took
/// too long, and where it has no more connections.
const BUSY: [&str; 10] = ["5", "6", "261", "262", "517", "773", "55P03", "57014", "25P03", "53300"];
/// Codes of PostgreSQL for a transaction that it ended because of another one: `deadlock_detected` and `serialization_failure`.
const ABORTED: [&str; 2] = ["40P01", "40001"];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        let has_code = |codes: &[&str]| match &error {
            sqlx::Error::Database(said) => said.code().is_some_and(|code| codes.contains(&&*code)),
            _ => false,
        };
        let text = error.to_string();
        if has_code(&ABORTED) {
            StoreError::Aborted(text)
        } else if has_code(&BUSY) || matches!(error, sqlx::Error::PoolTimedOut) {
            StoreError::Busy(text)
        } else {
            StoreError::Backend(text)
        }
    }
}

#[cfg(test)]
mod tests;
