//! The [`Ledger`] on SQLite.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row;
use tokio::time::Instant;

use super::{SqliteCalls, milliseconds, now_ms};
use crate::ledger::{Claim, Holder, Ledger, LedgerError, LedgerKey, RequestHash};

/// How often a claim held by another process is looked at.
const POLL: Duration = Duration::from_millis(50);
const RUNNING: i64 = 0;
const ANSWERED: i64 = 1;

fn unavailable(error: sqlx::Error) -> LedgerError {
    LedgerError::Unavailable(error.to_string())
}

#[async_trait]
impl Ledger for SqliteCalls {
    async fn claim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim, LedgerError> {
        loop {
            let ended = self.ended.notified();
            if let Some(claim) = self.try_claim(key, hash, holder, lease).await? {
                return Ok(claim);
            }
            if Instant::now() >= wait_until {
                return Ok(Claim::InFlight);
            }
            let next = (Instant::now() + POLL).min(wait_until);
            // Woken by this process or by the clock; either way the row decides.
            let _ = tokio::time::timeout_at(next, ended).await;
        }
    }

    async fn seize(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let seized = sqlx::query(
            "UPDATE ledger SET owner = $1, expires_ms = $2 \
             WHERE claim_key = $3 AND hash = $4 AND call_id = $5 AND state = $6",
        )
        .bind(holder.owner.as_slice())
        .bind(now_ms().saturating_add(milliseconds(lease)))
        .bind(key.0.as_slice())
        .bind(hash.as_slice())
        .bind(holder.call.as_slice())
        .bind(RUNNING)
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        Ok(seized.rows_affected() == 1)
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError> {
        let renewed = sqlx::query(
            "UPDATE ledger SET expires_ms = $1 \
             WHERE claim_key = $2 AND call_id = $3 AND owner = $4 AND state = $5",
        )
        .bind(now_ms().saturating_add(milliseconds(lease)))
        .bind(key.0.as_slice())
        .bind(holder.call.as_slice())
        .bind(holder.owner.as_slice())
        .bind(RUNNING)
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        Ok(renewed.rows_affected() == 1)
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Bytes,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        let stored = sqlx::query(
            "UPDATE ledger SET state = $1, answer = $2, expires_ms = $3 \
             WHERE claim_key = $4 AND call_id = $5 AND owner = $6 AND state = $7",
        )
        .bind(ANSWERED)
        .bind(answer.as_ref())
        .bind(now_ms().saturating_add(milliseconds(keep)))
        .bind(key.0.as_slice())
        .bind(holder.call.as_slice())
        .bind(holder.owner.as_slice())
        .bind(RUNNING)
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        self.ended.notify_waiters();
        Ok(stored.rows_affected() == 1)
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        sqlx::query("DELETE FROM ledger WHERE claim_key = $1 AND call_id = $2 AND owner = $3 AND state = $4")
            .bind(key.0.as_slice())
            .bind(holder.call.as_slice())
            .bind(holder.owner.as_slice())
            .bind(RUNNING)
            .execute(&self.pool)
            .await
            .map_err(unavailable)?;
        self.ended.notify_waiters();
        Ok(())
    }
}

impl SqliteCalls {
    /// One look at the key; `None` while someone else runs it.
    async fn try_claim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<Option<Claim>, LedgerError> {
        let now = now_ms();
        // An answer past its time is as good as none.
        sqlx::query("DELETE FROM ledger WHERE claim_key = $1 AND state = $2 AND expires_ms <= $3")
            .bind(key.0.as_slice())
            .bind(ANSWERED)
            .bind(now)
            .execute(&self.pool)
            .await
            .map_err(unavailable)?;
        let inserted = sqlx::query(
            "INSERT INTO ledger (claim_key, hash, call_id, owner, state, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (claim_key) DO NOTHING",
        )
        .bind(key.0.as_slice())
        .bind(hash.as_slice())
        .bind(holder.call.as_slice())
        .bind(holder.owner.as_slice())
        .bind(RUNNING)
        .bind(now.saturating_add(milliseconds(lease)))
        .execute(&self.pool)
        .await
        .map_err(unavailable)?;
        if inserted.rows_affected() == 1 {
            return Ok(Some(Claim::New));
        }
        let row = sqlx::query("SELECT hash, state, answer, expires_ms FROM ledger WHERE claim_key = $1")
            .bind(key.0.as_slice())
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        // Gone between the two statements: the next look claims it.
        let Some(row) = row else { return Ok(None) };
        let stored: Vec<u8> = row.try_get("hash").map_err(unavailable)?;
        let state: i64 = row.try_get("state").map_err(unavailable)?;
        let expires: i64 = row.try_get("expires_ms").map_err(unavailable)?;
        if stored != hash {
            return Ok(Some(Claim::Conflict));
        }
        if state == ANSWERED {
            let answer: Option<Vec<u8>> = row.try_get("answer").map_err(unavailable)?;
            return Ok(Some(Claim::Replay(Bytes::from(answer.unwrap_or_default()))));
        }
        Ok((expires <= now).then_some(Claim::Abandoned))
    }
}
