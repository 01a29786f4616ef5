//! The [`ActiveCalls`] on SQLite.

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row;

use super::SqliteCalls;
use crate::active::{ActiveCall, ActiveCalls, ActiveError, ActiveKey, CallId, Saved};

fn unavailable(error: sqlx::Error) -> ActiveError {
    ActiveError::Unavailable(error.to_string())
}

#[async_trait]
impl ActiveCalls for SqliteCalls {
    async fn save_capsule(&self, key: &ActiveKey, seq: u64, capsule: Bytes) -> Result<Saved, ActiveError> {
        let changed = sqlx::query(
            "INSERT INTO active_calls (call_id, org, plugin, seq, capsule, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (call_id) DO UPDATE SET seq = excluded.seq, capsule = excluded.capsule \
             WHERE active_calls.seq < excluded.seq",
        )
        .bind(key.call.as_slice())
        .bind(&key.org)
        .bind(&key.plugin)
        .bind(i64::try_from(seq).unwrap_or(i64::MAX))
        .bind(capsule.as_ref())
        .bind(key.expires_ms)
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        Ok(if changed.rows_affected() == 1 { Saved::Stored } else { Saved::Stale })
    }

    async fn save_answers(&self, key: &ActiveKey, answers: Bytes) -> Result<(), ActiveError> {
        sqlx::query(
            "INSERT INTO active_calls (call_id, org, plugin, seq, answers, expires_ms) \
             VALUES ($1, $2, $3, 0, $4, $5) \
             ON CONFLICT (call_id) DO UPDATE SET answers = excluded.answers",
        )
        .bind(key.call.as_slice())
        .bind(&key.org)
        .bind(&key.plugin)
        .bind(answers.as_ref())
        .bind(key.expires_ms)
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        Ok(())
    }

    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError> {
        let row =
            sqlx::query("SELECT org, plugin, seq, capsule, answers FROM active_calls WHERE call_id = $1")
                .bind(call.as_slice())
                .fetch_optional(&self.pool)
                .await
                .map_err(unavailable)?;
        let Some(row) = row else { return Ok(None) };
        let seq: i64 = row.try_get("seq").map_err(unavailable)?;
        let capsule: Option<Vec<u8>> = row.try_get("capsule").map_err(unavailable)?;
        let answers: Option<Vec<u8>> = row.try_get("answers").map_err(unavailable)?;
        Ok(Some(ActiveCall {
            org: row.try_get("org").map_err(unavailable)?,
            plugin: row.try_get("plugin").map_err(unavailable)?,
            seq: u64::try_from(seq).unwrap_or_default(),
            capsule: Bytes::from(capsule.unwrap_or_default()),
            answers: Bytes::from(answers.unwrap_or_default()),
        }))
    }

    async fn end(&self, call: CallId) -> Result<(), ActiveError> {
        sqlx::query("DELETE FROM active_calls WHERE call_id = $1")
            .bind(call.as_slice())
            .execute(&self.pool)
            .await
            .map_err(unavailable)?;
        Ok(())
    }
}
