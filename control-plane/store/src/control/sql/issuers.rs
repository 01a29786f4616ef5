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
    rows::each(&rows, record, |row, _| record!(row, UnreadableIssuer { side, name }))
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
            let sql = "SELECT document FROM issuers WHERE side = $1 AND name = $2";
            match query!(sql, side.as_str(), name).fetch_optional(&mut *write.tx).await? {
                Some(row) if row.try_get::<String, _>("document")? == document => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let all = ("SELECT COUNT(*) FROM issuers WHERE name <> $1", "");
                    super::check_bound(&mut write.tx, all, "issuers", MAX_ISSUERS).await?;
                }
            }
            let put = "INSERT INTO issuers (side, name, document, updated_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (side, name) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at";
            let put = query!(put, side.as_str(), name, document, rows::signed(change.at)?);
            put.execute(&mut *write.tx).await?;
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
            let row = query!(SELECT_ONE, side.as_str(), name).fetch_optional(&self.pool).await?;
            row.as_ref().map(record).transpose()
        })
        .await
    }

    /// Removes the issuer and its fetched keys. Its `iss` is kept ([`ControlStore::former_iss`]).
    pub async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(side, name)).await?;
            let issuer = "DELETE FROM issuers WHERE side = $1 AND name = $2 RETURNING document";
            let deleted = query!(issuer, side.as_str(), name).fetch_optional(&mut *write.tx).await?;
            let document: String = deleted.ok_or(StoreError::NotFound)?.try_get("document")?;
            keep_iss(&mut write, (side, name), &document).await?;
            let keys = "DELETE FROM issuer_keys WHERE side = $1 AND name = $2";
            query!(keys, side.as_str(), name).execute(&mut *write.tx).await?;
            write.stamp(false).await?;
            write.commit("issuer.delete", "").await
        })
        .await
    }

    /// Returns the `iss` of the last deleted issuer of this name; at most 1,000 names are kept.
    pub async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>> {
        self.within(async {
            let sql = "SELECT iss FROM former_issuers WHERE side = $1 AND name = $2";
            let row = query!(sql, side.as_str(), name).fetch_optional(&self.pool).await?;
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
            let IssuerKeysRecord { name, source, content, .. } = record;
            let side = record.side.as_str();
            let turn = self.writers.turn(Rank::Other).await?;
            // Usually the content is unchanged, and subscribers need no update.
            let seen = "UPDATE issuer_keys SET fetched_at = $5 \
                 WHERE side = $1 AND name = $2 AND source = $3 AND content = $4 AND (fetched_at <= $5 OR fetched_at > $6)";
            let seen = query!(seen, side, name, source, content, fetched_at, latest);
            let seen = seen.execute(&self.pool).await?;
            drop(turn);
            if seen.rows_affected() > 0 {
                return Ok(Commit { revision: 0, changed: false });
            }
            let mut write = self.write(change, resource(record.side, name)).await?;
            let put = "INSERT INTO issuer_keys (side, name, source, content, fetched_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (side, name) DO UPDATE SET source = excluded.source, content = excluded.content, \
                 fetched_at = excluded.fetched_at \
                 WHERE issuer_keys.fetched_at <= excluded.fetched_at OR issuer_keys.fetched_at > $6";
            let put = query!(put, side, name, source, content, fetched_at, latest);
            if put.execute(&mut *write.tx).await?.rows_affected() == 0 {
                return write.unchanged().await;
            }
            write.commit("issuer.keys", source).await
        })
        .await
    }
}

/// Keeps the `iss` of a deleted issuer and replaces the name's previous one. An unreadable document was never in force.
async fn keep_iss(write: &mut Write<'_>, (side, name): (Side, &str), document: &str) -> Result<()> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    let Some(iss) = document.get("iss").and_then(serde_json::Value::as_str) else { return Ok(()) };
    let put = "INSERT INTO former_issuers (side, name, iss, deleted_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (side, name) DO UPDATE SET iss = excluded.iss, deleted_at = excluded.deleted_at";
    let put = query!(put, side.as_str(), name, iss, rows::signed(write.change.at)?);
    put.execute(&mut *write.tx).await?;
    let surplus = "DELETE FROM former_issuers WHERE (side, name) NOT IN (SELECT side, name FROM former_issuers \
         ORDER BY deleted_at DESC, side, name LIMIT $1)";
    query!(surplus, MAX_FORMER).execute(&mut *write.tx).await?;
    Ok(())
}

pub(super) async fn all_keys<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<IssuerKeysRecord>> {
    let rows: Vec<AnyRow> = sqlx::query(SELECT_KEYS).fetch_all(from).await?;
    let keys = |row: &AnyRow| record!(row, IssuerKeysRecord { side, name, source, content, fetched_at });
    // The issuer of unreadable keys is reported by itself.
    Ok(rows::each(&rows, keys, |_, _| Ok(()))?.0)
}

fn resource(side: Side, name: &str) -> String {
    format!("issuer/{}/{name}", side.as_str())
}

impl rows::Column for Side {
    fn read(row: &AnyRow, column: &'static str) -> Result<Side> {
        let text: String = row.try_get(column)?;
        Side::parse(&text).ok_or_else(|| StoreError::Backend(format!("no side of an issuer: {text}")))
    }
}

fn record(row: &AnyRow) -> Result<IssuerRecord> {
    record!(row, IssuerRecord { side, name, document, revision, updated_at })
}
