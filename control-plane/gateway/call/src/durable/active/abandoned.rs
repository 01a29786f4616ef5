//! Calls whose gateway is gone: finding, opening and taking them over.
//!
//! Keeps true: a call that the store has assigned to this gateway continues here, even if the store did not answer; the
//! calls remembered for that are bounded (I-4).

use std::collections::HashMap;
use std::time::Duration;

use asp_store::records::{CallId, CallRecord, NO_ROOM, Orphan, OwnerId, State};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::{ActiveFault, ActiveTable, Record, context, in_time};
use crate::call::terms::KEEP;
use crate::seal::Purpose;

/// Time limit of a takeover. If the store executes it after the limit, that is found out later.
const TAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for which the store may still execute a takeover that it has not answered.
const UNCONFIRMED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of calls that are remembered. A scan ends at the first one that the store does not answer for, so
/// there are few.
const MAX_UNCONFIRMED: usize = 256;
/// Time for which no gateway gives up an abandoned call after one had no capacity for it: many scans in which some get
/// capacity.
const NO_ROOM_FOR: Duration = Duration::from_secs(30);

/// A call whose gateway is gone.
pub struct AbandonedCall {
    pub call: CallId,
    pub record: Record,
    pub seq: u64,
    /// Number of gateways that have taken the call over.
    pub takeovers: u32,
    /// State the call had reached, decrypted; empty before the first.
    pub state: Vec<u8>,
    /// Last state of the call that its gateway stored.
    stored_state: State,
    orphan: Orphan,
}

impl AbandonedCall {
    /// Treats the call as one that a backend has started, and that was taken over since it was read.
    pub fn assume_started(mut self) -> AbandonedCall {
        self.takeovers = self.takeovers.saturating_add(1);
        self.record.handed_over = true;
        self.record.question = 0;
        self
    }

    /// Returns the state in which its gateway left the call. The stored state may be from before a backend had started
    /// it.
    pub fn left_in(&self) -> State {
        match self.stored_state {
            State::Submitted if self.record.handed_over => State::Working,
            stored => stored,
        }
    }
}

/// Calls that the store may have assigned to this gateway without an answer, or has assigned and that do not run yet.
#[derive(Default)]
pub(super) struct UnconfirmedTakeovers {
    since: Mutex<HashMap<CallId, Instant>>,
}

impl UnconfirmedTakeovers {
    fn remember(&self, call: CallId) {
        let mut since = self.since.lock();
        if since.len() < MAX_UNCONFIRMED || since.contains_key(&call) {
            since.insert(call, Instant::now());
        } else {
            tracing::warn!(call = %Uuid::from_bytes(call), "takeover of a call is unconfirmed, and too many others are; if the store executed it, the call will not run until this gateway stops: check the store");
        }
    }

    fn forget(&self, call: &CallId) {
        self.since.lock().remove(call);
    }

    fn calls(&self) -> Vec<CallId> {
        self.since.lock().keys().copied().collect()
    }

    /// Forgets those that are not `ours` and whose takeover the store can no longer execute.
    fn keep(&self, ours: &[CallId]) {
        self.since.lock().retain(|call, since| ours.contains(call) || since.elapsed() < UNCONFIRMED_FOR);
    }
}

impl ActiveTable {
    /// Returns at most `limit` rows of gateways that are gone.
    pub async fn abandoned(&self, limit: u32) -> Result<Vec<Orphan>, ActiveFault> {
        let mut orphans = in_time(self.store.orphans(limit)).await?;
        // A row of this gateway means that its own lease has lapsed, which the renewal handles.
        orphans.retain(|orphan| orphan.owner != self.owner);
        Ok(orphans)
    }

    /// Opens an abandoned call; `None` if it no longer exists, or does not open with this gateway's keys.
    pub async fn open_abandoned(&self, orphan: Orphan) -> Result<Option<AbandonedCall>, ActiveFault> {
        let Some(row) = in_time(self.store.find(orphan.call)).await? else { return Ok(None) };
        Ok(self.open(orphan, &row))
    }

    /// Takes an abandoned call over; false if another gateway was faster. No call waits for this, so it may take as
    /// long as the store needs. A call for which the store does not answer is remembered.
    pub async fn take(&self, abandoned: &AbandonedCall) -> Result<bool, ActiveFault> {
        let taking = self.store.take(&abandoned.orphan, self.owner);
        // Longer than the store's own limit: if the answer is lost, only this takeover is affected.
        let taken = match tokio::time::timeout(TAKE_TIMEOUT, taking).await {
            Ok(taken) => taken.map_err(|e| ActiveFault(e.to_string())),
            Err(_) => Err(ActiveFault("the store did not answer in time".into())),
        };
        match &taken {
            Ok(true) => self.unconfirmed.forget(&abandoned.call),
            // If an earlier attempt succeeded, the row no longer belongs to the previous owner.
            Ok(false) => {}
            Err(_) => self.unconfirmed.remember(abandoned.call),
        }
        taken
    }

    /// Returns those of the calls that a gateway ends: it runs them, or can take them over.
    pub async fn continued(&self, calls: &[Uuid]) -> Result<Vec<Uuid>, ActiveFault> {
        let ids: Vec<CallId> = calls.iter().map(|call| *call.as_bytes()).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let continued = in_time(self.store.continued(&ids)).await?;
        Ok(continued.into_iter().map(Uuid::from_bytes).collect())
    }

    /// Notes that a call belongs to this gateway and does not run here yet: the next scan continues it.
    pub fn put_off(&self, call: CallId) {
        self.unconfirmed.remember(call);
    }

    /// Returns the calls that belong to this gateway and do not run here, because the store's answer was missing.
    pub async fn put_off_calls(&self) -> Result<Vec<Orphan>, ActiveFault> {
        let calls = self.unconfirmed.calls();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let owners = in_time(self.store.owners(&calls)).await?;
        let is_put_off = |(call, owner): &(CallId, Option<OwnerId>)| {
            *owner == Some(self.owner) && self.registry.find_running(Uuid::from_bytes(*call)).is_none()
        };
        let ours: Vec<CallId> = owners.into_iter().filter(is_put_off).map(|(call, _)| call).collect();
        self.unconfirmed.keep(&ours);
        Ok(ours.into_iter().map(|call| Orphan { call, owner: self.owner }).collect())
    }

    /// Notes that a call which was put off continues here.
    pub fn take_up(&self, call: &CallId) {
        self.unconfirmed.forget(call);
    }

    /// Reports that abandoned calls wait for capacity at this gateway: for [`NO_ROOM_FOR`] no gateway gives one up.
    pub async fn report_no_room(&self) -> Result<(), ActiveFault> {
        in_time(self.store.renew(NO_ROOM, NO_ROOM_FOR)).await.map(drop)
    }

    /// Ends a call that no gateway continues: from now on its row reports at each of them that its outcome is what the
    /// ledger has under its key, otherwise unknown, and its key is abandoned. False if another gateway was faster, or
    /// if one has no capacity for the calls that wait.
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
        let call = orphan.call;
        let seq = row.seq;
        let takeovers = row.takeovers;
        Some(AbandonedCall { call, record, seq, takeovers, state, stored_state, orphan })
    }
}
