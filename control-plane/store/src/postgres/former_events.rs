//! The table of events from before there were partitions. Processes of the version before write there, and `asp db import`
//! does; its rows, which are the oldest, are removed few at a time.

use sqlx::Row;
use tokio::time::sleep;

use super::audit::PostgresAudit;
use super::{SWEEP_REST, SWEEP_ROWS, within};
use crate::audit::KEEP_EVENTS;
use crate::clock::milliseconds;

/// Approximate bytes of a row and its entries in two indexes, without its texts.
const EACH: i64 = 120;

/// The end of one batch.
struct Batch {
    /// Highest number that was removed, if any was.
    last: Option<i64>,
    /// Bytes that the table holds after it.
    bytes: i64,
}

/// Statements to run after an import wrote rows to the table. They count its bytes and move the numbers of later events past its
/// own.
pub(crate) fn after_import() -> [String; 2] {
    let count = format!(
        "UPDATE call_log SET last = events.last, bytes = events.bytes FROM (SELECT \
         CAST(GREATEST(COALESCE(MAX(seq), 0), 0) AS BIGINT) AS last, \
         CAST(COALESCE(SUM(OCTET_LENGTH(org) + OCTET_LENGTH(event) + {EACH}), 0) AS BIGINT) AS bytes FROM call_events) AS events \
         WHERE id = 1"
    );
    // The partition is added by the first append: one that this transaction added would not be there for others yet.
    let advance =
        "SELECT enter_call_audit_partition(COALESCE(MAX(seq), 0) / call_audit_width() + 1) FROM call_events";
    [count, advance.to_owned()]
}

impl PostgresAudit {
    /// Removes what is past its retention, and the oldest events while there are more than `max_bytes` of them. Returns the bytes
    /// that are left.
    pub(super) async fn remove_former(&self, max_bytes: i64) -> Result<i64, sqlx::Error> {
        // Entries of removed rows stay in the index while a snapshot is open: no batch walks those of the batches before it.
        let mut after = i64::MIN;
        loop {
            let batch = within(self.longest, Box::pin(self.remove_batch(max_bytes, after))).await?;
            let Some(last) = batch.last else { return Ok(batch.bytes) };
            after = last;
            sleep(SWEEP_REST).await;
        }
    }

    async fn remove_batch(&self, max_bytes: i64, after: i64) -> Result<Batch, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        // First of all, as appends of the version before do.
        let held: i64 = sqlx::query_scalar("SELECT bytes FROM call_log WHERE id = 1 FOR UPDATE")
            .fetch_one(&mut *transaction)
            .await?;
        // The table is in the order of time but for clocks that were set: an old event behind a newer one waits.
        let statement = format!(
            "WITH oldest AS (SELECT seq FROM call_events WHERE seq > $1 ORDER BY seq LIMIT $2), \
             gone AS (DELETE FROM call_events USING oldest \
             WHERE call_events.seq = oldest.seq AND ($3 OR call_events.at_ms < now_ms() - $4) \
             RETURNING call_events.seq, OCTET_LENGTH(call_events.org) + OCTET_LENGTH(call_events.event) + {EACH} AS bytes), \
             sums AS (SELECT MAX(seq) AS last, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM gone) \
             UPDATE call_log SET bytes = call_log.bytes - sums.bytes FROM sums WHERE id = 1 \
             RETURNING sums.last AS removed, call_log.bytes"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(after)
            .bind(SWEEP_ROWS)
            .bind(held > max_bytes)
            .bind(milliseconds(KEEP_EVENTS))
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Batch { last: row.try_get("removed")?, bytes: row.try_get("bytes")? })
    }
}
