//! The audit trail: listed and trimmed here, written by every [`super::Write`].

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{SqliteStore, rows};
use crate::control::{AuditQuery, AuditRecord, StoreError};

const MAX_PAGE: u32 = 1_000;

pub(super) async fn list(store: &SqliteStore, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
    let before = match query.before {
        Some(revision) => rows::signed(revision)?,
        None => i64::MAX,
    };
    let rows = sqlx::query(
        "SELECT revision, at, actor, action, resource, org, detail FROM audit \
         WHERE revision < $1 AND ($2 = '' OR org = $2) ORDER BY revision DESC LIMIT $3",
    )
    .bind(before)
    .bind(query.org.as_deref().unwrap_or(""))
    .bind(i64::from(query.limit.clamp(1, MAX_PAGE)))
    .fetch_all(&store.pool)
    .await?;
    rows.iter().map(record).collect()
}

/// Keeps the newest `keep` rows.
pub(super) async fn prune(store: &SqliteStore, keep: u64) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM audit WHERE revision <= (SELECT revision - $1 FROM control_revision WHERE id = 1)",
    )
    .bind(rows::signed(keep)?)
    .execute(&store.pool)
    .await?;
    Ok(())
}

fn record(row: &SqliteRow) -> Result<AuditRecord, StoreError> {
    Ok(AuditRecord {
        revision: rows::unsigned(row, "revision")?,
        at: rows::unsigned(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        resource: row.try_get("resource")?,
        org: row.try_get("org")?,
        detail: row.try_get("detail")?,
    })
}
