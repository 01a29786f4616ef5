//! Moves the events that an earlier version keeps in the ledger's file to the audit log.
//!
//! Keeps true: an event is deleted there only once it is durable here, and an event found again after a crash is stored
//! once. It is recognised by its content, because the previous table restarts at 1 whenever it is empty, so its numbers
//! identify nothing by themselves. Neither file's writer is held for longer than a few hundred rows take.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{NEXT, make_room};
use crate::audit::{StoredEvent, stored};
use crate::sqlite::{OpenError, SqliteCalls};

/// Maximum number of events moved at once.
const ROWS: i64 = 500;
/// Pause between batches, which leaves both writers to others.
const REST: Duration = Duration::from_millis(20);
/// Number of the first moved event that is older than the log's own; those after it are below zero too.
const BEFORE_ALL: i64 = i64::MIN / 2;
/// Used bytes below which a VACUUM takes no noticeable time.
const LITTLE: i64 = 16 * 1024 * 1024;

/// Moves all events; returns their number.
pub(super) async fn take_over(
    calls: &SqliteCalls,
    log: &SqlitePool,
    max_bytes: i64,
) -> Result<usize, OpenError> {
    let mut moved = 0;
    let mut found = false;
    while !batch(calls, 1).await?.is_empty() {
        found = true;
        // One process at a time reads and moves. Events that another one moved but has not deleted yet are then the
        // last batch, which the log remembers.
        let mut transaction = log.begin_with("BEGIN IMMEDIATE").await?;
        let rows = batch(calls, ROWS).await?;
        moved += take(&mut transaction, &rows).await?;
        // Keeps the disk from holding all events twice; those beyond the limit would be the next to be deleted.
        make_room(&mut transaction, max_bytes, rows.len()).await?;
        transaction.commit().await?;
        forget(calls, &rows).await?;
        tokio::time::sleep(REST).await;
    }
    if found {
        give_back(calls).await?;
    }
    Ok(moved)
}

/// Returns the oldest events of the previous table.
async fn batch(calls: &SqliteCalls, rows: i64) -> Result<Vec<StoredEvent>, OpenError> {
    let rows = sqlx::query("SELECT seq, at_ms, org, event FROM call_events ORDER BY seq LIMIT $1")
        .bind(rows)
        .fetch_all(&calls.read)
        .await?;
    Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
}

/// Adds the events that are not in the log yet, and remembers this batch instead of the previous one.
async fn take(log: &mut SqliteConnection, rows: &[StoredEvent]) -> Result<usize, OpenError> {
    // An event older than the log's own is placed before them. A gateway of the earlier version that still runs writes
    // events as new as the log's.
    let insert = format!(
        "INSERT INTO events (seq, at_ms, org, event) SELECT CASE \
           WHEN $1 < COALESCE((SELECT at_ms FROM events WHERE seq > 0 ORDER BY seq LIMIT 1), $1 + 1) \
           THEN COALESCE((SELECT MAX(seq) + 1 FROM events WHERE seq < 0), {BEFORE_ALL}) \
           ELSE {NEXT} END, $1, $2, $3"
    );
    let mut added = 0;
    let mut digests = Vec::with_capacity(rows.len());
    for row in rows {
        let digest = digest(row);
        let known: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM moved WHERE digest = $1)")
            .bind(digest.as_slice())
            .fetch_one(&mut *log)
            .await?;
        digests.push(digest);
        if known {
            continue;
        }
        sqlx::query(sqlx::AssertSqlSafe(insert.as_str()))
            .bind(row.event.at_ms)
            .bind(&row.event.org)
            .bind(&row.event.event)
            .execute(&mut *log)
            .await?;
        added += 1;
    }
    sqlx::query("DELETE FROM moved").execute(&mut *log).await?;
    for digest in digests {
        sqlx::query("INSERT INTO moved (digest) VALUES ($1)")
            .bind(digest.as_slice())
            .execute(&mut *log)
            .await?;
    }
    Ok(added)
}

/// Deletes exactly these events: a later one may have the number of an event that another process deleted.
async fn forget(calls: &SqliteCalls, rows: &[StoredEvent]) -> Result<(), OpenError> {
    let mut transaction = calls.write.begin().await?;
    for row in rows {
        sqlx::query("DELETE FROM call_events WHERE seq = $1 AND at_ms = $2 AND org = $3 AND event = $4")
            .bind(row.seq)
            .bind(row.event.at_ms)
            .bind(&row.event.org)
            .bind(&row.event.event)
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Returns the digest of a row with its number, so that two equal events stay two.
fn digest(row: &StoredEvent) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(row.seq.to_be_bytes());
    digest.update(row.event.at_ms.to_be_bytes());
    digest.update(row.event.org.len().to_be_bytes());
    digest.update(row.event.org.as_bytes());
    digest.update(row.event.event.as_bytes());
    digest.finalize().into()
}

/// Shrinks the ledger's file if little is left in it; otherwise its free pages are reused.
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
