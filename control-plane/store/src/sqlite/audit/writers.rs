//! The gateways that write to the file, and the last events of calls of those that are gone.
//!
//! Keeps true: of the processes that finish the calls of one gateway, each appends only if nobody else has since it read
//! the gateway's record, in one transaction.

use std::time::Duration;

use sqlx::Row;

use super::{SqliteAudit, insert};
use crate::audit::{CallEvent, LostWriter, StoredEvent};
use crate::clock::{milliseconds, now_ms};

impl SqliteAudit {
    pub(super) async fn renew(&self, id: &str, oldest_ms: i64) -> sqlx::Result<()> {
        let renew = "INSERT INTO writers (id, seen_ms, oldest_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms, oldest_ms = excluded.oldest_ms";
        query!(renew, id, now_ms(), oldest_ms).execute(&self.write).await.map(drop)
    }

    pub(super) async fn release(&self, id: &str) -> sqlx::Result<()> {
        query!("DELETE FROM writers WHERE id = $1", id).execute(&self.write).await.map(drop)
    }

    pub(super) async fn renew_ended(&self, id: &str, oldest_ms: i64) -> sqlx::Result<()> {
        let renew = "INSERT INTO writers (id, seen_ms, oldest_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms, round = writers.round + 1, \
             oldest_ms = MIN(writers.oldest_ms, excluded.oldest_ms)";
        query!(renew, id, now_ms(), oldest_ms).execute(&self.write).await.map(drop)
    }

    pub(super) async fn find_lost(&self, longest: Duration) -> sqlx::Result<Vec<LostWriter>> {
        let lost =
            "SELECT id, seen_ms, oldest_ms, round FROM writers WHERE seen_ms < $1 ORDER BY seen_ms LIMIT 100";
        let rows = query!(lost, now_ms() - milliseconds(longest)).fetch_all(&self.read).await?;
        let of_row = |row: &sqlx::sqlite::SqliteRow| {
            Ok::<_, sqlx::Error>(LostWriter {
                id: row.try_get("id")?,
                seen_ms: row.try_get("seen_ms")?,
                oldest_ms: row.try_get("oldest_ms")?,
                round: row.try_get("round")?,
            })
        };
        rows.iter().map(of_row).collect()
    }

    pub(super) async fn finish(
        &self,
        lost: &LostWriter,
        events: &[CallEvent],
        is_last: bool,
    ) -> sqlx::Result<bool> {
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        let claim = "UPDATE writers SET round = round + 1 WHERE id = $1 AND round = $2 AND seen_ms = $3";
        let claim = query!(claim, &lost.id, lost.round, lost.seen_ms).execute(&mut *transaction).await?;
        if claim.rows_affected() == 0 {
            return Ok(false);
        }
        insert(&mut transaction, events).await?;
        if is_last {
            let forget = query!("DELETE FROM writers WHERE id = $1", &lost.id);
            forget.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    pub(super) async fn put_in_place(&self, stored: &StoredEvent, event: &CallEvent) -> sqlx::Result<bool> {
        let replace = "UPDATE events SET at_ms = $1, event = $2 WHERE seq = $3 AND event = $4";
        let replace = query!(replace, event.at_ms, &event.event, stored.seq, &stored.event.event);
        Ok(replace.execute(&self.write).await?.rows_affected() > 0)
    }
}
