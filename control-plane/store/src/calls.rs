//! Ledger and records of calls, storage of plugins, linked accounts, and published keys, on a SQL database: one set of statements for SQLite and PostgreSQL.
//!
//! Owns the statements that say the same in both, in the words of PostgreSQL (`statement.rs`). Refuses: to renew and to
//! judge leases, which each database does in its own way ([`CallsDatabase`]). Keeps true: a change and its conditions
//! are one statement, or one transaction that locks what it depends on.

mod approvals;
mod keys;
mod ledger;
mod linked_accounts;
mod plugin_storage;
mod push;
mod quotas;
mod records;
mod statement;

use std::time::Duration;

use sqlx::Result;

use crate::approvals::KEEP_ENDED;
use crate::columns::Columns;
use crate::ledger::Budget;
use crate::ledger::rules::KEEP_ABANDONED;
use crate::ledger::waiters::Waiters;
use crate::records::{CallId, CallQuotas, KEEP_PAST, Lease, OwnerId, RecordKey, STEADY};

pub(crate) use quotas::QuotaHolder;
pub(crate) use statement::CallStatement;

/// Condition on a row `r`: the call has not ended, and a gateway with a lease runs it or can take it over.
pub(crate) const CONTINUED: &str = "r.owner IS NOT NULL AND ((r.resumable AND r.expires_ms > now_ms()) OR EXISTS \
    (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > now_ms()))";
/// Pause between two statements of a sweep, which leaves the database to others.
pub(crate) const SWEEP_REST: Duration = Duration::from_millis(20);
/// Deletions of expired rows, at most $1 of those that expired more than $2 ms ago.
pub(crate) const PAST: [(&str, Duration); 7] = [
    (
        "DELETE FROM ledger WHERE claim_key IN (SELECT claim_key FROM ledger \
         WHERE expires_ms < now_ms() - $2 AND state = 1 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    (
        "DELETE FROM ledger WHERE claim_key IN (SELECT claim_key FROM ledger \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_ABANDONED,
    ),
    (
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM call_records \
         WHERE expires_ms < now_ms() - $2 AND (owner IS NULL OR NOT EXISTS \
         (SELECT 1 FROM gateways g WHERE g.owner = call_records.owner AND g.lease_ms > now_ms())) \
         LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    // Deletes records even of live owners that failed to store the end of a call.
    (
        "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM call_records \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_PAST,
    ),
    (
        "DELETE FROM plugin_storage WHERE (org, plugin, holder, entry_key) IN \
         (SELECT org, plugin, holder, entry_key FROM plugin_storage \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
    (
        "DELETE FROM approvals WHERE seq IN (SELECT seq FROM approvals \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        KEEP_ENDED,
    ),
    (
        "DELETE FROM link_states WHERE state_id IN (SELECT state_id FROM link_states \
         WHERE expires_ms < now_ms() - $2 LIMIT $1 FOR UPDATE SKIP LOCKED)",
        Duration::ZERO,
    ),
];

/// A database with the tables of calls.
pub(crate) trait CallsDatabase: Send + Sync {
    type Row: Columns + Send + Sync;

    /// Query for the resumable records of owners without a lease; $1 is the limit.
    const ORPHANS: &'static str;
    /// The time of a statement that judges a lease.
    const CLOCK: &'static str;
    /// Maximum rows that one statement of a sweep deletes.
    const SWEEP_ROWS: i64;

    /// Calls of this process that wait for a key.
    fn waiters(&self) -> &Waiters;

    /// Limits of an org's keys and answers.
    fn budget(&self) -> Budget;

    /// Quotas of calls.
    fn quotas(&self) -> CallQuotas;

    /// Runs a statement; returns the number of rows that it changed.
    fn execute(&self, statement: CallStatement) -> impl Future<Output = Result<u64>> + Send;

    /// Runs statements in one transaction, until one changes no row; returns the number of those that changed any. Of the
    /// transactions with one `lock`, one runs at a time, so that each counts the rows of those before it.
    fn execute_in_turn(
        &self,
        lock: Option<&str>,
        statements: Vec<CallStatement>,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Returns the rows that a statement finds.
    fn rows(&self, statement: CallStatement) -> impl Future<Output = Result<Vec<Self::Row>>> + Send;

    /// Extends or restarts the owner's lease.
    fn renew_lease(&self, owner: OwnerId, lease: Duration) -> impl Future<Output = Result<Lease>> + Send;

    /// Ends the owner's lease; the row stays for as long as the owner may hold keys.
    fn end_lease(&self, owner: OwnerId) -> impl Future<Output = Result<()>> + Send;

    /// Returns the update of an orphan's row `r` that the gateway in $1 may take over; $2 is its call, $3 its owner.
    fn of_orphan(sets: &str) -> String;

    /// Returns the owners of those of the calls that have a record.
    fn find_owners(
        &self,
        calls: &[CallId],
    ) -> impl Future<Output = Result<Vec<(CallId, Option<OwnerId>)>>> + Send;

    /// Returns those of the calls whose record is [`CONTINUED`].
    fn find_continued(&self, calls: &[CallId]) -> impl Future<Output = Result<Vec<CallId>>> + Send;

    /// Deletes ended calls of the record's user and org beyond their quotas soon; no call waits for it.
    fn make_room(&self, key: &RecordKey);

    /// Waits for running deletions of records beyond the quotas.
    fn room_made(&self) -> impl Future<Output = ()> + Send;

    /// Runs the deletion of expired keys and the insertion of one, alone; returns whether that was inserted.
    fn publish_key(
        &self,
        past: CallStatement,
        key: CallStatement,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Runs a statement on published keys.
    fn execute_on_keys(&self, statement: CallStatement) -> impl Future<Output = Result<u64>> + Send;

    /// Returns the published keys that a statement finds.
    fn key_rows(&self, statement: CallStatement) -> impl Future<Output = Result<Vec<Self::Row>>> + Send;
}

/// Returns the condition that the lease of the owner in `parameter`, if it has one, is old enough to judge other
/// owners.
pub(crate) fn steady(parameter: &str) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM gateways me WHERE me.owner = {parameter} \
         AND (me.lease_ms <= now_ms() OR me.since_ms > now_ms() - {}))",
        STEADY.as_millis()
    )
}

/// Runs deletions like those of [`PAST`] until nothing is left for them.
pub(crate) async fn delete_past<D: CallsDatabase>(
    database: &D,
    past: &[(&'static str, Duration)],
) -> Result<()> {
    for (text, age) in past {
        loop {
            let deletion = CallStatement::new(*text).bind(D::SWEEP_ROWS).bind(*age);
            if database.execute(deletion).await? < D::SWEEP_ROWS.unsigned_abs() {
                break;
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
    }
    Ok(())
}

/// Runs a statement; returns whether it changed its row.
async fn changes<D: CallsDatabase>(database: &D, statement: CallStatement) -> Result<bool> {
    Ok(database.execute(statement).await? == 1)
}

/// Returns the row that a statement finds.
async fn row<D: CallsDatabase>(database: &D, statement: CallStatement) -> Result<Option<D::Row>> {
    Ok(database.rows(statement).await?.into_iter().next())
}
