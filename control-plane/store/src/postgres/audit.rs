//! The [`AuditLog`] on PostgreSQL.
//!
//! Keeps true: events are seen in the order of their numbers, because whoever appends locks the log's one row first; what
//! is kept never takes more than its bound beyond one batch, because whoever appends removes the oldest events where it is
//! full; what is too old goes in small batches, by one process.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{PgPool, Row};

use super::{SWEEP_REST, SWEEP_ROWS, has_turn, within};
use crate::audit::{AuditError, AuditLog, AuditQuery, CallEvent, KEEP_EVENTS, MAX_PAGE, StoredEvent, stored};
use crate::clock::milliseconds;

/// How long no other process sweeps after one began.
const TURN: Duration = Duration::from_secs(60);
/// What a row and its entries in two indexes take beside its texts, about.
const EACH: i64 = 120;

/// The audit log of calls.
pub struct PostgresAudit {
    pool: PgPool,
    max_bytes: i64,
    /// How long one batch of a sweep may take.
    longest: Duration,
}

impl PostgresAudit {
    pub(super) fn new(pool: PgPool, max_bytes: u64, longest: Duration) -> PostgresAudit {
        PostgresAudit { pool, max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX), longest }
    }

    /// Deletes what is past its retention, where no other process does; run from time to time.
    pub async fn sweep(&self) -> Result<(), sqlx::Error> {
        if !within(self.longest, has_turn(&self.pool, "audit", TURN)).await? {
            return Ok(());
        }
        while within(self.longest, Box::pin(self.remove_old())).await? {
            tokio::time::sleep(SWEEP_REST).await;
        }
        Ok(())
    }

    /// One batch of what is past its retention; false where there is no more.
    async fn remove_old(&self) -> Result<bool, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        lock(&mut transaction).await?;
        // The log is in the order of time but for clocks that were set: an old event behind a newer one waits.
        let statement = removal("call_events.at_ms < now_ms() - $2");
        let removed = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(SWEEP_ROWS)
            .bind(milliseconds(KEEP_EVENTS))
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(removed.try_get::<i64, _>("events")? > 0)
    }

    async fn add(&self, events: &[CallEvent]) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let (last, held) = lock(&mut transaction).await?;
        let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
        let text = |event: &CallEvent| event.org.len().saturating_add(event.event.len());
        let texts: usize = events.iter().map(text).sum();
        let came = i64::try_from(texts).unwrap_or(i64::MAX).saturating_add(count.saturating_mul(EACH));
        sqlx::query(
            "INSERT INTO call_events (seq, at_ms, org, event) SELECT $1 + place, at_ms, org, event \
             FROM UNNEST($2::BIGINT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY AS came (at_ms, org, event, place)",
        )
        .bind(last)
        .bind(events.iter().map(|event| event.at_ms).collect::<Vec<i64>>())
        .bind(events.iter().map(|event| event.org.clone()).collect::<Vec<String>>())
        .bind(events.iter().map(|event| event.event.clone()).collect::<Vec<String>>())
        .execute(&mut *transaction)
        .await?;
        sqlx::query("UPDATE call_log SET last = last + $1, bytes = bytes + $2 WHERE id = 1")
            .bind(count)
            .bind(came)
            .execute(&mut *transaction)
            .await?;
        if held.saturating_add(came) > self.max_bytes {
            // More than came: events differ in size, and a bound that was lowered is reached in time.
            let rows = count.saturating_mul(2).max(SWEEP_ROWS);
            let statement = removal("TRUE");
            sqlx::query(sqlx::AssertSqlSafe(statement)).bind(rows).fetch_one(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

/// Removes those of the $1 oldest of which `condition` holds, and counts them.
fn removal(condition: &str) -> String {
    format!(
        "WITH gone AS (DELETE FROM call_events USING (SELECT seq FROM call_events ORDER BY seq LIMIT $1) AS oldest \
         WHERE call_events.seq = oldest.seq AND {condition} \
         RETURNING OCTET_LENGTH(call_events.org) + OCTET_LENGTH(call_events.event) + {EACH} AS bytes), \
         sums AS (SELECT COUNT(*) AS events, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM gone) \
         UPDATE call_log SET bytes = call_log.bytes - sums.bytes FROM sums WHERE id = 1 RETURNING sums.events"
    )
}

/// Counts the log anew, after events were written that did not come one after the other.
pub(crate) fn recount() -> String {
    format!(
        "UPDATE call_log SET last = events.last, bytes = events.bytes FROM (SELECT \
         CAST(GREATEST(COALESCE(MAX(seq), 0), 0) AS BIGINT) AS last, \
         CAST(COALESCE(SUM(OCTET_LENGTH(org) + OCTET_LENGTH(event) + {EACH}), 0) AS BIGINT) AS bytes FROM call_events) AS events \
         WHERE id = 1"
    )
}

/// Makes the log this transaction's: its last number, and what it holds.
async fn lock(connection: &mut sqlx::PgConnection) -> Result<(i64, i64), sqlx::Error> {
    let log = sqlx::query("SELECT last, bytes FROM call_log WHERE id = 1 FOR UPDATE");
    let log = log.fetch_one(connection).await?;
    Ok((log.try_get("last")?, log.try_get("bytes")?))
}

#[async_trait]
impl AuditLog for PostgresAudit {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        Ok(self.add(events).await?)
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        let statement = match query.org {
            Some(_) => {
                "SELECT seq, at_ms, org, event FROM call_events WHERE org = $3 AND seq < $1 ORDER BY seq DESC LIMIT $2"
            }
            None => {
                "SELECT seq, at_ms, org, event FROM call_events WHERE seq < $1 ORDER BY seq DESC LIMIT $2"
            }
        };
        let mut statement = sqlx::query(statement)
            .bind(query.before.unwrap_or(i64::MAX))
            .bind(i64::from(query.limit.clamp(1, MAX_PAGE)));
        if let Some(org) = &query.org {
            statement = statement.bind(org.clone());
        }
        let rows = statement.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, sqlx::Error>>()?)
    }
}
