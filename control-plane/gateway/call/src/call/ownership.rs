//! Ownership of a call: its records in the stores, and whether another gateway continues it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use asp_store::ledger::RequestHash;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio_util::sync::CancellationToken;

use crate::call::publication::Publication;

/// Records of one call outside this process.
#[derive(Default)]
pub struct Ownership {
    claim: OnceLock<LedgerClaim>,
    /// The key that it is about to claim.
    intended: OnceLock<LedgerClaim>,
    /// Whether the store has a row of the call.
    kept: AtomicBool,
    /// Whether the store was asked to create a row; a statement that was abandoned may still be executed.
    asked: AtomicBool,
    /// Whether the store has acknowledged a row of this call as this gateway's.
    has_row: AtomicBool,
    /// Number of statements on the row that have no answer yet.
    unanswered: AtomicU32,
    /// Whether a client knows of the call and may return for it. If setting this races with giving up the row, at least
    /// one side sees the other.
    pub known: Flag,
    /// Whether the call only reads and its client waits for the end, so that the database need not have it
    /// (`durable/active/brief.rs`).
    brief: Flag,
    /// Whether its end is in the store that gateways share outside of the database.
    shared_brief: Flag,
    /// Whether the store has acknowledged a record by which other gateways find the call, and a client relies on it.
    pub announced: Flag,
    /// Whether the call has ended and its row is being deleted.
    pub given_up: Flag,
    /// Whether its end is being stored.
    pub(crate) ending: Flag,
    /// Held while the end is stored of a call that ended before the store knew of it.
    late_end: Mutex<()>,
    /// Whether the stored records suffice for another gateway to continue it.
    pub resumes: Flag,
    /// Whether another gateway continues it: this gateway may touch neither its row nor its ledger key.
    pub passed_on: Flag,
    /// Whether it has ended here without its own outcome, which the other gateway reports. A remote call that is only
    /// followed here ends with its outcome.
    pub continued: Flag,
    /// Publication of its events; set if there are other gateways and a client may return for the call.
    publication: OnceLock<Publication>,
    /// Notified when the inbox may have entries.
    nudged: Notify,
    /// Asks the call to save and yield.
    preempted: CancellationToken,
}

/// A fact that stays true.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Makes it true; returns whether it was not before.
    pub fn set(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

impl Ownership {
    /// Returns the ledger key that the call has claimed.
    pub fn claim(&self) -> Option<&LedgerClaim> {
        self.claim.get()
    }

    pub fn set_claim(&self, claim: LedgerClaim) {
        // The ledger stage runs once per call.
        let _ = self.claim.set(claim);
    }

    /// Notes that the call is about to claim this key.
    pub fn set_intended_claim(&self, claim: LedgerClaim) {
        // The ledger stage runs once per call.
        let _ = self.intended.set(claim);
    }

    /// Returns the key under which the ledger may have the call's answer.
    pub fn key(&self) -> Option<&LedgerClaim> {
        self.claim().or_else(|| self.intended.get())
    }

    pub fn is_stored(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    pub fn keep(&self) {
        self.note_store_attempt();
        self.kept.store(true, Ordering::Release);
    }

    /// Whether the store has a row of the call, or may still get one.
    pub fn may_be_stored(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn note_store_attempt(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Notes a statement that creates or changes the row. Without an answer it may still be executed.
    pub(crate) fn begin_put(&self) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes the answer to a statement; `has_row`: the row is this gateway's.
    pub(crate) fn end_put(&self, has_row: bool) {
        self.has_row.fetch_or(has_row, Ordering::AcqRel);
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the row was this gateway's at any time.
    pub fn has_had_row(&self) -> bool {
        self.is_stored() || self.has_row.load(Ordering::Acquire)
    }

    /// Whether the store may create the row after this call has ended.
    pub(crate) fn row_may_come_late(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) > 0
    }

    /// Notes that the database need not have the call if every gateway finds its end without.
    pub fn make_brief(&self) {
        self.brief.set();
    }

    /// Notes that every gateway finds the end of the brief call.
    pub fn share_brief(&self) {
        self.shared_brief.set();
    }

    pub(crate) fn is_shared_brief(&self) -> bool {
        self.shared_brief.is_set()
    }

    /// Whether the call was made brief and the database was not asked to have it since.
    pub(crate) fn is_brief(&self) -> bool {
        self.brief.is_set() && !self.may_be_stored() && !self.known.is_set()
    }

    /// Starts the publication to other gateways at event number `next`; only the first start counts.
    pub fn publish_from(&self, next: u64) {
        self.publication.get_or_init(|| Publication::from(next));
    }

    /// Returns the publication of its events; `None` if no other gateway needs to see them.
    pub fn publication(&self) -> Option<&Publication> {
        self.publication.get()
    }

    /// Waits until no late end is being stored, and keeps others waiting until the guard is dropped.
    pub(crate) async fn lock_late_end(&self) -> MutexGuard<'_, ()> {
        self.late_end.lock().await
    }

    /// Whether a client knows of the call and no end of it is being stored late, so that there is nothing to wait for.
    pub fn is_late_end_over(&self) -> bool {
        self.known.is_set() && self.late_end.try_lock().is_ok()
    }

    /// Notes that the call's inbox, where other gateways store what its caller sends them, may have entries.
    pub fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// Resolves once after each nudge, including one that came before; several may be merged.
    pub(crate) async fn nudged(&self) {
        self.nudged.notified().await;
    }

    /// Asks the call to save a checkpoint and yield, so that another gateway continues it.
    pub fn preempt(&self) {
        self.preempted.cancel();
    }

    /// Resolves when the call is to yield.
    pub async fn preempted(&self) {
        self.preempted.cancelled().await;
    }
}

/// A claimed key, as the record of a call stores it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LedgerClaim {
    pub key: [u8; 32],
    pub hash: RequestHash,
    pub mutating: bool,
}
