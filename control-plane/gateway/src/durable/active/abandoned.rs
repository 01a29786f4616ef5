//! Calls whose gateway is gone: which there are, what they hold, and taking them.
//!
//! Keeps true: a call that the store has made this gateway's goes on here, also if the store did not say so; the calls that are
//! remembered for that are bounded (I-4).

use std::collections::HashMap;
use std::time::Duration;

use asp_store::records::{CallId, CallRecord, NO_ROOM, Orphan, OwnerId, State};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::{ActiveFault, ActiveTable, Record, context, in_time};
use crate::call::bounds::KEEP;
use crate::seal::Purpose;

/// Time limit of taking a call over. A store that takes the call after the limit is asked for it later.
const TAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which a store may still do what it was asked and has not answered.
const UNHEARD_FOR: Duration = Duration::from_secs(60);
/// Maximum number of calls that are remembered. A look ends with the first that the store does not answer for, so that there are few.
const MAX_UNHEARD: usize = 256;
/// Time for which no gateway gives up an abandoned call after one had no room for it: many looks for those that get room.
const NO_ROOM_FOR: Duration = Duration::from_secs(30);

/// A call whose gateway is gone.
pub struct AbandonedCall {
    pub call: CallId,
    pub record: Record,
    pub seq: u64,
    /// State the call had reached, sealed no more; empty before the first.
    pub state: Vec<u8>,
    /// Last state of the call that its gateway stored.
    stored_state: State,
    orphan: Orphan,
}

impl AbandonedCall {
    /// The call, taken for one that an executor has begun.
    pub fn begun(mut self) -> AbandonedCall {
        self.record.handed_over = true;
        self
    }

    /// The state in which its gateway left the call. The one that the store has may be from before an executor had begun.
    pub fn left_in(&self) -> State {
        match self.stored_state {
            State::Submitted if self.record.handed_over => State::Working,
            stored => stored,
        }
    }
}

/// Calls of which it is not known whether the store made them this gateway's, or that are and do not run yet.
#[derive(Default)]
pub(super) struct UnheardTakes {
    since: Mutex<HashMap<CallId, Instant>>,
}

impl UnheardTakes {
    fn remember(&self, call: CallId) {
        let mut since = self.since.lock();
        if since.len() < MAX_UNHEARD || since.contains_key(&call) {
            since.insert(call, Instant::now());
        } else {
            tracing::warn!(call = %Uuid::from_bytes(call), "a call may be this gateway's and run nowhere until this gateway ends, because the store did not answer for too many; check the store");
        }
    }

    fn forget(&self, call: &CallId) {
        self.since.lock().remove(call);
    }

    fn calls(&self) -> Vec<CallId> {
        self.since.lock().keys().copied().collect()
    }

    /// Forgets those that are not `ours` and that the store does not make so any more.
    fn keep(&self, ours: &[CallId]) {
        self.since.lock().retain(|call, since| ours.contains(call) || since.elapsed() < UNHEARD_FOR);
    }
}

impl ActiveTable {
    /// Returns at most `limit` rows of gateways that are gone.
    pub async fn abandoned(&self, limit: u32) -> Result<Vec<Orphan>, ActiveFault> {
        let mut orphans = in_time(self.store.orphans(limit)).await?;
        // Our own lease has lapsed; the renewal sees to that.
        orphans.retain(|orphan| orphan.owner != self.owner);
        Ok(orphans)
    }

    /// An abandoned call; `None` when it is there no more, or does not open with this gateway's keys.
    pub async fn open_abandoned(&self, orphan: Orphan) -> Result<Option<AbandonedCall>, ActiveFault> {
        let Some(row) = in_time(self.store.find(orphan.call)).await? else { return Ok(None) };
        Ok(self.open(orphan, &row))
    }

    /// Makes an abandoned call this gateway's; false when another one was faster. No call waits for this, so
    /// that it takes as long as the store does. A call of which the store does not say whether it was taken is remembered.
    pub async fn take(&self, abandoned: &AbandonedCall) -> Result<bool, ActiveFault> {
        let taking = self.store.take(&abandoned.orphan, self.owner);
        // Longer than the store's own time: a loss without a word ends no more than this one.
        let taken = match tokio::time::timeout(TAKE_TIMEOUT, taking).await {
            Ok(taken) => taken.map_err(|e| ActiveFault(e.to_string())),
            Err(_) => Err(ActiveFault("the store did not answer in time".into())),
        };
        match &taken {
            Ok(true) => self.unheard.forget(&abandoned.call),
            // Where an earlier attempt has taken it, it is taken from nobody any more.
            Ok(false) => {}
            Err(_) => self.unheard.remember(abandoned.call),
        }
        taken
    }

    /// Notes that a call is this gateway's and does not run here yet: the next look goes on with it.
    pub(crate) fn put_off(&self, call: CallId) {
        self.unheard.remember(call);
    }

    /// The calls that are this gateway's and do not run here, because the store did not say that it had made them so.
    pub async fn put_off_calls(&self) -> Result<Vec<Orphan>, ActiveFault> {
        let calls = self.unheard.calls();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let owners = in_time(self.store.owners(&calls)).await?;
        let is_put_off = |(call, owner): &(CallId, Option<OwnerId>)| {
            *owner == Some(self.owner) && self.registry.find_running(Uuid::from_bytes(*call)).is_none()
        };
        let ours: Vec<CallId> = owners.into_iter().filter(is_put_off).map(|(call, _)| call).collect();
        self.unheard.keep(&ours);
        Ok(ours.into_iter().map(|call| Orphan { call, owner: self.owner }).collect())
    }

    /// A call that was put off goes on here.
    pub fn take_up(&self, call: &CallId) {
        self.unheard.forget(call);
    }

    /// Reports that abandoned calls wait for room at this gateway: for [`NO_ROOM_FOR`] no gateway gives one up.
    pub async fn report_no_room(&self) -> Result<(), ActiveFault> {
        in_time(self.store.renew(NO_ROOM, NO_ROOM_FOR)).await.map(drop)
    }

    /// Ends a call with which no gateway goes on: from now on its row says at each of them that its outcome is what the ledger has
    /// under its key, else unknown, and its key is abandoned. False when another gateway was
    /// faster, or one has no room for those that wait.
    pub async fn give_up(&self, orphan: &Orphan) -> Result<bool, ActiveFault> {
        in_time(self.store.give_up(orphan, self.owner, KEEP)).await
    }

    fn open(&self, orphan: Orphan, row: &CallRecord) -> Option<AbandonedCall> {
        let at = context(&orphan.call, &row.org, &row.plugin, 0);
        let record = self.sealer.open_bytes(Purpose::Record, &at, &row.record)?;
        let record = serde_json::from_slice(&record).ok()?;
        let state = match row.memory.is_empty() {
            true => Vec::new(),
            false => self.sealer.open_bytes(Purpose::Answers, &at, &row.memory)?,
        };
        let stored_state = row.state;
        Some(AbandonedCall { call: orphan.call, record, seq: row.seq, state, stored_state, orphan })
    }
}
