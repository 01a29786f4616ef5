//! The [`PluginStorage`] of several processes.

use async_trait::async_trait;

use super::{CallStatement, CallsDatabase, changes, row};
use crate::columns::Columns;
use crate::plugin_storage::{
    NewValue, PluginStorage, PluginStorageError, PutValue, Result, StorageBounds, StorageSpace, StoredValue,
};

from_failure!(sqlx::Error => PluginStorageError::Unavailable);

/// Rows of a plugin and org that count.
const OF_PLUGIN: &str = "FROM plugin_storage WHERE org = $1 AND plugin = $2 AND expires_ms > now_ms()";
/// Row of a key.
const OF_KEY: &str = "FROM plugin_storage WHERE org = $1 AND plugin = $2 AND holder = $3 AND entry_key = $4 \
     AND expires_ms > now_ms()";

/// Returns the condition that a value of $6 bytes fits within $5 keys and $7 bytes, in place of the one under its key.
fn fits() -> String {
    format!(
        "(SELECT COUNT(*) {OF_PLUGIN}) < $5 + (SELECT COUNT(*) {OF_KEY}) \
         AND (SELECT COALESCE(SUM(bytes), 0) {OF_PLUGIN}) + $6 <= $7 + (SELECT COALESCE(SUM(bytes), 0) {OF_KEY})"
    )
}

/// Binds a key as the first four parameters.
fn of_key(text: impl Into<String>, space: &StorageSpace, key: &str) -> CallStatement {
    statement!(text, space.org.as_str(), space.plugin.as_str(), space.holder, key)
}

/// Binds a key, the bounds and the value's bytes as the first seven parameters.
fn sized(
    text: String,
    space: &StorageSpace,
    key: &str,
    value: &NewValue,
    bounds: StorageBounds,
) -> CallStatement {
    of_key(text, space, key).bind(bounds.keys).bind(value.bytes).bind(bounds.bytes)
}

fn read_value(row: &impl Columns) -> sqlx::Result<StoredValue> {
    Ok(StoredValue { version: row.number("version")?, sealed: row.blob("sealed")? })
}

#[async_trait]
impl<D: CallsDatabase> PluginStorage for D {
    async fn get_value(&self, space: &StorageSpace, key: &str) -> Result<Option<StoredValue>> {
        let found = row(self, of_key(format!("SELECT version, sealed {OF_KEY}"), space, key)).await?;
        Ok(found.as_ref().map(read_value).transpose()?)
    }

    async fn put_value(
        &self,
        space: &StorageSpace,
        key: &str,
        value: &NewValue,
        bounds: StorageBounds,
    ) -> Result<PutValue> {
        // The condition is judged once more against the row that another process may have stored in between.
        let put = format!(
            "INSERT INTO plugin_storage AS s (org, plugin, holder, entry_key, version, expires_ms, bytes, sealed) \
             SELECT $1, $2, $3, $4, $8, now_ms() + $9, $6, $10 WHERE {} \
             AND ($11 IS NULL OR COALESCE((SELECT version {OF_KEY}), 0) = $11) \
             ON CONFLICT (org, plugin, holder, entry_key) DO UPDATE SET version = excluded.version, \
             expires_ms = excluded.expires_ms, bytes = excluded.bytes, sealed = excluded.sealed \
             WHERE $11 IS NULL OR s.version = $11 OR ($11 = 0 AND s.expires_ms <= now_ms())",
            fits()
        );
        let put = sized(put, space, key, value, bounds);
        let put = put.bind(value.version).bind(value.keep).bind(&value.sealed).bind(value.if_version);
        let lock = format!("storage of {} of {}", space.plugin, space.org);
        if self.execute_in_turn(Some(lock.as_str()), vec![put]).await? == 1 {
            return Ok(PutValue::Stored);
        }
        if value.if_version.is_none() {
            return Ok(PutValue::Full);
        }
        let fits = sized(format!("SELECT {} AS fits", fits()), space, key, value, bounds);
        let fits = row(self, fits).await?.map(|row| row.flag("fits")).transpose()?;
        Ok(if fits == Some(false) { PutValue::Full } else { PutValue::Conflict })
    }

    async fn list_keys(
        &self,
        space: &StorageSpace,
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<String>> {
        let list = "SELECT entry_key FROM plugin_storage WHERE org = $1 AND plugin = $2 AND holder = $3 \
             AND entry_key > $4 AND substr(entry_key, 1, length($5)) = $5 AND expires_ms > now_ms() \
             ORDER BY entry_key LIMIT $6";
        let list = of_key(list, space, after).bind(prefix).bind(limit);
        let rows = self.rows(list).await?;
        Ok(rows.iter().map(|row| row.text("entry_key")).collect::<sqlx::Result<_>>()?)
    }

    async fn delete_value(&self, space: &StorageSpace, key: &str) -> Result<bool> {
        Ok(changes(self, of_key(format!("DELETE {OF_KEY}"), space, key)).await?)
    }
}
