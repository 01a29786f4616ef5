//! The Call: one unit of work, whatever protocol asked for it (invariant I-2, ADR 1).
//!
//! Owns: the call's identity, its absolute deadline, its state, its bounded event log, its open questions
//! and its one outcome. Refuses: protocol shapes (the faces) and policy (the stages). Keeps true: a call has
//! exactly one outcome; after it no event follows; the log and the questions are bounded (I-4).

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asp_edge::{Caller, Trace};
use asp_json::{Json, Members};
use asp_proto::snapshot::{Mutation, Protocol};
use asp_snapshot::{ListedPrimitive, VirtualServer};
pub use asp_store::records::State;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::authority::Authority;
use crate::clock::unix_ms;

mod abilities;
mod aim;
pub mod authority;
pub mod bounds;
pub(crate) mod cancel;
pub mod chosen;
pub mod claim;
pub mod content;
pub mod event;
pub mod follower;
pub mod form;
pub(crate) mod held;
pub mod outcome;
pub mod ownership;
pub mod page;
pub mod principal;
pub mod question;
pub mod registry;
pub mod remote;
pub mod ruling;
pub mod sampling;
pub mod started;
pub mod terms;
#[cfg(test)]
pub(crate) mod testkit;
mod watched;
pub mod written;

pub use abilities::ClientAbilities;
pub use aim::Aim;
use chosen::Chosen;
use event::Event;
use event::log::{EventLog, Logged};
use outcome::{Outcome, Refusal, Withdrawal};
use ownership::Ownership;
use question::Questions;
use ruling::Ruling;
use started::Mark;

/// What a face hands to the pipeline.
pub struct Invocation {
    pub caller: Arc<Caller>,
    /// The caller's token, where something of the server is called with one that its issuer gives for it.
    pub subject: Option<Arc<SecretString>>,
    pub server: Arc<VirtualServer>,
    pub protocol: Protocol,
    pub entry: Arc<ListedPrimitive>,
    /// The arguments as they were sent; schemas and policy read their view.
    pub arguments: Json,
    /// `_meta` of the request that a service behind the primitive gets too.
    pub meta: Members,
    pub aim: Aim,
    /// Where the client chose the call's id.
    pub chosen: Option<Chosen>,
    /// The protocol's own id of the request, for audit and plugins.
    pub protocol_request_id: String,
    /// The caller's idempotency key; with `session` set, the JSON-RPC id within it.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The caller's own wish; the spec's bound still holds.
    pub deadline: Option<Instant>,
    pub abilities: ClientAbilities,
    /// The downstream session (legacy MCP), else empty.
    pub session: String,
    pub trace: Trace,
    pub bytes_in: usize,
    /// What the request takes of this gateway's memory until the call has ended; `None` where that is little.
    pub memory: Option<HeldMemory>,
    /// The call that began this one; `None` for a client's own.
    pub parent: Option<Parent>,
}

/// What was taken of a gateway's memory (`faces/memory.rs`), given back when the last one who holds it lets go.
pub type HeldMemory = Arc<dyn Any + Send + Sync>;

/// The call on whose behalf another one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub call: Uuid,
    /// How many calls stand above: 1 below a client's own.
    pub depth: u8,
}

/// An idempotency key and its scope (ADR 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyKey {
    /// Given by the caller; the scope is the principal, so that a refreshed token finds its answer.
    Explicit(String),
    /// The JSON-RPC id of a request in a legacy session.
    SessionRequest { session: String, id: String },
}

/// The time of a call.
#[derive(Clone, Copy)]
struct Clock {
    runs_since: Instant,
    deadline: Instant,
}

/// A running or finished unit of work.
pub struct Call {
    pub id: Uuid,
    /// What its client put under an id of its own.
    pub chosen: Option<Chosen>,
    /// Who began it.
    pub caller: Arc<Caller>,
    /// The token it came with, while it runs, where that may be exchanged for another.
    subject: Mutex<Option<Arc<SecretString>>>,
    /// Who is attached to it by now.
    pub authority: Authority,
    pub server: Arc<VirtualServer>,
    pub entry: Arc<ListedPrimitive>,
    pub protocol: Protocol,
    pub protocol_request_id: String,
    /// `_meta` of the request, for the service behind the primitive.
    pub meta: Members,
    pub session: String,
    /// The key the caller gave, for executors that are idempotent by it.
    pub idempotency_key: Option<String>,
    pub trace: Trace,
    pub started: Instant,
    /// The deadline the caller asked for.
    wished: Option<Instant>,
    clock: Mutex<Clock>,
    pub bytes_in: usize,
    pub parent: Option<Parent>,
    pub aim: Aim,
    pub events: Arc<EventLog>,
    pub questions: Questions,
    pub ruling: Ruling,
    /// What it holds beyond this process.
    pub ownership: Ownership,
    /// Whether an executor may have begun; before that a call has left no effect. Set by `Started` alone.
    handed_over: Arc<Mark>,
    cancel: CancellationToken,
    /// Whether this call was cancelled on its own; set before `cancel`, which a gateway that stops cancels too.
    cancel_requested: AtomicBool,
    /// Set before `cancel`.
    withdrawn: OnceLock<Withdrawal>,
    state: watch::Sender<State>,
    /// It ended before anything of it was begun.
    unbegun: AtomicBool,
    /// When it came to be in that state, in Unix milliseconds.
    changed_ms: AtomicU64,
    outcome: watch::Sender<Option<Arc<Outcome>>>,
}

/// In the order of time (UUID version 7, RFC 9562 section 5.7). The crate's own asks the kernel for each one's random
/// bits; these come from the thread's generator, which the kernel seeds.
fn new_id() -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(unix_ms(), &rand::random()).into_uuid()
}

/// The time in a call's id, in Unix milliseconds.
pub(crate) fn began_ms(id: Uuid) -> u64 {
    let began = id.get_timestamp().map(|at| at.to_unix());
    let milliseconds = |(seconds, nanoseconds): (u64, u32)| {
        seconds.saturating_mul(1000).saturating_add(u64::from(nanoseconds / 1_000_000))
    };
    began.map(milliseconds).unwrap_or_default()
}

impl Call {
    /// A submitted call; `deadline` is already the stricter of the caller's and the spec's, and `cancel` is its own.
    pub(crate) fn new(
        invocation: &Invocation,
        started: Instant,
        deadline: Instant,
        cancel: CancellationToken,
    ) -> Call {
        Call {
            id: invocation.chosen.map_or_else(new_id, |chosen| chosen.id()),
            chosen: invocation.chosen,
            caller: invocation.caller.clone(),
            subject: Mutex::new(invocation.subject.clone()),
            // For a call of a call, the outer one is attended or not.
            authority: Authority::new(
                invocation.caller.clone(),
                invocation.parent.is_none(),
                invocation.abilities,
            ),
            server: invocation.server.clone(),
            entry: invocation.entry.clone(),
            protocol: invocation.protocol,
            protocol_request_id: invocation.protocol_request_id.clone(),
            meta: invocation.meta.clone(),
            session: invocation.session.clone(),
            idempotency_key: match &invocation.idempotency_key {
                Some(IdempotencyKey::Explicit(key)) => Some(key.clone()),
                Some(IdempotencyKey::SessionRequest { .. }) | None => None,
            },
            trace: invocation.trace,
            started,
            wished: invocation.deadline,
            clock: Mutex::new(Clock { runs_since: started, deadline }),
            bytes_in: invocation.bytes_in,
            parent: invocation.parent,
            aim: invocation.aim.clone(),
            events: Arc::default(),
            questions: Questions::default(),
            ruling: Ruling::default(),
            ownership: Ownership::default(),
            handed_over: Arc::default(),
            cancel,
            cancel_requested: AtomicBool::new(false),
            withdrawn: OnceLock::new(),
            state: watch::Sender::new(State::Submitted),
            unbegun: AtomicBool::new(false),
            changed_ms: AtomicU64::new(unix_ms()),
            outcome: watch::Sender::new(None),
        }
    }

    /// It goes on from what it `said` at another gateway, where event number `next` is the first that it did not say.
    pub(crate) fn continues(&mut self, log: u32, said: Vec<Logged>, next: u64) {
        self.events = Arc::new(EventLog::continued(log, said, next));
    }

    /// The token it came with, while it runs.
    pub(crate) fn subject(&self) -> Option<Arc<SecretString>> {
        self.subject.lock().clone()
    }

    /// When the call ends at the latest. Until a human has approved it, that includes the time for the approval.
    pub fn deadline(&self) -> Instant {
        self.clock.lock().deadline
    }

    /// Since when the time of its spec runs: its start, or the approval it had to wait for.
    pub fn runs_since(&self) -> Instant {
        self.clock.lock().runs_since
    }

    /// Whether the deadline is the caller's wish, earlier than its spec's.
    pub fn is_shortened(&self) -> bool {
        self.wished == Some(self.deadline())
    }

    /// The time of its spec begins now. The deadline never moves further away.
    pub(crate) fn runs_from_now(&self, longest: Duration) {
        let mut clock = self.clock.lock();
        clock.runs_since = Instant::now();
        clock.deadline = clock.deadline.min(clock.runs_since + longest);
    }

    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// What the clients that are attached can do when the call asks for something.
    pub fn abilities(&self) -> ClientAbilities {
        self.authority.abilities()
    }

    /// Moves to another state; a terminal state is final.
    pub(crate) fn enter(&self, next: State) {
        watched::change(&self.state, |state| {
            let changes = !state.is_terminal() && *state != next;
            if changes {
                let unbegun = *state == State::Submitted
                    && matches!(next, State::Rejected | State::Failed)
                    && !self.ownership.is_announced();
                self.unbegun.store(unbegun, Ordering::Release);
                *state = next;
                self.changed_ms.store(unix_ms(), Ordering::Relaxed);
            }
            changes
        });
    }

    /// Why the call is as if it had never been: it was refused before anything of it was begun, and the id that its client
    /// chose is free again. What may have had an effect under the same key was begun by another
    /// call; whose time was over before it began is told so by the call, and so is a client that relies on the call's record.
    pub fn void(&self) -> Option<Arc<Outcome>> {
        self.outcome().filter(|outcome| self.unbegun.load(Ordering::Acquire) && self.leaves_id_free(outcome))
    }

    /// Whether it comes to be so by ending with `outcome`.
    pub(crate) fn is_void_by(&self, outcome: &Outcome) -> bool {
        let is_unbegun =
            self.state() == State::Submitted && matches!(outcome.state(), State::Rejected | State::Failed);
        is_unbegun && !self.ownership.is_announced() && self.leaves_id_free(outcome)
    }

    /// The store has acknowledged the call's record, and its client relies on it: from now on its id stays its own, whatever it ends with.
    pub(crate) fn note_announced(&self) {
        // Under the lock of the state, so that a call which ends was announced before that or was not.
        watched::change(&self.state, |_| {
            self.ownership.announced();
            false
        });
    }

    fn leaves_id_free(&self, outcome: &Outcome) -> bool {
        let lasts = |refusal: &Refusal| {
            matches!(refusal, Refusal::OutcomeUnknown | Refusal::Deadline | Refusal::Withdrawn(_))
        };
        self.chosen.is_some() && matches!(outcome, Outcome::Refused(refusal) if !lasts(refusal))
    }

    /// When it came to be in its state, in Unix milliseconds.
    pub fn changed_ms(&self) -> u64 {
        self.changed_ms.load(Ordering::Relaxed)
    }

    /// When it began, in Unix milliseconds: the time in its id, where that is ours (UUID version 7, RFC 9562 section 5.7).
    pub fn began_ms(&self) -> u64 {
        self.chosen.map_or_else(|| began_ms(self.id), |chosen| chosen.began_ms)
    }

    /// Records what happened on the way to the result. Ignored once the call has its outcome.
    pub fn emit(&self, event: Event) {
        self.log(event);
    }

    /// The same, and the number of the event.
    pub(crate) fn log(&self, event: Event) -> Option<u64> {
        if self.outcome.borrow().is_some() {
            return None;
        }
        self.events.push(event)
    }

    /// Whether running it again does no harm.
    pub fn may_repeat(&self) -> bool {
        matches!(self.entry.primitive.mutation(), Mutation::ReadOnly | Mutation::Idempotent)
    }

    /// The end of a call that may have been executed and of which nothing came back: `why`, where the caller may
    /// just call again; else nobody knows.
    pub fn unanswered(&self, why: Refusal) -> Refusal {
        if self.may_repeat() { why } else { Refusal::OutcomeUnknown }
    }

    /// Whether the call may have had an effect.
    pub fn was_handed_over(&self) -> bool {
        self.handed_over.is_set()
    }

    /// Asks the executor to stop; the first cancel counts.
    pub fn cancel(&self) {
        self.cancel_requested.store(true, Ordering::Release);
        self.cancel.cancel();
    }

    /// Whether this call was cancelled on its own, and not only because its gateway stops.
    pub(crate) fn is_cancel_requested(&self) -> bool {
        self.cancel_requested.load(Ordering::Acquire)
    }

    /// Cancels the call because its caller may not have it any more; false when that was so before, or there is an
    /// outcome already.
    pub fn withdraw(&self, why: Withdrawal) -> bool {
        let first = self.outcome.borrow().is_none() && self.withdrawn.set(why).is_ok();
        if first {
            self.cancel.cancel();
        }
        first
    }

    /// Why the call was taken away from its caller, if it was.
    pub fn withdrawal(&self) -> Option<Withdrawal> {
        self.withdrawn.get().copied()
    }

    /// Resolves when the call was taken away from its caller.
    pub async fn withdrawn(&self) -> Withdrawal {
        self.cancel.cancelled().await;
        match self.withdrawal() {
            Some(why) => why,
            // Cancelled by the caller.
            None => std::future::pending().await,
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Resolves when the call was cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// A token whose cancellation is the call's.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// The outcome if there is one.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        self.outcome.borrow().clone()
    }

    /// Waits for the outcome.
    pub async fn finished(&self) -> Arc<Outcome> {
        let mut outcome = self.outcome.subscribe();
        loop {
            if let Some(found) = outcome.borrow_and_update().clone() {
                return found;
            }
            // The sender lives in `self`, so this only ends by a change.
            if outcome.changed().await.is_err() {
                return Arc::new(Outcome::lost());
            }
        }
    }

    /// Waits until a question is open or there is an outcome, at most for `longest`.
    pub async fn asks_or_ends(&self, longest: Duration) {
        let mut events = self.events.reader_from(0);
        let waiting = async { while self.questions.pending().is_empty() && events.next().await.is_some() {} };
        // What comes later finds its reader in the response.
        let _ = tokio::time::timeout(longest, waiting).await;
    }

    /// Waits until the call is begun, or has ended before that, at most for `longest`.
    pub async fn begins_or_ends(&self, longest: Duration) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`; what takes longer is seen later.
        let _ = tokio::time::timeout(longest, state.wait_for(|state| *state != State::Submitted)).await;
        if self.state().is_terminal() {
            self.finished().await;
        }
    }

    /// Gives the call its outcome; the first one counts.
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.enter(outcome.state());
        watched::change(&self.outcome, |slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(Arc::new(outcome));
            }
            first
        });
        self.subject.lock().take();
        self.questions.close();
        self.events.close();
    }
}
