//! The [`Ledger`] on PostgreSQL.
//!
//! The rules (`ledger/rules.rs`) define what a row means and who may change it; this module expresses them in SQL, so
//! that a change and its conditions are one statement.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Postgres, Row};
use tokio::time::Instant;

use super::PostgresCalls;
use super::records::steady;
use crate::clock::milliseconds;
use crate::columns::id;
use crate::ledger::rules::{KeyChange, KeyStatus, State};
use crate::ledger::shared::{self, ANSWERED, KeyLookup, RUNNING, SharedKeys};
use crate::ledger::waiters::Waiters;
use crate::ledger::{Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, RequestHash};

/// Returns a condition on row `l`: the gateway that held the key is gone and left no record from which another one can
/// resume the call. It has retired, or its lease has expired in the view of the gateway in `asker`, whose own lease
/// must be steady. False for a gateway that never had a lease; the key's own expiry decides then.
fn left(asker: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM gateways g WHERE g.owner = l.owner AND (g.lease_ms = 0 OR \
         (g.lease_ms <= now_ms() AND {}))) AND NOT EXISTS (SELECT 1 FROM call_records r \
         WHERE r.call_id = l.call_id AND r.owner IS NOT NULL AND r.resumable))",
        steady(asker)
    )
}

type PgQuery<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

fn unavailable(error: sqlx::Error) -> LedgerError {
    LedgerError::Unavailable(error.to_string())
}

#[async_trait]
impl Ledger for PostgresCalls {
    async fn claim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim, LedgerError> {
        shared::claim(self, key, hash, holder, (wait_until, lease)).await
    }

    async fn seize(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET owner = $7, expires_ms = now_ms() + $8";
        self.change(
            permitted(statement, key, &KeyChange::Seize(hash, holder), holder)
                .bind(holder.owner.to_vec())
                .bind(milliseconds(lease)),
        )
        .await
    }

    async fn reclaim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET call_id = $7, owner = $8, expires_ms = now_ms() + $9";
        self.change(
            permitted(statement, key, &KeyChange::Reclaim(hash), holder)
                .bind(holder.call.to_vec())
                .bind(holder.owner.to_vec())
                .bind(milliseconds(lease)),
        )
        .await
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET expires_ms = now_ms() + $7";
        self.change(permitted(statement, key, &KeyChange::Own(holder), holder).bind(milliseconds(lease)))
            .await
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Answer,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        // Concurrent completions do not see each other, so an org may exceed its bytes by their answers.
        let statement = "UPDATE ledger AS l SET state = $7, expires_ms = now_ms() + $8, answer = CASE WHEN \
               LENGTH($9) + COALESCE((SELECT SUM(bytes) FROM ledger_usage u WHERE u.org = l.org), 0) <= $10 \
               THEN $9 ELSE $11 END";
        let stored = self
            .change(
                permitted(statement, key, &KeyChange::Own(holder), holder)
                    .bind(ANSWERED)
                    .bind(milliseconds(keep))
                    .bind(answer.whole.to_vec())
                    .bind(i64::from(self.budget.bytes))
                    .bind(answer.short.to_vec()),
            )
            .await?;
        self.waiters.wake(key);
        Ok(stored)
    }

    async fn answer(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<Bytes>, LedgerError> {
        let Some(row) = self.row(key, &[]).await? else { return Ok(None) };
        let (state, same_request, answer) = read(&row, &hash).map_err(unavailable)?;
        Ok((state.status_for(same_request) == KeyStatus::Answer).then_some(answer))
    }

    async fn running(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<[u8; 16]>, LedgerError> {
        let Some(row) = self.row(key, &[]).await? else { return Ok(None) };
        let (state, same_request, _) = read(&row, &hash).map_err(unavailable)?;
        let runs = state.status_for(same_request) == KeyStatus::Running;
        runs.then(|| id(&row, "call_id")).transpose().map_err(unavailable)
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        self.change(permitted("DELETE FROM ledger AS l", key, &KeyChange::Own(holder), holder)).await?;
        self.waiters.wake(key);
        Ok(())
    }
}

/// Restricts `statement` on a key's row `l` to what the rules allow; its own parameters start at $7.
fn permitted<'q>(statement: &str, key: LedgerKey, change: &KeyChange, asker: Holder) -> PgQuery<'q> {
    let condition = change.condition();
    let statement = format!(
        "{statement} WHERE l.claim_key = $1 AND l.state = {RUNNING} AND ($2 IS NULL OR l.hash = $2) \
         AND ($3 IS NULL OR l.call_id = $3) AND ($4 IS NULL OR l.owner = $4) \
         AND (NOT $5 OR l.expires_ms <= now_ms() OR {})",
        left("$6")
    );
    sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(key.0.to_vec())
        .bind(condition.hash.map(|hash| hash.to_vec()))
        .bind(condition.call.map(|call| call.to_vec()))
        .bind(condition.owner.map(|owner| owner.to_vec()))
        .bind(condition.abandoned)
        .bind(asker.owner.to_vec())
}

/// Reads a key's row for the rules: its state, whether it belongs to the same request, and its answer.
fn read(row: &PgRow, hash: &RequestHash) -> Result<(State, bool, Bytes), sqlx::Error> {
    let stored: Vec<u8> = row.try_get("hash")?;
    let state: i64 = row.try_get("state")?;
    let has_ended: bool = row.try_get("has_ended")?;
    let has_left: bool = row.try_get("has_left")?;
    let answer: Option<Vec<u8>> = row.try_get("answer")?;
    let state = State::of(state == ANSWERED, has_ended, has_left);
    Ok((state, stored == hash, Bytes::from(answer.unwrap_or_default())))
}

impl PostgresCalls {
    /// Runs a change; returns whether it changed the row.
    async fn change(&self, change: PgQuery<'_>) -> Result<bool, LedgerError> {
        let changed = self.in_time(change.execute(&self.pool)).await.map_err(unavailable)?;
        Ok(changed.rows_affected() == 1)
    }

    async fn row(&self, key: LedgerKey, asker: &[u8]) -> Result<Option<PgRow>, LedgerError> {
        let statement = format!(
            "SELECT l.hash, l.call_id, l.state, l.answer, l.expires_ms <= now_ms() AS has_ended, {} AS has_left \
             FROM ledger l WHERE l.claim_key = $1",
            left("$2")
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(key.0.to_vec()).bind(asker.to_vec());
        self.in_time(row.fetch_optional(&self.pool)).await.map_err(unavailable)
    }

    async fn has_room(&self, holder: Holder) -> Result<KeyLookup, LedgerError> {
        let keys = sqlx::query_scalar(
            "SELECT CAST(COALESCE(SUM(claim_keys), 0) AS BIGINT) FROM ledger_usage WHERE org = $1",
        )
        .bind(holder.org.to_vec());
        let keys: i64 = self.in_time(keys.fetch_one(&self.pool)).await.map_err(unavailable)?;
        let has_room = self.budget.has_room(u64::try_from(keys).unwrap_or_default());
        if has_room { Ok(KeyLookup::Free { expired: false }) } else { Err(LedgerError::Full) }
    }
}

impl SharedKeys for PostgresCalls {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    async fn look(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
    ) -> Result<KeyLookup, LedgerError> {
        let Some(row) = self.row(key, &holder.owner).await? else { return self.has_room(holder).await };
        let (state, same_request, answer) = read(&row, &hash).map_err(unavailable)?;
        Ok(KeyLookup::at(state, same_request, answer))
    }

    async fn take_free(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        (lease, _): (Duration, bool),
    ) -> Result<bool, LedgerError> {
        // The same statement replaces an expired answer.
        let insert = sqlx::query(
            "INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, now_ms() + $7) \
             ON CONFLICT (claim_key) DO UPDATE SET hash = excluded.hash, call_id = excluded.call_id, \
             owner = excluded.owner, state = excluded.state, expires_ms = excluded.expires_ms, answer = NULL \
             WHERE ledger.state = $8 AND ledger.expires_ms <= now_ms()",
        )
        .bind(key.0.to_vec())
        .bind(hash.to_vec())
        .bind(holder.call.to_vec())
        .bind(holder.owner.to_vec())
        .bind(holder.org.to_vec())
        .bind(RUNNING)
        .bind(milliseconds(lease))
        .bind(ANSWERED);
        self.change(insert).await
    }
}
