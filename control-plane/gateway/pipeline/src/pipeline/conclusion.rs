//! The end of a call: its outcome, which is stored before it is reported.
//!
//! Keeps true: of several gateways that had a call, one reports its end; a call that no caller cancelled does not end
//! as cancelled; an outcome is stored before it is reported, if the store answers; a call whose task vanished is stored
//! as unknown.

use std::sync::Arc;

use asp_call::call::Call;
use asp_call::call::outcome::{Outcome, Output, Refusal, after_handover};
use asp_call::telemetry::audit;
use tokio::runtime::Handle;

use super::ledger::HeldKey;
use super::{CallTask, Pipeline};

/// Message to the caller of a call that its gateway stopped, and that may be repeated.
const STOPPED: &str = "the gateway stopped before the call had ended: call again";

/// Returns the local outcome of a call that another gateway continues. Clients that can return never see it. The others
/// are told to repeat the call only if nothing runs twice: a retry under a key gets the answer of the call that has it.
pub(super) fn passed_on(call: &Call) -> Outcome {
    call.ownership.continued.set();
    let again = Refusal::Upstream("another gateway continues this call".into());
    Outcome::Refused(if call.idempotency_key.is_some() { again } else { call.unanswered(again) })
}

impl CallTask {
    /// Refuses a call whose start is not recorded. If its org has no capacity in the log, its end is not recorded
    /// either: refused calls would use up what is left for others.
    pub(super) async fn refuse_unrecorded(&self) {
        let refusal =
            Refusal::Upstream("nothing was done: the audit log accepts no events at the moment".into());
        if self.pipeline.audit.has_room(&self.call.caller.org) {
            return self.conclude(Err(refusal)).await;
        }
        let outcome = self.settled(Err(refusal)).await;
        self.pipeline.audit.count_missed(1);
        self.pipeline.close(&self.call, outcome);
    }

    /// Sets the outcome of the call.
    pub(crate) async fn conclude(&self, result: Result<(Output, bool), Refusal>) {
        let outcome = self.settled(result).await;
        let waiting = self.pipeline.audit.offer(audit::finished(&self.call, &outcome));
        self.pipeline.close(&self.call, outcome);
        if let Some(event) = waiting {
            // The caller has its answer. Only this call's permit waits, so that new calls arrive as slowly as the log
            // accepts them; events that it does not accept in time are counted there.
            let _ = self.pipeline.audit.record_end(event).await;
        }
    }

    async fn settled(&self, result: Result<(Output, bool), Refusal>) -> Outcome {
        self.pipeline.settled(&self.call, result).await
    }

    /// Stores the call's end under its key, if this gateway decides it.
    pub(crate) async fn settle(
        &self,
        held: HeldKey,
        result: &Result<Output, Refusal>,
    ) -> Result<(), Refusal> {
        let active = &self.pipeline.active;
        if !active.is_ours(&self.call).await {
            return Ok(());
        }
        let settled = held.settle(&self.call, result).await;
        if settled.is_err() {
            // Another gateway may have taken the call while the store did not answer: it decides the end.
            active.is_ours(&self.call).await;
        }
        settled
    }
}

impl Drop for CallTask {
    fn drop(&mut self) {
        if self.call.outcome().is_some() {
            return;
        }
        let (pipeline, call) = (self.pipeline.clone(), self.call.clone());
        let Ok(runtime) = Handle::try_current() else {
            // The process is about to end.
            return pipeline.end(&call, Outcome::unknown());
        };
        runtime.spawn(async move {
            let outcome = pipeline.settled(&call, Err(Refusal::OutcomeUnknown)).await;
            pipeline.end(&call, outcome);
        });
    }
}

impl Pipeline {
    /// Returns the outcome of a call, stored for other gateways that are asked for it.
    async fn settled(self: &Arc<Self>, call: &Arc<Call>, result: Result<(Output, bool), Refusal>) -> Outcome {
        let mut outcome = match result {
            _ if call.ownership.passed_on.is_set() => passed_on(call),
            result => match (call.withdrawal(), result) {
                // If it had a key, the result is in the ledger; this caller does not get it.
                (Some(why), _) => Outcome::Refused(Refusal::Withdrawn(why)),
                (None, Ok((output, replayed))) => Outcome::Done { output, replayed },
                (None, Err(Refusal::Cancelled)) if self.has_stopped(call) => {
                    let why = Refusal::Upstream(STOPPED.into());
                    Outcome::Refused(after_handover(call, why))
                }
                (None, Err(refusal)) => Outcome::Refused(refusal),
            },
        };
        if let Outcome::Refused(refusal @ (Refusal::Internal(_) | Refusal::InvalidOutput { .. })) = &outcome {
            tracing::error!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, error = %refusal, "call failed because of a fault in this gateway or in the primitive's spec; its caller got an internal error");
        }
        // Stored before it is reported, so that a client gets the same answer at another gateway.
        if !self.active.end(call, &outcome).await {
            outcome = passed_on(call);
        }
        outcome
    }

    /// Whether no caller cancelled the call: its gateway has stopped.
    fn has_stopped(&self, call: &Call) -> bool {
        self.calls.have_stopped() && !call.is_cancel_requested()
    }
}
