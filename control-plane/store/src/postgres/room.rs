//! Quotas of the ledger and the records of calls, and deletion of expired rows.
//!
//! Keeps true: at the quota of a user or an org, the calls that ended first are deleted, and no more than the excess
//! (I-4). One transaction at a time deletes rows of an org, and no call waits for it. One process sweeps at a time; a
//! sweep skips locked rows, so that it waits for no other deletion, and deletes nothing that a gateway with a lease
//! runs.

use std::time::Duration;

use sqlx::PgPool;

use super::{PostgresCalls, SWEEP_REST, SWEEP_ROWS, has_turn, within};
use crate::clock::milliseconds;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::records::{CallQuota, CallQuotas, KEEP_PAST, MAX_LEASE, RecordKey};

/// Time after the start of a sweep in which no other process sweeps.
const TURN: Duration = Duration::from_secs(60);
/// Distinguishes the locks of this purpose from others of the database.
const ROOM_LOCK: i64 = 0x61_73_70;
/// Deletions of expired rows, at most $1 of those that expired more than $2 ms ago.
const PAST: [(&str, Duration); 5] = [
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
         WHERE expires_ms < now_ms() - $2 AND (owner IS NULL OR NOT EXISTS \
         (SELECT 1 FROM gateways g WHERE g.owner = call_records.owner AND g.lease_ms > now_ms())) \
         LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    // Deletes records even of live owners that failed to store the end of a call.
    (
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM call_records \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_PAST,
    ),
    // An owner without a lease needs no row: its calls were taken over or have ended.
    (
        "DELETE FROM gateways WHERE owner IN (SELECT owner FROM gateways \
         WHERE lease_ms < now_ms() - $2 AND since_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_ABANDONED,
    ),
];
/// Shortens leases that end more than $1 ms from now.
const SHORTEN_LEASES: &str = "UPDATE gateways SET lease_ms = now_ms() + $1 WHERE lease_ms > now_ms() + $1";
const OF_USER: (&str, &str) = ("user_digest", "of_user");
const OF_ORG: (&str, &str) = ("org", "of_org");

/// Returns the deletion of one holder's earliest ended records beyond $2 records and $3 bytes, at most $4 of them.
fn deletion((column, holder): (&str, &str)) -> String {
    format!(
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM (\
         SELECT call_id, ROW_NUMBER() OVER earliest AS place, SUM(bytes) OVER earliest - bytes AS earlier \
         FROM (SELECT call_id, updated_ms, bytes FROM call_records WHERE {column} = $1 AND owner IS NULL \
         ORDER BY updated_ms, call_id LIMIT $4) AS first_ended \
         WINDOW earliest AS (ORDER BY updated_ms, call_id)) AS placed, \
         (SELECT SUM(records) AS kept, SUM(bytes) AS held FROM record_usage WHERE holder = {holder}($1)) AS usage \
         WHERE place <= kept - $2 OR earlier < held - $3)"
    )
}

/// Returns the query whether a holder has more than $2 records or $3 bytes.
fn excess((_, holder): (&str, &str)) -> String {
    format!(
        "SELECT COALESCE(SUM(records) > $2 OR SUM(bytes) > $3, FALSE) FROM record_usage WHERE holder = {holder}($1)"
    )
}

impl PostgresCalls {
    /// Deletes expired rows, a few at a time, unless another process does; run periodically.
    pub async fn sweep(&self) -> Result<(), sqlx::Error> {
        if !self.in_time(has_turn(&self.pool, "calls", TURN)).await? {
            return Ok(());
        }
        let shorten = sqlx::query(SHORTEN_LEASES).bind(milliseconds(MAX_LEASE));
        self.in_time(shorten.execute(&self.pool)).await?;
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

    /// Deletes ended calls of the record's user and org beyond their quotas, outside the path of the call.
    pub(super) fn make_room_later(&self, key: &RecordKey) {
        let cleanup = QuotaCleanup { pool: self.pool.clone(), bounds: self.bounds, longest: self.longest };
        let (user, org) = (key.user.to_vec(), key.org.clone());
        self.making_room.spawn(async move {
            if let Err(error) = within(cleanup.longest, Box::pin(cleanup.run(&user, &org))).await {
                // The next call that ends tries again.
                tracing::debug!(%error, "records of ended calls beyond their quota could not be deleted yet");
            }
        });
    }
}

/// Deletion of records beyond the quotas.
struct QuotaCleanup {
    pool: PgPool,
    bounds: CallQuotas,
    longest: Duration,
}

impl QuotaCleanup {
    async fn run(&self, user: &[u8], org: &str) -> Result<(), sqlx::Error> {
        loop {
            let of_user = is_over(&self.pool, OF_USER, user.to_vec(), self.bounds.of_user).await?;
            if !of_user && !is_over(&self.pool, OF_ORG, org.to_owned(), self.bounds.of_org).await? {
                return Ok(());
            }
            let mut alone = self.pool.begin().await?;
            let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock(hashtextextended($1, $2))")
                .bind(org.to_owned())
                .bind(ROOM_LOCK);
            let is_mine: bool = lock.fetch_one(&mut *alone).await?;
            if !is_mine {
                // The process that has the lock checks again when it is done.
                return Ok(());
            }
            let mut gone = 0;
            // Checked again: others may have deleted rows since.
            if is_over(&mut *alone, OF_USER, user.to_vec(), self.bounds.of_user).await? {
                gone += delete(&mut alone, OF_USER, user.to_vec(), self.bounds.of_user).await?;
            }
            if is_over(&mut *alone, OF_ORG, org.to_owned(), self.bounds.of_org).await? {
                gone += delete(&mut alone, OF_ORG, org.to_owned(), self.bounds.of_org).await?;
            }
            alone.commit().await?;
            if gone == 0 {
                return Ok(());
            }
        }
    }
}

async fn is_over<'e, H>(
    database: impl sqlx::PgExecutor<'e>,
    of: (&str, &str),
    holder: H,
    share: CallQuota,
) -> Result<bool, sqlx::Error>
where
    H: for<'q> sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Sync + 'static,
{
    sqlx::query_scalar(sqlx::AssertSqlSafe(excess(of)))
        .bind(holder)
        .bind(i64::from(share.records))
        .bind(i64::from(share.bytes))
        .fetch_one(database)
        .await
}

async fn delete<H>(
    alone: &mut sqlx::PgConnection,
    of: (&str, &str),
    holder: H,
    share: CallQuota,
) -> Result<u64, sqlx::Error>
where
    H: for<'q> sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Sync + 'static,
{
    let deleted = sqlx::query(sqlx::AssertSqlSafe(deletion(of)))
        .bind(holder)
        .bind(i64::from(share.records))
        .bind(i64::from(share.bytes))
        .bind(SWEEP_ROWS)
        .execute(alone)
        .await?;
    Ok(deleted.rows_affected())
}
