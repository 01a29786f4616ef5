//! The [`AuditLog`] in a SQLite file of its own, which no call waits for.
//!
//! Keeps true: the file never exceeds its limit of bytes by more than one batch, because an append removes the oldest
//! events from a full file; expired events are removed in small batches; pages that stay free are returned to the disk.

mod bodies;
mod live;
mod queue;
mod usage;
mod writers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteRow, SqliteSynchronous};
use sqlx::{QueryBuilder, Row, SqliteConnection, SqlitePool};

use super::Result;
use super::file::{self, FileSettings};
use crate::audit::search::{
    self, AuditPage, AuditSearch, EventPosition, SearchDialect, SearchStatement, SearchValue,
};
use crate::audit::{
    AuditError, AuditLog, AuditQuery, CallEvent, CapturedBody, KEEP_EVENTS, LostWriter, MAX_PAGE,
    StoredEvent, stored,
};
use crate::clock::{milliseconds, now_ms};
use crate::migrations;

/// Reading connections besides the writing one.
const READERS: u32 = 2;
/// Maximum rows of an INSERT; SQLite binds at most 32,766 values.
const INSERT_ROWS: usize = 1000;
/// Maximum rows that one statement of a sweep deletes.
const SWEEP_ROWS: i64 = 500;
/// Maximum pages that one statement returns to the disk.
const SWEEP_PAGES: i64 = 256;
/// Pause between two statements of a sweep, which leaves the writer to appends.
const SWEEP_REST: Duration = Duration::from_millis(10);
/// Divisor of the limit: the part of the file that may stay free for future events.
const FREE_SHARE: i64 = 8;
/// Number of the next event. It is above zero: events that commit 03f3e640 moved to the file have numbers below zero, and
/// SQLite would continue these.
const NEXT: &str = "(SELECT MAX(COALESCE(MAX(seq), 0), 0) + 1 FROM events)";

/// Expressions of a search, as `migrations/audit/0101_audit_search.sql` has them.
const DIALECT: SearchDialect = SearchDialect {
    table: "events",
    trace: "CASE WHEN json_valid(event) THEN json_extract(event, '$.trace') END",
    find: "instr",
    plain_org: "+org",
};

/// An audit log in one SQLite file.
pub struct SqliteAudit {
    /// A single connection, as in [`super::SqliteCalls`].
    write: SqlitePool,
    read: SqlitePool,
    max_bytes: i64,
    /// Servers whose calls' arguments and results are kept.
    captured_servers: Vec<String>,
    /// Directory of the journals in front of the file.
    journals: Option<PathBuf>,
}

/// Used and free bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    used: i64,
    free: i64,
}

impl SqliteAudit {
    /// Opens or creates the file, whose events may take at most `max_bytes`.
    pub async fn open(path: &Path, max_bytes: u64) -> Result<SqliteAudit> {
        let opening = FileSettings {
            path,
            synchronous: SqliteSynchronous::Full,
            shrinks: true,
            busy_timeout: file::PATIENT_TIMEOUT,
        };
        let write = opening.pool(1).connect_with(opening.options()?).await?;
        file::migrate(&write, &migrations::AUDIT).await?;
        let read = opening.pool(READERS).connect_with(opening.options()?).await?;
        let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        Ok(SqliteAudit { write, read, max_bytes, captured_servers: Vec::new(), journals: None })
    }

    /// Has gateways keep events in journals in this directory until the file has them.
    pub fn journaled(mut self, directory: PathBuf) -> SqliteAudit {
        self.journals = Some(directory);
        self
    }

    /// Closes the file after the current appends.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }

    /// Deletes expired events and those beyond the limit, and returns free pages to the disk; run periodically.
    pub async fn sweep(&self) -> Result<()> {
        let oldest = now_ms() - milliseconds(KEEP_EVENTS);
        loop {
            let mut connection = self.write.acquire().await?;
            let over = size(&mut connection).await?.used > self.max_bytes;
            let before = if over { i64::MAX } else { oldest };
            // Events are in order of time unless a clock was set back: an old event behind a newer one waits.
            let deleted = "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT $1) AND at_ms < $2";
            let deleted = query!(deleted, SWEEP_ROWS, before).execute(&mut *connection).await?;
            drop(connection);
            if deleted.rows_affected() == 0 {
                break;
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
        self.delete_expired_bodies().await?;
        self.shrink().await
    }

    /// Returns free pages beyond [`FREE_SHARE`] to the disk.
    async fn shrink(&self) -> Result<()> {
        let mut before = i64::MAX;
        loop {
            let mut connection = self.write.acquire().await?;
            let free = size(&mut connection).await?.free;
            // A file in another vacuum mode returns no pages.
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
        // Immediate: no other process can assign the same numbers before the commit.
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
        Ok(rows.iter().map(stored).collect::<sqlx::Result<_>>()?)
    }

    async fn search(&self, search: &AuditSearch) -> Result<AuditPage, AuditError> {
        // Without a filter every event that is read is found.
        let last_read = match search.members.is_empty() {
            true => None,
            false => self.last_read(search).await?,
        };
        let rows = self.rows(search::page(search, &DIALECT, None, last_read)).await?;
        let events = rows.iter().map(stored).collect::<sqlx::Result<_>>()?;
        Ok(AuditPage::of(events, search.page_limit(), last_read))
    }

    fn captures(&self, server: &str) -> bool {
        self.captured_servers.iter().any(|captured| captured == server)
    }

    async fn capture(&self, bodies: &[CapturedBody]) -> Result<(), AuditError> {
        Ok(self.store_bodies(bodies).await?)
    }

    async fn captured(&self, call: &str) -> Result<Vec<CapturedBody>, AuditError> {
        Ok(self.bodies_of(call).await?)
    }

    async fn renew_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        Ok(self.renew(id, oldest_ms).await?)
    }

    async fn release_writer(&self, id: &str) -> Result<(), AuditError> {
        Ok(self.release(id).await?)
    }

    async fn lost_writers(&self, longest: Duration) -> Result<Vec<LostWriter>, AuditError> {
        Ok(self.find_lost(longest).await?)
    }

    async fn finish_writer(
        &self,
        lost: &LostWriter,
        events: &[CallEvent],
        is_last: bool,
    ) -> Result<bool, AuditError> {
        Ok(self.finish(lost, events, is_last).await?)
    }

    async fn return_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        Ok(self.renew_ended(id, oldest_ms).await?)
    }

    async fn replace(&self, stored: &StoredEvent, event: &CallEvent) -> Result<bool, AuditError> {
        Ok(self.put_in_place(stored, event).await?)
    }

    fn journals(&self) -> Option<&Path> {
        self.journals.as_deref()
    }
}

impl SqliteAudit {
    /// Returns the position of the last event that a page of the search reads, unless it reads all.
    async fn last_read(&self, search: &AuditSearch) -> sqlx::Result<Option<EventPosition>> {
        let rows = self.rows(search::last_read(search, &DIALECT, None)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(EventPosition { at_ms: row.try_get("at_ms")?, seq: row.try_get("seq")? }))
    }

    async fn rows(&self, statement: SearchStatement) -> sqlx::Result<Vec<SqliteRow>> {
        // The text depends on the conditions: cached, it would evict a statement that is used again.
        let mut rows = sqlx::query::<sqlx::Sqlite>(sqlx::AssertSqlSafe(statement.text)).persistent(false);
        for parameter in statement.parameters {
            rows = match parameter {
                SearchValue::Number(number) => rows.bind(number),
                SearchValue::Text(text) => rows.bind(text),
            };
        }
        rows.fetch_all(&self.read).await
    }
}

/// Appends events. One statement inserts many rows, because each statement is a round trip to SQLite's thread and costs
/// more than a row.
async fn insert(connection: &mut SqliteConnection, events: &[CallEvent]) -> sqlx::Result<()> {
    let select = format!("SELECT {NEXT}");
    let mut seq: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_one(&mut *connection).await?;
    for some in events.chunks(INSERT_ROWS) {
        let mut insert = QueryBuilder::new("INSERT INTO events (seq, at_ms, org, event) ");
        insert.push_values(some, |mut row, event| {
            row.push_bind(seq).push_bind(event.at_ms).push_bind(&event.org).push_bind(&event.event);
            seq += 1;
        });
        // The text depends on the number of rows: cached, it would evict a statement that is used again.
        insert.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes the oldest events if the file exceeds `max_bytes` after `came` events were added.
async fn make_room(connection: &mut SqliteConnection, max_bytes: i64, came: usize) -> sqlx::Result<()> {
    if size(connection).await?.used > max_bytes {
        // More than were added: events differ in size, and a lowered limit is reached over time.
        let rows = i64::try_from(came).unwrap_or(SWEEP_ROWS).saturating_mul(2).max(SWEEP_ROWS);
        let oldest = "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT $1)";
        query!(oldest, rows).execute(connection).await?;
    }
    Ok(())
}

/// Measures the connection's file.
async fn size(connection: &mut SqliteConnection) -> sqlx::Result<Size> {
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn event(bytes: usize) -> CallEvent {
        CallEvent { at_ms: 1, org: "acme".into(), event: "x".repeat(bytes) }
    }

    #[tokio::test]
    async fn expired_bodies_are_deleted_where_no_more_are_kept() {
        let directory = TempDir::new().unwrap();
        let log = SqliteAudit::open(&directory.path().join("audit.db"), 1 << 30).await.unwrap();
        let body = |at_ms: i64| CapturedBody {
            at_ms,
            org: "acme".into(),
            call: "c".into(),
            part: "result".into(),
            body: "{}".into(),
        };
        let now = now_ms();
        log.capture(&[body(now - milliseconds(KEEP_EVENTS) - 1), body(now)]).await.unwrap();
        log.sweep().await.unwrap();
        let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM bodies").fetch_one(&log.read).await.unwrap();
        assert_eq!(left, 1);
    }

    #[tokio::test]
    async fn a_log_whose_disk_was_full_accepts_events_again() {
        let directory = TempDir::new().unwrap();
        let log = SqliteAudit::open(&directory.path().join("audit.db"), 1 << 30).await.unwrap();
        // SQLite then fails as on a full disk. The limit ends with its connection.
        sqlx::query("PRAGMA max_page_count = 1").execute(&log.write).await.unwrap();
        let error = log.append(&[event(1 << 20)]).await.unwrap_err();
        assert!(error.to_string().contains("full"), "{error}");
        log.append(&[event(1)]).await.unwrap();
        let all = AuditQuery { limit: 10, ..AuditQuery::default() };
        assert_eq!(log.page(&all).await.unwrap().len(), 1);
    }
}
