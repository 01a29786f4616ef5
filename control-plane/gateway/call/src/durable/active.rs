//! Records of the calls that run at this gateway: their rows in the store, sealed (ADR 6).
//!
//! Owns: which rows belong to this run of the gateway, and sealing. States and outcomes for returning clients are in
//! `call_status.rs`. Keeps true: the store cannot read anything it holds; a call whose row another gateway has taken is passed
//! on, and changes nothing more; a row that was created after this gateway stopped waiting for it is not mistaken for a
//! missing one, and is deleted with its call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use asp_store::ledger::LedgerError;
use asp_store::records::{CallId, CallRecords, Lease, OwnerId, RecordKey, STEADY, Save, State};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::abandoned::AbandonedCall;
use self::abandoned::UnconfirmedTakeovers;
use self::ending::Endings;
use super::inbox::Inboxes;
use super::record::{self, Record};
use super::shared_calls::SharedCalls;
use super::shared_events::{Rows, SharedEvents};
use super::shared_followers::SharedFollowers;
use crate::call::Call;
use crate::call::principal::{principal, user};
use crate::call::registry::CallRegistry;
use crate::call::remote::versioned;
use crate::call::terms::retention;
use crate::digest;
use crate::seal::{Purpose, Sealer};

mod abandoned;
pub mod brief;
pub mod call_status;
mod ending;

/// Time limit of the store, so that a stuck one does not stop a call.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which the store may still execute a statement that it has not answered: longer than it allows a statement to
/// take.
pub const LATE_STATEMENT: Duration = Duration::from_secs(10);
/// Time after which a gateway that does not renew its lease counts as dead.
const LEASE: Duration = Duration::from_secs(8);
/// Time before the end of the lease from which no call starts that the stores must remember: a call that started
/// earlier has been stored by then.
const STOPS_BEFORE: Duration = Duration::from_secs(1);
/// Number of consecutive failed renewals after which the store counts as unavailable. A single one may have been a
/// broken connection; it is retried with most of the lease left.
const AWAY_AFTER: u32 = 2;

/// Failure of the store, or a record that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("active calls: {0}")]
pub struct ActiveFault(String);

impl ActiveFault {
    pub(super) fn of(error: &impl std::fmt::Display) -> ActiveFault {
        ActiveFault(error.to_string())
    }
}

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
    /// Data of calls shared with other gateways, if there are any.
    shared: Option<SharedCalls>,
    /// Lease expiry as known here; `None` until the first renewal.
    held_until: Mutex<Option<Instant>>,
    /// Time since which the lease has held without a gap.
    steady_since: Mutex<Option<Instant>>,
    /// Whether this gateway is the only one of its store, as of the last renewal of the lease.
    alone: AtomicBool,
    /// Whether the lease was given back.
    retired: AtomicBool,
    /// Number of failed renewals since the last successful one.
    failed: AtomicU32,
    /// Whether rows may have been taken and not all were checked since.
    unsure: AtomicBool,
    /// Whether the lease lapsed and the rows were not checked since.
    lapsed: AtomicBool,
    /// Ends of calls that are being stored.
    endings: Endings,
    /// Calls for which the store did not answer whether it assigned them to this gateway.
    unconfirmed: UnconfirmedTakeovers,
    /// Notified when a state of a call is stored.
    stored: Notify,
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
            alone: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            failed: AtomicU32::new(0),
            unsure: AtomicBool::new(false),
            lapsed: AtomicBool::new(false),
            endings: Endings::default(),
            unconfirmed: UnconfirmedTakeovers::default(),
            stored: Notify::new(),
        }
    }

    /// Returns the shared events of calls, if there are other gateways.
    pub fn events(&self) -> Option<&Arc<SharedEvents>> {
        self.shared.as_ref().map(|shared| &shared.events)
    }

    /// Returns the answers and cancels that callers send to other gateways, if there are any.
    pub fn inboxes(&self) -> Option<&Arc<Inboxes>> {
        self.shared.as_ref().map(|shared| &shared.inboxes)
    }

    /// Returns the followers of calls, if there are other gateways.
    pub fn followers(&self) -> Option<&Arc<SharedFollowers>> {
        self.shared.as_ref().map(|shared| &shared.followers)
    }

    /// Waits until a state or an end of a call has been stored since the last wait.
    pub(super) async fn state_stored(&self) {
        self.stored.notified().await;
    }

    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Creates or replaces the row of a call.
    pub async fn put(&self, call: &Arc<Call>, record: &Record) -> Result<(), ActiveFault> {
        let key = key(call, true);
        let text = serde_json::to_vec(record).map_err(|e| ActiveFault(e.to_string()))?;
        let sealed = self.seal(Purpose::Record, &context(&key.call, &key.org, &key.plugin, 0), &text)?;
        // Before the store is asked: a statement that is abandoned here, or dropped with the call, may still be
        // executed.
        call.ownership.note_store_attempt();
        let saved = self.put_row(call, &key, call.state(), sealed).await?;
        if saved == Save::NotOwner && self.is_twins(call) {
            return Err(ActiveFault(
                "the record with this id belongs to the same request at another gateway".into(),
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
    ) -> Result<Save, ActiveFault> {
        call.ownership.begin_put();
        let saved = in_time(self.store.put(key, self.owner, state, record)).await?;
        call.ownership.end_put(saved == Save::Stored);
        self.stored.notify_one();
        Ok(saved)
    }

    /// Stores a checkpoint with the answers so far.
    pub async fn save_capsule(
        &self,
        call: &Call,
        seq: u64,
        capsule: &[u8],
        memory: &[u8],
    ) -> Result<Save, ActiveFault> {
        let id = *call.id.as_bytes();
        let at = |seq| context(&id, &call.caller.org, &plugin(call), seq);
        let capsule = self.seal(Purpose::Capsule, &at(seq), capsule)?;
        let memory = self.seal(Purpose::Answers, &at(0), memory)?;
        let saved = in_time(self.store.save_capsule(id, self.owner, (seq, capsule), memory)).await?;
        self.noted(call, saved)
    }

    /// Stores the answers so far.
    pub async fn save_memory(&self, call: &Call, memory: &[u8]) -> Result<(), ActiveFault> {
        let id = *call.id.as_bytes();
        let sealed =
            self.seal(Purpose::Answers, &context(&id, &call.caller.org, &plugin(call), 0), memory)?;
        let saved = in_time(self.store.save_memory(id, self.owner, sealed)).await?;
        self.noted(call, saved).map(drop)
    }

    /// Returns the last checkpoint of a call: its number and the capsule.
    pub async fn capsule(&self, call: &Call) -> Result<(u64, Vec<u8>), ActiveFault> {
        let id = *call.id.as_bytes();
        let row = in_time(self.store.find(id)).await?.ok_or_else(|| ActiveFault("no such row".into()))?;
        let context = context(&id, &row.org, &row.plugin, row.seq);
        let opened = self.sealer.open_bytes(Purpose::Capsule, &context, &row.capsule);
        opened.map(|capsule| (row.seq, capsule)).ok_or_else(|| ActiveFault("a capsule was altered".into()))
    }

    /// Returns the running calls that have a row, or may still get one.
    pub fn stored_calls(&self) -> Vec<Arc<Call>> {
        let mut calls = self.registry.running();
        calls.retain(|call| call.ownership.may_be_stored() && !call.ownership.given_up.is_set());
        calls
    }

    /// Renews the lease of this gateway. After too long a pause, passes on the calls that other gateways have taken.
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
            // No lease ends before `held_until`: no row can have been taken, whatever happened to earlier attempts.
            Ok(Lease::Held) if had_held => {
                // A lapse after which the rows were not checked yet remains.
                self.unsure.store(self.lapsed.load(Ordering::Acquire), Ordering::Release);
            }
            // An earlier attempt may have reported the lapse in an answer that was lost.
            Ok(Lease::Held) => self.lapsed.store(self.unsure.load(Ordering::Acquire), Ordering::Release),
            Ok(Lease::Lapsed) => {
                tracing::warn!(
                    "lease lapsed before it was renewed; other gateways may have taken over calls of this one, which then end here: check the store's response times"
                );
                self.lapsed.store(true, Ordering::Release);
                self.unsure.store(true, Ordering::Release);
            }
            // The renewal may have succeeded, and a lapse is reported only once.
            Err(_) => self.unsure.store(true, Ordering::Release),
        }
        let lease = renewed?;
        // At once: the check below does not cost lease time.
        *self.held_until.lock() = Some(sent + LEASE);
        {
            let mut steady_since = self.steady_since.lock();
            let holds = lease == Lease::Held && had_held;
            *steady_since = steady_since.filter(|_| holds).or(Some(sent));
        }
        // Last: a first lease is not steady yet.
        self.failed.store(0, Ordering::Release);
        self.endings.renewed.notify_waiters();
        if self.unsure.load(Ordering::Acquire) {
            match self.pass_on_what_was_taken().await {
                Ok(()) => {
                    self.lapsed.store(false, Ordering::Release);
                    self.unsure.store(false, Ordering::Release);
                }
                // The next renewal checks again; until then each call asks for itself.
                Err(error) => {
                    tracing::debug!(%error, "calls could not be checked for takeovers; the next renewal of the lease checks them again")
                }
            }
        }
        Ok(())
    }

    async fn pass_on_what_was_taken(&self) -> Result<(), ActiveFault> {
        let calls = self.stored_calls();
        let ids: Vec<CallId> = calls.iter().map(|call| *call.id.as_bytes()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let owners: HashMap<CallId, Option<OwnerId>> =
            in_time(self.store.owners(&ids)).await?.into_iter().collect();
        for call in calls {
            if self.is_taken(&call, owners.get(call.id.as_bytes()).copied()) {
                end_taken_over(&call);
            }
        }
        Ok(())
    }

    /// Whether this gateway may conclude from a lapsed lease that another gateway is gone: its own lease has held for
    /// long enough. After a pause of the store all leases have lapsed, and living gateways renew theirs. A gateway
    /// that never requested a lease runs in a test or without other gateways; one that requested a lease and has none
    /// started without the store.
    pub fn is_steady(&self) -> bool {
        let never_failed = self.failed.load(Ordering::Acquire) == 0;
        let lasts = |since: Instant| since.elapsed() >= STEADY;
        let holds = |until: Instant| Instant::now() < until;
        self.steady_since.lock().map_or(never_failed, lasts) && self.held_until.lock().is_none_or(holds)
    }

    /// Whether this gateway must not start calls that must be recorded: several consecutive renewals got no answer, so
    /// that clients should try another gateway at once, or its lease is about to expire for any reason.
    ///
    /// No other gateway takes a row of this one before its lease ends in the store. That is not before `held_until`,
    /// which counts from before the store was asked, so a single failure is no reason to stop. A call that started
    /// until then and still runs may be taken; it ends here the next time it uses its row or its key
    /// ([`ActiveTable::is_ours`], `noted`).
    pub fn is_away(&self) -> bool {
        let ends = |until: Instant| Instant::now() + STOPS_BEFORE >= until;
        self.failed.load(Ordering::Acquire) >= AWAY_AFTER || self.held_until.lock().is_some_and(ends)
    }

    /// Whether this gateway decides the call's outcome. Asks the store only after a pause in which another gateway
    /// could have taken the call.
    pub async fn is_ours(&self, call: &Call) -> bool {
        if call.ownership.passed_on.is_set() || !call.ownership.may_be_stored() {
            return !call.ownership.passed_on.is_set();
        }
        let holds = self.held_until.lock().is_some_and(|until| Instant::now() < until);
        if holds && !self.unsure.load(Ordering::Acquire) {
            return true;
        }
        match in_time(self.store.stand(*call.id.as_bytes())).await {
            Ok(row) => {
                let is_taken = self.is_taken(call, row.map(|row| row.owner));
                if is_taken {
                    end_taken_over(call);
                }
                !is_taken
            }
            // The ledger is in the same store as the rows: it decides.
            Err(_) => true,
        }
    }

    /// Whether a row shows that another gateway has the call. A row that existed and is gone before its time, without
    /// an end from this gateway, has ended elsewhere. A row that this gateway has given up proves nothing: it has no
    /// owner, or is gone.
    fn is_taken(&self, call: &Call, row: Option<Option<OwnerId>>) -> bool {
        if call.ownership.given_up.is_set() {
            return false;
        }
        match row {
            Some(owner) => owner != Some(self.owner),
            None => call.ownership.is_stored() && Instant::now() < call.deadline(),
        }
    }

    /// Gives the lease back at shutdown: other gateways may take the remaining calls at once.
    pub async fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        if let Err(error) = in_time(self.store.retire(self.owner)).await {
            tracing::debug!(%error, "lease could not be released; it will expire");
        }
    }

    fn seal(&self, purpose: Purpose, context: &[u8], text: &[u8]) -> Result<Bytes, ActiveFault> {
        let sealed = self.sealer.seal_bytes(purpose, context, text);
        sealed.map(Bytes::from).map_err(|e| ActiveFault(e.to_string()))
    }

    /// Whether another gateway's record under the call's id belongs to the same request, which was sent there at the
    /// same time and waits for the key that this call holds. The record cannot have been taken from this gateway, which
    /// had none and still holds its lease.
    fn is_twins(&self, call: &Call) -> bool {
        let holds = self.held_until.lock().is_none_or(|until| Instant::now() < until);
        call.ownership.claim().is_some()
            && is_first_record(call)
            && holds
            && !self.unsure.load(Ordering::Acquire)
    }

    fn noted(&self, call: &Call, saved: Save) -> Result<Save, ActiveFault> {
        if saved == Save::NotOwner {
            if call.ownership.given_up.is_set() || call.ownership.passed_on.is_set() {
                return Err(ActiveFault("the call has ended".into()));
            }
            if is_first_record(call) {
                end_attempt(call);
                return Err(ActiveFault("the call belongs to another gateway".into()));
            }
            end_taken_over(call);
            return Err(ActiveFault("the call belongs to another gateway".into()));
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

/// Whether the store has acknowledged no record yet of a call whose client chose its id: the client may have sent the
/// request to another gateway too.
fn is_first_record(call: &Call) -> bool {
    call.chosen.is_some() && !call.ownership.has_had_row()
}

/// Ends the attempt here, because another gateway has started the call with this client-chosen id.
fn end_attempt(call: &Call) {
    tracing::debug!(call = %call.id, trace = %call.trace, "another gateway has started the call with this id; the attempt here ends");
    call.ownership.passed_on.set();
    call.cancel();
}

/// Passes the call on: another gateway took it over when this one seemed dead.
fn end_taken_over(call: &Call) {
    tracing::warn!(call = %call.id, trace = %call.trace, "another gateway has taken over this call, because the lease here had lapsed; it ends here");
    call.ownership.passed_on.set();
    call.cancel();
}

pub(super) async fn in_time<T, E: std::fmt::Display>(
    storing: impl Future<Output = Result<T, E>>,
) -> Result<T, ActiveFault> {
    match tokio::time::timeout(STORE_TIMEOUT, storing).await {
        Ok(stored) => stored.map_err(|e| ActiveFault(e.to_string())),
        Err(_) => Err(ActiveFault("the store did not answer in time".into())),
    }
}

/// Returns the unencrypted part of a call's record. A record for returning clients is kept for the promised time,
/// whatever happens to its gateway; one that only serves to continue the call, until the deadline.
fn key(call: &Call, resumes: bool) -> RecordKey {
    let deadline = record::deadline_ms(call);
    let promised = u64::try_from(retention(&call.entry.primitive).as_millis()).unwrap_or(u64::MAX);
    let told_until = call.began_ms().saturating_add(promised);
    let expires = if resumes { deadline } else { deadline.max(told_until) };
    RecordKey {
        call: *call.id.as_bytes(),
        org: call.caller.org.clone(),
        principal: principal(&call.caller),
        user: user(&call.caller),
        server: call.server.message.name.clone(),
        plugin: plugin(call),
        context: call.context.clone(),
        created_ms: i64::try_from(call.began_ms()).unwrap_or(i64::MAX),
        expires_ms: i64::try_from(expires).unwrap_or(i64::MAX),
        resumes,
    }
}

/// Returns what runs the call, in a form for operators.
fn plugin(call: &Call) -> String {
    versioned(&call.entry.primitive)
}

/// Returns the context of a seal, which opens only for its call, its caller's org, its plugin and its number.
fn context(call: &CallId, org: &str, plugin: &str, seq: u64) -> Vec<u8> {
    [call.as_slice(), &seq.to_be_bytes(), &digest::of_parts(&[org, plugin])].concat()
}
