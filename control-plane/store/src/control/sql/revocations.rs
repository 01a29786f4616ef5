//! Revocations: written durably before anyone is told (invariant I-6).

use sqlx::any::{AnyExecutor, AnyRow};
use sqlx::{Any, Row, Transaction};

use super::{SqlStore, rows};
use crate::control::{
    Change, MAX_REVOCATIONS, MAX_REVOCATIONS_PER_ORG, Precondition, RevocationRecord, StoreError, Written,
};

const SELECT_ALL: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     ORDER BY created_at, id";
const SELECT_PAGE: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE $1 = '' OR org = $1 ORDER BY created_at DESC, id DESC LIMIT $2";
const SELECT_ONE: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE id = $1";

pub(super) async fn all(tx: &mut Transaction<'static, Any>) -> Result<Vec<RevocationRecord>, StoreError> {
    let rows = sqlx::query(SELECT_ALL).fetch_all(&mut **tx).await?;
    rows.iter().map(record).collect()
}

pub(super) async fn list(
    store: &SqlStore,
    org: Option<&str>,
    limit: u32,
) -> Result<Vec<RevocationRecord>, StoreError> {
    let rows = sqlx::query(SELECT_PAGE)
        .bind(org.unwrap_or(""))
        .bind(i64::from(limit))
        .fetch_all(&store.revoking)
        .await?;
    rows.iter().map(record).collect()
}

pub(super) async fn one<'e>(
    from: impl AnyExecutor<'e>,
    id: &'e str,
) -> Result<Option<RevocationRecord>, StoreError> {
    let row = sqlx::query(SELECT_ONE).bind(id).fetch_optional(from).await?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn add(
    store: &SqlStore,
    change: &Change,
    new: &RevocationRecord,
) -> Result<Written, StoreError> {
    // Counted before the lock of all writes: those that are added at one moment may go over a bound, by their number.
    let full = full(store, new).await?;
    let mut write = store.write_by(&store.revoking, change, format!("revocation/{}", new.id)).await?;
    write.org = new.org.clone();
    if write.current.is_some() {
        return write.unchanged().await;
    }
    if let Some(full) = full {
        return Err(full);
    }
    let keys = super::machines::hit_until(&mut write.tx, new).await?;
    let certificates = super::certificates::hit_until(&mut write.tx, new).await?;
    let until = rows::signed(new.until)?.max(keys).max(certificates);
    sqlx::query(
        "INSERT INTO revocations (id, kind, org, target, issuer, reason, created_at, until_at, by_platform) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(&new.id)
    .bind(&new.kind)
    .bind(&new.org)
    .bind(&new.target)
    .bind(&new.issuer)
    .bind(&new.reason)
    .bind(rows::signed(new.created_at)?)
    .bind(until)
    .bind(i64::from(new.by_platform))
    .execute(&mut *write.tx)
    .await?;
    write.stamp(true).await?;
    write.commit("revocation.add", &format!("{} {}", new.kind, new.target)).await
}

/// Returns the bound that leaves no room for another revocation, if any.
async fn full(store: &SqlStore, new: &RevocationRecord) -> Result<Option<StoreError>, StoreError> {
    let live = "SELECT COUNT(*) FROM revocations WHERE id <> $1";
    let of_org = "SELECT COUNT(*) FROM revocations WHERE org = $1";
    let count = async |sql: &'static str, key: &str| {
        let counted: i64 = sqlx::query(sql).bind(key).fetch_one(&store.revoking).await?.try_get(0)?;
        Ok::<usize, StoreError>(usize::try_from(counted).unwrap_or(usize::MAX))
    };
    if count(live, &new.id).await? >= MAX_REVOCATIONS {
        return Ok(Some(StoreError::Full { what: "live revocations", bound: MAX_REVOCATIONS }));
    }
    if !new.org.is_empty() && count(of_org, &new.org).await? >= MAX_REVOCATIONS_PER_ORG {
        let what = "live revocations of an org";
        return Ok(Some(StoreError::Full { what, bound: MAX_REVOCATIONS_PER_ORG }));
    }
    Ok(None)
}

pub(super) async fn delete(store: &SqlStore, change: &Change, id: &str) -> Result<Written, StoreError> {
    let mut write = store.write_by(&store.revoking, change, format!("revocation/{id}")).await?;
    let row = sqlx::query(SELECT_ONE).bind(id).fetch_optional(&mut *write.tx).await?;
    let Some(row) = row else {
        return Err(StoreError::NotFound);
    };
    write.org = row.try_get("org")?;
    sqlx::query("DELETE FROM revocations WHERE id = $1").bind(id).execute(&mut *write.tx).await?;
    write.stamp(false).await?;
    write.commit("revocation.delete", "").await
}

/// Deletes what no living token can match any more.
pub(super) async fn prune(store: &SqlStore, change: &Change) -> Result<u64, StoreError> {
    let now = rows::signed(change.at)?;
    // A look without the write lock first: most runs find nothing.
    let due = sqlx::query("SELECT COUNT(*) FROM revocations WHERE until_at <= $1")
        .bind(now)
        .fetch_one(&store.revoking)
        .await?;
    if due.try_get::<i64, _>(0)? == 0 {
        return Ok(0);
    }
    let change = Change { precondition: Precondition::None, ..change.clone() };
    let mut write = store.write_by(&store.revoking, &change, "revocation/*".to_owned()).await?;
    sqlx::query("DELETE FROM resources WHERE name IN (SELECT 'revocation/' || id FROM revocations WHERE until_at <= $1)")
        .bind(now)
        .execute(&mut *write.tx)
        .await?;
    let pruned =
        sqlx::query("DELETE FROM revocations WHERE until_at <= $1").bind(now).execute(&mut *write.tx).await?;
    let pruned = pruned.rows_affected();
    write.commit("revocation.prune", &format!("{pruned} expired")).await?;
    Ok(pruned)
}

fn record(row: &AnyRow) -> Result<RevocationRecord, StoreError> {
    Ok(RevocationRecord {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        org: row.try_get("org")?,
        target: row.try_get("target")?,
        issuer: row.try_get("issuer")?,
        reason: row.try_get("reason")?,
        created_at: rows::unsigned(row, "created_at")?,
        until: rows::unsigned(row, "until_at")?,
        by_platform: rows::flag(row, "by_platform")?,
    })
}
