//! The [`ActiveCalls`] on SQLite.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteCalls;
use crate::active::{ActiveCall, ActiveCalls, ActiveError, ActiveKey, CallId, Lease, Orphan, OwnerId, Saved};
use crate::clock::now_ms;

fn unavailable(error: sqlx::Error) -> ActiveError {
    ActiveError::Unavailable(error.to_string())
}

#[async_trait]
impl ActiveCalls for SqliteCalls {
    async fn put(&self, key: &ActiveKey, owner: OwnerId, record: Bytes) -> Result<Saved, ActiveError> {
        let changed = sqlx::query(
            "INSERT INTO active_calls (call_id, org, plugin, seq, expires_ms, owner, record) \
             VALUES ($1, $2, $3, 0, $4, $5, $6) \
             ON CONFLICT (call_id) DO UPDATE SET record = excluded.record \
             WHERE active_calls.owner = excluded.owner",
        )
        .bind(key.call.as_slice())
        .bind(&key.org)
        .bind(&key.plugin)
        .bind(key.expires_ms)
        .bind(owner.0.as_slice())
        .bind(record.as_ref())
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        Ok(if changed.rows_affected() == 1 { Saved::Stored } else { Saved::NotOwner })
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        (seq, capsule): (u64, Bytes),
        state: Bytes,
    ) -> Result<Saved, ActiveError> {
        let changed = sqlx::query(
            "UPDATE active_calls SET seq = $1, capsule = $2, answers = $3 \
             WHERE call_id = $4 AND owner = $5 AND seq < $1",
        )
        .bind(i64::try_from(seq).unwrap_or(i64::MAX))
        .bind(capsule.as_ref())
        .bind(state.as_ref())
        .bind(call.as_slice())
        .bind(owner.0.as_slice())
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        if changed.rows_affected() == 1 {
            return Ok(Saved::Stored);
        }
        // Which of the two it was decides only what the plugin is told.
        let row = self.find(call).await?;
        Ok(if row.is_some_and(|row| row.owner == owner) { Saved::Stale } else { Saved::NotOwner })
    }

    async fn save_state(&self, call: CallId, owner: OwnerId, state: Bytes) -> Result<Saved, ActiveError> {
        let changed = sqlx::query("UPDATE active_calls SET answers = $1 WHERE call_id = $2 AND owner = $3")
            .bind(state.as_ref())
            .bind(call.as_slice())
            .bind(owner.0.as_slice())
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(if changed.rows_affected() == 1 { Saved::Stored } else { Saved::NotOwner })
    }

    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError> {
        let row = sqlx::query(
            "SELECT org, plugin, seq, capsule, answers, owner, record FROM active_calls \
             WHERE call_id = $1 AND owner IS NOT NULL",
        )
        .bind(call.as_slice())
        .fetch_optional(&self.read)
        .await
        .map_err(unavailable)?;
        row.as_ref().map(read).transpose().map_err(unavailable)
    }

    async fn end(&self, call: CallId, owner: OwnerId) -> Result<(), ActiveError> {
        sqlx::query("DELETE FROM active_calls WHERE call_id = $1 AND owner = $2")
            .bind(call.as_slice())
            .bind(owner.0.as_slice())
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(())
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, ActiveError> {
        let renewed = self.leases.renew(owner, lease).await.map_err(unavailable)?;
        if renewed == Lease::Lapsed {
            // A take-over that saw the lapsed lease is the writer now or was it before. Once this has been written
            // it has come to its end, and whoever asks for a row sees what it took.
            sqlx::query("DELETE FROM active_owners WHERE owner = $1")
                .bind(owner.0.as_slice())
                .execute(&self.write)
                .await
                .map_err(unavailable)?;
        }
        Ok(renewed)
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), ActiveError> {
        self.leases.retire(owner).await
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, ActiveError> {
        let rows = sqlx::query(
            "SELECT call_id, owner FROM active_calls WHERE expires_ms > $1 AND owner IS NOT NULL \
             AND owner NOT IN (SELECT owner FROM living WHERE lease_ms > $1) \
             ORDER BY expires_ms LIMIT $2",
        )
        .bind(now_ms())
        .bind(i64::from(limit))
        .fetch_all(&self.read)
        .await
        .map_err(unavailable)?;
        let orphan =
            |row: &SqliteRow| Ok(Orphan { call: id(row, "call_id")?, owner: OwnerId(id(row, "owner")?) });
        rows.iter().map(orphan).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, ActiveError> {
        let taken = sqlx::query(
            "UPDATE active_calls SET owner = $1 WHERE call_id = $2 AND owner = $3 \
             AND owner NOT IN (SELECT owner FROM living WHERE lease_ms > $4)",
        )
        .bind(owner.0.as_slice())
        .bind(orphan.call.as_slice())
        .bind(orphan.owner.0.as_slice())
        .bind(now_ms())
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        Ok(taken.rows_affected() == 1)
    }
}

fn read(row: &SqliteRow) -> Result<ActiveCall, sqlx::Error> {
    let seq: i64 = row.try_get("seq")?;
    Ok(ActiveCall {
        org: row.try_get("org")?,
        plugin: row.try_get("plugin")?,
        owner: OwnerId(id(row, "owner")?),
        record: blob(row, "record")?,
        seq: u64::try_from(seq).unwrap_or_default(),
        capsule: blob(row, "capsule")?,
        // The column's name is of the time when the state was the answers alone.
        state: blob(row, "answers")?,
    })
}

fn blob(row: &SqliteRow, column: &str) -> Result<Bytes, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    Ok(Bytes::from(bytes.unwrap_or_default()))
}

fn id(row: &SqliteRow, column: &str) -> Result<[u8; 16], sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    bytes.try_into().map_err(|_| sqlx::Error::Decode(format!("{column} is not 16 bytes long").into()))
}
