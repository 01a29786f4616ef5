//! The one pipeline of all protocols (I-2): entitlement → limits → input, rules → ledger → approve → execute → output →
//! audit. Identity and resolve come before it, while the protocol reads the request, because they need only the
//! snapshot.
//!
//! Keeps true: the order is fixed; every call that was started ends with one outcome and one finish event, even if its
//! task is dropped; the finish event of a call that a stopping gateway leaves to another one is that one's.

pub mod admission;
mod approval_text;
mod approval_wait;
pub mod approvals;
pub mod approve;
mod approver_standing;
mod caller_input;
mod deprecation;
pub mod entitlement;
pub mod execute;
mod first_receiver;
pub mod input;
pub mod internals;
pub mod ledger;
pub mod limits;
pub mod links;
pub mod listings;
pub mod lookup;
mod lost;
mod mirror;
mod missing;
pub(crate) mod passes;
mod platform;
pub mod promise;
pub mod running;
mod stages;
pub mod takeover;
mod upkeep;

use std::sync::{Arc, OnceLock, Weak};

use asp_call::call::outcome::{Outcome, Refusal, Withdrawal};
use asp_call::call::registry::CallRegistry;
use asp_call::call::terms::{lifetime_bound, retention};
use asp_call::call::{Call, CallRequest, HeldMemory, IdempotencyKey, Invocation};
use asp_call::durable::active::ActiveTable;
use asp_call::durable::skipped::SkippedCalls;
use asp_call::durable::taken_over::TakenOverCalls;
use asp_call::execution::{Backends, ResourceListener};
use asp_call::telemetry::audit;
use asp_call::telemetry::audit::{Audit, LostCalls};
use asp_call::telemetry::failures::{FailureLog, RequestRefusal};
use asp_call::telemetry::metrics::{Metrics, RevocationStage};
use asp_call::telemetry::traces::Tracer;
use asp_call::telemetry::usage::UsageMeter;
use asp_json::Json;
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use tokio::time::Instant;

use crate::pipeline::admission::{AdmissionBounds, AdmissionPermit, CallTasks};
use crate::pipeline::approvals::Approvals;
use crate::pipeline::deprecation::DeprecationLog;
use crate::pipeline::entitlement::Entitlement;
use crate::pipeline::ledger::Ledgers;
use crate::pipeline::limits::Limiter;
use crate::pipeline::listings::Listings;
use crate::pipeline::running::{RunningCalls, ends_with_its_token};
use crate::pushes::FirstReceiver;
use crate::sessions::Replicas;

/// The stages and their shared state.
pub struct Pipeline {
    limiter: Limiter,
    ledgers: Ledgers,
    backends: Arc<dyn Backends>,
    metrics: Arc<Metrics>,
    audit: Audit,
    /// The one place that logs failed calls.
    failures: FailureLog,
    deprecations: DeprecationLog,
    calls: CallTasks,
    /// Every call, while it runs and as long as a client may return for it.
    registry: Arc<CallRegistry>,
    /// The running calls, and the snapshot in force that they are evaluated by.
    running: Arc<RunningCalls>,
    /// The rows of the running calls that another gateway could continue.
    active: Arc<ActiveTable>,
    /// The other gateways, if there are any.
    replicas: Option<Arc<Replicas>>,
    /// The calls that were taken over from other gateways.
    taken_over: TakenOverCalls,
    /// The calls of lost gateways that cannot run here.
    skipped: SkippedCalls,
    /// Calls of lost gateways that lack their last audit event.
    lost: LostCalls,
    /// Lists that plugins make themselves.
    listings: Listings,
    /// Approvals by other persons.
    approvals: Approvals,
    /// Receiver of changes of resources; set once, when the gateway is wired.
    listener: OnceLock<Weak<dyn ResourceListener>>,
    /// Receiver of the end of every call; set once, in development.
    end_listener: OnceLock<EndListener>,
    /// Maker of spans; set once, if there is a collector.
    tracer: OnceLock<Arc<Tracer>>,
    /// Meter of ended calls; set once, if there is a store of usage.
    meter: OnceLock<Arc<UsageMeter>>,
}

/// Receiver of the end of every call. Must not block.
pub type EndListener = Arc<dyn Fn(&Call, &Outcome) + Send + Sync>;

/// The parts of a pipeline that its gateway creates.
pub struct PipelineDeps {
    pub limiter: Limiter,
    pub ledgers: Ledgers,
    pub backends: Arc<dyn Backends>,
    pub metrics: Arc<Metrics>,
    pub audit: Audit,
    /// Maximum number of calls at a time.
    pub bounds: AdmissionBounds,
    pub registry: Arc<CallRegistry>,
    pub active: Arc<ActiveTable>,
    pub replicas: Option<Arc<Replicas>>,
    pub approvals: Approvals,
}

/// A call that was started.
pub struct StartedCall {
    pub call: Arc<Call>,
    /// False if it had started before.
    pub is_new: bool,
}

impl Pipeline {
    /// Creates a pipeline without calls.
    pub fn new(deps: PipelineDeps) -> Pipeline {
        Pipeline {
            limiter: deps.limiter,
            ledgers: deps.ledgers,
            backends: deps.backends,
            metrics: deps.metrics,
            audit: deps.audit,
            failures: FailureLog::default(),
            deprecations: DeprecationLog::default(),
            calls: CallTasks::new(deps.bounds),
            running: Arc::new(RunningCalls::of(deps.registry.clone())),
            registry: deps.registry,
            active: deps.active,
            replicas: deps.replicas,
            taken_over: TakenOverCalls::default(),
            skipped: SkippedCalls::default(),
            lost: LostCalls::default(),
            listings: Listings::default(),
            approvals: deps.approvals,
            listener: OnceLock::new(),
            end_listener: OnceLock::new(),
            tracer: OnceLock::new(),
            meter: OnceLock::new(),
        }
    }

    /// Starts a call, which runs by itself until it has an outcome. A refusal by entitlement, or by the client's
    /// abilities, is returned at once, because its form differs by protocol (a 403 challenge, a hidden name). A call
    /// that exceeds the number of running calls has ended when this returns.
    pub fn begin(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        invocation: Invocation,
    ) -> Result<Arc<Call>, Refusal> {
        self.begin_once(snapshot, invocation).map(|begun| begun.call)
    }

    /// Starts a call in the same way; if the client chose an id that is taken, returns the call that has it.
    pub fn begin_once(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        invocation: Invocation,
    ) -> Result<StartedCall, Refusal> {
        self.begin_once_with(snapshot, invocation, None)
    }

    /// Starts a call in the same way, once its receiver is stored.
    pub fn begin_once_with(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        invocation: Invocation,
        receiver: Option<Arc<dyn FirstReceiver>>,
    ) -> Result<StartedCall, Refusal> {
        let started = Instant::now();
        let CallRequest { server, caller, entry, protocol, kind, .. } = &invocation.request;
        let entitled = match self.offers(server, entry) {
            true => entitlement::entitle(&snapshot, server, caller, entry, *protocol),
            false => Err(Refusal::Unknown),
        }
        .and_then(|entitled| {
            // A completion or a list asks no questions.
            if kind.is_invocation() {
                entitlement::check_abilities(&snapshot, &entry.primitive, invocation.abilities)?;
            }
            Ok(entitled)
        });
        let asks = entitled.as_ref().is_ok_and(|entitled| may_ask(&snapshot, *entitled, &invocation));
        let waits = u32::from(asks) + u32::from(invocation.abilities.late_arguments);
        let longest = started + lifetime_bound(&entry.primitive, waits);
        let deadline = invocation.deadline.map_or(longest, |wished| wished.min(longest));
        let call = self.new_call(&invocation, started, deadline);
        if entitled.is_ok()
            && call.chosen.is_some()
            && let Err(call) = self.registry.enter_new(&call, started + retention(&entry.primitive))
        {
            return Ok(StartedCall { call, is_new: false });
        }
        self.metrics.call_began();
        // A primitive that was hidden since looks the same as one that was hidden before (I-10).
        let entitled = entitled.and_then(|entitled| match self.running.enter(&call, &snapshot) {
            Some(Withdrawal::Denied | Withdrawal::ServerDisabled) => Err(Refusal::Unknown),
            _ => Ok(entitled),
        });
        let admitted = entitled.map(|entitled| (entitled, self.calls.admit(&call.caller.org)));
        match admitted {
            Err(refusal) => {
                if refusal == Refusal::Unknown {
                    self.note_hidden(&snapshot, &call);
                }
                self.refuse_unbegun(&call, refusal.clone());
                Err(refusal)
            }
            Ok((_, Err(full))) => {
                self.refuse_unbegun(&call, full);
                Ok(StartedCall { call, is_new: true })
            }
            Ok((entitled, Ok(place))) => {
                let Invocation { arguments, idempotency_key, memory, .. } = invocation;
                let places = (Some(place), memory);
                let running = CallTask { pipeline: self.clone(), call: call.clone(), _places: places };
                let lasting = call.clone();
                let input = CallInput { arguments, key: idempotency_key, question: 1, receiver };
                let driven = async move { running.drive(snapshot, entitled, input).await };
                self.calls.run(async move {
                    tokio::select! {
                        // A call that does not wait needs no timer for its token's expiry.
                        biased;
                        () = driven => {}
                        never = ends_with_its_token(&lasting) => match never {},
                    }
                });
                Ok(StartedCall { call, is_new: true })
            }
        }
    }

    /// Records the rule that hides a primitive from its caller, for the audit, and counts what an observed one would do.
    fn note_hidden(&self, snapshot: &Snapshot, call: &Call) {
        input::observe_hidden(snapshot, &self.metrics, call);
        let rule = entitlement::denial(snapshot, &call.server, &call.caller, &call.entry, call.protocol);
        if let Some(rule) = rule {
            call.ruling.hides(rule);
        }
    }

    /// Creates a call, with a span if its trace is sampled.
    fn new_call(&self, invocation: &Invocation, started: Instant, deadline: Instant) -> Arc<Call> {
        let mut call = Call::new(invocation, started, deadline, self.calls.child());
        if let Some(tracer) = self.tracer.get() {
            tracer.begin(&mut call);
        }
        Arc::new(call)
    }

    /// Whether the server's primitive may run here. One that cannot run at present is in no list and unknown to every
    /// call, for every caller (I-10).
    pub fn offers(&self, server: &VirtualServer, entry: &ListedPrimitive) -> bool {
        self.backends.offers(&server.message.name, &entry.primitive)
    }

    /// Logs a request that was refused before its call started.
    pub fn log_refusal(&self, refusal: &RequestRefusal<'_>) {
        self.failures.refused(refusal);
    }

    /// Ends a call before its task starts: with both of its audit events, or with neither if its org has no capacity in
    /// the log.
    fn refuse_unbegun(&self, call: &Call, refusal: Refusal) {
        let outcome = Outcome::Refused(refusal);
        if self.audit.has_room(&call.caller.org) {
            self.audit.record_now(audit::started(call));
            return self.end(call, outcome);
        }
        self.audit.count_missed(2);
        self.close(call, outcome);
    }

    /// Ends a call where nothing can wait for the audit queue.
    fn end(&self, call: &Call, outcome: Outcome) {
        if !self.leaves_end(call) {
            self.audit.record_now(audit::finished(call, &outcome));
        }
        self.close(call, outcome);
    }

    /// Whether the last event of a call is left to the gateway that continues it, because this one stops and the store has the
    /// call. If none does, the call has none yet when this process is lost, and gets one as any call of a lost gateway.
    fn leaves_end(&self, call: &Call) -> bool {
        let ownership = &call.ownership;
        self.calls.are_left() && ownership.continued.is_set() && ownership.has_had_row()
    }

    fn close(&self, call: &Call, outcome: Outcome) {
        self.metrics.call_ended(call, &outcome);
        if let Outcome::Refused(Refusal::Withdrawn(Withdrawal::Revoked(notice))) = &outcome {
            self.metrics.revocations.observe(RevocationStage::Call, notice.since_ms);
        }
        self.failures.ended(call, &outcome);
        if let Some(tracer) = self.tracer.get() {
            tracer.ended(call, &outcome);
        }
        if let Some(meter) = self.meter.get().filter(|_| !self.leaves_end(call)) {
            meter.call_ended(call, &outcome);
        }
        if let Some(listener) = self.end_listener.get() {
            listener(call, &outcome);
        }
        call.finish(outcome);
        self.registry.end(call);
    }
}

/// Whether the call may wait for a person's approval with any arguments.
fn may_ask(snapshot: &Snapshot, entitled: Entitlement, invocation: &Invocation) -> bool {
    let CallRequest { caller, entry, protocol, .. } = &invocation.request;
    entitled.needs_approval || snapshot.policy.may_ask(caller, &entry.primitive, *protocol)
}

/// Input of a call.
struct CallInput {
    arguments: Json,
    key: Option<IdempotencyKey>,
    /// Number of the next question for missing arguments, from 1.
    question: u32,
    /// Receiver to store before anything of the call starts.
    receiver: Option<Arc<dyn FirstReceiver>>,
}

/// A call whose task is running; its stages are in `stages`. Dropping it without an outcome (a panic, a shutdown) ends it as lost.
pub(crate) struct CallTask {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) call: Arc<Call>,
    /// Its permit and its memory; none for a call of another gateway, which is taken over regardless of permits.
    pub(crate) _places: (Option<AdmissionPermit>, Option<HeldMemory>),
}
