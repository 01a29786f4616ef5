//! The table of events from before partitions existed. Processes of the previous version and `asp db import` write to
//! it; its rows, which are the oldest, are removed a few at a time.

use sqlx::Row;
use tokio::time::sleep;

use super::audit::PostgresAudit;
use super::{SWEEP_REST, SWEEP_ROWS, within};
use crate::audit::KEEP_EVENTS;
use crate::clock::milliseconds;

/// Approximate bytes of a row and its entries in two indexes, without its texts.
const EACH: i64 = 120;

/// The result of one batch of removals.
struct RemovedBatch {
    /// Highest number removed, if any.
    last: Option<i64>,
    /// Bytes left in the table.
    bytes: i64,
}

/// Returns the statements to run after an import wrote rows to the table. They count its bytes and move the numbers of
/// later events past its own.
pub(crate) fn after_import() -> [String; 2] {
    let count = format!(
        "UPDATE call_log SET last = events.last, bytes = events.bytes FROM (SELECT \
         CAST(GREATEST(COALESCE(MAX(seq), 0), 0) AS BIGINT) AS last, \
         CAST(COALESCE(SUM(OCTET_LENGTH(org) + OCTET_LENGTH(event) + {EACH}), 0) AS BIGINT) AS bytes FROM call_events) AS events \
         WHERE id = 1"
    );
    // The first append adds the partition, because one added in this transaction would not be visible to others yet.
    let advance =
        "SELECT enter_call_audit_partition(COALESCE(MAX(seq), 0) / call_audit_width() + 1) FROM call_events";
    [count, advance.to_owned()]
}

impl PostgresAudit {
    /// Removes expired events, and the oldest ones while there are more than `max_bytes`. Returns the bytes that are
    /// left.
    pub(super) async fn remove_former(&self, max_bytes: i64) -> sqlx::Result<i64> {
        // Index entries of removed rows stay while a snapshot is open, so each batch starts after the previous one.
        let mut after = i64::MIN;
        loop {
            let batch = within(self.longest, Box::pin(self.remove_batch(max_bytes, after))).await?;
            let Some(last) = batch.last else { return Ok(batch.bytes) };
            after = last;
            sleep(SWEEP_REST).await;
        }
    }

    async fn remove_batch(&self, max_bytes: i64, after: i64) -> sqlx::Result<RemovedBatch> {
        let mut transaction = self.pool.begin().await?;
        // Locked first, as in appends of the previous version.
        let held: i64 = sqlx::query_scalar("SELECT bytes FROM call_log WHERE id = 1 FOR UPDATE")
            .fetch_one(&mut *transaction)
            .await?;
        // Events are in order of time unless a clock was set back: an old event behind a newer one waits.
        let statement = format!(
            "WITH oldest AS (SELECT seq FROM call_events WHERE seq > $1 ORDER BY seq LIMIT $2), \
             gone AS (DELETE FROM call_events USING oldest \
             WHERE call_events.seq = oldest.seq AND ($3 OR call_events.at_ms < now_ms() - $4) \
             RETURNING call_events.seq, OCTET_LENGTH(call_events.org) + OCTET_LENGTH(call_events.event) + {EACH} AS bytes), \
             sums AS (SELECT MAX(seq) AS last, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM gone) \
             UPDATE call_log SET bytes = call_log.bytes - sums.bytes FROM sums WHERE id = 1 \
             RETURNING sums.last AS removed, call_log.bytes"
        );
        let statement = sqlx::AssertSqlSafe(statement);
        let batch = query!(statement, after, SWEEP_ROWS, held > max_bytes, milliseconds(KEEP_EVENTS));
        let row = batch.fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(RemovedBatch { last: row.try_get("removed")?, bytes: row.try_get("bytes")? })
    }
}
