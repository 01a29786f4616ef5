//! Goes on with calls whose gateway is gone (I-3, ADR 6).
//!
//! Owns: the decision whether such a call may go on here, and its way through what is left of the pipeline.
//! Keeps true: exactly one gateway takes a call; one that does not hold its key any more, because it was answered or
//! another execution has it, does not run again; one that no executor had begun frees its key; one that may no longer
//! run, by who calls or by its arguments, ends as unknown, and so does one that no gateway can run; one that a person must approve by now goes on once one has.

use std::sync::Arc;
use std::time::Duration;

use asp_json::Json;
use asp_snapshot::Snapshot;
use asp_store::records::Orphan;
use tokio::time::Instant;
use uuid::Uuid;

use super::approve;
use super::conclusion::passed_on;
use super::entitlement;
use super::execute;
use super::input;
use super::ledger::Held;
use super::lookup::GONE;
use super::rules;
use super::running::ends_with_its_token;
use crate::call::event::Event;
use crate::call::outcome::{Outcome, Output, Refusal, after_handover};
use crate::call::started::Started;
use crate::call::{Call, Invocation, State};
use crate::durable::active::{AbandonedCall, ActiveFault};
use crate::durable::record::Record;
use crate::execution::ResumeState;
use crate::pipeline::{Pipeline, Running};
use crate::telemetry::audit;

/// Most calls that are taken at a time: a gateway that starts has its own to serve.
const AT_A_TIME: usize = 32;
/// Most rows that are looked at for those: what this gateway cannot run does not hide what it can.
const LOOKS: usize = 256;
/// Time for which every gateway may take a call that this one cannot read, or whose version it does not have: one that is newer, or has
/// the key, looks in that time.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// The same of a call for which there is no runtime: those of a language may be starting anew.
const NO_RUNTIME_FOR: Duration = Duration::from_secs(300);
/// How long a worker may take to save and yield when its gateway ends.
const YIELD: Duration = Duration::from_secs(3);
const SEALED: &str = "its record does not open, unless another gateway was faster: gateways that share a store need the same ASP_SEAL_KEY";
const NOT_SERVED: &str = "its server, or its primitive in this version, is not in this gateway's snapshot";
const NO_RUNTIME: &str = "no runtime of its language is there";
/// What a caller is told whose call its gateway left before it began.
const NOT_BEGUN: &str = "the gateway that had the call is gone, and nothing was done: call again";

impl Pipeline {
    /// Takes over what was abandoned, and gives up what no gateway takes; bounded work, run from time to time.
    pub async fn take_over(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Result<(), ActiveFault> {
        self.take_up(snapshot).await?;
        let mut room = self.taken_over.room().min(AT_A_TIME);
        if room == 0 {
            // It may be full of long calls, and the only one that can run those that wait.
            return match self.active.abandoned(1).await?.is_empty() {
                true => Ok(()),
                false => self.active.report_no_room().await,
            };
        }
        let limit = self.skipped.begin(snapshot.revision).saturating_add(LOOKS);
        let orphans = self.active.abandoned(u32::try_from(limit).unwrap_or(u32::MAX)).await?;
        let are_all = orphans.len() < limit;
        for orphan in self.skipped.due(orphans, are_all).into_iter().take(LOOKS) {
            // What is taken while this gateway ends would be cancelled.
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
            if !self.executor.runs(&invocation.entry.primitive) {
                self.skip(&orphan, NO_RUNTIME_FOR, NO_RUNTIME).await?;
                continue;
            }
            if self.active.take(&abandoned).await? {
                // What it had come to until it was taken; where that cannot be read, it may have begun.
                let abandoned = match self.active.open_abandoned(orphan).await {
                    Ok(Some(taken)) => taken,
                    Ok(None) | Err(_) => abandoned.begun(),
                };
                if self.calls.are_left() {
                    // The end of this gateway's lease leaves it to the next.
                    break;
                }
                room -= 1;
                self.run_taken_over(snapshot.clone(), abandoned, invocation).await;
            }
        }
        Ok(())
    }

    /// Goes on with calls that are this gateway's already: a store did not answer when they were taken. They wait for no room.
    async fn take_up(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Result<(), ActiveFault> {
        for orphan in self.active.put_off_calls().await? {
            if self.calls.are_left() {
                break;
            }
            // What this gateway cannot run at the moment is looked at again.
            let Some(abandoned) = self.active.open_abandoned(orphan).await? else { continue };
            let Some(invocation) = abandoned.record.invocation(snapshot) else { continue };
            // In its time a runtime may come.
            if !self.executor.runs(&invocation.entry.primitive) && !abandoned.record.is_past() {
                continue;
            }
            self.active.take_up(&orphan.call);
            self.run_taken_over(snapshot.clone(), abandoned, invocation).await;
        }
        Ok(())
    }

    /// Skips a call that cannot run here. If no gateway has taken it for `longest`, and none lacks room, none does: its outcome is
    /// unknown.
    async fn skip(
        &self,
        orphan: &Orphan,
        longest: Duration,
        reason: &'static str,
    ) -> Result<(), ActiveFault> {
        let call = Uuid::from_bytes(orphan.call);
        let Some(waits) = self.skipped.add(orphan.call) else {
            tracing::warn!(%call, reason, "a call whose gateway is gone cannot be taken over here");
            return Ok(());
        };
        if waits >= longest && self.active.give_up(orphan).await? {
            tracing::warn!(%call, reason, "a call whose gateway is gone was given up, because no gateway took it over; its outcome is unknown");
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
        if let Some(claim) = &abandoned.record.claim {
            call.ownership.claims(claim.clone());
            match self.ledgers.take_over_claim(&call, claim.clone()).await {
                Ok(Some(claimed)) if abandoned.record.handed_over => held = Some(claimed),
                Ok(Some(claimed)) => {
                    tracing::info!(call = %call.id, trace = %call.trace, "a call whose gateway is gone had not begun; its key is free for a retry");
                    if let Err(error) = claimed.release().await {
                        tracing::warn!(call = %call.id, trace = %call.trace, %error, "the idempotency key of a call that had not begun could not be freed; retries under it wait until its lease is over");
                    }
                    let outcome = Outcome::Refused(Refusal::Upstream(NOT_BEGUN.into()));
                    return self.let_go(&call, abandoned.left_in(), outcome).await;
                }
                Ok(None) => {
                    tracing::info!(call = %call.id, trace = %call.trace, "a call whose gateway is gone had ended already; its answer is in the ledger");
                    let outcome = self.ledgers.outcome(claim).await.unwrap_or_else(|error| {
                        // Who comes back later is told what the ledger says then.
                        tracing::debug!(call = %call.id, trace = %call.trace, %error, "the ledger does not say how a call ended");
                        None
                    });
                    let outcome = outcome.unwrap_or_else(Outcome::lost);
                    return self.let_go(&call, abandoned.left_in(), outcome).await;
                }
                Err(error) => {
                    tracing::warn!(call = %call.id, trace = %call.trace, %error, "the ledger did not answer for a call whose gateway is gone; it is asked again");
                    return self.put_off(&call);
                }
            }
        }
        tracing::info!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, "takes over a call whose gateway is gone");
        Started::of(&call).sent();
        // What its gateway asked nobody waits for; what is still to be asked is asked again.
        call.emit(Event::Resumed);
        // Nobody waits for it here yet.
        call.authority.leave();
        self.metrics.call_began();
        self.running.enter(&call, &snapshot);
        self.promise_taken_over(&call);
        // What its caller sent while no gateway ran it.
        call.ownership.nudge();
        self.taken_over.insert(&call);
        let running = Running { pipeline: self.clone(), call, _places: (None, None) };
        let lasting = running.call.clone();
        self.calls.spawn(async move {
            tokio::select! {
                () = running.go_on(snapshot, abandoned, held) => {}
                never = ends_with_its_token(&lasting) => match never {},
            }
        });
    }

    /// The call as its record has it, with the events of before.
    async fn continued(&self, abandoned: &AbandonedCall, invocation: &Invocation) -> Arc<Call> {
        let now = Instant::now();
        let deadline = invocation.deadline.unwrap_or(now);
        let mut call = Call::new(invocation, now, deadline, self.calls.child());
        call.id = Uuid::from_bytes(abandoned.call);
        self.continue_events(&mut call).await;
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

    /// Whoever was told what the call said is told the rest, and nothing of it again.
    async fn continue_events(&self, call: &mut Call) {
        let Some(events) = self.active.events() else { return };
        let Some(kept) = events.take(call.id).await else { return };
        call.ownership.writes_from(kept.next);
        kept.continue_in(call);
    }

    /// A call that was taken goes on later; whoever has attached to it meanwhile comes back for it.
    fn put_off(&self, call: &Call) {
        self.active.put_off(call.id.into_bytes());
        call.ownership.pass_on();
        call.finish(passed_on(call));
        self.registry.end(call);
    }

    /// A call that was taken does not go on; whoever has attached to it meanwhile is told its outcome, and so is whoever
    /// the gateway that is gone had told of it. Its id stays its own if it would have at that gateway, which left it in this state.
    async fn let_go(&self, call: &Arc<Call>, left_in: State, outcome: Outcome) {
        call.enter(left_in);
        call.ownership.tells();
        // Whoever has taken it since says the same.
        let _ = self.active.end(call, &outcome).await;
        call.finish(outcome);
        self.registry.end(call);
    }

    /// Lets the calls that another gateway can go on with save and yield: a step of a shutdown. One that does not
    /// in time goes on from its last checkpoint.
    pub async fn hand_on(&self) {
        self.calls.leave();
        let calls: Vec<Arc<Call>> =
            self.active.kept().into_iter().filter(|call| call.ownership.resumes()).collect();
        for call in &calls {
            call.ownership.preempt();
        }
        let yielded = futures::future::join_all(calls.iter().map(|call| call.finished()));
        // In time or not: those that have not ended are told from those that have below.
        let _ = tokio::time::timeout(YIELD, yielded).await;
        for call in calls.iter().filter(|call| call.outcome().is_none()) {
            call.ownership.pass_on();
        }
        if !calls.is_empty() {
            tracing::info!(calls = calls.len(), "calls are left for another gateway");
        }
    }
}

impl Running {
    async fn go_on(self, snapshot: Arc<Snapshot>, abandoned: AbandonedCall, held: Option<Held>) {
        // It has begun elsewhere: that this is not recorded does not stop it.
        let _ = self.pipeline.audit.record_end(audit::resumed(&self.call)).await;
        let result = self.again(&snapshot, abandoned).await;
        let settled = match held {
            Some(held) => self.settle(held, &result).await,
            None => Ok(()),
        };
        self.conclude(settled.and(result).map(|output| (output, false))).await;
    }

    async fn again(&self, snapshot: &Arc<Snapshot>, abandoned: AbandonedCall) -> Result<Output, Refusal> {
        let call = &self.call;
        let AbandonedCall { mut record, seq, state, .. } = abandoned;
        // A store keeps the text alone.
        input::complete(&call.entry, &mut record.arguments);
        let Some(needs_approval) = self.is_still_allowed(snapshot, &record.arguments) else {
            tracing::warn!(call = %call.id, trace = %call.trace, "a call is not taken over, because its caller was revoked or it is not allowed any more; its outcome is unknown");
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
        let executed = execute::execute(self.pipeline.executor.as_ref(), execution).await;
        self.checked(executed.map_err(|refusal| after_hand_over(call, refusal))?).await
    }

    /// Whether the call may go on by what is in force now, and if so whether a person must approve it; `None` where it may
    /// not.
    fn is_still_allowed(&self, snapshot: &Snapshot, arguments: &Json) -> Option<bool> {
        let call = &self.call;
        if snapshot.revoked(&call.caller) {
            return None;
        }
        let entitled =
            entitlement::entitle(snapshot, &call.server, &call.caller, &call.entry, call.protocol).ok()?;
        let ruled = rules::check(snapshot, &self.pipeline.metrics, call, arguments).ok()?;
        Some(entitled.needs_approval || ruled)
    }

    /// Asks for the approval that nobody asked for when the call began. Until there is one it waits as any question does, in
    /// the time that the call has left; without one it does not go on, and what it has done is unknown.
    async fn approved_late(&self, record: &Record) -> Result<(), Refusal> {
        let call = &self.call;
        approve::approve(call).await.map_err(|refusal| after_handover(call, refusal))?;
        if !self.pipeline.active.is_ours(call).await {
            return Err(Refusal::Upstream("another gateway goes on with this call".into()));
        }
        // Whoever goes on with it next need not ask again.
        let approved = Record::of(call, &record.arguments, record.budget, true);
        if let Err(error) = self.pipeline.active.put(call, &approved).await {
            tracing::warn!(call = %call.id, trace = %call.trace, %error, "that a call was approved is not stored: if this gateway is lost too, the next one asks again; check the store");
        }
        Ok(())
    }
}

/// The gateway that is gone had handed the call over: that its executor cannot be reached from here says nothing of
/// what it has done.
fn after_hand_over(call: &Call, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Upstream(_) | Refusal::Declined(_) | Refusal::Limited { .. } => call.unanswered(refusal),
        refusal => refusal,
    }
}
