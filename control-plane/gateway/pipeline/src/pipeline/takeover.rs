//! Takeover of calls whose gateway is gone (I-3, ADR 6).
//!
//! Owns: the decision whether such a call may continue here, and its way through the remaining stages. Keeps true:
//! exactly one gateway takes a call; a call that no longer holds its key, because it was answered or another execution
//! has it, does not run again; one that no backend had started frees its key; one that is no longer allowed, because of
//! its caller or its arguments, ends as unknown, and so does one that no gateway can run; one that needs an approval by
//! now continues once it is approved; one that waited for arguments asks for them again, and nothing of it has started; one
//! that does not continue has its end in the audit, unless its gateway wrote that.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::event::Event;
use asp_call::call::event::log::first_generation;
use asp_call::call::outcome::{Outcome, Output, Refusal, Withdrawal, after_handover};
use asp_call::call::ownership::LedgerClaim;
use asp_call::call::started::StartGuard;
use asp_call::call::{Call, CallRequest, IdempotencyKey, Invocation};
use asp_call::durable::active::{AbandonedCall, ActiveFault};
use asp_call::durable::record::Record;
use asp_call::execution::ResumeState;
use asp_call::telemetry::audit;
use asp_json::Json;
use asp_snapshot::Snapshot;
use asp_store::records::Orphan;
use tokio::time::Instant;
use uuid::Uuid;

use super::entitlement;
use super::execute::{self, passed_on};
use super::input;
use super::ledger::HeldKey;
use super::limits::Grant;
use super::lookup::GONE;
use super::running::ends_with_its_token;
use crate::pipeline::{CallInput, CallTask, Pipeline};

/// Maximum number of calls taken at a time: a starting gateway has its own calls to serve.
const AT_A_TIME: usize = 32;
/// Maximum number of rows that are checked for those: calls that this gateway cannot run do not hide calls that it can.
const LOOKS: usize = 256;
/// Time in which any gateway may take a call that this one cannot open, or whose version it does not have: a newer
/// gateway, or one with the key, checks within that time.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// The same for a call without a runtime: the runtimes of a language may be restarting.
const NO_RUNTIME_FOR: Duration = Duration::from_secs(300);
/// Time for a worker to save and yield when its gateway ends.
const YIELD: Duration = Duration::from_secs(3);
const SEALED: &str = "its record does not open, unless another gateway was faster: gateways that share a store need the same ASP_SEAL_KEY";
const NOT_SERVED: &str = "its server, or its primitive in this version, is not in this gateway's snapshot";
const NO_RUNTIME: &str = "no runtime for its language is available";
/// Message to the caller of a call that a lost gateway had not started.
const NOT_BEGUN: &str = "the gateway of the call is gone, and nothing was done: call again";

impl Pipeline {
    /// Takes over abandoned calls, and gives up those that no gateway takes; bounded work, called periodically.
    pub async fn take_over(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Result<(), ActiveFault> {
        self.take_up(snapshot).await?;
        let mut room = self.taken_over.room().min(AT_A_TIME);
        if room == 0 {
            // It may be full of long calls, and the only gateway that can run those that wait.
            return match self.active.abandoned(1).await?.is_empty() {
                true => Ok(()),
                false => self.active.report_no_room().await,
            };
        }
        let limit = self.skipped.begin(snapshot.revision).saturating_add(LOOKS);
        let orphans = self.active.abandoned(u32::try_from(limit).unwrap_or(u32::MAX)).await?;
        let are_all = orphans.len() < limit;
        for orphan in self.skipped.due(orphans, are_all).into_iter().take(LOOKS) {
            // A call taken while this gateway ends would be cancelled.
            if self.calls.are_left() {
                break;
            }
            if room == 0 {
                return self.active.report_no_room().await;
            }
            let Some(abandoned) = self.active.open_abandoned(orphan).await? else {
                self.skip(&orphan, GIVEN_UP_AFTER, SEALED).await?;
                continue;
            };
            let Some(invocation) = abandoned.record.invocation(snapshot) else {
                self.skip(&orphan, GIVEN_UP_AFTER, NOT_SERVED).await?;
                continue;
            };
            if !self.can_take(&abandoned.record, &invocation) {
                self.skip(&orphan, NO_RUNTIME_FOR, NO_RUNTIME).await?;
                continue;
            }
            if self.active.take(&abandoned).await? {
                // The state up to the takeover; if that cannot be read, the call may have started.
                let abandoned = match self.active.open_abandoned(orphan).await {
                    Ok(Some(taken)) => taken,
                    Ok(None) | Err(_) => abandoned.assume_started(),
                };
                if self.calls.are_left() {
                    // When its lease ends, the next gateway takes it.
                    break;
                }
                room -= 1;
                self.run_taken_over(snapshot.clone(), abandoned, invocation).await;
            }
        }
        Ok(())
    }

    /// Continues calls that belong to this gateway already, because a store did not answer when they were taken. They
    /// need no capacity.
    async fn take_up(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Result<(), ActiveFault> {
        for orphan in self.active.put_off_calls().await? {
            if self.calls.are_left() {
                break;
            }
            // A call that this gateway cannot run at the moment is checked again.
            let Some(abandoned) = self.active.open_abandoned(orphan).await? else { continue };
            let Some(invocation) = abandoned.record.invocation(snapshot) else { continue };
            // A runtime may start before the call's deadline.
            if !self.can_take(&abandoned.record, &invocation) && !abandoned.record.is_past() {
                continue;
            }
            self.active.take_up(&orphan.call);
            self.run_taken_over(snapshot.clone(), abandoned, invocation).await;
        }
        Ok(())
    }

    /// Whether this gateway can continue a call: its backend does, or the call still waits for arguments and can start here.
    fn can_take(&self, record: &Record, invocation: &Invocation) -> bool {
        let CallRequest { server, entry, .. } = &invocation.request;
        self.backends.runs(&entry.primitive) || (record.question > 0 && self.offers(server, entry))
    }

    /// Skips a call that cannot run here. If no gateway has taken it for `longest`, and none lacks capacity, it is
    /// given up: its outcome is unknown.
    async fn skip(
        &self,
        orphan: &Orphan,
        longest: Duration,
        reason: &'static str,
    ) -> Result<(), ActiveFault> {
        let call = Uuid::from_bytes(orphan.call);
        let Some(waits) = self.skipped.add(orphan.call) else {
            tracing::warn!(%call, reason, "call of a lost gateway cannot be taken over here");
            return Ok(());
        };
        if waits >= longest && self.active.give_up(orphan).await? {
            tracing::warn!(%call, reason, "call of a lost gateway was given up, because no gateway took it over; its outcome is unknown");
        }
        Ok(())
    }

    async fn run_taken_over(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        abandoned: AbandonedCall,
        invocation: Invocation,
    ) {
        let call = self.continued(&abandoned, &invocation).await;
        self.registry.enter(&call);
        let mut held = None;
        let is_waiting = abandoned.record.question > 0;
        if is_waiting {
            // A client that was told of it returns for it.
            call.enter(abandoned.left_in());
        }
        if let Some(claim) = abandoned.record.claim.as_ref().filter(|_| !is_waiting) {
            call.ownership.set_claim(claim.clone());
            match self.ledgers.take_over_claim(&call, claim.clone()).await {
                Ok(Some(claimed)) if abandoned.record.handed_over => held = Some(claimed),
                Ok(Some(claimed)) => {
                    tracing::info!(call = %call.id, trace = %call.trace, "call of a lost gateway had not started; its key is free for a retry");
                    if let Err(error) = claimed.release().await {
                        tracing::warn!(call = %call.id, trace = %call.trace, %error, "idempotency key of a call that had not started could not be freed; retries under it wait until its lease expires");
                    }
                    let outcome = Outcome::Refused(Refusal::Upstream(NOT_BEGUN.into()));
                    return self.let_go(&call, &abandoned, outcome).await;
                }
                Ok(None) => return self.let_go_ended(&call, &abandoned, claim).await,
                Err(error) => {
                    tracing::warn!(call = %call.id, trace = %call.trace, %error, "ledger did not answer for a call of a lost gateway; it will be asked again");
                    return self.put_off(&call);
                }
            }
        }
        tracing::info!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, "call of a lost gateway is taken over");
        if !is_waiting {
            StartGuard::of(&call).mark_sent();
        }
        // Questions of the lost gateway are void; the backend asks again where needed.
        call.emit(Event::Resumed);
        // No client waits for it here yet.
        call.authority.leave();
        self.metrics.call_began();
        self.running.enter(&call, &snapshot);
        self.promise_taken_over(&call);
        // Inputs that its caller sent while no gateway ran it.
        call.ownership.nudge();
        self.taken_over.insert(&call);
        let running = CallTask { pipeline: self.clone(), call, _places: (None, None) };
        let lasting = running.call.clone();
        self.calls.spawn(async move {
            tokio::select! {
                () = running.go_on(snapshot, abandoned, held) => {}
                never = ends_with_its_token(&lasting) => match never {},
            }
        });
    }

    /// Restores the call from its record, with the earlier events.
    async fn continued(&self, abandoned: &AbandonedCall, invocation: &Invocation) -> Arc<Call> {
        let now = Instant::now();
        let deadline = invocation.deadline.unwrap_or(now);
        let mut call = Call::new(invocation, now, deadline, self.calls.child());
        call.id = Uuid::from_bytes(abandoned.call);
        call.questions.restore(abandoned.record.history.clone());
        self.continue_events(&mut call).await;
        call.events.begin_after(abandoned.takeovers);
        let call = Arc::new(call);
        call.ownership.keep();
        if abandoned.record.approved {
            call.ruling.approve();
        }
        if abandoned.record.announced {
            call.note_announced();
        }
        call
    }

    /// Continues the events, so that a client that has seen the earlier ones gets the rest, and nothing twice.
    async fn continue_events(&self, call: &mut Call) {
        let Some(events) = self.active.events() else { return };
        let Some(kept) = events.take(call.id).await else { return };
        call.ownership.publish_from(kept.next);
        kept.continue_in(call);
    }

    /// Postpones a call that was taken; clients that have attached to it since return for it.
    fn put_off(&self, call: &Call) {
        self.active.put_off(call.id.into_bytes());
        call.ownership.passed_on.set();
        call.finish(passed_on(call));
        self.registry.end(call);
    }

    /// Ends a call that was taken and whose key it does not hold any more, with the outcome in the ledger.
    async fn let_go_ended(&self, call: &Arc<Call>, abandoned: &AbandonedCall, claim: &LedgerClaim) {
        match self.ledgers.outcome(claim).await {
            Ok(outcome) => {
                tracing::info!(call = %call.id, trace = %call.trace, "call of a lost gateway had ended already; its answer is in the ledger");
                self.let_go(call, abandoned, outcome.unwrap_or_else(Outcome::unknown)).await;
            }
            // Its client must not get another end now than later from the ledger.
            Err(error) => {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "ledger did not answer for the outcome of a call of a lost gateway; it will be asked again");
                self.put_off(call);
            }
        }
    }

    /// Ends a call that was taken and does not continue; clients that have attached to it since get its outcome, and
    /// so do those that the lost gateway had informed of it. Its id stays taken in the same cases as at that gateway, which left the
    /// call in this state.
    async fn let_go(&self, call: &Arc<Call>, abandoned: &AbandonedCall, outcome: Outcome) {
        call.enter(abandoned.left_in());
        call.events.raise_to(first_generation(abandoned.takeovers));
        call.ownership.known.set();
        // First: while the row has no end, a gateway that takes it next repeats both.
        let (resumed, finished) = (audit::resumed(call), audit::finished(call, &outcome));
        self.audit.record_last(resumed, finished, call.began_ms()).await;
        // Any gateway that has taken it since reports the same.
        let _ = self.active.end(call, &outcome).await;
        self.failures.ended(call, &outcome);
        call.finish(outcome);
        self.registry.end(call);
    }

    /// Lets the calls that another gateway can continue save and yield, as a step of a shutdown. One that is too slow
    /// continues from its last checkpoint.
    pub async fn hand_on(&self) {
        self.calls.leave();
        let calls: Vec<Arc<Call>> =
            self.active.stored_calls().into_iter().filter(|call| call.ownership.resumes.is_set()).collect();
        for call in &calls {
            call.ownership.preempt();
        }
        let yielded = futures::future::join_all(calls.iter().map(|call| call.finished()));
        // In time or not: calls that have not ended are handled below.
        let _ = tokio::time::timeout(YIELD, yielded).await;
        for call in calls.iter().filter(|call| call.outcome().is_none()) {
            call.ownership.passed_on.set();
        }
        if !calls.is_empty() {
            tracing::info!(calls = calls.len(), "calls were left for other gateways");
        }
    }
}

impl CallTask {
    async fn go_on(self, snapshot: Arc<Snapshot>, abandoned: AbandonedCall, held: Option<HeldKey>) {
        // It has started elsewhere: a missing record here does not stop it.
        let _ = self.pipeline.audit.record_end(audit::resumed(&self.call)).await;
        if abandoned.record.question > 0 {
            let result = self.ask_again(&snapshot, abandoned.record).await;
            return self.conclude(result).await;
        }
        let result = self.again(&snapshot, abandoned).await;
        let settled = match held {
            Some(held) => self.settle(held, &result).await,
            None => Ok(()),
        };
        self.conclude(settled.and(result).map(|output| (output, false))).await;
    }

    /// Continues a call that waited for arguments: it goes through the stages from that question on.
    async fn ask_again(&self, snapshot: &Arc<Snapshot>, record: Record) -> Result<(Output, bool), Refusal> {
        let call = &self.call;
        // Its caller may have sent the answer before.
        if let Some(notice) = snapshot.revocation(&call.caller) {
            return Err(Refusal::Withdrawn(Withdrawal::of_revocation(notice)));
        }
        let entitled =
            entitlement::entitle(snapshot, &call.server, &call.caller, &call.entry, call.protocol)?;
        let key = call.idempotency_key.clone().map(IdempotencyKey::Explicit);
        let input = CallInput { arguments: record.arguments, key, question: record.question, receiver: None };
        self.stages_from_input(snapshot, entitled, input, &Grant::from_record(record.budget)).await
    }

    async fn again(&self, snapshot: &Arc<Snapshot>, abandoned: AbandonedCall) -> Result<Output, Refusal> {
        let call = &self.call;
        let AbandonedCall { mut record, seq, state, .. } = abandoned;
        // A store keeps only the text.
        input::complete(&call.entry, &mut record.arguments);
        let Some(needs_approval) = self.is_still_allowed(snapshot, &record.arguments) else {
            tracing::warn!(call = %call.id, trace = %call.trace, "call of a lost gateway does not continue, because its caller was revoked or it is no longer allowed; its outcome is unknown");
            return Err(Refusal::OutcomeUnknown);
        };
        if record.is_past() {
            return Err(call.unanswered(Refusal::Upstream(GONE.into())));
        }
        if needs_approval && !call.ruling.is_approved() {
            self.approved_late(&record).await?;
        }
        let execution =
            self.execution(snapshot, record.arguments, record.budget, Some(ResumeState { seq, state }));
        let executed = execute::execute(self.pipeline.backends.as_ref(), execution).await;
        self.checked(executed.map_err(|refusal| after_hand_over(call, refusal))?)
    }

    /// Whether the call is still allowed by the policy in force, and if so whether a person must approve it; `None` if
    /// it is not allowed.
    fn is_still_allowed(&self, snapshot: &Snapshot, arguments: &Json) -> Option<bool> {
        let call = &self.call;
        if snapshot.revoked(&call.caller) {
            return None;
        }
        let entitled =
            entitlement::entitle(snapshot, &call.server, &call.caller, &call.entry, call.protocol).ok()?;
        let ruled = input::check_rules(snapshot, &self.pipeline.metrics, call, arguments).ok()?;
        Some(entitled.needs_approval || ruled)
    }

    /// Asks for an approval that was not required when the call started. The call waits for it as for any answer,
    /// within its remaining time; without an approval it does not continue, and its effect is unknown.
    async fn approved_late(&self, record: &Record) -> Result<(), Refusal> {
        let call = &self.call;
        self.approved(&record.arguments).await.map_err(|refusal| after_handover(call, refusal))?;
        if !self.pipeline.active.is_ours(call).await {
            return Err(Refusal::Upstream("another gateway continues this call".into()));
        }
        // The next gateway that continues it need not ask again.
        let approved = Record::of(call, &record.arguments, record.budget, true);
        if let Err(error) = self.pipeline.active.put(call, &approved).await {
            tracing::warn!(call = %call.id, trace = %call.trace, %error, "approval of a call could not be stored; if this gateway is lost too, the next one asks again: check the store");
        }
        Ok(())
    }
}

/// Returns the refusal of a call that the lost gateway had handed over: a backend that cannot be reached from here may
/// have executed it.
fn after_hand_over(call: &Call, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Upstream(_) | Refusal::Declined(_) | Refusal::Limited { .. } => call.unanswered(refusal),
        refusal => refusal,
    }
}
