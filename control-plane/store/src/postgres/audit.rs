//! The [`AuditLog`] on PostgreSQL, in partitions (`migrations/postgres/1101_audit_partitions.sql`).
//!
//! Keeps true: no append waits for the commit of another one. A reader gets an event only when no append can still
//! write a lower number. One process at a time drops partitions, each as a whole. The log exceeds its limit only by the
//! events that arrive between two sweeps and by partitions that another session reads.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row};

use super::has_code;
use crate::audit::search::{
    self, AuditPage, AuditSearch, EventPosition, SearchDialect, SearchOrder, SearchStatement, SearchValue,
};
use crate::audit::{
    AuditError, AuditLog, AuditQuery, CallEvent, CapturedBody, LostWriter, MAX_PAGE, StoredEvent, stored,
};

mod bodies;
mod writers;

/// Interval between two sweeps of one process.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// SQLSTATE of an insert for which there is no partition (`check_violation`).
const NO_PARTITION: &str = "23514";

/// Expressions of a search, as `migrations/postgres/1108_audit_search.sql` has them.
const DIALECT: SearchDialect = SearchDialect {
    table: "all_call_events",
    trace: r#"substring(event from '"trace":"([^"]*)"')"#,
    find: "strpos",
    plain_org: "org || ''",
};

/// The audit log of calls.
pub struct PostgresAudit {
    pub(super) pool: PgPool,
    /// Limit of the log in bytes.
    pub(super) max_bytes: i64,
    /// Timeout of one statement.
    pub(super) longest: Duration,
    /// Servers whose calls' arguments and results are kept.
    captured_servers: Vec<String>,
}

impl PostgresAudit {
    pub(super) fn new(pool: PgPool, max_bytes: u64, longest: Duration) -> PostgresAudit {
        let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        PostgresAudit { pool, max_bytes, longest, captured_servers: Vec::new() }
    }

    /// Sweeps periodically; never ends.
    pub async fn keep_sweeping(&self) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let swept = self.sweep().await;
            let has_failed = std::mem::replace(&mut is_failing, swept.is_err());
            if let Err(error) = swept
                && !has_failed
            {
                tracing::warn!(%error, "audit events past their retention could not be dropped");
            }
        }
    }

    async fn add(&self, events: &[CallEvent]) -> sqlx::Result<()> {
        match self.insert(events).await {
            // A backup may hold a later number than its partitions, because it takes a sequence's value at the time of
            // reading.
            Err(error) if has_code(&error, &[NO_PARTITION]) => {
                let add = "SELECT add_call_audit_partition(call_audit_next() / call_audit_width())";
                sqlx::query(add).execute(&self.pool).await?;
                self.insert(events).await
            }
            done => done,
        }
    }

    /// A single statement, so that no lock waits for this process.
    async fn insert(&self, events: &[CallEvent]) -> sqlx::Result<()> {
        let times: Vec<i64> = events.iter().map(|event| event.at_ms).collect();
        let orgs: Vec<String> = events.iter().map(|event| event.org.clone()).collect();
        let events: Vec<String> = events.iter().map(|event| event.event.clone()).collect();
        let append = query!("SELECT append_call_audit($1, $2, $3)", times, orgs, events);
        append.execute(&self.pool).await.map(drop)
    }

    /// Returns the number below which no append can still write.
    async fn horizon(&self) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT call_audit_horizon()").fetch_one(&self.pool).await
    }

    /// Returns the position of the last event that a page of the search reads, unless it reads all.
    async fn last_read(
        &self,
        search: &AuditSearch,
        horizon: Option<i64>,
    ) -> sqlx::Result<Option<EventPosition>> {
        let rows = self.rows(search::last_read(search, &DIALECT, horizon)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(EventPosition { at_ms: row.try_get("at_ms")?, seq: row.try_get("seq")? }))
    }

    async fn rows(&self, statement: SearchStatement) -> sqlx::Result<Vec<PgRow>> {
        // The plan depends on the values: an org may have few events or nearly all.
        let mut rows = sqlx::query::<sqlx::Postgres>(sqlx::AssertSqlSafe(statement.text)).persistent(false);
        for parameter in statement.parameters {
            rows = match parameter {
                SearchValue::Number(number) => rows.bind(number),
                SearchValue::Text(text) => rows.bind(text),
            };
        }
        rows.fetch_all(&self.pool).await
    }
}

#[async_trait]
impl AuditLog for PostgresAudit {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        if events.is_empty() {
            return Ok(());
        }
        Ok(self.add(events).await?)
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        // Before the page, in a separate statement: appends that end between the two are in the page.
        let horizon = self.horizon().await?;
        let statement = match query.org {
            Some(_) => {
                "SELECT seq, at_ms, org, event FROM all_call_events WHERE org = $3 AND seq < $1 ORDER BY seq DESC LIMIT $2"
            }
            None => {
                "SELECT seq, at_ms, org, event FROM all_call_events WHERE seq < $1 ORDER BY seq DESC LIMIT $2"
            }
        };
        let mut statement = sqlx::query(statement)
            .bind(query.before.map_or(horizon, |before| before.min(horizon)))
            .bind(i64::from(query.limit.clamp(1, MAX_PAGE)));
        if let Some(org) = &query.org {
            statement = statement.bind(org.clone());
        }
        let rows = statement.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(stored).collect::<sqlx::Result<_>>()?)
    }

    async fn search(&self, search: &AuditSearch) -> Result<AuditPage, AuditError> {
        // Only in the order of arrival would an event that is written later be missed by the next page.
        let horizon = match search.order {
            SearchOrder::Arrival => Some(self.horizon().await?),
            SearchOrder::Newest | SearchOrder::Oldest => None,
        };
        // Without a filter every event that is read is found.
        let last_read = match search.members.is_empty() {
            true => None,
            false => self.last_read(search, horizon).await?,
        };
        let rows = self.rows(search::page(search, &DIALECT, horizon, last_read)).await?;
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
}
