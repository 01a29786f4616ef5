//! The room that the ledger and the records of calls have, and what becomes of what is past its time.
//!
//! Keeps true: at the bounds of a user or an org the first to end go first, and a statement deletes few of them (I-4);
//! one process sweeps at a time; a deletion waits for no other one, because it passes over rows that are locked.

use std::time::Duration;

use super::{PostgresCalls, SWEEP_REST, SWEEP_ROWS, has_turn};
use crate::clock::milliseconds;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::records::{RecordError, RecordKey, Share};

/// How long no other process sweeps after one began.
const TURN: Duration = Duration::from_secs(60);
/// What is deleted how long after its time: at most $1 rows, $2 ms after it.
const PAST: [(&str, Duration); 4] = [
    (
        "DELETE FROM ledger WHERE claim_key IN (SELECT claim_key FROM ledger \
         WHERE expires_ms < now_ms() - $2 AND state = 1 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    (
        "DELETE FROM ledger WHERE claim_key IN (SELECT claim_key FROM ledger \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_ABANDONED,
    ),
    (
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM call_records \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    // An owner without a lease owns nothing it needs to know of: what it left was taken or has ended.
    (
        "DELETE FROM gateways WHERE owner IN (SELECT owner FROM gateways \
         WHERE lease_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_ABANDONED,
    ),
];
const OF_USER: (&str, &str) = ("user_digest", "of_user");
const OF_ORG: (&str, &str) = ("org", "of_org");

/// Of the ended records of one holder that are the first to have ended, those past the bounds of $2 records and $3 bytes, at
/// most $4.
fn deletion((column, holder): (&str, &str)) -> String {
    format!(
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM (\
         SELECT call_id, ROW_NUMBER() OVER earliest AS place, SUM(bytes) OVER earliest - bytes AS earlier \
         FROM (SELECT call_id, updated_ms, bytes FROM call_records WHERE {column} = $1 AND owner IS NULL \
         ORDER BY updated_ms, call_id LIMIT $4 FOR UPDATE SKIP LOCKED) AS first_ended \
         WINDOW earliest AS (ORDER BY updated_ms, call_id)) AS placed, \
         (SELECT SUM(records) AS kept, SUM(bytes) AS held FROM record_usage WHERE holder = {holder}($1)) AS usage \
         WHERE place <= kept - $2 OR earlier < held - $3)"
    )
}

/// Whether a holder keeps more than $2 records or $3 bytes.
fn excess((_, holder): (&str, &str)) -> String {
    format!(
        "SELECT COALESCE(SUM(records) > $2 OR SUM(bytes) > $3, FALSE) FROM record_usage WHERE holder = {holder}($1)"
    )
}

impl PostgresCalls {
    /// Deletes what is past its retention, few rows at a time, where no other process does; run from time to time.
    pub async fn sweep(&self) -> Result<(), sqlx::Error> {
        if !self.in_time(has_turn(&self.pool, "calls", TURN)).await? {
            return Ok(());
        }
        for (statement, age) in PAST {
            loop {
                let deleted = sqlx::query(statement).bind(SWEEP_ROWS).bind(milliseconds(age));
                let deleted = self.in_time(deleted.execute(&self.pool)).await?;
                if deleted.rows_affected() < SWEEP_ROWS.unsigned_abs() {
                    break;
                }
                tokio::time::sleep(SWEEP_REST).await;
            }
        }
        Ok(())
    }

    /// Deletes what of the ended calls of the record's user and org is over the bounds.
    pub(super) async fn make_room(&self, key: &RecordKey) -> Result<(), RecordError> {
        self.keep_to(OF_USER, key.user.to_vec(), self.bounds.of_user).await?;
        self.keep_to(OF_ORG, key.org.clone(), self.bounds.of_org).await
    }

    async fn keep_to<H>(&self, of: (&str, &str), holder: H, share: Share) -> Result<(), RecordError>
    where
        H: for<'q> sqlx::Encode<'q, sqlx::Postgres>
            + sqlx::Type<sqlx::Postgres>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let unavailable = |error: sqlx::Error| RecordError::Unavailable(error.to_string());
        loop {
            let is_over: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(excess(of)))
                .bind(holder.clone())
                .bind(i64::from(share.records))
                .bind(i64::from(share.bytes))
                .fetch_one(&self.pool)
                .await
                .map_err(unavailable)?;
            if !is_over {
                return Ok(());
            }
            let deleted = sqlx::query(sqlx::AssertSqlSafe(deletion(of)))
                .bind(holder.clone())
                .bind(i64::from(share.records))
                .bind(i64::from(share.bytes))
                .bind(SWEEP_ROWS)
                .execute(&self.pool)
                .await
                .map_err(unavailable)?;
            if deleted.rows_affected() == 0 {
                return Ok(());
            }
        }
    }
}
