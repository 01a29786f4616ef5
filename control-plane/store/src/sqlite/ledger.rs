//! The [`Ledger`] on SQLite.
//!
//! The rules (`ledger/rules.rs`) define what a row means and who may change it; this module expresses them in SQL, so
//! that a change and its conditions are one statement.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite};
use tokio::time::Instant;

use super::SqliteCalls;
use super::records::steady;
use crate::clock::{milliseconds, now_ms};
use crate::columns::id;
use crate::ledger::rules::{KeyChange, KeyStatus, State};
use crate::ledger::shared::{self, ANSWERED, KeyLookup, RUNNING, SharedKeys};
use crate::ledger::waiters::Waiters;
use crate::ledger::{Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, RequestHash};

/// Returns a condition on row `l`: the gateway that held the key is gone and left no record from which another one can
/// resume the call. It has retired, or its lease has expired in the view of the gateway in `asker`, whose own lease
/// must be steady. $1 is the time. False for a gateway that never had a lease; the key's own expiry decides then.
fn left(asker: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM leases.owners o WHERE o.owner = l.owner) \
         AND NOT EXISTS (SELECT 1 FROM leases.owners o WHERE o.owner = l.owner AND o.lease_ms > $1) \
         AND (NOT EXISTS (SELECT 1 FROM leases.owners o WHERE o.owner = l.owner AND o.lease_ms > 0) OR {}) \
         AND NOT EXISTS (SELECT 1 FROM active_calls a WHERE a.call_id = l.call_id \
         AND a.owner IS NOT NULL AND a.resumable = 1))",
        steady(asker, "$1")
    )
}

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
        shared::claim(self, key, hash, holder, (wait_until, lease)).await
    }

    async fn seize(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET owner = $8, expires_ms = $9";
        self.change(
            permitted(statement, key, &KeyChange::Seize(hash, holder), holder)
                .bind(holder.owner.to_vec())
                .bind(now_ms().saturating_add(milliseconds(lease))),
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
        let statement = "UPDATE ledger AS l SET call_id = $8, owner = $9, expires_ms = $10";
        self.change(
            permitted(statement, key, &KeyChange::Reclaim(hash), holder)
                .bind(holder.call.to_vec())
                .bind(holder.owner.to_vec())
                .bind(now_ms().saturating_add(milliseconds(lease))),
        )
        .await
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET expires_ms = $8";
        let until = now_ms().saturating_add(milliseconds(lease));
        self.change(permitted(statement, key, &KeyChange::Own(holder), holder).bind(until)).await
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Answer,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        let statement = "UPDATE ledger AS l SET state = $8, expires_ms = $9, answer = CASE WHEN \
               LENGTH($10) + COALESCE((SELECT bytes FROM ledger_usage u WHERE u.org = l.org), 0) <= $11 \
               THEN $10 ELSE $12 END";
        let stored = self
            .change(
                permitted(statement, key, &KeyChange::Own(holder), holder)
                    .bind(ANSWERED)
                    .bind(now_ms().saturating_add(milliseconds(keep)))
                    .bind(answer.whole.as_ref())
                    .bind(i64::from(self.budget.bytes))
                    .bind(answer.short.as_ref()),
            )
            .await?;
        self.waiters.wake(key);
        Ok(stored)
    }

    async fn answer(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<Bytes>, LedgerError> {
        let now = now_ms();
        let Some(row) = self.row(key, &[], now).await? else { return Ok(None) };
        let (state, same_request, answer) = read(&row, now, &hash).map_err(unavailable)?;
        Ok((state.status_for(same_request) == KeyStatus::Answer).then_some(answer))
    }

    async fn running(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<[u8; 16]>, LedgerError> {
        let now = now_ms();
        let Some(row) = self.row(key, &[], now).await? else { return Ok(None) };
        let (state, same_request, _) = read(&row, now, &hash).map_err(unavailable)?;
        let runs = state.status_for(same_request) == KeyStatus::Running;
        runs.then(|| id(&row, "call_id")).transpose().map_err(unavailable)
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        let statement = "DELETE FROM ledger AS l";
        self.change(permitted(statement, key, &KeyChange::Own(holder), holder)).await?;
        self.waiters.wake(key);
        Ok(())
    }
}

/// Restricts `statement` on a key's row `l` to what the rules allow; its own parameters start at $8.
fn permitted<'q>(
    statement: &str,
    key: LedgerKey,
    change: &KeyChange,
    asker: Holder,
) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
    let condition = change.condition();
    let statement = format!(
        "{statement} WHERE l.claim_key = $2 AND l.state = {RUNNING} AND ($3 IS NULL OR l.hash = $3) \
         AND ($4 IS NULL OR l.call_id = $4) AND ($5 IS NULL OR l.owner = $5) \
         AND (NOT $6 OR l.expires_ms <= $1 OR {})",
        left("$7")
    );
    sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(now_ms())
        .bind(key.0.to_vec())
        .bind(condition.hash.map(|hash| hash.to_vec()))
        .bind(condition.call.map(|call| call.to_vec()))
        .bind(condition.owner.map(|owner| owner.to_vec()))
        .bind(condition.abandoned)
        .bind(asker.owner.to_vec())
}

/// Reads a key's row for the rules: its state, whether it belongs to the same request, and its answer.
fn read(row: &SqliteRow, now: i64, hash: &RequestHash) -> Result<(State, bool, Bytes), sqlx::Error> {
    let stored: Vec<u8> = row.try_get("hash")?;
    let state: i64 = row.try_get("state")?;
    let expires: i64 = row.try_get("expires_ms")?;
    let left: bool = row.try_get("has_left")?;
    let answer: Option<Vec<u8>> = row.try_get("answer")?;
    let state = State::of(state == ANSWERED, expires <= now, left);
    Ok((state, stored == hash, Bytes::from(answer.unwrap_or_default())))
}

impl SqliteCalls {
    /// Runs a change; returns whether it changed the row.
    async fn change(
        &self,
        change: sqlx::query::Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<bool, LedgerError> {
        let changed = change.execute(&self.write).await.map_err(unavailable)?;
        Ok(changed.rows_affected() == 1)
    }

    async fn row(&self, key: LedgerKey, asker: &[u8], now: i64) -> Result<Option<SqliteRow>, LedgerError> {
        let statement = format!(
            "SELECT l.hash, l.call_id, l.state, l.answer, l.expires_ms, {} AS has_left FROM ledger l WHERE l.claim_key = $2",
            left("$3")
        );
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now)
            .bind(key.0.as_slice())
            .bind(asker)
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)
    }

    async fn has_room(&self, holder: Holder) -> Result<KeyLookup, LedgerError> {
        let keys: Option<i64> = sqlx::query_scalar("SELECT claim_keys FROM ledger_usage WHERE org = $1")
            .bind(holder.org.as_slice())
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)?;
        let keys = u64::try_from(keys.unwrap_or_default()).unwrap_or_default();
        if self.budget.has_room(keys) {
            Ok(KeyLookup::Free { expired: false })
        } else {
            Err(LedgerError::Full)
        }
    }
}

impl SharedKeys for SqliteCalls {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    async fn look(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
    ) -> Result<KeyLookup, LedgerError> {
        let now = now_ms();
        let Some(row) = self.row(key, &holder.owner, now).await? else { return self.has_room(holder).await };
        let (state, same_request, answer) = read(&row, now, &hash).map_err(unavailable)?;
        Ok(KeyLookup::at(state, same_request, answer))
    }

    async fn take_free(
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
