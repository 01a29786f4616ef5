//! The end of a call in the store.
//!
//! Owns: ends that are not stored yet. Keeps true: where a client may ask for a call again, its end is in the store before it
//! is reported; where only its row would let another gateway run it again, the row is deleted before; if the store does not
//! answer, the end stays here, is tried again with each renewal of the lease and holds up a shutdown; those that wait are
//! bounded in bytes (I-4); an end never replaces that of another gateway.

use std::sync::Arc;
use std::time::Duration;

use asp_store::records::{End, MAX_KEEP, RecordKey, Saved};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::told::{Kept, kept_for};
use super::{ActiveFault, ActiveTable, context, in_time, key, lost};
use crate::call::Call;
use crate::call::outcome::Outcome;
use crate::seal::Purpose;

/// Delay of an outcome whose store does not answer. Longer than the store may take for one statement.
const BRIEFLY: Duration = Duration::from_millis(2500);
/// The same for a call whose client has an acknowledgement that the store knows the call, such as a task: until then it
/// stands as running, at this gateway as at the others.
const ANNOUNCED: Duration = Duration::from_secs(60);
/// Interval of attempts while the lease is renewed.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum bytes of ends that wait for the store, in KiB.
const WAITING_KIB: usize = 64 * 1024;
/// Maximum number of waiting ends that are tried at the same time.
const TRIES: usize = 8;
/// Largest outcome that is kept, in bytes; of a larger one it is kept that the call was completed.
const MAX_OUTCOME: usize = 8 * 1024 * 1024;

/// The ends that are being stored.
pub(super) struct Endings {
    tasks: TaskTracker,
    room: Arc<Semaphore>,
    tries: Semaphore,
    /// The lease was renewed: the store answers.
    pub(super) renewed: Notify,
}

impl Default for Endings {
    fn default() -> Endings {
        Endings {
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(WAITING_KIB)),
            tries: Semaphore::new(TRIES),
            renewed: Notify::new(),
        }
    }
}

/// The result of storing an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Stored,
    /// Another gateway has taken the call over.
    Taken,
    /// The store does not take it, and it does not wait any longer.
    GivenUp,
}

impl ActiveTable {
    /// Stores how a call ends, before its outcome is reported. The row of a call that no client can return to is deleted:
    /// off the path if the ledger has its answer, else before its outcome is reported, because another gateway would run
    /// the call again by it. Returns false if another gateway has taken the call over, whose outcome counts.
    pub async fn end(self: &Arc<Self>, call: &Arc<Call>, outcome: &Outcome) -> bool {
        let ownership = &call.ownership;
        ownership.gives_row_up();
        if ownership.is_passed_on() || !(ownership.may_be_kept() || ownership.is_told()) {
            return true;
        }
        let is_in_ledger = ownership.claim().is_some_and(|claim| claim.mutating);
        if call.is_void_by(outcome) || (is_in_ledger && !ownership.is_told()) {
            self.forget_later(call);
            return true;
        }
        if !ownership.is_told() {
            return self.ends_within(BRIEFLY, call, self.forget(call)).await;
        }
        if !ownership.begins_end() {
            return true;
        }
        let longest = if ownership.is_announced() { ANNOUNCED } else { BRIEFLY };
        self.ends_within(longest, call, self.store_end(call, outcome)).await
    }

    /// Waits at most `longest` until the store has the end of a call. Returns false if another gateway has taken the call
    /// over.
    async fn ends_within(&self, longest: Duration, call: &Call, storing: JoinHandle<Ending>) -> bool {
        if longest == BRIEFLY && self.is_away() {
            return true;
        }
        match timeout(longest, storing).await {
            Ok(Ok(Ending::Taken)) => {
                lost(call);
                false
            }
            Ok(Ok(Ending::Stored)) => true,
            Ok(Ok(Ending::GivenUp) | Err(_)) | Err(_) => {
                tracing::warn!(call = %call.id, trace = %call.trace, "outcome reported before the store has it, because the store did not answer; if this gateway is lost before it is stored, other gateways do not know that the call has ended: check the store");
                true
            }
        }
    }

    /// Stores the end of a call that had ended, or was about to, when its client got to know of it.
    pub(super) fn end_late(self: &Arc<Self>, call: &Arc<Call>) -> JoinHandle<Ending> {
        let table = self.clone();
        let call = call.clone();
        self.endings.tasks.spawn(async move {
            let outcome = call.finished().await;
            if call.ownership.is_passed_on() {
                return Ending::Taken;
            }
            if call.void().is_some() {
                table.forget_later(&call);
                return Ending::Stored;
            }
            if !call.ownership.begins_end() {
                return Ending::Stored;
            }
            // The task goes on if it is not awaited.
            table.store_end(&call, &outcome).await.unwrap_or(Ending::GivenUp)
        })
    }

    /// Waits briefly for an end that is stored late.
    pub(super) async fn stored_late(storing: JoinHandle<Ending>) -> Result<(), ActiveFault> {
        match timeout(BRIEFLY, storing).await {
            Ok(Ok(Ending::Stored)) => Ok(()),
            Ok(Ok(Ending::Taken)) => Err(ActiveFault("the call is another gateway's".into())),
            Ok(Ok(Ending::GivenUp) | Err(_)) | Err(_) => {
                Err(ActiveFault("the end of the call is not stored yet".into()))
            }
        }
    }

    fn forget_later(self: &Arc<Self>, call: &Arc<Call>) {
        let table = self.clone();
        let call = call.clone();
        self.endings.tasks.spawn(async move {
            if let Err(error) = in_time(table.store.drop_record(*call.id.as_bytes(), table.owner)).await {
                // The row's own time ends it.
                tracing::debug!(call = %call.id, trace = %call.trace, %error, "row of an ended call stays");
            }
        });
    }

    /// Deletes the row of a call that has ended, however often that must be tried.
    fn forget(self: &Arc<Self>, call: &Call) -> JoinHandle<Ending> {
        let table = self.clone();
        // Not the call: what waits for the store holds no output.
        let (id, is_kept, until) = (call.id, call.ownership.is_kept(), call.deadline());
        self.endings.tasks.spawn(async move { table.keep_forgetting(id, is_kept, until).await })
    }

    /// Deletes a row of this gateway until the store has done it, or no gateway may go on by the row any more. One that was
    /// kept and is gone, or has another owner, was taken over.
    async fn keep_forgetting(&self, call: Uuid, is_kept: bool, until: Instant) -> Ending {
        let mut waiting: Option<OwnedSemaphorePermit> = None;
        loop {
            let dropped = in_time(self.store.drop_record(*call.as_bytes(), self.owner)).await;
            let is_in_time = Instant::now() < until;
            let error = match dropped {
                // An attempt that failed may have been done: the next one finds nothing.
                Ok(false) if is_kept && is_in_time && waiting.is_none() => return Ending::Taken,
                Err(error) if is_in_time => error,
                // With what is past its time nobody goes on.
                Ok(_) | Err(_) => return Ending::Stored,
            };
            if !self.may_wait(&mut waiting, 1) {
                tracing::warn!(%call, %error, "row of an ended call stays, because too many ends wait for the store; if this gateway is lost before the call's deadline, another one may run the call again: check the store");
                return Ending::GivenUp;
            }
            let _turn = self.turn_again().await;
        }
    }

    /// Whether an end of so many bytes may wait for the store; it holds its room in `waiting` from the first time on.
    fn may_wait(&self, waiting: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        if waiting.is_none() {
            let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).max(1);
            *waiting = self.endings.room.clone().try_acquire_many_owned(kib).ok();
        }
        waiting.is_some()
    }

    /// Waits until the store has the end of every call, at most `longest`.
    pub async fn drained(&self, longest: Duration) {
        let tasks = &self.endings.tasks;
        tasks.close();
        if timeout(longest, tasks.wait()).await.is_err() {
            tracing::warn!(
                calls = tasks.len(),
                "the store did not take the ends of calls in time; other gateways do not know how these ended: check the store"
            );
        }
        tasks.reopen();
    }

    fn store_end(self: &Arc<Self>, call: &Arc<Call>, outcome: &Outcome) -> JoinHandle<Ending> {
        let table = self.clone();
        let call = call.clone();
        let sealed = self.sealed_end(&call, outcome);
        self.endings.tasks.spawn(async move {
            match sealed {
                Ok((key, end)) => table.keep_storing(&call, &key, end).await,
                Err(error) => {
                    tracing::error!(call = %call.id, trace = %call.trace, %error, "the end of a call cannot be stored");
                    Ending::GivenUp
                }
            }
        })
    }

    fn sealed_end(&self, call: &Call, outcome: &Outcome) -> Result<(RecordKey, End), ActiveFault> {
        let text = |kept: &Kept| serde_json::to_vec(kept).map_err(|e| ActiveFault(e.to_string()));
        let mut plain = text(&Kept::of(call, outcome))?;
        if plain.len() > MAX_OUTCOME {
            plain = text(&Kept::TooLarge)?;
        }
        let key = key(call, false);
        let at = context(&key.call, &key.org, &key.plugin, 0);
        let sealed = self.seal(Purpose::Outcome, &at, &plain)?;
        let keep = (call.started + kept_for(&call.entry.primitive)).saturating_duration_since(Instant::now());
        let keep = keep.clamp(super::told::KEEP, MAX_KEEP);
        let end = End { state: outcome.state(), record: self.telling(call)?, outcome: sealed, keep };
        Ok((key, end))
    }

    async fn keep_storing(&self, call: &Call, key: &RecordKey, end: End) -> Ending {
        if let Some(written) = call.ownership.written() {
            // Whoever finds that it has ended finds all that it said.
            written.seen_before(call.events.next_number()).await;
        }
        let until = Instant::now() + end.keep;
        let mut waiting: Option<OwnedSemaphorePermit> = None;
        loop {
            let found = match in_time(self.store.finish(key, self.owner, end.clone())).await {
                Ok(Saved::NotOwner) if waiting.is_some() => self.has_ended(key, &end).await,
                Ok(Saved::NotOwner) => Ok(Ending::Taken),
                Ok(Saved::Stored | Saved::Stale) => Ok(Ending::Stored),
                Err(error) => Err(error),
            };
            let error = match found {
                Ok(ending) => return ending,
                Err(error) => error,
            };
            let bytes = end.record.len() + end.outcome.len();
            if !self.may_wait(&mut waiting, bytes) || Instant::now() >= until {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "the end of a call is not stored, because too many wait for the store; other gateways do not know how it ended: check the store");
                return Ending::GivenUp;
            }
            let _turn = self.turn_again().await;
        }
    }

    /// Waits for the next attempt; it ends with what is returned.
    async fn turn_again(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        loop {
            // Either way it is tried, if the store answers.
            let _ = timeout(AGAIN, self.endings.renewed.notified()).await;
            if !self.is_away() {
                return self.endings.tries.acquire().await.ok();
            }
        }
    }

    /// The row is not this gateway's any more: an attempt that failed may have been done.
    async fn has_ended(&self, key: &RecordKey, end: &End) -> Result<Ending, ActiveFault> {
        let row = in_time(self.store.find(key.call)).await?;
        let is_ours = row.is_none_or(|row| row.owner.is_none() && row.outcome == end.outcome);
        Ok(if is_ours { Ending::Stored } else { Ending::Taken })
    }
}
