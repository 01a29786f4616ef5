//! Arguments and results of calls, in a table of their own.
//!
//! Keeps true: there are at most as many as [`max_bodies`] allows, and none is older than the events of calls.

use sqlx::Row;

use super::{SWEEP_REST, SWEEP_ROWS, SqliteAudit};
use crate::audit::{CapturedBody, KEEP_EVENTS, max_bodies};
use crate::clock::{milliseconds, now_ms};

impl SqliteAudit {
    /// Keeps the arguments and results of calls of these servers from now on.
    pub fn capturing(mut self, servers: Vec<String>) -> SqliteAudit {
        self.captured_servers = servers;
        self
    }

    pub(super) async fn store_bodies(&self, bodies: &[CapturedBody]) -> sqlx::Result<()> {
        let mut transaction = self.write.begin_with("BEGIN IMMEDIATE").await?;
        for body in bodies {
            let insert = "INSERT INTO bodies (at_ms, org, call, part, body) VALUES ($1, $2, $3, $4, $5)";
            let insert = query!(insert, body.at_ms, &body.org, &body.call, &body.part, &body.body);
            insert.execute(&mut *transaction).await?;
        }
        // Expired ones are left to the sweep: no index has their time.
        let surplus = "DELETE FROM bodies WHERE seq <= (SELECT MAX(seq) FROM bodies) - $1";
        query!(surplus, max_bodies(self.max_bytes)).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Deletes expired bodies, also where none are kept any more.
    pub(super) async fn delete_expired_bodies(&self) -> sqlx::Result<()> {
        let oldest = now_ms() - milliseconds(KEEP_EVENTS);
        loop {
            // Bodies are in order of time, as events are.
            let deleted = "DELETE FROM bodies WHERE seq IN (SELECT seq FROM bodies ORDER BY seq LIMIT $1) AND at_ms < $2";
            let deleted = query!(deleted, SWEEP_ROWS, oldest).execute(&self.write).await?;
            if deleted.rows_affected() == 0 {
                return Ok(());
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
    }

    pub(super) async fn bodies_of(&self, call: &str) -> sqlx::Result<Vec<CapturedBody>> {
        let select = "SELECT at_ms, org, call, part, body FROM bodies WHERE call = $1 AND at_ms >= $2 ORDER BY seq LIMIT 100";
        let oldest = now_ms() - milliseconds(KEEP_EVENTS);
        let rows = query!(select, call, oldest).fetch_all(&self.read).await?;
        let of_row = |row: &sqlx::sqlite::SqliteRow| {
            Ok::<_, sqlx::Error>(CapturedBody {
                at_ms: row.try_get("at_ms")?,
                org: row.try_get("org")?,
                call: row.try_get("call")?,
                part: row.try_get("part")?,
                body: row.try_get("body")?,
            })
        };
        rows.iter().map(of_row).collect()
    }
}
