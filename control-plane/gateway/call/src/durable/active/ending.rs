//! The end of a call in the store.
//!
//! Owns: ends that are not stored yet. Keeps true: if a client may return for a call, its end is in the store before it
//! is reported; if only its row would let another gateway run it again, the row is deleted first; if the store does not
//! answer, the end is kept here, retried with each renewal of the lease, and delays a shutdown; waiting ends are
//! bounded in bytes (I-4); an end never replaces that of another gateway; the row of a call to which no client returns
//! is deleted with its call, even if the store is unavailable or creates it late.

use std::sync::Arc;
use std::time::Duration;

use asp_store::records::{End, MAX_KEEP, RecordKey, Save};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{ActiveFault, ActiveTable, LATE_STATEMENT, context, end_attempt, end_taken_over, in_time, key};
use crate::call::Call;
use crate::call::outcome::Outcome;
use crate::call::terms::{KEEP, retention};
use crate::clock::unix_ms;
use crate::durable::stored_outcome::StoredOutcome;
use crate::seal::Purpose;

/// Delay of an outcome whose store does not answer. Longer than the store may take for one statement.
const BRIEFLY: Duration = Duration::from_millis(2500);
/// The same delay for a call whose client has an acknowledgement that the store knows the call, such as a task: until
/// then the call is reported as running, here and at other gateways.
const ANNOUNCED: Duration = Duration::from_secs(60);
/// Interval of attempts while the lease is renewed.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum size of the ends that wait for the store, in KiB.
const WAITING_KIB: usize = 64 * 1024;
/// Maximum number of waiting ends that are tried at the same time.
const TRIES: usize = 8;
/// Maximum size of a stored outcome in bytes; of a larger one, only the completion is stored.
const MAX_OUTCOME: usize = 8 * 1024 * 1024;
/// Maximum number of rows of ended calls that wait to be deleted; a waiting row takes about 100 bytes.
const WAITING_ROWS: usize = 10_000;

/// Ends that are being stored.
pub(super) struct Endings {
    tasks: TaskTracker,
    room: Arc<Semaphore>,
    rows: Semaphore,
    tries: Semaphore,
    /// Notified when the lease is renewed: the store answers.
    pub(super) renewed: Notify,
}

impl Default for Endings {
    fn default() -> Endings {
        Endings {
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(WAITING_KIB)),
            rows: Semaphore::new(WAITING_ROWS),
            tries: Semaphore::new(TRIES),
            renewed: Notify::new(),
        }
    }
}

/// Row of an ended call to which no client returns.
struct EndedRow {
    call: Uuid,
    created_ms: i64,
    /// Whether the store has it.
    is_kept: bool,
    /// The call's deadline. A row by which another gateway continues the call is not kept longer.
    deadline: Instant,
    /// The latest time at which any row of the call expires.
    until: Instant,
}

impl EndedRow {
    fn of(call: &Call) -> EndedRow {
        let key = key(call, false);
        let left = u64::try_from(key.expires_ms).unwrap_or(0).saturating_sub(unix_ms());
        let until = Instant::now() + Duration::from_millis(left).min(MAX_KEEP);
        let is_kept = call.ownership.is_stored();
        EndedRow { call: call.id, created_ms: key.created_ms, is_kept, deadline: call.deadline(), until }
    }
}

fn warn_of_unstored(call: &Call, outcome: &Outcome) {
    tracing::warn!(
        call = %call.id, trace = %call.trace, state = outcome.state().as_str(),
        "outcome was reported before it was stored, because the store did not answer; if this gateway is lost now, other gateways will not know it: check the store"
    );
}

/// Result of storing an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndResult {
    Stored,
    /// Another gateway has taken the call over.
    Taken,
    /// The store does not accept it, and it is not retried any longer.
    GivenUp,
}

impl ActiveTable {
    /// Stores the end of a call before its outcome is reported. The row of a call that no client can return to is
    /// deleted: in the background if the ledger has its answer, otherwise before its outcome is reported, because
    /// another gateway would run the call again from it. Returns false if another gateway has taken the call over or
    /// continues the same request: its outcome counts.
    pub async fn end(self: &Arc<Self>, call: &Arc<Call>, outcome: &Outcome) -> bool {
        let ownership = &call.ownership;
        ownership.given_up.set();
        if ownership.passed_on.is_set() || !(ownership.may_be_stored() || ownership.known.is_set()) {
            return true;
        }
        let is_in_ledger = ownership.claim().is_some_and(|claim| claim.mutating);
        if call.is_void_by(outcome) || (is_in_ledger && !ownership.known.is_set()) {
            drop(self.forget_row(call));
            return true;
        }
        if !ownership.known.is_set() {
            return self.ends_within(BRIEFLY, call, outcome, self.forget_row(call)).await;
        }
        if !ownership.ending.set() {
            return true;
        }
        let longest = if ownership.announced.is_set() { ANNOUNCED } else { BRIEFLY };
        self.ends_within(longest, call, outcome, self.store_end(call, outcome)).await
    }

    /// Waits at most `longest` until the store has the end of a call. Returns false if another gateway has taken the
    /// call over, or continues the same request.
    async fn ends_within(
        &self,
        longest: Duration,
        call: &Call,
        outcome: &Outcome,
        storing: JoinHandle<EndResult>,
    ) -> bool {
        if longest == BRIEFLY && self.is_away() {
            // It is retried all the same.
            warn_of_unstored(call, outcome);
            return true;
        }
        match timeout(longest, storing).await {
            Ok(Ok(EndResult::Taken)) if self.is_twins(call) => {
                // The other gateway gets this outcome from the ledger, or starts the call itself.
                let is_in_ledger = matches!(StoredOutcome::of(call, outcome), StoredOutcome::InLedger(_));
                if !is_in_ledger {
                    end_attempt(call);
                }
                is_in_ledger
            }
            Ok(Ok(EndResult::Taken)) => {
                end_taken_over(call);
                false
            }
            Ok(Ok(EndResult::Stored)) => true,
            Ok(Ok(EndResult::GivenUp) | Err(_)) | Err(_) => {
                warn_of_unstored(call, outcome);
                true
            }
        }
    }

    /// Stores the end of a call that had ended, or was about to, when its client learned of it.
    pub(super) fn end_late(self: &Arc<Self>, call: &Arc<Call>) -> JoinHandle<EndResult> {
        let table = self.clone();
        let call = call.clone();
        self.endings.tasks.spawn(async move {
            let outcome = call.finished().await;
            if call.ownership.passed_on.is_set() {
                return EndResult::Taken;
            }
            if call.void().is_some() {
                drop(table.forget_row(&call));
                return EndResult::Stored;
            }
            if !call.ownership.ending.set() {
                return EndResult::Stored;
            }
            // The task continues even if it is not awaited.
            let sealed = table.sealed_end(&call, &outcome);
            table.store_sealed(&call, sealed).await
        })
    }

    /// Deletes the record of a call that does not start, unless a client relies on it. Its client may send it again at once.
    pub async fn withdraw(self: &Arc<Self>, call: &Call) {
        if !call.ownership.announced.is_set() {
            let _ = timeout(BRIEFLY, self.forget_row(call)).await;
        }
    }

    /// Waits briefly for an end that is stored late.
    pub(super) async fn stored_late(storing: JoinHandle<EndResult>) -> Result<(), ActiveFault> {
        match timeout(BRIEFLY, storing).await {
            // The record belongs to another gateway, and has the same end, by the call's key.
            Ok(Ok(EndResult::Stored | EndResult::Taken)) => Ok(()),
            Ok(Ok(EndResult::GivenUp) | Err(_)) | Err(_) => {
                Err(ActiveFault("the end of the call is not stored yet".into()))
            }
        }
    }

    /// Deletes the row of an ended call, so that no other gateway continues the call from it.
    fn forget_row(self: &Arc<Self>, call: &Call) -> JoinHandle<EndResult> {
        let table = self.clone();
        // Without the call: a waiting row holds no output.
        let row = EndedRow::of(call);
        let may_come_late = call.ownership.row_may_come_late();
        self.endings.tasks.spawn(async move {
            let ending = table.forget(&row).await;
            if may_come_late {
                // A shutdown does not wait for a statement that the store has probably not executed.
                tokio::spawn(async move {
                    tokio::time::sleep(LATE_STATEMENT).await;
                    table.forget(&row).await;
                });
            }
            ending
        })
    }

    /// Deletes the row of an ended call, with retries. A row that was kept and no longer belongs to this gateway was
    /// taken over; after the call's deadline no gateway continues it, and the store may have deleted the row.
    async fn forget(&self, row: &EndedRow) -> EndResult {
        let (mut place, mut turn) = (None, None);
        loop {
            let dropping = self.store.drop_record(row.call.into_bytes(), row.created_ms, self.owner);
            let dropped = in_time(dropping).await;
            let now = Instant::now();
            let error = match dropped {
                // A failed attempt may have been executed: the next one finds nothing.
                Ok(false) if row.is_kept && now < row.deadline && place.is_none() => return EndResult::Taken,
                Err(error) if now < row.until => error,
                // No gateway continues a call after its deadline.
                Ok(_) | Err(_) => return EndResult::Stored,
            };
            if place.is_none() {
                place = self.endings.rows.try_acquire().ok();
            }
            if place.is_none() {
                tracing::warn!(call = %row.call, %error, "row of an ended call could not be deleted, because too many wait for the store; if this gateway is lost, another one may continue the call: check the store");
                return EndResult::GivenUp;
            }
            drop(turn.take());
            turn = self.turn_again().await;
        }
    }

    /// Waits until the store has the end of every call, at most `longest`.
    pub async fn drained(&self, longest: Duration) {
        let tasks = &self.endings.tasks;
        tasks.close();
        if timeout(longest, tasks.wait()).await.is_err() {
            tracing::warn!(
                calls = tasks.len(),
                "ends of calls could not be stored in time; other gateways will not know their outcomes: check the store"
            );
        }
        tasks.reopen();
    }

    fn store_end(self: &Arc<Self>, call: &Arc<Call>, outcome: &Outcome) -> JoinHandle<EndResult> {
        let table = self.clone();
        let call = call.clone();
        let sealed = self.sealed_end(&call, outcome);
        self.endings.tasks.spawn(async move { table.store_sealed(&call, sealed).await })
    }

    async fn store_sealed(&self, call: &Call, sealed: Result<(RecordKey, End), ActiveFault>) -> EndResult {
        match sealed {
            Ok((key, end)) => self.keep_storing(call, &key, end).await,
            Err(error) => {
                tracing::error!(call = %call.id, trace = %call.trace, %error, "end of a call cannot be encoded for the store");
                EndResult::GivenUp
            }
        }
    }

    fn sealed_end(&self, call: &Call, outcome: &Outcome) -> Result<(RecordKey, End), ActiveFault> {
        let text = |kept: &StoredOutcome| serde_json::to_vec(kept).map_err(|e| ActiveFault(e.to_string()));
        let mut plain = text(&StoredOutcome::of(call, outcome))?;
        if plain.len() > MAX_OUTCOME {
            plain = text(&StoredOutcome::TooLarge)?;
        }
        let key = key(call, false);
        let at = context(&key.call, &key.org, &key.plugin, 0);
        let sealed = self.seal(Purpose::Outcome, &at, &plain)?;
        let keep =
            (call.started + retention(&call.entry.primitive)).saturating_duration_since(Instant::now());
        let keep = keep.clamp(KEEP, MAX_KEEP);
        let end = End { state: outcome.state(), record: self.telling(call)?, outcome: sealed, keep };
        Ok((key, end))
    }

    async fn keep_storing(&self, call: &Call, key: &RecordKey, end: End) -> EndResult {
        if let Some(publication) = call.ownership.publication() {
            // A client that sees the end can see all events before it.
            publication.wait_for_events(call.events.next_number()).await;
        }
        let until = Instant::now() + end.keep;
        let mut waiting: Option<OwnedSemaphorePermit> = None;
        let mut turn = None;
        loop {
            let found = match in_time(self.store.finish(key, self.owner, end.clone())).await {
                Ok(Save::NotOwner) if waiting.is_some() => self.has_ended(key, &end).await,
                Ok(Save::NotOwner) => Ok(EndResult::Taken),
                Ok(Save::Stored | Save::Stale) => Ok(EndResult::Stored),
                Err(error) => Err(error),
            };
            let error = match found {
                Ok(ending) => {
                    self.stored.notify_one();
                    return ending;
                }
                Err(error) => error,
            };
            if waiting.is_none() {
                let bytes = end.record.len() + end.outcome.len();
                let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).max(1);
                waiting = self.endings.room.clone().try_acquire_many_owned(kib).ok();
            }
            if waiting.is_none() || Instant::now() >= until {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "end of a call could not be stored, because too many wait for the store; other gateways will not know its outcome: check the store");
                return EndResult::GivenUp;
            }
            drop(turn.take());
            turn = self.turn_again().await;
        }
    }

    /// Waits for the next attempt; dropping the permit ends the attempt.
    async fn turn_again(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        loop {
            // An attempt is due either way, if the store answers.
            let _ = timeout(AGAIN, self.endings.renewed.notified()).await;
            if !self.is_away() {
                return self.endings.tries.acquire().await.ok();
            }
        }
    }

    /// Determines which gateway ended the call if its row no longer belongs to this one: a failed attempt may have
    /// been executed.
    async fn has_ended(&self, key: &RecordKey, end: &End) -> Result<EndResult, ActiveFault> {
        let row = in_time(self.store.find(key.call)).await?;
        let is_ours = row.is_none_or(|row| row.owner.is_none() && row.outcome == end.outcome);
        Ok(if is_ours { EndResult::Stored } else { EndResult::Taken })
    }
}

#[cfg(test)]
mod tests {
    use asp_store::records::MemoryRecords;

    use super::*;
    use crate::durable::active::call_status::tests::table;

    #[tokio::test]
    async fn a_row_that_is_gone_was_taken_over_only_before_the_deadline_of_its_call() {
        let table = table(&Arc::new(MemoryRecords::default()));
        let now = Instant::now();
        let until = now + Duration::from_secs(3600);
        for (deadline, ending) in [(until, EndResult::Taken), (now, EndResult::Stored)] {
            let row =
                EndedRow { call: Uuid::from_bytes([7; 16]), created_ms: 0, is_kept: true, deadline, until };
            assert_eq!(table.forget(&row).await, ending);
        }
    }
}
