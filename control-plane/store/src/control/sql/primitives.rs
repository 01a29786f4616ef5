//! The servers that may have a primitive under an id.
//!
//! Keeps true: an id stays with the server that stored it first, also when that server is deleted.

use std::collections::BTreeSet;

use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::write::Write;
use super::{SqlStore, resource_revision, rows};
use crate::control::{Change, PrimitiveServer, StoreError, Versioned, Written};

pub(super) async fn of_id(store: &SqlStore, id: &str) -> Result<Versioned<Vec<PrimitiveServer>>, StoreError> {
    let mut tx = store.snapshot().await?;
    let revision = resource_revision(&mut tx, &resource(id)).await?.unwrap_or(0);
    Ok(Versioned { revision, value: read(&mut tx, id).await? })
}

/// The ids among these that another server stored first and this one is not granted, each with that server.
pub(super) async fn of_others(
    store: &SqlStore,
    server: &str,
    ids: &[&str],
) -> Result<Vec<PrimitiveServer>, StoreError> {
    let mut tx = store.snapshot().await?;
    let own = ids_of(&mut tx, server).await?;
    let mut found = Vec::new();
    for id in ids.iter().filter(|id| !own.contains(**id)) {
        found.extend(read(&mut tx, id).await?.into_iter().filter(|known| known.first));
    }
    Ok(found)
}

/// Notes the ids that a server has by a write that is under way.
pub(super) async fn take(write: &mut Write<'_>, server: &str, ids: &[&str]) -> Result<(), StoreError> {
    let own = ids_of(&mut write.tx, server).await?;
    for id in ids.iter().filter(|id| !own.contains(**id)) {
        let is_first = read(&mut write.tx, id).await?.iter().all(|known| !known.first);
        insert(&mut write.tx, id, server, is_first).await?;
    }
    Ok(())
}

pub(super) async fn grant(
    store: &SqlStore,
    change: &Change,
    id: &str,
    server: &str,
) -> Result<Written, StoreError> {
    let mut write = store.write(change, resource(id)).await?;
    if read(&mut write.tx, id).await?.iter().any(|known| known.server == server) {
        return write.unchanged().await;
    }
    insert(&mut write.tx, id, server, false).await?;
    write.stamp(true).await?;
    write.commit("primitive.grant", server).await
}

pub(super) async fn withdraw(
    store: &SqlStore,
    change: &Change,
    id: &str,
    server: &str,
) -> Result<Written, StoreError> {
    let mut write = store.write(change, resource(id)).await?;
    let deleted = sqlx::query("DELETE FROM primitive_servers WHERE id = $1 AND server = $2")
        .bind(id)
        .bind(server)
        .execute(&mut *write.tx)
        .await?;
    if deleted.rows_affected() == 0 {
        return Err(StoreError::NotFound);
    }
    let others = !read(&mut write.tx, id).await?.is_empty();
    write.stamp(others).await?;
    write.commit("primitive.withdraw", server).await
}

async fn insert(
    tx: &mut Transaction<'static, Any>,
    id: &str,
    server: &str,
    first: bool,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO primitive_servers (id, server, first) VALUES ($1, $2, $3)")
        .bind(id)
        .bind(server)
        .bind(i64::from(first))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn ids_of(tx: &mut Transaction<'static, Any>, server: &str) -> Result<BTreeSet<String>, StoreError> {
    let rows = sqlx::query("SELECT id FROM primitive_servers WHERE server = $1")
        .bind(server)
        .fetch_all(&mut **tx)
        .await?;
    rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
}

async fn read(tx: &mut Transaction<'static, Any>, id: &str) -> Result<Vec<PrimitiveServer>, StoreError> {
    let rows = sqlx::query("SELECT id, server, first FROM primitive_servers WHERE id = $1")
        .bind(id)
        .fetch_all(&mut **tx)
        .await?;
    let record = |row: &AnyRow| {
        let first = rows::flag(row, "first")?;
        Ok(PrimitiveServer { id: row.try_get("id")?, server: row.try_get("server")?, first })
    };
    let mut list = rows.iter().map(record).collect::<Result<Vec<_>, StoreError>>()?;
    list.sort();
    Ok(list)
}

fn resource(id: &str) -> String {
    format!("primitive/{id}")
}
