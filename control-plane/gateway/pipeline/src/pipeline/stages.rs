//! The stages of one running call, in their order.
//!
//! Owns: what passes from stage to stage, and what is stored between them. Refuses: the rules of a stage, each of which has a
//! module of its own. Keeps true: the order is fixed; nothing runs unrecorded that may have effects; a call that another gateway
//! could continue has its row before its backend starts.

use std::sync::Arc;

use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::terms::lifetime_bound;
use asp_call::call::{CallKind, IdempotencyKey};
use asp_call::durable::record::Record;
use asp_call::execution::{Execution, Platform, ResumeState};
use asp_call::telemetry::audit::{self, RecordingError};
use asp_call::telemetry::metrics::Stage;
use asp_json::Json;
use asp_proto::snapshot::{Kind, Mutation};
use asp_snapshot::Snapshot;
use serde_json::Value;
use tokio::time::Instant;

use super::entitlement::{self, Entitlement};
use super::ledger::{self, HeldKey, LedgerDecision};
use super::limits::Grant;
use super::{CallInput, CallTask, execute, input, missing};

impl CallTask {
    pub(super) async fn drive(self, snapshot: Arc<Snapshot>, entitled: Entitlement, input: CallInput) {
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
    pub(super) async fn stages_from_input(
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
    pub(super) fn execution(
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
