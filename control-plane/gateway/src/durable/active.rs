//! The gateway's part of the records of calls: the rows of its own running calls, sealed (ADR 6).
//!
//! Owns: which rows are this run's, and sealing; what is told of a call, and how it ended, is in `told.rs`. Keeps true: the
//! store holds nothing it could read; a call whose row another gateway has taken is passed on, and touches nothing more;
//! a row that was made after this gateway had given up waiting for it is told from none, and ends with its call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use asp_store::ledger::LedgerError;
use asp_store::records::{CallId, CallRecords, Lease, OwnerId, RecordKey, STEADY, Saved, State};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::abandoned::AbandonedCall;
use self::abandoned::UnheardTakes;
use self::ending::Endings;
use super::inbox::Inboxes;
use super::record::{self, Record};
use super::shared_calls::SharedCalls;
use super::shared_events::{Rows, SharedEvents};
use super::shared_followers::SharedFollowers;
use crate::call::Call;
use crate::call::bounds::kept_for;
use crate::call::principal::{principal, user};
use crate::call::registry::CallRegistry;
use crate::call::remote::versioned;
use crate::digest;
use crate::seal::{Purpose, Sealer};

mod abandoned;
mod ending;
pub mod listed;
pub mod told;

/// How long the store may take, so that a stuck one does not stop a call.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which a store has done what it was asked and has not answered: longer than it lets a statement take.
pub(crate) const LATE_STATEMENT: Duration = Duration::from_secs(10);
/// A gateway that is gone is taken for dead after this long.
const LEASE: Duration = Duration::from_secs(8);
/// How long before that nothing is begun any more that the stores must remember: what is begun has told them by then.
const STOPS_BEFORE: Duration = Duration::from_secs(1);
/// So many renewals that fail one after the other say that the store is not reached. One alone may have been a connection
/// that broke, and is tried again with most of the lease left.
const AWAY_AFTER: u32 = 2;

/// The store did not do it, or holds what does not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("active calls: {0}")]
pub struct ActiveFault(String);

impl From<LedgerError> for ActiveFault {
    fn from(error: LedgerError) -> ActiveFault {
        ActiveFault(error.to_string())
    }
}

/// The rows of one gateway's calls.
pub struct ActiveTable {
    store: Arc<dyn CallRecords>,
    sealer: Arc<Sealer>,
    owner: OwnerId,
    registry: Arc<CallRegistry>,
    /// The part of calls that other gateways see and act on, where there are any.
    shared: Option<SharedCalls>,
    /// Until when nobody else can have taken a row; `None` before the first renewal.
    held_until: Mutex<Option<Instant>>,
    /// Since when the lease has held without a gap.
    steady_since: Mutex<Option<Instant>>,
    /// The lease was given back.
    retired: AtomicBool,
    /// How many renewals it has not taken since it took one.
    failed: AtomicU32,
    /// Rows may have been taken, and not all were looked at since.
    unsure: AtomicBool,
    /// The lease lapsed, and what was taken meanwhile was not looked at since.
    lapsed: AtomicBool,
    /// The ends that are being stored.
    endings: Endings,
    /// Calls of which the store did not say whether it made them this gateway's.
    unheard: UnheardTakes,
}

impl ActiveTable {
    pub fn new(
        store: Arc<dyn CallRecords>,
        owner: OwnerId,
        sealer: Arc<Sealer>,
        registry: Arc<CallRegistry>,
        shared: Option<SharedCalls>,
    ) -> ActiveTable {
        ActiveTable {
            store,
            sealer,
            owner,
            registry,
            shared,
            held_until: Mutex::default(),
            steady_since: Mutex::default(),
            retired: AtomicBool::new(false),
            failed: AtomicU32::new(0),
            unsure: AtomicBool::new(false),
            lapsed: AtomicBool::new(false),
            endings: Endings::default(),
            unheard: UnheardTakes::default(),
        }
    }

    /// What calls say, where there are other gateways.
    pub(crate) fn events(&self) -> Option<&Arc<SharedEvents>> {
        self.shared.as_ref().map(|shared| &shared.events)
    }

    /// Answers and cancels that callers send to other gateways, where there are any.
    pub(crate) fn inboxes(&self) -> Option<&Arc<Inboxes>> {
        self.shared.as_ref().map(|shared| &shared.inboxes)
    }

    /// Returns the followers of calls, where there are other gateways.
    pub(crate) fn followers(&self) -> Option<&Arc<SharedFollowers>> {
        self.shared.as_ref().map(|shared| &shared.followers)
    }

    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Makes or replaces the row of a call.
    pub async fn put(&self, call: &Arc<Call>, record: &Record) -> Result<(), ActiveFault> {
        let key = key(call, true);
        let text = serde_json::to_vec(record).map_err(|e| ActiveFault(e.to_string()))?;
        let sealed = self.seal(Purpose::Record, &context(&key.call, &key.org, &key.plugin, 0), &text)?;
        // Before the store is asked: what is given up here, or dropped with the call, may still be done there.
        call.ownership.asks();
        let saved = self.put_row(call, &key, call.state(), sealed).await?;
        if saved == Saved::NotOwner && self.is_twins(call) {
            return Err(ActiveFault(
                "the record of this id is of the same request at another gateway".into(),
            ));
        }
        call.ownership.keep();
        self.noted(call, saved).map(drop)
    }

    async fn put_row(
        &self,
        call: &Call,
        key: &RecordKey,
        state: State,
        record: Bytes,
    ) -> Result<Saved, ActiveFault> {
        call.ownership.begin_put();
        let saved = in_time(self.store.put(key, self.owner, state, record)).await?;
        call.ownership.end_put(saved == Saved::Stored);
        Ok(saved)
    }

    /// Stores a checkpoint and the memory beside it.
    pub async fn save_capsule(
        &self,
        call: &Call,
        seq: u64,
        capsule: &[u8],
        memory: &[u8],
    ) -> Result<Saved, ActiveFault> {
        let id = *call.id.as_bytes();
        let at = |seq| context(&id, &call.caller.org, &plugin(call), seq);
        let capsule = self.seal(Purpose::Capsule, &at(seq), capsule)?;
        let memory = self.seal(Purpose::Answers, &at(0), memory)?;
        let saved = in_time(self.store.save_capsule(id, self.owner, (seq, capsule), memory)).await?;
        self.noted(call, saved)
    }

    /// Stores what the call has come to.
    pub async fn save_memory(&self, call: &Call, memory: &[u8]) -> Result<(), ActiveFault> {
        let id = *call.id.as_bytes();
        let sealed =
            self.seal(Purpose::Answers, &context(&id, &call.caller.org, &plugin(call), 0), memory)?;
        let saved = in_time(self.store.save_memory(id, self.owner, sealed)).await?;
        self.noted(call, saved).map(drop)
    }

    /// The last checkpoint of a call: its number and the capsule.
    pub async fn capsule(&self, call: &Call) -> Result<(u64, Vec<u8>), ActiveFault> {
        let id = *call.id.as_bytes();
        let row = in_time(self.store.find(id)).await?.ok_or_else(|| ActiveFault("the row is gone".into()))?;
        let context = context(&id, &row.org, &row.plugin, row.seq);
        let opened = self.sealer.open_bytes(Purpose::Capsule, &context, &row.capsule);
        opened.map(|capsule| (row.seq, capsule)).ok_or_else(|| ActiveFault("a capsule was altered".into()))
    }

    /// The running calls that have a row, or may come to have one.
    pub fn kept(&self) -> Vec<Arc<Call>> {
        let mut calls = self.registry.running();
        calls.retain(|call| call.ownership.may_be_kept() && !call.ownership.has_given_row_up());
        calls
    }

    /// Says that this gateway lives. After a pause that was too long, the calls that were taken meanwhile are
    /// passed on.
    pub async fn renew(&self) -> Result<(), ActiveFault> {
        if self.retired.load(Ordering::Acquire) {
            return Ok(());
        }
        let sent = Instant::now();
        let renewed = in_time(self.store.renew(self.owner, LEASE)).await;
        let failed = self.failed.load(Ordering::Acquire);
        if renewed.is_err() {
            self.failed.store(failed.saturating_add(1), Ordering::Release);
        }
        let had_held = self.held_until.lock().is_none_or(|until| sent < until);
        match &renewed {
            // No lease ends before `held_until`: nobody can have taken anything, whatever became of the attempts before.
            Ok(Lease::Held) if had_held => {
                // A lapse that was not looked at yet stays.
                self.unsure.store(self.lapsed.load(Ordering::Acquire), Ordering::Release);
            }
            // An attempt before this one may have found the lapse, and its answer was lost.
            Ok(Lease::Held) => self.lapsed.store(self.unsure.load(Ordering::Acquire), Ordering::Release),
            Ok(Lease::Lapsed) => {
                tracing::warn!(
                    "this gateway's lease lapsed before it was renewed: other gateways may have taken over calls that run here, and those end here; check the store's response times"
                );
                self.lapsed.store(true, Ordering::Release);
                self.unsure.store(true, Ordering::Release);
            }
            // It may have come through, and the lapse is told once.
            Err(_) => self.unsure.store(true, Ordering::Release),
        }
        let lease = renewed?;
        // At once: what is looked at below does not cost the lease.
        *self.held_until.lock() = Some(sent + LEASE);
        {
            let mut steady_since = self.steady_since.lock();
            let holds = lease == Lease::Held && had_held;
            *steady_since = steady_since.filter(|_| holds).or(Some(sent));
        }
        // After the above: a first lease is not steady yet.
        self.failed.store(0, Ordering::Release);
        self.endings.renewed.notify_waiters();
        if self.unsure.load(Ordering::Acquire) {
            match self.pass_on_what_was_taken().await {
                Ok(()) => {
                    self.lapsed.store(false, Ordering::Release);
                    self.unsure.store(false, Ordering::Release);
                }
                // The next renewal looks again; until then each call asks for itself.
                Err(error) => tracing::debug!(%error, "which calls were taken over is not known yet"),
            }
        }
        Ok(())
    }

    async fn pass_on_what_was_taken(&self) -> Result<(), ActiveFault> {
        let calls = self.kept();
        let ids: Vec<CallId> = calls.iter().map(|call| *call.id.as_bytes()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let owners: HashMap<CallId, Option<OwnerId>> =
            in_time(self.store.owners(&ids)).await?.into_iter().collect();
        for call in calls {
            if self.is_taken(&call, owners.get(call.id.as_bytes()).copied()) {
                lost(&call);
            }
        }
        Ok(())
    }

    /// Whether this gateway may judge that another one is gone whose lease has lapsed: its own has held for long enough. After a
    /// pause of the store all leases have lapsed, and those that live renew theirs. A gateway that never asked for a lease is a
    /// test's, or alone; one that asked and has none started without the store.
    pub fn is_steady(&self) -> bool {
        let never_failed = self.failed.load(Ordering::Acquire) == 0;
        let lasts = |since: Instant| since.elapsed() >= STEADY;
        let holds = |until: Instant| Instant::now() < until;
        self.steady_since.lock().map_or(never_failed, lasts) && self.held_until.lock().is_none_or(holds)
    }

    /// Whether this gateway begins nothing that the stores must remember: they did not answer when they were asked last,
    /// again and again, so that another gateway is asked at once; or its lease is about to end, whatever keeps it from
    /// its renewal.
    ///
    /// Nobody else takes a row of this gateway's before its lease ends in the store, which is not before `held_until`:
    /// that counts from before the store was asked. So one failure is no reason to stop, and that time is. What was
    /// begun until then and still runs may be taken; it ends here when it is next about its row or its key
    /// ([`ActiveTable::is_ours`], `noted`).
    pub fn is_away(&self) -> bool {
        let ends = |until: Instant| Instant::now() + STOPS_BEFORE >= until;
        self.failed.load(Ordering::Acquire) >= AWAY_AFTER || self.held_until.lock().is_some_and(ends)
    }

    /// Whether what becomes of the call is this gateway's to say. Asks the store only after a pause in which
    /// another one could have taken it.
    pub async fn is_ours(&self, call: &Call) -> bool {
        if call.ownership.is_passed_on() || !call.ownership.may_be_kept() {
            return !call.ownership.is_passed_on();
        }
        let holds = self.held_until.lock().is_some_and(|until| Instant::now() < until);
        if holds && !self.unsure.load(Ordering::Acquire) {
            return true;
        }
        match in_time(self.store.stand(*call.id.as_bytes())).await {
            Ok(row) => {
                let is_taken = self.is_taken(call, row.map(|row| row.owner));
                if is_taken {
                    lost(call);
                }
                !is_taken
            }
            // The ledger is kept where the rows are: it decides.
            Err(_) => true,
        }
    }

    /// A row that was there, is gone before its time and was not ended by this gateway has ended elsewhere. One that
    /// this gateway has given up says nothing: it has no owner, or is gone.
    fn is_taken(&self, call: &Call, row: Option<Option<OwnerId>>) -> bool {
        if call.ownership.has_given_row_up() {
            return false;
        }
        match row {
            Some(owner) => owner != Some(self.owner),
            None => call.ownership.is_kept() && Instant::now() < call.deadline(),
        }
    }

    /// This gateway ends: what it leaves may be taken at once.
    pub async fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        if let Err(error) = in_time(self.store.retire(self.owner)).await {
            tracing::debug!(%error, "the lease of this gateway ends by itself");
        }
    }

    fn seal(&self, purpose: Purpose, context: &[u8], text: &[u8]) -> Result<Bytes, ActiveFault> {
        let sealed = self.sealer.seal_bytes(purpose, context, text);
        sealed.map(Bytes::from).map_err(|e| ActiveFault(e.to_string()))
    }

    /// Whether another gateway's record under the call's id is of the same request, which was put there at the same time and waits
    /// for the key that this call holds. It was not taken from this gateway, which had none and has its lease.
    fn is_twins(&self, call: &Call) -> bool {
        let holds = self.held_until.lock().is_none_or(|until| Instant::now() < until);
        call.ownership.claim().is_some()
            && is_first_record(call)
            && holds
            && !self.unsure.load(Ordering::Acquire)
    }

    fn noted(&self, call: &Call, saved: Saved) -> Result<Saved, ActiveFault> {
        if saved == Saved::NotOwner {
            if call.ownership.has_given_row_up() || call.ownership.is_passed_on() {
                return Err(ActiveFault("the call has ended".into()));
            }
            if is_first_record(call) {
                end_attempt(call);
                return Err(ActiveFault("the call is another gateway's".into()));
            }
            lost(call);
            return Err(ActiveFault("the call is another gateway's".into()));
        }
        Ok(saved)
    }
}

#[async_trait]
impl Rows for ActiveTable {
    async fn is_ours(&self, call: &Call) -> bool {
        ActiveTable::is_ours(self, call).await
    }
}

/// Whether the store has acknowledged no record of a call whose client chose its id, and may have put it at another gateway too.
fn is_first_record(call: &Call) -> bool {
    call.chosen.is_some() && !call.ownership.has_had_row()
}

/// Another gateway has begun the call with the id that its client chose.
fn end_attempt(call: &Call) {
    tracing::debug!(call = %call.id, trace = %call.trace, "another gateway has begun the call with this id; the attempt here ends");
    call.ownership.pass_on();
    call.cancel();
}

/// Another gateway took the call while this one was thought dead.
fn lost(call: &Call) {
    tracing::warn!(call = %call.id, trace = %call.trace, "another gateway has taken over this call, because this one's lease had lapsed; it ends here");
    call.ownership.pass_on();
    call.cancel();
}

async fn in_time<T, E: std::fmt::Display>(
    storing: impl Future<Output = Result<T, E>>,
) -> Result<T, ActiveFault> {
    match tokio::time::timeout(STORE_TIMEOUT, storing).await {
        Ok(stored) => stored.map_err(|e| ActiveFault(e.to_string())),
        Err(_) => Err(ActiveFault("the store did not answer in time".into())),
    }
}

/// What the record of a call says in clear. One that tells of it stays as long as that was promised, whatever becomes of
/// its gateway; one that is only gone on with, as long as that makes sense.
fn key(call: &Call, resumes: bool) -> RecordKey {
    let deadline = record::deadline_ms(call);
    let promised = u64::try_from(kept_for(&call.entry.primitive).as_millis()).unwrap_or(u64::MAX);
    let told_until = call.began_ms().saturating_add(promised);
    let expires = if resumes { deadline } else { deadline.max(told_until) };
    RecordKey {
        call: *call.id.as_bytes(),
        org: call.caller.org.clone(),
        principal: principal(&call.caller),
        user: user(&call.caller),
        server: call.server.message.name.clone(),
        plugin: plugin(call),
        // No protocol that is spoken groups calls.
        context: String::new(),
        created_ms: i64::try_from(call.began_ms()).unwrap_or(i64::MAX),
        expires_ms: i64::try_from(expires).unwrap_or(i64::MAX),
        resumes,
    }
}

/// What runs the call, as an operator reads it.
fn plugin(call: &Call) -> String {
    versioned(&call.entry.primitive)
}

/// What is sealed opens only for its call, its caller's org, its plugin and its number.
fn context(call: &CallId, org: &str, plugin: &str, seq: u64) -> Vec<u8> {
    [call.as_slice(), &seq.to_be_bytes(), &digest::of_parts(&[org, plugin])].concat()
}
