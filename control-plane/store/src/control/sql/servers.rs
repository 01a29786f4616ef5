//! Servers: their sources, verbatim, and their earlier versions.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::write::Rank;
use super::{ControlStore, Tx, Write, rows};
use crate::control::{
    AtRevision, Change, Commit, KEEP_VERSIONS_OF_GONE, MAX_SERVERS, MAX_VERSIONS, Result, ServerIds,
    ServerRecord, ServerVersion, SourceFile, StoreError,
};

/// Action of a deletion; the server's offers are deleted with it.
pub(super) const DELETED: &str = "server.delete";
const SELECT_ALL: &str = "SELECT s.name, s.sources, s.content_hash, s.updated_at, s.a2a_at, s.disabled, r.revision \
     FROM servers s JOIN resources r ON r.name = 'server/' || s.name ORDER BY s.name";
const SELECT_ONE: &str = "SELECT s.name, s.sources, s.content_hash, s.updated_at, s.a2a_at, s.disabled, r.revision \
     FROM servers s JOIN resources r ON r.name = 'server/' || s.name WHERE s.name = $1";

/// Mark before an entry of a disabled part that the platform made. Ids do not begin with it.
const BY_PLATFORM: &str = "!";

/// Query for conflicting writes: of other servers, because a primitive has one meaning and all servers share a
/// snapshot; and of the admins' routes, because each expands at an edge to one per primitive that it matches.
const BESIDE: &str =
    "SELECT name FROM resources WHERE (name LIKE 'server/%' OR name = 'routes') AND revision > $1 LIMIT 1";

pub(super) async fn all(tx: &mut Tx) -> Result<Vec<ServerRecord>> {
    let rows = sqlx::query(SELECT_ALL).fetch_all(&mut **tx).await?;
    rows.iter().map(record).collect()
}

pub(super) async fn one<'e>(from: impl AnyExecutor<'e>, name: &'e str) -> Result<Option<ServerRecord>> {
    query!(SELECT_ONE, name).fetch_optional(from).await?.as_ref().map(record).transpose()
}

/// Returns what is stored about the disabled parts of a server; nothing for an unknown one.
async fn disabled_text<'e>(from: impl AnyExecutor<'e>, name: &'e str) -> Result<String> {
    let select = "SELECT disabled FROM servers WHERE name = $1";
    let Some(row) = query!(select, name).fetch_optional(from).await? else { return Ok(String::new()) };
    Ok(row.try_get("disabled")?)
}

/// Parses an entry of it; returns whether the platform made it.
fn parse_entry(text: &str) -> (&str, bool) {
    text.strip_prefix(BY_PLATFORM).map_or((text, false), |entry| (entry, true))
}

/// Adds the new content of a server to its versions, and deletes the oldest ones beyond the limit.
async fn keep_version(write: &mut Write<'_>, name: &str, sources: &str, content_hash: &str) -> Result<()> {
    let insert = "INSERT INTO server_versions (name, revision, sources, content_hash, stored_at, actor, gone_at) \
         VALUES ($1, $2, $3, $4, $5, $6, 0)";
    let revision = rows::signed(write.revision)?;
    let at = rows::signed(write.change.at)?;
    let insert = query!(insert, name, revision, sources, content_hash, at, &write.change.actor);
    insert.execute(&mut *write.tx).await?;
    set_deleted_since(write, name, 0).await?;
    let surplus = "DELETE FROM server_versions WHERE name = $1 AND revision <= \
         (SELECT revision FROM server_versions WHERE name = $1 ORDER BY revision DESC LIMIT 1 OFFSET $2)";
    query!(surplus, name, i64::from(MAX_VERSIONS)).execute(&mut *write.tx).await?;
    Ok(())
}

impl ControlStore {
    /// Returns all servers and the revision at which they were read.
    pub async fn servers(&self) -> Result<AtRevision<Vec<ServerRecord>>> {
        self.within(async {
            let mut tx = self.snapshot().await?;
            let revision = super::position(&mut *tx).await?.revision;
            Ok(AtRevision { revision, value: all(&mut tx).await? })
        })
        .await
    }

    pub async fn server(&self, name: &str) -> Result<Option<ServerRecord>> {
        self.within(one(&self.pool, name)).await
    }

    /// Stores a server with primitives of these ids; ids without an owner become its own. Fails with
    /// [`StoreError::DeniedIds`] if it may not use all of them; the stored server stays unchanged then. A2A is confirmed for
    /// a new server, and stays for another one as it was.
    pub async fn register_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
        ids: ServerIds<'_>,
    ) -> Result<Commit> {
        self.within(async {
            let sources = serde_json::to_string(files).map_err(|e| StoreError::Backend(e.to_string()))?;
            let mut write = self.write(change, format!("server/{name}")).await?;
            write.unmoved(BESIDE).await?;
            let stored = query!("SELECT sources, content_hash, a2a_at FROM servers WHERE name = $1", name);
            let stored = stored.fetch_optional(&mut *write.tx).await?;
            let a2a_confirmed = match &stored {
                Some(row) => write.current == Some(rows::get(row, "a2a_at")?),
                None => true,
            };
            match stored {
                // Same meaning and same text. A reformatted file is stored, so that reads return what was sent.
                Some(row)
                    if row.try_get::<String, _>("content_hash")? == content_hash
                        && row.try_get::<String, _>("sources")? == sources =>
                {
                    return write.unchanged().await;
                }
                Some(_) => {}
                None => {
                    let others = ("SELECT COUNT(*) FROM servers WHERE name <> $1", name);
                    super::check_bound(&mut write.tx, others, "servers", MAX_SERVERS).await?;
                    // Earlier versions do not delete the form of a deleted server.
                    super::forms::go_with(&mut write, name).await?;
                }
            }
            let put = "INSERT INTO servers (name, sources, content_hash, updated_at, a2a_at) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE SET sources = excluded.sources, \
                 content_hash = excluded.content_hash, updated_at = excluded.updated_at, a2a_at = excluded.a2a_at";
            let a2a_at = rows::signed(if a2a_confirmed { write.revision } else { 0 })?;
            let put = query!(put, name, &sources, content_hash, rows::signed(change.at)?, a2a_at);
            put.execute(&mut *write.tx).await?;
            keep_version(&mut write, name, &sources, content_hash).await?;
            super::primitives::take(&mut write, name, ids).await?;
            write.stamp(true).await?;
            write.commit("server.put", content_hash).await
        })
        .await
    }

    /// Confirms A2A for the server as it is stored.
    pub async fn confirm_a2a(&self, change: &Change, name: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("server/{name}")).await?;
            let stored = one(&mut *write.tx, name).await?.ok_or(StoreError::NotFound)?;
            if stored.a2a_confirmed {
                return write.unchanged().await;
            }
            let (revision, at) = (rows::signed(write.revision)?, rows::signed(change.at)?);
            let confirm = "UPDATE servers SET a2a_at = $1, updated_at = $2 WHERE name = $3";
            query!(confirm, revision, at, name).execute(&mut *write.tx).await?;
            write.stamp(true).await?;
            write.commit("server.confirm_a2a", "").await
        })
        .await
    }

    /// Disables a primitive of the server, or [`WHOLE_SERVER`](crate::control::WHOLE_SERVER), or enables it again. Fails with
    /// [`StoreError::DisabledByPlatform`] if anybody but the platform enables what the platform disabled.
    pub async fn set_disabled(
        &self,
        change: &Change,
        name: &str,
        (entry, is_disabled): (&str, bool),
        by_platform: bool,
    ) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("server/{name}")).await?;
            let stored = one(&mut *write.tx, name).await?.ok_or(StoreError::NotFound)?;
            let text = disabled_text(&mut *write.tx, name).await?;
            let mut entries: BTreeMap<&str, bool> = text.split_whitespace().map(parse_entry).collect();
            match (is_disabled, entries.get(entry).copied()) {
                (true, Some(is_platforms)) if is_platforms || !by_platform => return write.unchanged().await,
                (false, None) => return write.unchanged().await,
                (false, Some(true)) if !by_platform => return Err(StoreError::DisabledByPlatform),
                (true, _) => {
                    entries.insert(entry, by_platform);
                }
                (false, Some(_)) => {
                    entries.remove(entry);
                }
            }
            let mark = |is_platforms| if is_platforms { BY_PLATFORM } else { "" };
            let entries = entries.into_iter().map(|(entry, by)| format!("{}{entry}", mark(by)));
            let disabled = entries.collect::<Vec<_>>().join(" ");
            // The write moves the server's revision, which A2A must follow to stay as it is.
            let a2a_at = rows::signed(if stored.a2a_confirmed { write.revision } else { 0 })?;
            let update = "UPDATE servers SET disabled = $1, a2a_at = $2 WHERE name = $3";
            query!(update, &disabled, a2a_at, name).execute(&mut *write.tx).await?;
            write.stamp(true).await?;
            write.commit(if is_disabled { "server.disable" } else { "server.enable" }, entry).await
        })
        .await
    }

    /// Whether the platform disabled the server or a part of it.
    pub async fn is_disabled_by_platform(&self, name: &str) -> Result<bool> {
        self.within(async {
            let text = disabled_text(&self.pool, name).await?;
            Ok(text.split_whitespace().any(|entry| parse_entry(entry).1))
        })
        .await
    }

    /// Writes a server as it is, like a version that does not serve A2A.
    #[cfg(any(test, feature = "testing"))]
    pub async fn touch_server(&self, change: &Change, name: &str) -> Result<Commit> {
        let mut write = self.write(change, format!("server/{name}")).await?;
        write.stamp(true).await?;
        write.commit("server.put", "").await
    }

    /// Stores a server without primitives; see [`ControlStore::register_server`].
    pub async fn put_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
    ) -> Result<Commit> {
        self.register_server(change, name, files, content_hash, ServerIds::default()).await
    }

    /// Returns the versions of a server, newest first: at most [`MAX_VERSIONS`], and for a while also those of a
    /// deleted server.
    pub async fn server_versions(&self, name: &str) -> Result<Vec<ServerVersion>> {
        self.within(async {
            let select = "SELECT revision, content_hash, stored_at, actor FROM server_versions \
                 WHERE name = $1 ORDER BY revision DESC";
            let version =
                |row: &AnyRow| record!(row, ServerVersion { revision, content_hash, stored_at, actor });
            query!(select, name).fetch_all(&self.pool).await?.iter().map(version).collect::<Result<_>>()
        })
        .await
    }

    /// Returns the server as stored by the write with this revision.
    pub async fn server_version(&self, name: &str, revision: u64) -> Result<Option<ServerRecord>> {
        self.within(async {
            // Callers may pass any number.
            let Ok(revision) = i64::try_from(revision) else { return Ok(None) };
            let select = "SELECT name, sources, content_hash, stored_at AS updated_at, CAST(0 AS BIGINT) AS a2a_at, \
                 CAST('' AS TEXT) AS disabled, revision FROM server_versions WHERE name = $1 AND revision = $2";
            query!(select, name, revision).fetch_optional(&self.pool).await?.as_ref().map(record).transpose()
        })
        .await
    }

    /// Removes the server and its offers.
    pub async fn delete_server(&self, change: &Change, name: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("server/{name}")).await?;
            let deleted = query!("DELETE FROM servers WHERE name = $1", name).execute(&mut *write.tx).await?;
            if deleted.rows_affected() == 0 {
                return Err(StoreError::NotFound);
            }
            let now = write.change.at;
            set_deleted_since(&mut write, name, now).await?;
            super::offers::go_with(&mut write, name).await?;
            super::forms::go_with(&mut write, name).await?;
            write.stamp(false).await?;
            write.commit(DELETED, "").await
        })
        .await
    }
}

/// Sets the time since which the server of these versions is deleted; 0 if it exists.
async fn set_deleted_since(write: &mut Write<'_>, name: &str, since: u64) -> Result<()> {
    let set = "UPDATE server_versions SET gone_at = $1 WHERE name = $2 AND gone_at <> $1";
    query!(set, rows::signed(since)?, name).execute(&mut *write.tx).await?;
    Ok(())
}

/// Deletes the versions of servers that were deleted long ago.
pub(super) async fn prune(store: &ControlStore, now: u64) -> Result<()> {
    let _turn = store.writers.turn(Rank::Other).await?;
    let oldest = rows::signed(now.saturating_sub(KEEP_VERSIONS_OF_GONE))?;
    let delete = "DELETE FROM server_versions WHERE gone_at > 0 AND gone_at < $1";
    query!(delete, oldest).execute(&store.pool).await?;
    Ok(())
}

fn record(row: &AnyRow) -> Result<ServerRecord> {
    let sources: String = row.try_get("sources")?;
    // Sources of a newer version affect that server only.
    let (files, unreadable) = match serde_json::from_str::<Vec<SourceFile>>(&sources) {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let revision = rows::get(row, "revision")?;
    let disabled: String = row.try_get("disabled")?;
    Ok(ServerRecord {
        name: row.try_get("name")?,
        files,
        unreadable,
        content_hash: row.try_get("content_hash")?,
        revision,
        updated_at: rows::get(row, "updated_at")?,
        a2a_confirmed: rows::get::<u64>(row, "a2a_at")? == revision,
        disabled: disabled.split_whitespace().map(|entry| parse_entry(entry).0.to_owned()).collect(),
    })
}
