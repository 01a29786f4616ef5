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
pub mod takeover;
mod upkeep;

use std::sync::{Arc, OnceLock, Weak};

use asp_call::call::outcome::{Outcome, Output, Refusal, Withdrawal};
use asp_call::call::registry::CallRegistry;
use asp_call::call::terms::{lifetime_bound, retention};
use asp_call::call::{Call, CallKind, CallRequest, HeldMemory, IdempotencyKey, Invocation};
use asp_call::durable::active::ActiveTable;
use asp_call::durable::record::Record;
use asp_call::durable::skipped::SkippedCalls;
use asp_call::durable::taken_over::TakenOverCalls;
use asp_call::execution::{Backends, Execution, Platform, ResourceListener, ResumeState};
use asp_call::telemetry::audit;
use asp_call::telemetry::audit::{Audit, LostCalls, RecordingError};
use asp_call::telemetry::failures::{FailureLog, RequestRefusal};
use asp_call::telemetry::metrics::{Metrics, RevocationStage, Stage};
use asp_call::telemetry::traces::Tracer;
use asp_call::telemetry::usage::UsageMeter;
use asp_json::Json;
use asp_proto::snapshot::{Kind, Mutation};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use serde_json::Value;
use tokio::time::Instant;

use crate::pipeline::admission::{AdmissionBounds, AdmissionPermit, CallTasks};
use crate::pipeline::approvals::Approvals;
use crate::pipeline::deprecation::DeprecationLog;
use crate::pipeline::entitlement::Entitlement;
use crate::pipeline::ledger::{HeldKey, LedgerDecision, Ledgers};
use crate::pipeline::limits::{Grant, Limiter};
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

/// A call whose task is running. Dropping it without an outcome (a panic, a shutdown) ends it as lost.
pub(crate) struct CallTask {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) call: Arc<Call>,
    /// Its permit and its memory; none for a call of another gateway, which is taken over regardless of permits.
    pub(crate) _places: (Option<AdmissionPermit>, Option<HeldMemory>),
}

impl CallTask {
    async fn drive(self, snapshot: Arc<Snapshot>, entitled: Entitlement, input: CallInput) {
        let recorded = self.pipeline.audit.record(audit::started(&self.call)).await;
        self.pipeline.audit.capture(&self.call, "arguments", || input.arguments.text().to_owned());
        let has_effects = self.call.entry.primitive.mutation() != Mutation::ReadOnly;
        match recorded {
            // A call that may have effects must not run unrecorded; for one that continues, the loss is counted.
            Err(RecordingError) if !self.pipeline.audit.may_miss(has_effects) => {
                self.refuse_unrecorded().await
            }
            Ok(()) | Err(RecordingError) => {
                let result = self.stages(&snapshot, entitled, input).await;
                self.conclude(result).await;
            }
        }
    }

    async fn stages(
        &self,
        snapshot: &Arc<Snapshot>,
        entitled: Entitlement,
        mut input: CallInput,
    ) -> Result<(Output, bool), Refusal> {
        let call = &self.call;
        let pipeline = &self.pipeline;
        let metrics = &self.pipeline.metrics;
        pipeline.deprecations.admit(call)?;
        // At once, so that the client can try a gateway that reaches the store; and before the limits, because each
        // gateway that was tried would draw from them.
        if ledger::must_be_remembered(call, input.key.as_ref()) && pipeline.active.is_away() {
            return Err(ledger::not_begun());
        }
        let started = Instant::now();
        let granted = pipeline.limiter.admit(snapshot, &call.server, &call.caller, &call.entry).await;
        metrics.stage(call, Stage::Limits, started);
        metrics.limited(match &granted {
            Err(Refusal::Limited { limit, .. }) => Some(limit),
            _ => None,
        });
        let grant = granted?;
        for level in &grant.would_refuse {
            metrics.would_limit(level.as_str());
        }
        let stored = match input.receiver.take() {
            Some(receiver) => self.store_receiver(receiver.as_ref()).await,
            None => Ok(()),
        };
        let result = match stored {
            Ok(()) => self.stages_from_input(snapshot, entitled, input, &grant).await,
            Err(refusal) => Err(refusal),
        };
        grant.end(result.as_ref().err()).await;
        result
    }

    /// Runs the stages after the limits.
    async fn stages_from_input(
        &self,
        snapshot: &Arc<Snapshot>,
        mut entitled: Entitlement,
        mut input: CallInput,
        grant: &Grant,
    ) -> Result<(Output, bool), Refusal> {
        let call = &self.call;
        let metrics = &self.pipeline.metrics;
        entitled.needs_approval |= self.check_input(snapshot, &mut input, grant).await?;
        let CallInput { arguments, key, .. } = input;
        if call.authority.begun_with().late_arguments {
            // The time to wait for arguments is over.
            let waits = u32::from(entitled.needs_approval);
            call.runs_from_now(lifetime_bound(&call.entry.primitive, waits));
        }

        let started = Instant::now();
        let entered = self.enter(key.as_ref(), &arguments).await;
        metrics.stage(call, Stage::Ledger, started);
        match entered? {
            LedgerDecision::Replay(output) => Ok((output, true)),
            LedgerDecision::Keyless => {
                Ok((self.perform(snapshot, entitled, arguments, grant, None).await?, false))
            }
            LedgerDecision::Held(held) => {
                call.ownership.set_claim(held.claim().clone());
                let result = self.perform(snapshot, entitled, arguments, grant, Some(&held)).await;
                self.settle(held, &result).await?;
                Ok((result?, false))
            }
        }
    }

    /// Runs the input stage, and asks a client that sends missing arguments later for them. Returns whether the policy
    /// requires an approval because of the arguments, or since the call waited for them.
    async fn check_input(
        &self,
        snapshot: &Arc<Snapshot>,
        input: &mut CallInput,
        grant: &Grant,
    ) -> Result<bool, Refusal> {
        let (call, metrics) = (&self.call, &self.pipeline.metrics);
        let started = Instant::now();
        let checked = input::check(call, &mut input.arguments);
        let ruled = checked.and_then(|()| input::check_rules(snapshot, metrics, call, &input.arguments));
        metrics.stage(call, Stage::Input, started);
        let misfit = match ruled {
            Err(misfit @ Refusal::InvalidArguments { .. }) if call.authority.begun_with().late_arguments => {
                misfit
            }
            ruled => return ruled,
        };
        self.ask_for_arguments(input, grant, misfit).await?;
        let newest = self.pipeline.running.snapshot();
        let snapshot = newest.as_ref().unwrap_or(snapshot);
        let entitled =
            entitlement::entitle(snapshot, &call.server, &call.caller, &call.entry, call.protocol)?;
        Ok(entitled.needs_approval | input::check_rules(snapshot, metrics, call, &input.arguments)?)
    }

    /// Runs the ledger stage. While a call that was taken over holds the key, this one relays its events.
    async fn enter(&self, key: Option<&IdempotencyKey>, arguments: &Json) -> Result<LedgerDecision, Refusal> {
        let call = &self.call;
        let pipeline = &self.pipeline;
        let is_alone = pipeline.active.is_alone();
        let claimed = key.and_then(|key| Some((key, ledger::claim_of(call, key, arguments, is_alone)?)));
        let Some((key, claim)) = claimed else { return Ok(LedgerDecision::Keyless) };
        let entering = ledger::enter(&pipeline.ledgers, call, key, claim.clone());
        if !claim.mutating || !matches!(key, IdempotencyKey::Explicit(_)) {
            return entering.await;
        }
        call.ownership.set_intended_claim(claim.clone());
        tokio::select! {
            biased;
            entered = entering => entered,
            never = pipeline.taken_over.relay(call, &claim) => match never {},
            () = call.cancelled() => {
                // The claim may have succeeded at this moment.
                pipeline.ledgers.give_back(call, claim);
                Err(Refusal::Cancelled)
            }
        }
    }

    /// Stores the row from which another gateway can continue a call with an explicit key, or one that has a row from its
    /// wait for arguments. Other calls need none before their backend saves something: no client could ask for them.
    async fn keep(&self, arguments: &Json, grant: &Grant, handed_over: bool) -> Result<(), Refusal> {
        let call = &self.call;
        let keyed =
            call.idempotency_key.is_some() && call.ownership.claim().is_some_and(|claim| claim.mutating);
        let is_needed = keyed && self.pipeline.backends.runs(&call.entry.primitive);
        if !is_needed && !call.ownership.is_stored() {
            return Ok(());
        }
        let record = Record::of(call, arguments, grant.remaining, handed_over);
        let has_not_begun = call.ownership.may_be_stored();
        match self.pipeline.active.put(call, &record).await {
            // Another gateway must not mistake a running call for one that has not started, as the earlier row says.
            Err(error) if has_not_begun => {
                tracing::debug!(call = %call.id, trace = %call.trace, %error, "call was refused, because its row could not be stored");
                Err(ledger::not_begun())
            }
            Err(error) => {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "row of a call was not confirmed in time; if this gateway is lost, the outcome may be unknown: check the store's response times");
                Ok(())
            }
            Ok(()) => {
                missing::note_stored(call);
                Ok(())
            }
        }
    }

    /// Returns the input of the backend: the work to do, and the rest of the gateway as a port.
    fn execution(
        &self,
        snapshot: &Arc<Snapshot>,
        arguments: Json,
        budget: Option<u64>,
        resume_state: Option<ResumeState>,
    ) -> Execution {
        let platform: Arc<dyn Platform> = self.pipeline.clone();
        Execution {
            call: self.call.clone(),
            arguments,
            budget,
            snapshot: snapshot.clone(),
            platform,
            resume_state,
        }
    }

    async fn perform(
        &self,
        snapshot: &Arc<Snapshot>,
        entitled: Entitlement,
        arguments: Json,
        grant: &Grant,
        held: Option<&HeldKey>,
    ) -> Result<Output, Refusal> {
        let metrics = &self.pipeline.metrics;
        if entitled.needs_approval {
            // It runs once a human has agreed; completions and lists need no approval.
            match self.call.kind {
                CallKind::Invoke => {}
                CallKind::Complete(_) => {
                    return Ok(Output::completion(Vec::new(), Some(0), false));
                }
                CallKind::List => return Ok(Output::contents(Vec::new())),
            }
        }
        if entitled.needs_approval {
            self.keep(&arguments, grant, false).await?;
            let started = Instant::now();
            let approved = self.approved(&arguments).await;
            metrics.stage(&self.call, Stage::Approve, started);
            approved?;
        }
        // The runtime counts from the end of the wait for an approval, or from here if there turned out to be none.
        if entitled.needs_approval
            || snapshot.policy.may_ask(&self.call.caller, &self.call.entry.primitive, self.call.protocol)
        {
            // A linked account may still be asked for.
            self.call.runs_from_now(lifetime_bound(&self.call.entry.primitive, 0));
        }
        self.keep(&arguments, grant, true).await?;
        if entitled.needs_approval
            && let Some(held) = held
            && !held.still(&self.call).await.map_err(|e| Refusal::Internal(e.to_string()))?
        {
            // This gateway was considered dead while the call waited.
            return Err(Refusal::Upstream("another gateway has released the call's key".into()));
        }
        let uri = match self.call.entry.primitive.kind() {
            Kind::Resource | Kind::ResourceTemplate => arguments.get("uri").cloned(),
            _ => None,
        };
        let execution = self.execution(snapshot, arguments, grant.remaining, None);
        grant.set_used();
        let started = Instant::now();
        let executed = execute::execute(self.pipeline.backends.as_ref(), execution).await;
        metrics.stage(&self.call, Stage::Execute, started);
        let executed = executed.map_err(|refusal| match (refusal, uri) {
            // A resource that its backend no longer has is refused by its URI, like one that never existed (I-10).
            (Refusal::Unknown, Some(Value::String(uri))) => Refusal::UnknownResource { uri },
            (refusal, _) => refusal,
        });
        self.checked(executed?)
    }
}
