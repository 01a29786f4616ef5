//! The [`Ledger`] of several processes.
//!
//! The rules (`ledger/rules.rs`) define what a row means and who may change it; this module expresses them in SQL.
//! Keeps true: waiting for a key only reads, with exponential backoff, unless its holder ends in this process.

use std::time::Duration;

use asp_platform::pauses::doubling;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::{CallStatement, CallsDatabase, changes, row, steady};
use crate::columns::Columns;
use crate::ledger::rules::{Condition, KeyChange, KeyStatus, State};
use crate::ledger::{
    Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, LedgerRequest, RequestHash, Result,
};

/// First and longest interval of reads while another process holds a claim; the interval doubles in between.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// States of a row.
const RUNNING: i64 = 0;
const ANSWERED: i64 = 1;

/// Returns a condition on row `l`: the gateway that held the key is gone and left no record from which another one can
/// resume the call. It has retired, or its lease has expired in the view of the gateway in `asker`, whose own lease
/// must be steady. False for a gateway that never had a lease; the key's own expiry decides then.
fn abandoned_condition(asker: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM gateways g WHERE g.owner = l.owner AND (g.lease_ms = 0 OR \
         (g.lease_ms <= now_ms() AND {}))) AND NOT EXISTS (SELECT 1 FROM call_records r \
         WHERE r.call_id = l.call_id AND r.owner IS NOT NULL AND r.resumable))",
        steady(asker)
    )
}

from_failure!(sqlx::Error => LedgerError::Unavailable);

#[async_trait]
impl<D: CallsDatabase> Ledger for D {
    async fn claim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim> {
        let mut pauses = doubling(FIRST_LOOK, LAST_LOOK);
        loop {
            let waiter = self.waiters().of(request.key);
            let ended = waiter.ended.notified();
            tokio::pin!(ended);
            // Registered before the row is read, so that no end is missed.
            ended.as_mut().enable();
            let (entry, keys) = KeyEntry::find_with_usage(self, request, holder).await?;
            match entry.as_ref().map_or(KeyStatus::Free, |entry| entry.status) {
                KeyStatus::Conflict => return Ok(Claim::Conflict),
                KeyStatus::Answer => {
                    return Ok(Claim::Replay(entry.map(|entry| entry.answer).unwrap_or_default()));
                }
                KeyStatus::Abandoned => return Ok(Claim::Abandoned),
                KeyStatus::Free => {
                    // An expired answer is replaced, so that the org needs no capacity for another key.
                    if entry.is_none() && !self.budget().has_room(keys) {
                        return Err(LedgerError::Full);
                    }
                    if take_free(self, request, holder, lease).await? {
                        return Ok(Claim::New);
                    }
                    // Another was faster.
                }
                KeyStatus::Running => {}
            }
            if Instant::now() >= wait_until {
                return Ok(Claim::InFlight);
            }
            let next = (Instant::now() + pauses.next().unwrap_or(LAST_LOOK)).min(wait_until);
            // Woken by this process or by the timer; in both cases the row decides.
            let _ = tokio::time::timeout_at(next, ended).await;
        }
    }

    async fn seize(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        let statement = "UPDATE ledger AS l SET owner = $7, expires_ms = now_ms() + $8";
        let seizure = permitted(statement, request.key, &KeyChange::Seize(request.hash, holder), holder);
        Ok(changes(self, seizure.bind(holder.owner).bind(lease)).await?)
    }

    async fn reclaim(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        let statement = "UPDATE ledger AS l SET call_id = $7, owner = $8, expires_ms = now_ms() + $9";
        let reclaim = permitted(statement, request.key, &KeyChange::Reclaim(request.hash), holder);
        Ok(changes(self, reclaim.bind(holder.call).bind(holder.owner).bind(lease)).await?)
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool> {
        let statement = "UPDATE ledger AS l SET expires_ms = now_ms() + $7";
        Ok(changes(self, permitted(statement, key, &KeyChange::Own(holder), holder).bind(lease)).await?)
    }

    async fn complete(&self, key: LedgerKey, holder: Holder, answer: Answer, keep: Duration) -> Result<bool> {
        // On PostgreSQL concurrent completions do not see each other, so an org may exceed its bytes by their answers.
        let statement = "UPDATE ledger AS l SET state = $7, expires_ms = now_ms() + $8, answer = CASE WHEN \
               LENGTH($9) + COALESCE((SELECT SUM(bytes) FROM ledger_usage u WHERE u.org = l.org), 0) <= $10 \
               THEN $9 ELSE $11 END";
        let completion = permitted(statement, key, &KeyChange::Own(holder), holder).bind(ANSWERED).bind(keep);
        let completion = completion.bind(&answer.whole).bind(self.budget().bytes).bind(&answer.short);
        let stored = changes(self, completion).await?;
        self.waiters().wake(key);
        Ok(stored)
    }

    async fn answer(&self, request: LedgerRequest) -> Result<Option<Bytes>> {
        let entry = KeyEntry::find(self, request).await?;
        Ok(entry.filter(|entry| entry.status == KeyStatus::Answer).map(|entry| entry.answer))
    }

    async fn running(&self, request: LedgerRequest) -> Result<Option<[u8; 16]>> {
        let entry = KeyEntry::find(self, request).await?;
        Ok(entry.filter(|entry| entry.status == KeyStatus::Running).and_then(|entry| entry.call))
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<()> {
        changes(self, permitted("DELETE FROM ledger AS l", key, &KeyChange::Own(holder), holder)).await?;
        self.waiters().wake(key);
        Ok(())
    }
}

/// Restricts `statement` on a key's row `l` to what the rules allow; its own parameters start at $7.
fn permitted(statement: &str, key: LedgerKey, change: &KeyChange, asker: Holder) -> CallStatement {
    let Condition { hash, call, owner, abandoned } = change.condition();
    let text = format!(
        "{statement} WHERE l.claim_key = $1 AND l.state = {RUNNING} AND ($2 IS NULL OR l.hash = $2) \
         AND ($3 IS NULL OR l.call_id = $3) AND ($4 IS NULL OR l.owner = $4) \
         AND (NOT $5 OR l.expires_ms <= now_ms() OR {})",
        abandoned_condition("$6")
    );
    statement!(text, key.0, hash, call, owner, abandoned, asker.owner)
}

/// The row of a key, in view of a request.
struct KeyEntry {
    status: KeyStatus,
    call: Option<[u8; 16]>,
    answer: Bytes,
}

impl KeyEntry {
    /// Reads a key without changing it.
    async fn find<D: CallsDatabase>(database: &D, request: LedgerRequest) -> sqlx::Result<Option<KeyEntry>> {
        let nobody: Option<[u8; 16]> = None;
        let statement = format!("SELECT {} FROM ledger l WHERE l.claim_key = $1", KeyEntry::columns());
        let row = row(database, statement!(statement, request.key.0, nobody)).await?;
        row.map(|row| KeyEntry::read(&row, &request.hash)).transpose()
    }

    /// Reads a key without changing it, and the number of keys of the holder's org.
    async fn find_with_usage<D: CallsDatabase>(
        database: &D,
        request: LedgerRequest,
        holder: Holder,
    ) -> sqlx::Result<(Option<KeyEntry>, u64)> {
        // One row in any case: without the key its columns are null.
        let statement = format!(
            "SELECT {}, (SELECT CAST(COALESCE(SUM(u.claim_keys), 0) AS BIGINT) FROM ledger_usage u \
             WHERE u.org = $3) AS claim_keys FROM (SELECT 1 AS one) AS asked LEFT JOIN ledger l ON l.claim_key = $1",
            KeyEntry::columns()
        );
        let found = row(database, statement!(statement, request.key.0, holder.owner, holder.org)).await?;
        let Some(row) = found else { return Ok((None, 0)) };
        let keys = u64::try_from(row.number("claim_keys")?).unwrap_or_default();
        let is_known = !row.blob("hash")?.is_empty();
        Ok((is_known.then(|| KeyEntry::read(&row, &request.hash)).transpose()?, keys))
    }

    /// Returns the columns of a key's row `l`, in view of the gateway in $2.
    fn columns() -> String {
        format!(
            "l.hash, l.call_id, l.state, l.answer, l.expires_ms <= now_ms() AS has_ended, {} AS has_left",
            abandoned_condition("$2")
        )
    }

    fn read(row: &impl Columns, hash: &RequestHash) -> sqlx::Result<KeyEntry> {
        let is_answered = row.number("state")? == ANSWERED;
        let state = State::of(is_answered, row.flag("has_ended")?, row.flag("has_left")?);
        let status = state.status_for(row.blob("hash")? == hash.as_slice());
        Ok(KeyEntry { status, call: row.optional_id("call_id")?, answer: row.blob("answer")? })
    }
}

/// Takes a key that was found free; returns false if another was faster. Replaces an expired answer.
async fn take_free<D: CallsDatabase>(
    database: &D,
    request: LedgerRequest,
    holder: Holder,
    lease: Duration,
) -> sqlx::Result<bool> {
    let statement = "INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, expires_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, now_ms() + $7) \
         ON CONFLICT (claim_key) DO UPDATE SET hash = excluded.hash, call_id = excluded.call_id, \
         owner = excluded.owner, state = excluded.state, expires_ms = excluded.expires_ms, answer = NULL \
         WHERE ledger.state = $8 AND ledger.expires_ms <= now_ms()";
    let LedgerRequest { key, hash } = request;
    let Holder { call, owner, org } = holder;
    changes(database, statement!(statement, key.0, hash, call, owner, org, RUNNING, lease, ANSWERED)).await
}
