//! The events that an earlier version kept in the file of the ledger, brought into the audit log's own.
//!
//! Keeps true: an event is deleted there only when it is durable here, and one that comes twice is kept once, by its
//! number; neither file's writer is held for longer than a few hundred rows take.

use std::time::Duration;

use sqlx::{Row, SqlitePool};

use super::{make_room, stored};
use crate::calls::{OpenError, SqliteCalls};

/// Most events at a time.
const ROWS: i64 = 500;
/// How long both writers are left to others in between.
const REST: Duration = Duration::from_millis(20);
/// Added to the number of an event of the former table: below zero, in its old order, and before every new one.
const BEFORE_ALL: i64 = i64::MIN / 2;
/// With less in the file than this, in bytes, giving back what the events have left free takes no time.
const LITTLE: i64 = 16 * 1024 * 1024;

/// Returns how many it found.
pub(super) async fn take_over(
    calls: &SqliteCalls,
    log: &SqlitePool,
    max_bytes: i64,
) -> Result<usize, OpenError> {
    let mut moved = 0;
    loop {
        let rows = sqlx::query("SELECT seq, at_ms, org, event FROM call_events ORDER BY seq LIMIT $1")
            .bind(ROWS)
            .fetch_all(&calls.read)
            .await?;
        let rows = rows.iter().map(stored).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = rows.last().map(|row| row.seq) else { break };
        let mut transaction = log.begin().await?;
        for row in &rows {
            sqlx::query("INSERT INTO events (seq, at_ms, org, event) VALUES ($1, $2, $3, $4) ON CONFLICT (seq) DO NOTHING")
                .bind(BEFORE_ALL.saturating_add(row.seq))
                .bind(row.event.at_ms)
                .bind(&row.event.org)
                .bind(&row.event.event)
                .execute(&mut *transaction)
                .await?;
        }
        // The disk need not hold both; what is beyond the bound here would be the next to go.
        make_room(&mut transaction, max_bytes, rows.len()).await?;
        transaction.commit().await?;
        sqlx::query("DELETE FROM call_events WHERE seq <= $1").bind(last).execute(&calls.write).await?;
        moved += rows.len();
        tokio::time::sleep(REST).await;
    }
    if moved > 0 {
        give_back(calls).await?;
    }
    Ok(moved)
}

/// Shrinks the file of the ledger where little is left in it; where much is, its free pages are used again.
async fn give_back(calls: &SqliteCalls) -> Result<(), OpenError> {
    let row = sqlx::query(
        "SELECT (page_count - freelist_count) * page_size AS used \
         FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
    )
    .fetch_one(&calls.read)
    .await?;
    let used: i64 = row.try_get("used")?;
    if used < LITTLE {
        sqlx::query("VACUUM").execute(&calls.write).await?;
    }
    Ok(())
}
