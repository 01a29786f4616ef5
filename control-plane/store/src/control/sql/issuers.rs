//! Issuers that admins manage, and keys fetched from any issuer.

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::write::Rank;
use super::{ControlStore, Write, rows};
use crate::control::{
    Change, Commit, IssuerKeysRecord, IssuerRecord, MAX_ISSUERS, Result, Side, StoreError, UnreadableIssuer,
};

const SELECT_ALL: &str = "SELECT i.side, i.name, i.document, i.updated_at, r.revision FROM issuers i \
     JOIN resources r ON r.name = 'issuer/' || i.side || '/' || i.name ORDER BY i.side, i.name";
const SELECT_ONE: &str = "SELECT i.side, i.name, i.document, i.updated_at, r.revision FROM issuers i \
     JOIN resources r ON r.name = 'issuer/' || i.side || '/' || i.name WHERE i.side = $1 AND i.name = $2";
/// Maximum number of deleted issuers whose `iss` is kept; the latest ones.
const MAX_FORMER: i64 = 1_000;
/// Maximum time, in milliseconds, by which keys that are being stored may be older than the stored ones: longer than a
/// write takes. Keys from a later time were stored by a control plane whose clock was ahead.
const OVERTAKEN_BY: i64 = 5 * 60 * 1_000;
const SELECT_KEYS: &str =
    "SELECT side, name, source, content, fetched_at FROM issuer_keys ORDER BY side, name";

pub(super) async fn all<'e>(
    from: impl AnyExecutor<'e>,
) -> Result<(Vec<IssuerRecord>, Vec<UnreadableIssuer>)> {
    let rows = sqlx::query(SELECT_ALL).fetch_all(from).await?;
    let unread =
        |row: &AnyRow| Ok(UnreadableIssuer { side: row.try_get("side")?, name: row.try_get("name")? });
    rows::each(&rows, record, |row, _| unread(row))
}

impl ControlStore {
    pub async fn issuers(&self) -> Result<Vec<IssuerRecord>> {
        self.within(async { Ok(all(&self.pool).await?.0) }).await
    }

    pub async fn put_issuer(
        &self,
        change: &Change,
        side: Side,
        name: &str,
        document: &str,
    ) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(side, name)).await?;
            let stored = sqlx::query("SELECT document FROM issuers WHERE side = $1 AND name = $2")
                .bind(side.as_str())
                .bind(name)
                .fetch_optional(&mut *write.tx)
                .await?;
            match stored {
                Some(row) if row.try_get::<String, _>("document")? == document => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let all = ("SELECT COUNT(*) FROM issuers WHERE name <> $1", "");
                    super::check_bound(&mut write.tx, all, "issuers", MAX_ISSUERS).await?;
                }
            }
            sqlx::query(
                "INSERT INTO issuers (side, name, document, updated_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (side, name) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at",
            )
            .bind(side.as_str())
            .bind(name)
            .bind(document)
            .bind(rows::signed(change.at)?)
            .execute(&mut *write.tx)
            .await?;
            write.stamp(true).await?;
            write.commit("issuer.put", "").await
        })
        .await
    }

    pub async fn issuer_keys(&self) -> Result<Vec<IssuerKeysRecord>> {
        self.within(all_keys(&self.pool)).await
    }

    pub async fn issuer(&self, side: Side, name: &str) -> Result<Option<IssuerRecord>> {
        self.within(async {
            let row =
                sqlx::query(SELECT_ONE).bind(side.as_str()).bind(name).fetch_optional(&self.pool).await?;
            row.as_ref().map(record).transpose()
        })
        .await
    }

    /// Removes the issuer and its fetched keys. Its `iss` is kept ([`ControlStore::former_iss`]).
    pub async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(side, name)).await?;
            let deleted = sqlx::query("DELETE FROM issuers WHERE side = $1 AND name = $2 RETURNING document")
                .bind(side.as_str())
                .bind(name)
                .fetch_optional(&mut *write.tx)
                .await?;
            let Some(deleted) = deleted else { return Err(StoreError::NotFound) };
            let document: String = deleted.try_get("document")?;
            keep_iss(&mut write, (side, name), &document).await?;
            sqlx::query("DELETE FROM issuer_keys WHERE side = $1 AND name = $2")
                .bind(side.as_str())
                .bind(name)
                .execute(&mut *write.tx)
                .await?;
            write.stamp(false).await?;
            write.commit("issuer.delete", "").await
        })
        .await
    }

    /// Returns the `iss` of the last deleted issuer of this name; at most 1,000 names are kept.
    pub async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>> {
        self.within(async {
            let row = sqlx::query("SELECT iss FROM former_issuers WHERE side = $1 AND name = $2")
                .bind(side.as_str())
                .bind(name)
                .fetch_optional(&self.pool)
                .await?;
            row.map(|row| row.try_get("iss")).transpose().map_err(StoreError::from)
        })
        .await
    }

    /// Stores fetched keys. The same content from the same source is not a change: only the time is updated. Keys that
    /// were fetched later stay, unless their time is so much later that the clock of who fetched them was ahead.
    pub async fn put_issuer_keys(&self, change: &Change, record: &IssuerKeysRecord) -> Result<Commit> {
        self.within(async {
            let fetched_at = rows::signed(record.fetched_at)?;
            let latest = fetched_at.saturating_add(OVERTAKEN_BY);
            let turn = self.writers.turn(Rank::Other).await?;
            // Usually the content is unchanged, and subscribers need no update.
            let seen = sqlx::query(
                "UPDATE issuer_keys SET fetched_at = $5 \
                 WHERE side = $1 AND name = $2 AND source = $3 AND content = $4 AND (fetched_at <= $5 OR fetched_at > $6)",
            )
            .bind(record.side.as_str())
            .bind(&record.name)
            .bind(&record.source)
            .bind(&record.content)
            .bind(fetched_at)
            .bind(latest)
            .execute(&self.pool)
            .await?;
            drop(turn);
            if seen.rows_affected() > 0 {
                return Ok(Commit { revision: 0, changed: false });
            }
            let mut write = self.write(change, resource(record.side, &record.name)).await?;
            let written = sqlx::query(
                "INSERT INTO issuer_keys (side, name, source, content, fetched_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (side, name) DO UPDATE SET source = excluded.source, content = excluded.content, \
                 fetched_at = excluded.fetched_at \
                 WHERE issuer_keys.fetched_at <= excluded.fetched_at OR issuer_keys.fetched_at > $6",
            )
            .bind(record.side.as_str())
            .bind(&record.name)
            .bind(&record.source)
            .bind(&record.content)
            .bind(fetched_at)
            .bind(latest)
            .execute(&mut *write.tx)
            .await?;
            if written.rows_affected() == 0 {
                return write.unchanged().await;
            }
            write.commit("issuer.keys", &record.source).await
        })
        .await
    }
}

/// Keeps the `iss` of a deleted issuer and replaces the name's previous one. An unreadable document was never in force.
async fn keep_iss(write: &mut Write<'_>, (side, name): (Side, &str), document: &str) -> Result<()> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    let Some(iss) = document.get("iss").and_then(serde_json::Value::as_str) else { return Ok(()) };
    sqlx::query(
        "INSERT INTO former_issuers (side, name, iss, deleted_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (side, name) DO UPDATE SET iss = excluded.iss, deleted_at = excluded.deleted_at",
    )
    .bind(side.as_str())
    .bind(name)
    .bind(iss)
    .bind(rows::signed(write.change.at)?)
    .execute(&mut *write.tx)
    .await?;
    sqlx::query(
        "DELETE FROM former_issuers WHERE (side, name) NOT IN (SELECT side, name FROM former_issuers \
         ORDER BY deleted_at DESC, side, name LIMIT $1)",
    )
    .bind(MAX_FORMER)
    .execute(&mut *write.tx)
    .await?;
    Ok(())
}

pub(super) async fn all_keys<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<IssuerKeysRecord>> {
    let rows: Vec<AnyRow> = sqlx::query(SELECT_KEYS).fetch_all(from).await?;
    let keys = |row: &AnyRow| {
        Ok(IssuerKeysRecord {
            side: side(row)?,
            name: row.try_get("name")?,
            source: row.try_get("source")?,
            content: row.try_get("content")?,
            fetched_at: rows::unsigned(row, "fetched_at")?,
        })
    };
    // The issuer of unreadable keys is reported by itself.
    Ok(rows::each(&rows, keys, |_, _| Ok(()))?.0)
}

fn resource(side: Side, name: &str) -> String {
    format!("issuer/{}/{name}", side.as_str())
}

fn side(row: &AnyRow) -> Result<Side> {
    let text: String = row.try_get("side")?;
    Side::parse(&text).ok_or_else(|| StoreError::Backend(format!("no side of an issuer: {text}")))
}

fn record(row: &AnyRow) -> Result<IssuerRecord> {
    Ok(IssuerRecord {
        side: side(row)?,
        name: row.try_get("name")?,
        document: row.try_get("document")?,
        revision: rows::unsigned(row, "revision")?,
        updated_at: rows::unsigned(row, "updated_at")?,
    })
}
