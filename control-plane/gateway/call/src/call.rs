//! The Call: one unit of work, whatever protocol requested it (invariant I-2, ADR 1).
//!
//! Owns: the call's identity, its absolute deadline, its state, its bounded event log, its open questions and its one
//! outcome. Refuses: protocol formats (the protocols) and policy (the stages). Keeps true: a call has exactly one
//! outcome; no event follows it; the log and the questions are bounded (I-4).

use std::any::Any;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asp_edge::{Caller, Trace};
use asp_json::{Json, Members};
use asp_platform::secret::Secret;
use asp_proto::snapshot::{Mutation, Protocol};
use asp_snapshot::{ListedPrimitive, VirtualServer};
pub use asp_store::records::State;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::authority::Authority;
use crate::clock::unix_ms;

mod abilities;
pub mod authority;
mod call_kind;
pub mod chosen;
pub mod content;
pub mod event;
pub mod follower;
pub mod form;
pub mod lineage;
pub mod model_usage;
pub mod outcome;
pub mod ownership;
pub mod page;
pub mod principal;
pub mod publication;
pub mod question;
pub mod registry;
pub mod remote;
pub mod ruling;
pub mod sampling;
pub mod span;
pub mod started;
pub mod terms;
#[cfg(test)]
pub(crate) mod testkit;
mod watched;

pub use abilities::ClientAbilities;
pub use call_kind::CallKind;
use chosen::ChosenId;
use event::Event;
use event::log::{EventLog, LoggedEvent};
use model_usage::ModelUsage;
use outcome::{Outcome, Refusal, Withdrawal};
use ownership::Ownership;
use question::Questions;
use ruling::Ruling;
use span::CallSpan;
use started::DeliveryMark;

/// Request for a call, from its protocol to its end.
#[derive(Clone)]
pub struct CallRequest {
    /// Caller that started it.
    pub caller: Arc<Caller>,
    pub server: Arc<VirtualServer>,
    pub protocol: Protocol,
    pub entry: Arc<ListedPrimitive>,
    /// `_meta` of the request that is passed on to the service behind the primitive.
    pub meta: Members,
    pub kind: CallKind,
    /// Identity of the call, if the client chose its id.
    pub chosen: Option<ChosenId>,
    /// Id that the protocol gives the request, for audit and plugins.
    pub protocol_request_id: String,
    /// Downstream session (legacy MCP), or empty.
    pub session: String,
    /// Context with which the caller groups calls; empty for a separate call.
    pub context: String,
    /// Client's message that started the call, as its protocol keeps it, if calls are conversations there. Bounded by
    /// the protocol.
    pub opening: Option<Json>,
    pub trace: Trace,
    pub bytes_in: usize,
    /// Call that started this one; `None` for a client's own call.
    pub parent: Option<Parent>,
}

/// Request for a call with what only its start needs, passed from a protocol to the pipeline.
pub struct Invocation {
    pub request: CallRequest,
    /// Token of the caller; set if something of the server is called with a token that the issuer exchanges for it.
    pub subject: Option<Arc<Secret>>,
    /// Arguments as they were sent; schemas and policy read their view.
    pub arguments: Json,
    /// Idempotency key of the caller; with `session` set, the JSON-RPC id within it.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Deadline that the caller asks for; the spec's bound still applies.
    pub deadline: Option<Instant>,
    pub abilities: ClientAbilities,
    /// Memory of this gateway that the request occupies until the call has ended; `None` for a small request.
    pub memory: Option<HeldMemory>,
}

/// Share of a gateway's memory (`protocols/src/lib.rs`), given back when the last clone is dropped.
pub type HeldMemory = Arc<dyn Any + Send + Sync>;

/// The call on whose behalf another one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub call: Uuid,
    /// Nesting depth: 1 directly below a client's own call.
    pub depth: u8,
}

/// Idempotency key with its scope (ADR 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyKey {
    /// Key given by the caller. Its scope is the principal, so that a retry with a refreshed token finds the answer.
    Explicit(String),
    /// JSON-RPC id of a request in a legacy session.
    SessionRequest { session: String, id: String },
}

/// Times that bound a call.
#[derive(Clone, Copy)]
struct CallClock {
    runs_since: Instant,
    deadline: Instant,
}

/// A running or finished unit of work.
pub struct Call {
    pub id: Uuid,
    pub request: CallRequest,
    /// Span of the call, if it is traced.
    pub span: Option<CallSpan>,
    /// Token that it was started with, if that may be exchanged for another; dropped at the end.
    subject: Mutex<Option<Arc<Secret>>>,
    /// Clients attached now, and the token that counts.
    pub authority: Authority,
    /// Key given by the caller, for backends that are idempotent by it.
    pub idempotency_key: Option<String>,
    pub started: Instant,
    /// Deadline that the caller asked for.
    wished: Option<Instant>,
    clock: Mutex<CallClock>,
    pub events: Arc<EventLog>,
    pub questions: Questions,
    pub ruling: Ruling,
    pub model_usage: ModelUsage,
    /// Records of the call outside this process.
    pub ownership: Ownership,
    /// Whether a backend may have started it; before that a call has had no effect. Only `StartGuard` sets it.
    handed_over: Arc<DeliveryMark>,
    cancel: CancellationToken,
    /// Whether this call itself was cancelled; set before `cancel`, which a stopping gateway cancels too.
    cancel_requested: AtomicBool,
    /// Reason for a withdrawal; set before `cancel`.
    withdrawn: OnceLock<Withdrawal>,
    /// Latest cause of a failure, for the log.
    failure_cause: Mutex<Option<String>>,
    state: watch::Sender<State>,
    /// Whether it ended before any of it was started.
    unbegun: AtomicBool,
    /// Time of the last state change, in Unix milliseconds.
    changed_ms: AtomicU64,
    outcome: watch::Sender<Option<Arc<Outcome>>>,
}

impl Deref for Call {
    type Target = CallRequest;

    fn deref(&self) -> &CallRequest {
        &self.request
    }
}

/// Returns a new id, ordered by time (UUID version 7, RFC 9562 section 5.7). The `uuid` crate asks the kernel for the
/// random bits of each id; these come from the thread's generator, which the kernel seeds.
fn new_id() -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(unix_ms(), &rand::random()).into_uuid()
}

/// Returns the time in a call's id, in Unix milliseconds.
pub fn began_ms(id: Uuid) -> u64 {
    let began = id.get_timestamp().map(|at| at.to_unix());
    let milliseconds = |(seconds, nanoseconds): (u64, u32)| {
        seconds.saturating_mul(1000).saturating_add(u64::from(nanoseconds / 1_000_000))
    };
    began.map(milliseconds).unwrap_or_default()
}

impl Call {
    /// Creates a submitted call. `deadline` is already the earlier of the caller's and the spec's; `cancel` belongs to
    /// this call alone.
    pub fn new(
        invocation: &Invocation,
        started: Instant,
        deadline: Instant,
        cancel: CancellationToken,
    ) -> Call {
        let request = invocation.request.clone();
        Call {
            id: request.chosen.map_or_else(new_id, |chosen| chosen.id()),
            subject: Mutex::new(invocation.subject.clone()),
            // A nested call is attended if the outer call is.
            authority: Authority::new(request.caller.clone(), request.parent.is_none(), invocation.abilities),
            request,
            span: None,
            idempotency_key: match &invocation.idempotency_key {
                Some(IdempotencyKey::Explicit(key)) => Some(key.clone()),
                Some(IdempotencyKey::SessionRequest { .. }) | None => None,
            },
            started,
            wished: invocation.deadline,
            clock: Mutex::new(CallClock { runs_since: started, deadline }),
            events: Arc::default(),
            questions: Questions::default(),
            ruling: Ruling::default(),
            model_usage: ModelUsage::default(),
            ownership: Ownership::default(),
            handed_over: Arc::default(),
            cancel,
            cancel_requested: AtomicBool::new(false),
            withdrawn: OnceLock::new(),
            failure_cause: Mutex::default(),
            state: watch::Sender::new(State::Submitted),
            unbegun: AtomicBool::new(false),
            changed_ms: AtomicU64::new(unix_ms()),
            outcome: watch::Sender::new(None),
        }
    }

    /// Gives the call a span; what it sends on is below the span of its execution.
    pub fn trace_as(&mut self, span: CallSpan) {
        self.request.trace = self.request.trace.below(span.execution);
        self.span = Some(span);
    }

    /// Continues the event log of another gateway: the events `said` there, and `next`, the number of the first event
    /// that was not logged there.
    pub fn continues(&mut self, log: u32, said: Vec<LoggedEvent>, next: u64) {
        self.events = Arc::new(EventLog::continued(log, said, next));
    }

    /// Returns the token that the call was started with; `None` once it has ended.
    pub fn subject(&self) -> Option<Arc<Secret>> {
        self.subject.lock().clone()
    }

    /// Returns the latest time at which the call ends. Until a human has approved it, that includes the time for the
    /// approval.
    pub fn deadline(&self) -> Instant {
        self.clock.lock().deadline
    }

    /// Returns the time from which the spec's runtime counts: the start of the call, or the approval that it waited
    /// for.
    pub fn runs_since(&self) -> Instant {
        self.clock.lock().runs_since
    }

    /// Whether the caller asked for a deadline earlier than the spec's.
    pub fn is_shortened(&self) -> bool {
        self.wished == Some(self.deadline())
    }

    /// Starts the spec's runtime now. The deadline can only move closer.
    pub fn runs_from_now(&self, longest: Duration) {
        let mut clock = self.clock.lock();
        clock.runs_since = Instant::now();
        clock.deadline = clock.deadline.min(clock.runs_since + longest);
    }

    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Returns what the attached clients can do when the call asks for something.
    pub fn abilities(&self) -> ClientAbilities {
        self.authority.abilities()
    }

    /// Moves to another state; a terminal state is final.
    pub fn enter(&self, next: State) {
        watched::change(&self.state, |state| {
            let changes = !state.is_terminal() && *state != next;
            if changes {
                let unbegun = *state == State::Submitted
                    && matches!(next, State::Rejected | State::Failed)
                    && !self.ownership.announced.is_set();
                self.unbegun.store(unbegun, Ordering::Release);
                *state = next;
                self.changed_ms.store(unix_ms(), Ordering::Relaxed);
            }
            changes
        });
    }

    /// Returns the outcome of a call that was rejected before any of it was started, so that the id its client chose
    /// may be reused. `None` for an outcome that must stay under the id: unknown, past the deadline or withdrawn.
    /// `None`, too, once a client relies on the call's record.
    pub fn void(&self) -> Option<Arc<Outcome>> {
        self.outcome().filter(|outcome| self.unbegun.load(Ordering::Acquire) && self.leaves_id_free(outcome))
    }

    /// Whether ending with `outcome` makes the call void, as [`Call::void`] defines it.
    pub(crate) fn is_void_by(&self, outcome: &Outcome) -> bool {
        let is_unbegun =
            self.state() == State::Submitted && matches!(outcome.state(), State::Rejected | State::Failed);
        is_unbegun && !self.ownership.announced.is_set() && self.leaves_id_free(outcome)
    }

    /// Notes that the store has acknowledged the call's record and a client relies on it: the id stays taken, whatever
    /// the outcome.
    pub fn note_announced(&self) {
        // Under the lock of the state: the call is announced either before it ends or not at all.
        watched::change(&self.state, |_| {
            self.ownership.announced.set();
            false
        });
    }

    fn leaves_id_free(&self, outcome: &Outcome) -> bool {
        let lasts = |refusal: &Refusal| {
            matches!(refusal, Refusal::OutcomeUnknown | Refusal::Deadline | Refusal::Withdrawn(_))
        };
        self.chosen.is_some() && matches!(outcome, Outcome::Refused(refusal) if !lasts(refusal))
    }

    /// Returns the time of the last state change, in Unix milliseconds.
    pub fn changed_ms(&self) -> u64 {
        self.changed_ms.load(Ordering::Relaxed)
    }

    /// Notes when the state changed at the gateway from which this one has it.
    pub fn note_changed(&self, changed_ms: u64) {
        self.changed_ms.store(changed_ms, Ordering::Relaxed);
    }

    /// Returns the start time in Unix milliseconds. It is in the id, unless the client chose that (UUID version 7, RFC
    /// 9562 section 5.7).
    pub fn began_ms(&self) -> u64 {
        self.chosen.map_or_else(|| began_ms(self.id), |chosen| chosen.began_ms)
    }

    /// Logs an event. Ignored once the call has its outcome.
    pub fn emit(&self, event: Event) {
        self.log(event);
    }

    /// Logs an event as [`Call::emit`] does, and returns its number.
    pub fn log(&self, event: Event) -> Option<u64> {
        if self.outcome.borrow().is_some() {
            return None;
        }
        self.events.push(event)
    }

    /// Whether repeating the call does no harm.
    pub fn may_repeat(&self) -> bool {
        matches!(self.entry.primitive.mutation(), Mutation::ReadOnly | Mutation::Idempotent)
    }

    /// Returns the end of a call that may have been executed and got no answer: `why` if the caller may simply repeat
    /// it, otherwise "outcome unknown".
    pub fn unanswered(&self, why: Refusal) -> Refusal {
        if self.may_repeat() { why } else { Refusal::OutcomeUnknown }
    }

    /// Whether the call may have had an effect.
    pub fn was_handed_over(&self) -> bool {
        self.handed_over.is_set()
    }

    /// Asks the backend to stop; only the first cancel counts.
    pub fn cancel(&self) {
        self.cancel_requested.store(true, Ordering::Release);
        self.cancel.cancel();
    }

    /// Whether this call itself was cancelled, not only its gateway stopped.
    pub fn is_cancel_requested(&self) -> bool {
        self.cancel_requested.load(Ordering::Acquire)
    }

    /// Cancels the call because its caller has lost the right to it. Returns false if it was withdrawn before or has an
    /// outcome already.
    pub fn withdraw(&self, why: Withdrawal) -> bool {
        let first = self.outcome.borrow().is_none() && self.withdrawn.set(why).is_ok();
        if first {
            self.cancel.cancel();
        }
        first
    }

    /// Notes the cause of a failure for the operator's log, where the caller gets less; only the latest is kept. Its length is
    /// bounded, because names of a service's result may be in it.
    pub fn note_failure_cause(&self, cause: impl Display) {
        let mut text = cause.to_string();
        text.truncate(text.floor_char_boundary(content::MAX_FAILURE));
        *self.failure_cause.lock() = Some(text);
    }

    /// Forgets the cause of a failure that was overcome.
    pub fn forget_failure_cause(&self) {
        self.failure_cause.lock().take();
    }

    /// Returns the latest noted cause of a failure.
    pub fn failure_cause(&self) -> Option<String> {
        self.failure_cause.lock().clone()
    }

    /// Returns the reason for the withdrawal, if there was one.
    pub fn withdrawal(&self) -> Option<Withdrawal> {
        self.withdrawn.get().cloned()
    }

    /// Resolves when the call is withdrawn from its caller.
    pub async fn wait_for_withdrawal(&self) -> Withdrawal {
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

    /// Resolves when the call is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Returns a token that is cancelled with the call.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Returns the outcome, if there is one.
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
            // The sender lives in `self`: only a change ends this wait.
            if outcome.changed().await.is_err() {
                return Arc::new(Outcome::unknown());
            }
        }
    }

    /// Waits until a question is open or there is an outcome, at most for `longest`.
    pub async fn asks_or_ends(&self, longest: Duration) {
        let mut events = self.events.reader_from(0);
        let waiting = async { while self.questions.pending().is_empty() && events.next().await.is_some() {} };
        // The response reports anything that happens later.
        let _ = tokio::time::timeout(longest, waiting).await;
    }

    /// Waits until the call has started, or has ended before that, at most for `longest`.
    pub async fn begins_or_ends(&self, longest: Duration) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`; a later change is seen later.
        let _ = tokio::time::timeout(longest, state.wait_for(|state| *state != State::Submitted)).await;
        if self.state().is_terminal() {
            self.finished().await;
        }
    }

    /// Sets the outcome; only the first one counts.
    pub fn finish(&self, outcome: Outcome) {
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
