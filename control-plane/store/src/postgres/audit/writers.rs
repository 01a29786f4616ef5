//! The gateways that write to the log, and the last events of calls of those that are gone.
//!
//! Keeps true: of the processes that finish the calls of one gateway, each appends only if nobody else has since it read
//! the gateway's record, in one transaction.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresAudit;
use crate::audit::{CallEvent, LostWriter, StoredEvent};
use crate::clock::milliseconds;

impl PostgresAudit {
    pub(super) async fn renew(&self, id: &str, oldest_ms: i64) -> sqlx::Result<()> {
        let renew = "INSERT INTO call_audit_writers (id, seen_ms, oldest_ms) VALUES ($1, now_ms(), $2) \
             ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms, oldest_ms = excluded.oldest_ms";
        query!(renew, id, oldest_ms).execute(&self.pool).await.map(drop)
    }

    pub(super) async fn release(&self, id: &str) -> sqlx::Result<()> {
        query!("DELETE FROM call_audit_writers WHERE id = $1", id).execute(&self.pool).await.map(drop)
    }

    pub(super) async fn renew_ended(&self, id: &str, oldest_ms: i64) -> sqlx::Result<()> {
        let renew = "INSERT INTO call_audit_writers (id, seen_ms, oldest_ms) VALUES ($1, now_ms(), $2) \
             ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms, round = call_audit_writers.round + 1, \
             oldest_ms = LEAST(call_audit_writers.oldest_ms, excluded.oldest_ms)";
        query!(renew, id, oldest_ms).execute(&self.pool).await.map(drop)
    }

    pub(super) async fn find_lost(&self, longest: Duration) -> sqlx::Result<Vec<LostWriter>> {
        let lost = "SELECT id, seen_ms, oldest_ms, round FROM call_audit_writers \
             WHERE seen_ms < now_ms() - $1 ORDER BY seen_ms LIMIT 100";
        let rows = query!(lost, milliseconds(longest)).fetch_all(&self.pool).await?;
        let of_row = |row: &PgRow| {
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
        let mut transaction = self.pool.begin().await?;
        let claim =
            "UPDATE call_audit_writers SET round = round + 1 WHERE id = $1 AND round = $2 AND seen_ms = $3";
        let claim = query!(claim, &lost.id, lost.round, lost.seen_ms).execute(&mut *transaction).await?;
        if claim.rows_affected() == 0 {
            return Ok(false);
        }
        if !events.is_empty() {
            let times: Vec<i64> = events.iter().map(|event| event.at_ms).collect();
            let orgs: Vec<String> = events.iter().map(|event| event.org.clone()).collect();
            let texts: Vec<String> = events.iter().map(|event| event.event.clone()).collect();
            let append = query!("SELECT append_call_audit($1, $2, $3)", times, orgs, texts);
            append.execute(&mut *transaction).await?;
        }
        if is_last {
            let forget = query!("DELETE FROM call_audit_writers WHERE id = $1", &lost.id);
            forget.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    pub(super) async fn put_in_place(&self, stored: &StoredEvent, event: &CallEvent) -> sqlx::Result<bool> {
        let replace = "UPDATE call_audit SET at_ms = $1, event = $2 WHERE seq = $3 AND event = $4";
        let replace = query!(replace, event.at_ms, &event.event, stored.seq, &stored.event.event);
        Ok(replace.execute(&self.pool).await?.rows_affected() > 0)
    }
}
