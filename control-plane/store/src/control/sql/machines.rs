//! Keys of machines.
//!
//! Keeps true: a revocation that hits a key is there as long as the key is, whichever of the two came first. Tokens live a
//! day at most, and revocations are forgotten after that; keys live longer.

use sqlx::any::{AnyExecutor, AnyRow};
use sqlx::{Any, Row, Transaction};

use super::{SqlStore, rows};
use crate::control::{
    Change, MAX_MACHINE_KEYS, MAX_MACHINE_KEYS_PER_ORG, MachineKeyRecord, RevocationRecord, StoreError,
    Written,
};

const SELECT_ALL: &str = "SELECT id, org, machine, hash, groups, scopes, created_at, expires_at FROM machine_keys \
     ORDER BY org, created_at, id";
const SELECT_OF_ORG: &str = "SELECT id, org, machine, hash, groups, scopes, created_at, expires_at FROM machine_keys \
     WHERE org = $1 ORDER BY created_at, id";

pub(super) async fn all<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<MachineKeyRecord>, StoreError> {
    sqlx::query(SELECT_ALL).fetch_all(from).await?.iter().map(record).collect()
}

pub(super) async fn of_org(store: &SqlStore, org: &str) -> Result<Vec<MachineKeyRecord>, StoreError> {
    sqlx::query(SELECT_OF_ORG).bind(org).fetch_all(&store.pool).await?.iter().map(record).collect()
}

pub(super) async fn add(
    store: &SqlStore,
    change: &Change,
    new: &MachineKeyRecord,
) -> Result<Written, StoreError> {
    let mut write = store.write(change, format!("machine_key/{}", new.id)).await?;
    write.org = new.org.clone();
    // Those that have ended make room.
    for sql in [
        "DELETE FROM resources WHERE name IN (SELECT 'machine_key/' || id FROM machine_keys WHERE expires_at <= $1)",
        "DELETE FROM machine_keys WHERE expires_at <= $1",
    ] {
        sqlx::query(sql).bind(rows::signed(change.at)?).execute(&mut *write.tx).await?;
    }
    let all =
        super::count(&mut write.tx, "SELECT COUNT(*) FROM machine_keys WHERE id <> $1", &new.id).await?;
    if all >= MAX_MACHINE_KEYS {
        return Err(StoreError::Full { what: "keys of machines", bound: MAX_MACHINE_KEYS });
    }
    let sql = "SELECT COUNT(*) FROM machine_keys WHERE org = $1";
    if super::count(&mut write.tx, sql, &new.org).await? >= MAX_MACHINE_KEYS_PER_ORG {
        return Err(StoreError::Full { what: "keys of machines of an org", bound: MAX_MACHINE_KEYS_PER_ORG });
    }
    let (created, expires) = (rows::signed(new.created_at)?, rows::signed(new.expires_at)?);
    sqlx::query(
        "INSERT INTO machine_keys (id, org, machine, hash, groups, scopes, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&new.id)
    .bind(&new.org)
    .bind(&new.machine)
    .bind(&new.hash)
    .bind(texts(&new.groups)?)
    .bind(texts(&new.scopes)?)
    .bind(created)
    .bind(expires)
    .execute(&mut *write.tx)
    .await?;
    // Of the same second as the key, or later: they hit it.
    sqlx::query(
        "UPDATE revocations SET until_at = $1 WHERE until_at < $1 AND created_at / 1000 >= $2 / 1000 \
         AND ((kind = 'user' AND org = $3 AND target = $4) OR (kind = 'org' AND target = $3))",
    )
    .bind(expires)
    .bind(created)
    .bind(&new.org)
    .bind(&new.machine)
    .execute(&mut *write.tx)
    .await?;
    write.stamp(true).await?;
    write.commit("machine_key.add", &detail(new)).await
}

pub(super) async fn delete(
    store: &SqlStore,
    change: &Change,
    org: &str,
    id: &str,
) -> Result<Written, StoreError> {
    let mut write = store.write(change, format!("machine_key/{id}")).await?;
    write.org = org.to_owned();
    let gone = sqlx::query(
        "DELETE FROM machine_keys WHERE org = $1 AND id = $2 \
         RETURNING id, org, machine, hash, groups, scopes, created_at, expires_at",
    )
    .bind(org)
    .bind(id)
    .fetch_optional(&mut *write.tx)
    .await?;
    let gone = record(&gone.ok_or(StoreError::NotFound)?)?;
    write.stamp(false).await?;
    write.commit("machine_key.delete", &detail(&gone)).await
}

/// Until when a revocation must be there for the keys that it hits; 0 where it hits none.
pub(super) async fn hit_until(
    tx: &mut Transaction<'static, Any>,
    revocation: &RevocationRecord,
) -> Result<i64, StoreError> {
    let RevocationRecord { kind, org, target, .. } = revocation;
    let row = sqlx::query(
        "SELECT COALESCE(MAX(expires_at), 0) FROM machine_keys WHERE ($2 = '' OR org = $2) AND ( \
         ($1 = 'token' AND id = $3) OR ($1 = 'token_hash' AND hash = $3) OR ($1 = 'user' AND machine = $3) \
         OR ($1 = 'org' AND org = $3))",
    )
    .bind(kind)
    .bind(org)
    .bind(target)
    .fetch_one(&mut **tx)
    .await?;
    Ok(row.try_get(0)?)
}

fn detail(record: &MachineKeyRecord) -> String {
    let MachineKeyRecord { machine, groups, scopes, expires_at, .. } = record;
    format!("{machine} groups={} scopes={} expires={expires_at}", groups.join(","), scopes.join(","))
}

fn texts(list: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(list).map_err(|error| StoreError::Backend(error.to_string()))
}

fn record(row: &AnyRow) -> Result<MachineKeyRecord, StoreError> {
    let list = |column: &'static str| {
        let text: String = row.try_get(column)?;
        serde_json::from_str(&text).map_err(|error| StoreError::Backend(format!("column {column}: {error}")))
    };
    Ok(MachineKeyRecord {
        id: row.try_get("id")?,
        org: row.try_get("org")?,
        machine: row.try_get("machine")?,
        hash: row.try_get("hash")?,
        groups: list("groups")?,
        scopes: list("scopes")?,
        created_at: rows::unsigned(row, "created_at")?,
        expires_at: rows::unsigned(row, "expires_at")?,
    })
}
