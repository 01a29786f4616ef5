//! The [`AuditLog`] on a SQLite file of its own: nothing that a call waits for is written there.
//!
//! Keeps true: the file never needs more than its bound of bytes beyond one batch, because whoever appends removes the
//! oldest events first where it is full; what is removed by age goes in small batches; what is free for long goes back
//! to the disk.

mod previous_format;
pub(super) mod queue;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqliteSynchronous;
use sqlx::{QueryBuilder, Row, SqliteConnection, SqlitePool};

use super::{AuditError, AuditLog, AuditQuery, CallEvent, KEEP_EVENTS, MAX_PAGE, StoredEvent, stored};
use crate::calls::file::{self, Opening};
use crate::calls::{OpenError, SqliteCalls};
use crate::clock::{milliseconds, now_ms};
use crate::migrations;

/// Whoever reads the log does so beside the one who writes.
const READERS: u32 = 2;
/// Most rows that one statement adds; SQLite binds at most 32,766 values.
const INSERT_ROWS: usize = 1000;
/// Most rows that one statement of a sweep deletes.
const SWEEP_ROWS: i64 = 500;
/// Most pages that one statement gives back to the disk.
const SWEEP_PAGES: i64 = 256;
/// How long a sweep leaves the writer to appends between two statements.
const SWEEP_REST: Duration = Duration::from_millis(10);
/// Of the bound, how much of the file may lie free for the events to come.
const FREE_SHARE: i64 = 8;
/// The number of the log's next own event, which begin at 1: where only those of the previous format are, SQLite would
/// count on below zero.
const NEXT: &str = "(SELECT MAX(COALESCE(MAX(seq), 0), 0) + 1 FROM events)";

/// The audit log in one SQLite file.
pub struct SqliteAudit {
    /// One connection, as in [`SqliteCalls`].
    write: SqlitePool,
    read: SqlitePool,
    max_bytes: i64,
}

/// What the file needs and what lies free in it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    used: i64,
    free: i64,
}

impl SqliteAudit {
    /// Opens or creates the file, whose events may need at most `max_bytes`.
    pub async fn open(path: &Path, max_bytes: u64) -> Result<SqliteAudit, OpenError> {
        let opening = Opening {
            path,
            synchronous: SqliteSynchronous::Full,
            shrinks: true,
            busy_timeout: file::PATIENT_TIMEOUT,
        };
        let write = opening.pool(1).connect_with(opening.options()?).await?;
        file::migrate(&write, &migrations::AUDIT).await?;
        let read = opening.pool(READERS).connect_with(opening.options()?).await?;
        Ok(SqliteAudit { write, read, max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX) })
    }

    /// Closes the file; appends under way finish first.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }

    /// Brings the events that an earlier version kept beside the ledger, few at a time, and returns how many.
    pub async fn take_over(&self, calls: &SqliteCalls) -> Result<usize, OpenError> {
        previous_format::take_over(calls, &self.write, self.max_bytes).await
    }

    /// Deletes what is past its retention or beyond the bound, and gives back what is free; run from time to time.
    pub async fn sweep(&self) -> Result<(), OpenError> {
        let oldest = now_ms() - milliseconds(KEEP_EVENTS);
        loop {
            let mut connection = self.write.acquire().await?;
            let over = size(&mut connection).await?.used > self.max_bytes;
            let before = if over { i64::MAX } else { oldest };
            // The log is in the order of time but for clocks that were set: an old event behind a newer one waits.
            let deleted = sqlx::query(
                "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT $1) AND at_ms < $2",
            )
            .bind(SWEEP_ROWS)
            .bind(before)
            .execute(&mut *connection)
            .await?;
            drop(connection);
            if deleted.rows_affected() == 0 {
                break;
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
        self.shrink().await
    }

    /// Gives back to the disk what is free beyond a share of the bound.
    async fn shrink(&self) -> Result<(), OpenError> {
        let mut before = i64::MAX;
        loop {
            let mut connection = self.write.acquire().await?;
            let free = size(&mut connection).await?.free;
            // A file of another mode gives nothing back.
            if free <= self.max_bytes / FREE_SHARE || free >= before {
                return Ok(());
            }
            before = free;
            let statement = format!("PRAGMA incremental_vacuum({SWEEP_PAGES})");
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await?;
            drop(connection);
            tokio::time::sleep(SWEEP_REST).await;
        }
    }
}

#[async_trait]
impl AuditLog for SqliteAudit {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        // Immediate: the numbers that are given out below are nobody else's until the commit.
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        insert(&mut transaction, events).await?;
        make_room(&mut transaction, self.max_bytes, events.len()).await?;
        Ok(transaction.commit().await?)
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        let statement = match query.org {
            Some(_) => {
                "SELECT seq, at_ms, org, event FROM events WHERE org = $3 AND seq < $1 ORDER BY seq DESC LIMIT $2"
            }
            None => "SELECT seq, at_ms, org, event FROM events WHERE seq < $1 ORDER BY seq DESC LIMIT $2",
        };
        let mut statement = sqlx::query(statement)
            .bind(query.before.unwrap_or(i64::MAX))
            .bind(i64::from(query.limit.clamp(1, MAX_PAGE)));
        if let Some(org) = &query.org {
            statement = statement.bind(org);
        }
        let rows = statement.fetch_all(&self.read).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, sqlx::Error>>()?)
    }
}

/// Adds events behind all that are there. Each statement is a hand-over to SQLite's thread and back, which costs more
/// than the row: so there is one for many.
async fn insert(connection: &mut SqliteConnection, events: &[CallEvent]) -> Result<(), sqlx::Error> {
    let select = format!("SELECT {NEXT}");
    let mut seq: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_one(&mut *connection).await?;
    for some in events.chunks(INSERT_ROWS) {
        let mut insert = QueryBuilder::new("INSERT INTO events (seq, at_ms, org, event) ");
        insert.push_values(some, |mut row, event| {
            row.push_bind(seq).push_bind(event.at_ms).push_bind(&event.org).push_bind(&event.event);
            seq += 1;
        });
        // Its text differs by the number of rows: kept, each would push a statement that is used again out.
        insert.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes the oldest events where the file needs more than `max_bytes` after `came` events have come.
pub(super) async fn make_room(
    connection: &mut SqliteConnection,
    max_bytes: i64,
    came: usize,
) -> Result<(), sqlx::Error> {
    if size(connection).await?.used > max_bytes {
        // More than came: events differ in size, and a bound that was lowered is reached in time.
        let rows = i64::try_from(came).unwrap_or(SWEEP_ROWS).saturating_mul(2).max(SWEEP_ROWS);
        sqlx::query("DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT $1)")
            .bind(rows)
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// What the connection's file needs and what lies free in it.
async fn size(connection: &mut SqliteConnection) -> Result<Size, sqlx::Error> {
    let row = sqlx::query(
        "SELECT page_count * page_size AS whole, freelist_count * page_size AS free \
         FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
    )
    .fetch_one(connection)
    .await?;
    let whole: i64 = row.try_get("whole")?;
    let free: i64 = row.try_get("free")?;
    Ok(Size { used: whole - free, free })
}
