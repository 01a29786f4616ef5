//! The [`Ledger`] on SQLite.
//!
//! Keeps true: whoever waits for a key only reads, more and more rarely, unless its holder ends in this process.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row;
use tokio::time::Instant;

use super::SqliteCalls;
use crate::clock::{milliseconds, now_ms};
use crate::ledger::{Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, RequestHash};

/// How soon a claim held by another process is looked at again; the pause doubles up to the longest.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_secs(1);
const RUNNING: i64 = 0;
const ANSWERED: i64 = 1;
/// The gateway that held the key of a row `l` is gone, and left no row by which another one goes on with the call.
/// $1 is the time. A gateway without a lease says nothing: it may have ended well, and the key's own lease decides.
const LEFT: &str = "(EXISTS (SELECT 1 FROM living o WHERE o.owner = l.owner) \
    AND NOT EXISTS (SELECT 1 FROM living o WHERE o.owner = l.owner AND o.lease_ms > $1) \
    AND NOT EXISTS (SELECT 1 FROM active_calls a WHERE a.call_id = l.call_id))";

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
        let mut pause = FIRST_LOOK;
        loop {
            let waiter = self.waiters.of(key);
            let ended = waiter.ended.notified();
            tokio::pin!(ended);
            // From here on an end is not missed, also while the row is read.
            ended.as_mut().enable();
            match self.look(key, hash, holder).await? {
                Looked::Decided(claim) => return Ok(claim),
                Looked::Free { expired } => {
                    if self.insert(key, hash, holder, (lease, expired)).await? {
                        return Ok(Claim::New);
                    }
                    // Somebody else was faster.
                }
                Looked::Running => {}
            }
            if Instant::now() >= wait_until {
                return Ok(Claim::InFlight);
            }
            let next = (Instant::now() + pause).min(wait_until);
            // Woken by this process or by the clock; either way the row decides.
            let _ = tokio::time::timeout_at(next, ended).await;
            pause = (pause * 2).min(LAST_LOOK);
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
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        Ok(seized.rows_affected() == 1)
    }

    async fn reclaim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let now = now_ms();
        let statement = format!(
            "UPDATE ledger AS l SET call_id = $2, owner = $3, expires_ms = $4 \
             WHERE l.claim_key = $5 AND l.hash = $6 AND l.state = $7 AND (l.expires_ms <= $1 OR {LEFT})"
        );
        let reclaimed = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now)
            .bind(holder.call.as_slice())
            .bind(holder.owner.as_slice())
            .bind(now.saturating_add(milliseconds(lease)))
            .bind(key.0.as_slice())
            .bind(hash.as_slice())
            .bind(RUNNING)
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(reclaimed.rows_affected() == 1)
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
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        Ok(renewed.rows_affected() == 1)
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Answer,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        let stored = sqlx::query(
            "UPDATE ledger SET state = $1, expires_ms = $2, answer = CASE WHEN \
               LENGTH($3) + COALESCE((SELECT bytes FROM ledger_usage u WHERE u.org = ledger.org), 0) <= $4 \
               THEN $3 ELSE $5 END \
             WHERE claim_key = $6 AND call_id = $7 AND owner = $8 AND state = $9",
        )
        .bind(ANSWERED)
        .bind(now_ms().saturating_add(milliseconds(keep)))
        .bind(answer.whole.as_ref())
        .bind(i64::from(self.budget.bytes))
        .bind(answer.short.as_ref())
        .bind(key.0.as_slice())
        .bind(holder.call.as_slice())
        .bind(holder.owner.as_slice())
        .bind(RUNNING)
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        self.waiters.wake(key);
        Ok(stored.rows_affected() == 1)
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        sqlx::query("DELETE FROM ledger WHERE claim_key = $1 AND call_id = $2 AND owner = $3 AND state = $4")
            .bind(key.0.as_slice())
            .bind(holder.call.as_slice())
            .bind(holder.owner.as_slice())
            .bind(RUNNING)
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        self.waiters.wake(key);
        Ok(())
    }
}

/// What a key's row says.
enum Looked {
    Decided(Claim),
    /// `expired`: there is an answer past its time, which is as good as none.
    Free {
        expired: bool,
    },
    Running,
}

impl SqliteCalls {
    /// One look at the key, which changes nothing.
    async fn look(&self, key: LedgerKey, hash: RequestHash, holder: Holder) -> Result<Looked, LedgerError> {
        let now = now_ms();
        let statement = format!(
            "SELECT l.hash, l.state, l.answer, l.expires_ms, \
             l.state = 0 AND (l.expires_ms <= $1 OR {LEFT}) AS abandoned FROM ledger l WHERE l.claim_key = $2"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now)
            .bind(key.0.as_slice())
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)?;
        let Some(row) = row else { return self.has_room(holder).await };
        let stored: Vec<u8> = row.try_get("hash").map_err(unavailable)?;
        let state: i64 = row.try_get("state").map_err(unavailable)?;
        let expires: i64 = row.try_get("expires_ms").map_err(unavailable)?;
        if state == ANSWERED && expires <= now {
            return Ok(Looked::Free { expired: true });
        }
        if stored != hash {
            return Ok(Looked::Decided(Claim::Conflict));
        }
        if state == ANSWERED {
            let answer: Option<Vec<u8>> = row.try_get("answer").map_err(unavailable)?;
            return Ok(Looked::Decided(Claim::Replay(Bytes::from(answer.unwrap_or_default()))));
        }
        let abandoned: bool = row.try_get("abandoned").map_err(unavailable)?;
        Ok(if abandoned { Looked::Decided(Claim::Abandoned) } else { Looked::Running })
    }

    async fn has_room(&self, holder: Holder) -> Result<Looked, LedgerError> {
        let keys: Option<i64> = sqlx::query_scalar("SELECT claim_keys FROM ledger_usage WHERE org = $1")
            .bind(holder.org.as_slice())
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)?;
        match keys {
            Some(keys) if keys >= i64::from(self.budget.keys) => Err(LedgerError::Full),
            _ => Ok(Looked::Free { expired: false }),
        }
    }

    /// Takes a free key; false where somebody else was faster.
    async fn insert(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        (lease, expired): (Duration, bool),
    ) -> Result<bool, LedgerError> {
        let now = now_ms();
        if expired {
            sqlx::query("DELETE FROM ledger WHERE claim_key = $1 AND state = $2 AND expires_ms <= $3")
                .bind(key.0.as_slice())
                .bind(ANSWERED)
                .bind(now)
                .execute(&self.write)
                .await
                .map_err(unavailable)?;
        }
        let inserted = sqlx::query(
            "INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (claim_key) DO NOTHING",
        )
        .bind(key.0.as_slice())
        .bind(hash.as_slice())
        .bind(holder.call.as_slice())
        .bind(holder.owner.as_slice())
        .bind(holder.org.as_slice())
        .bind(RUNNING)
        .bind(now.saturating_add(milliseconds(lease)))
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        Ok(inserted.rows_affected() == 1)
    }
}
