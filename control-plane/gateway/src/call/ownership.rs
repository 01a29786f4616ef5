//! Whether a call is this gateway's alone: what it holds in the stores, and whether another gateway goes on with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::call::claim::LedgerClaim;
use crate::call::written::Written;

/// What one call holds beyond this process.
#[derive(Default)]
pub struct Ownership {
    claim: OnceLock<LedgerClaim>,
    /// The key that it is about to claim.
    intended: OnceLock<LedgerClaim>,
    /// The store has a row of the call.
    kept: AtomicBool,
    /// It was asked to make one: a statement that was given up may still be done.
    asked: AtomicBool,
    /// The store has acknowledged a row of this call as this gateway's.
    has_row: AtomicBool,
    /// Statements that make or change the row and have no answer.
    unanswered: AtomicU32,
    /// Somebody was told of the call, and may come back for it.
    told: AtomicBool,
    /// The store has acknowledged a record by which other gateways find the call, and its client relies on it.
    announced: AtomicBool,
    /// The call has ended, and its row is being deleted.
    given_up: AtomicBool,
    /// Its end is being stored.
    ending: AtomicBool,
    /// What is stored is enough for another gateway to go on with it.
    resumes: AtomicBool,
    /// Another gateway goes on with it: neither its row nor its ledger key is ours to touch.
    passed_on: AtomicBool,
    /// It has ended here without its own outcome, which is the other gateway's to report.
    continued: AtomicBool,
    /// How far other gateways see it, where there are any and somebody may come back for it.
    written: OnceLock<Written>,
    /// Something may be in its inbox.
    nudged: Notify,
    /// Asks the call to save and yield.
    preempted: CancellationToken,
}

impl Ownership {
    /// The key in the ledger that the call holds.
    pub fn claim(&self) -> Option<&LedgerClaim> {
        self.claim.get()
    }

    pub(crate) fn claims(&self, claim: LedgerClaim) {
        // The ledger stage runs once in a call.
        let _ = self.claim.set(claim);
    }

    /// The call is about to claim this key.
    pub(crate) fn intends(&self, claim: LedgerClaim) {
        // The ledger stage runs once in a call.
        let _ = self.intended.set(claim);
    }

    /// The key under which the ledger may have the call's answer.
    pub(crate) fn key(&self) -> Option<&LedgerClaim> {
        self.claim().or_else(|| self.intended.get())
    }

    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    pub(crate) fn keep(&self) {
        self.asks();
        self.kept.store(true, Ordering::Release);
    }

    /// Whether the store has a row of the call, or may come to have one.
    pub fn may_be_kept(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn asks(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// The store is asked to make or change the row. One that does not answer may still do so.
    pub(crate) fn begin_put(&self) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
    }

    /// The store has answered, and `has_row`: the row is this gateway's.
    pub(crate) fn end_put(&self, has_row: bool) {
        self.has_row.fetch_or(has_row, Ordering::AcqRel);
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the row was this gateway's at any time.
    pub(crate) fn has_had_row(&self) -> bool {
        self.is_kept() || self.has_row.load(Ordering::Acquire)
    }

    /// Whether the store may make the row after this call has ended.
    pub(crate) fn row_may_come_late(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) > 0
    }

    /// The row is not needed any more.
    pub(crate) fn gives_row_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_given_row_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Whether somebody may come back for the call.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst)
    }

    /// Somebody was told of the call; true for the first. Where this and the giving up of the row meet, one of them
    /// sees the other.
    pub(crate) fn tells(&self) -> bool {
        !self.told.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn announced(&self) {
        self.announced.store(true, Ordering::Release);
    }

    pub fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Acquire)
    }

    /// Its end is to be stored; true for the first.
    pub(crate) fn begins_end(&self) -> bool {
        !self.ending.swap(true, Ordering::SeqCst)
    }

    /// What it says is written from this event on; what was said of that first counts.
    pub(crate) fn writes_from(&self, next: u64) {
        self.written.get_or_init(|| Written::from(next));
    }

    /// How far other gateways see it; `None` where none needs to.
    pub fn written(&self) -> Option<&Written> {
        self.written.get()
    }

    pub fn resumes(&self) -> bool {
        self.resumes.load(Ordering::Acquire)
    }

    /// Enough is stored for another gateway to go on.
    pub fn can_resume(&self) {
        self.resumes.store(true, Ordering::Release);
    }

    pub fn is_passed_on(&self) -> bool {
        self.passed_on.load(Ordering::Acquire)
    }

    /// From now on the call is another gateway's.
    pub fn pass_on(&self) {
        self.passed_on.store(true, Ordering::Release);
    }

    /// The call ends here, and the gateway that it was passed on to reports its outcome.
    pub(crate) fn note_continued(&self) {
        self.continued.store(true, Ordering::Release);
    }

    /// Whether what the call has ended with here is not its outcome: another gateway goes on with it. A call of another gateway that is
    /// followed here ends with its outcome.
    pub(crate) fn is_continued_elsewhere(&self) -> bool {
        self.continued.load(Ordering::Acquire)
    }

    /// Something may be in the call's inbox, where other gateways store what its caller sends there.
    pub(crate) fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// Resolves once after each nudge, also one that came before; several may be one.
    pub(crate) async fn nudged(&self) {
        self.nudged.notified().await;
    }

    /// Asks the call to save a checkpoint and yield, so that another gateway goes on with it.
    pub fn preempt(&self) {
        self.preempted.cancel();
    }

    /// Resolves when the call is to yield.
    pub async fn preempted(&self) {
        self.preempted.cancelled().await;
    }
}
