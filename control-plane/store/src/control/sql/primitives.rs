//! Servers that may have a primitive under an id.
//!
//! Keeps true: an id stays with the server that stored it first, even after that server is deleted, until the platform
//! withdraws it; whether a server may use its ids is decided within the write that stores it.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::write::Write;
use super::{ControlStore, Tx, rows};
use crate::control::{
    AtRevision, Change, Commit, DeniedId, MAX_IDS_PER_SERVER, PrimitiveServer, Result, ServerIds, StoreError,
};

/// States of an id at a server, in the column `first`.
const FIRST: i64 = 1;
const GRANTED: i64 = 0;
/// The server may no longer use the id. Its stored version stays.
const WITHDRAWN: i64 = -1;

impl ControlStore {
    /// Returns the servers that may have a primitive under this id.
    pub async fn primitive_servers(&self, id: &str) -> Result<AtRevision<Vec<PrimitiveServer>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&resource(id)).await?;
            Ok(AtRevision { revision, value: read(&mut tx, id).await? })
        })
        .await
    }

    /// Records ids that a stored server already uses: ids without an owner become its own, ids of other servers are
    /// granted to it. Ids that were granted to it or withdrawn from it before stay unchanged.
    pub async fn take_primitives(&self, change: &Change, server: &str, ids: &[&str]) -> Result<Commit> {
        self.within(async {
            let known = states_of(&mut self.snapshot().await?, server).await?;
            if ids.iter().all(|id| known.contains_key(*id)) {
                return Ok(Commit { revision: 0, changed: false });
            }
            let mut write = self.write(change, format!("primitives/{server}")).await?;
            // Another process may have recorded some.
            let known = states_of(&mut write.tx, server).await?;
            for id in ids.iter().filter(|id| !known.contains_key(**id)) {
                let state = first(&mut write.tx, id).await?.map_or(FIRST, |_| GRANTED);
                insert(&mut write.tx, id, server, state).await?;
            }
            write.commit("primitive.take", server).await
        })
        .await
    }

    pub async fn grant_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(id)).await?;
            if read(&mut write.tx, id).await?.iter().any(|known| known.server == server) {
                return write.unchanged().await;
            }
            let state = first(&mut write.tx, id).await?.map_or(FIRST, |_| GRANTED);
            delete(&mut write.tx, id, server).await?;
            insert(&mut write.tx, id, server, state).await?;
            write.stamp(true).await?;
            write.commit("primitive.grant", server).await
        })
        .await
    }

    /// Withdraws the id from the server permanently: only the platform can give it back. [`StoreError::NotFound`] if
    /// the server may not use it.
    pub async fn withdraw_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(id)).await?;
            if read(&mut write.tx, id).await?.iter().all(|known| known.server != server) {
                return Err(StoreError::NotFound);
            }
            delete(&mut write.tx, id, server).await?;
            // Without this row the server, whose stored version has the id, would take it again.
            insert(&mut write.tx, id, server, WITHDRAWN).await?;
            write.stamp(true).await?;
            write.commit("primitive.withdraw", server).await
        })
        .await
    }
}

/// Assigns the ids of a server that is being written, or rejects the write.
pub(super) async fn take(write: &mut Write<'_>, server: &str, ids: ServerIds<'_>) -> Result<()> {
    let ServerIds { ids, by_platform } = ids;
    let own = states_of(&mut write.tx, server).await?;
    let mut denied = Vec::new();
    let mut new = Vec::new();
    for id in ids {
        let owner = match own.get(*id).copied() {
            Some(WITHDRAWN) if !by_platform => None,
            Some(_) => continue,
            None => match first(&mut write.tx, id).await? {
                Some(owner) if !by_platform => Some(owner),
                owner => {
                    new.push((*id, owner.map_or(FIRST, |_| GRANTED)));
                    continue;
                }
            },
        };
        denied.push(DeniedId { id: (*id).to_owned(), owner });
    }
    if !denied.is_empty() {
        return Err(StoreError::DeniedIds(denied));
    }
    let counted = own.values().filter(|state| **state != WITHDRAWN).count();
    if !new.is_empty() && counted + new.len() > MAX_IDS_PER_SERVER {
        let what = "ids of primitives that one server has, had and was granted";
        return Err(StoreError::Full { what, bound: MAX_IDS_PER_SERVER });
    }
    for (id, state) in new {
        insert(&mut write.tx, id, server, state).await?;
    }
    Ok(())
}

async fn insert(tx: &mut Tx, id: &str, server: &str, state: i64) -> Result<()> {
    let insert = "INSERT INTO primitive_servers (id, server, first) VALUES ($1, $2, $3)";
    query!(insert, id, server, state).execute(&mut **tx).await?;
    Ok(())
}

async fn delete(tx: &mut Tx, id: &str, server: &str) -> Result<()> {
    let delete = "DELETE FROM primitive_servers WHERE id = $1 AND server = $2";
    query!(delete, id, server).execute(&mut **tx).await?;
    Ok(())
}

/// Returns the state of each id recorded for a server.
async fn states_of(tx: &mut Tx, server: &str) -> Result<BTreeMap<String, i64>> {
    let states = query!("SELECT id, first FROM primitive_servers WHERE server = $1", server);
    let rows = states.fetch_all(&mut **tx).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("first")?))).collect()
}

/// Returns the server that owns the id.
async fn first(tx: &mut Tx, id: &str) -> Result<Option<String>> {
    let all = read(tx, id).await?;
    Ok(all.into_iter().find(|known| known.first).map(|known| known.server))
}

/// Returns the servers that may use an id.
async fn read(tx: &mut Tx, id: &str) -> Result<Vec<PrimitiveServer>> {
    let select = "SELECT id, server, first FROM primitive_servers WHERE id = $1 AND first >= 0";
    let rows = query!(select, id).fetch_all(&mut **tx).await?;
    let record = |row: &AnyRow| record!(row, PrimitiveServer { id, server, first });
    let mut list = rows.iter().map(record).collect::<Result<Vec<_>>>()?;
    list.sort();
    Ok(list)
}

fn resource(id: &str) -> String {
    format!("primitive/{id}")
}
