//! Servers: the sources of each, verbatim.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{SqliteStore, rows};
use crate::control::{Change, MAX_SERVERS, ServerRecord, SourceFile, StoreError, Written};

const SELECT_ALL: &str = "SELECT s.name, s.sources, s.content_hash, s.updated_at, r.revision \
     FROM servers s JOIN resources r ON r.name = 'server/' || s.name ORDER BY s.name";
const SELECT_ONE: &str = "SELECT s.name, s.sources, s.content_hash, s.updated_at, r.revision \
     FROM servers s JOIN resources r ON r.name = 'server/' || s.name WHERE s.name = $1";

pub(super) async fn all(tx: &mut Transaction<'static, Sqlite>) -> Result<Vec<ServerRecord>, StoreError> {
    let rows = sqlx::query(SELECT_ALL).fetch_all(&mut **tx).await?;
    rows.iter().map(record).collect()
}

pub(super) async fn one(store: &SqliteStore, name: &str) -> Result<Option<ServerRecord>, StoreError> {
    let row = sqlx::query(SELECT_ONE).bind(name).fetch_optional(&store.pool).await?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn put(
    store: &SqliteStore,
    change: &Change,
    name: &str,
    files: &[SourceFile],
    content_hash: &str,
) -> Result<Written, StoreError> {
    let sources = serde_json::to_string(files).map_err(|e| StoreError::Backend(e.to_string()))?;
    let mut write = store.write(change, format!("server/{name}")).await?;
    if let Some(evaluated_at) = change.evaluated_at {
        unmoved(&mut write.tx, evaluated_at).await?;
    }
    let stored = sqlx::query("SELECT sources, content_hash FROM servers WHERE name = $1")
        .bind(name)
        .fetch_optional(&mut *write.tx)
        .await?;
    match stored {
        // Same meaning and same text. A reformatted file is stored, so that what is read is what was sent.
        Some(row)
            if row.try_get::<String, _>("content_hash")? == content_hash
                && row.try_get::<String, _>("sources")? == sources =>
        {
            return write.unchanged().await;
        }
        Some(_) => {}
        None => {
            let servers =
                super::count(&mut write.tx, "SELECT COUNT(*) FROM servers WHERE name <> $1", name).await?;
            if servers >= MAX_SERVERS {
                return Err(StoreError::Full { what: "servers", bound: MAX_SERVERS });
            }
        }
    }
    sqlx::query(
        "INSERT INTO servers (name, sources, content_hash, updated_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (name) DO UPDATE SET sources = excluded.sources, \
         content_hash = excluded.content_hash, updated_at = excluded.updated_at",
    )
    .bind(name)
    .bind(&sources)
    .bind(content_hash)
    .bind(rows::signed(change.at)?)
    .execute(&mut *write.tx)
    .await?;
    write.stamp(true).await?;
    write.commit("server.put", content_hash).await
}

/// Whether every server is as it was at `revision`; one that is gone makes no new conflict.
async fn unmoved(tx: &mut Transaction<'static, Sqlite>, revision: u64) -> Result<(), StoreError> {
    let moved =
        sqlx::query("SELECT name FROM resources WHERE name LIKE 'server/%' AND revision > $1 LIMIT 1")
            .bind(rows::signed(revision)?)
            .fetch_optional(&mut **tx)
            .await?;
    if moved.is_some() { Err(StoreError::Moved) } else { Ok(()) }
}

pub(super) async fn delete(store: &SqliteStore, change: &Change, name: &str) -> Result<Written, StoreError> {
    let mut write = store.write(change, format!("server/{name}")).await?;
    let deleted =
        sqlx::query("DELETE FROM servers WHERE name = $1").bind(name).execute(&mut *write.tx).await?;
    if deleted.rows_affected() == 0 {
        return Err(StoreError::NotFound);
    }
    write.stamp(false).await?;
    write.commit("server.delete", "").await
}

fn record(row: &SqliteRow) -> Result<ServerRecord, StoreError> {
    let sources: String = row.try_get("sources")?;
    let files: Vec<SourceFile> = serde_json::from_str(&sources)
        .map_err(|e| StoreError::Backend(format!("stored sources are not what was written: {e}")))?;
    Ok(ServerRecord {
        name: row.try_get("name")?,
        files,
        content_hash: row.try_get("content_hash")?,
        revision: rows::unsigned(row, "revision")?,
        updated_at: rows::unsigned(row, "updated_at")?,
    })
}
