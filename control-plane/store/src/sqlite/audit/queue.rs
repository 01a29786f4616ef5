//! The same file as a queue of events that another log has not accepted yet: oldest first, never evicted.

use sqlx::Row;

use super::{SqliteAudit, insert, size};
use crate::audit::{CallEvent, StoredEvent, stored};

/// Reason why the file did not accept events, phrased to follow the file's name.
#[derive(Debug, thiserror::Error)]
pub(in crate::sqlite) enum QueueError {
    #[error("is full with {0} bytes")]
    Full(i64),
    #[error("does not accept them: {0}")]
    Failed(#[from] sqlx::Error),
}

impl SqliteAudit {
    /// Appends all events, or none if the file has reached its limit.
    pub(in crate::sqlite) async fn push(&self, events: &[CallEvent]) -> Result<(), QueueError> {
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        let used = size(&mut transaction).await?.used;
        if used >= self.max_bytes {
            return Err(QueueError::Full(used));
        }
        insert(&mut transaction, events).await?;
        Ok(transaction.commit().await?)
    }

    /// Returns the `limit` oldest events, oldest first.
    pub(in crate::sqlite) async fn oldest(&self, limit: u32) -> sqlx::Result<Vec<StoredEvent>> {
        let oldest = sqlx::query("SELECT seq, at_ms, org, event FROM events ORDER BY seq LIMIT $1");
        let rows = oldest.bind(limit).fetch_all(&self.write).await?;
        rows.iter().map(stored).collect()
    }

    /// Returns the bytes and number of each org's events; reads the whole file.
    pub(in crate::sqlite) async fn by_org(&self) -> sqlx::Result<Vec<(String, u64, u64)>> {
        let statement = "SELECT org, COALESCE(SUM(LENGTH(CAST(event AS BLOB))), 0) AS bytes, COUNT(*) AS events \
                         FROM events GROUP BY org";
        let rows = sqlx::query(statement).fetch_all(&self.write).await?;
        let of_row = |row: &sqlx::sqlite::SqliteRow| {
            let (bytes, events): (i64, i64) = (row.try_get("bytes")?, row.try_get("events")?);
            let org: String = row.try_get("org")?;
            Ok::<_, sqlx::Error>((org, bytes.unsigned_abs(), events.unsigned_abs()))
        };
        rows.iter().map(of_row).collect()
    }

    /// Whether the file has no event.
    pub(in crate::sqlite) async fn is_empty(&self) -> sqlx::Result<bool> {
        Ok(self.oldest(1).await?.is_empty())
    }

    /// Removes the events up to this number.
    pub(in crate::sqlite) async fn remove(&self, last: i64) -> sqlx::Result<()> {
        let remove = sqlx::query("DELETE FROM events WHERE seq <= $1").bind(last);
        remove.execute(&self.write).await.map(|_| ())
    }
}
