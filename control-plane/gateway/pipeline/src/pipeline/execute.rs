//! Stage 8: runs the call on its backend, bounded by the deadline and the caller's cancel.
//!
//! Keeps true: a call runs at most once; a call that was handed over and then lost ends as `outcome_unknown`, unless
//! repeating it is harmless; a cancelled backend has `BACKEND_STOPS_WITHIN` before it is dropped.

use std::time::Duration;

use asp_call::call::State;
use asp_call::call::outcome::{Output, Refusal, after_handover};
use asp_call::execution::{Backends, Execution};
use asp_proto::grace::BACKEND_STOPS_WITHIN;
use tokio::time::Instant;

/// Remaining time below which a call is refused instead of started (ADR 6).
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Runs a call; the error is the reason why the backend produced no output.
pub async fn execute(backends: &dyn Backends, execution: Execution) -> Result<Output, Refusal> {
    let call = execution.call.clone();
    if call.deadline().saturating_duration_since(Instant::now()) < LEAST_TIME {
        return Err(Refusal::Deadline);
    }
    if call.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    call.enter(State::Working);
    let mut running = backends.run(execution);
    let stopped = tokio::select! {
        // A result that is ready at once needs no timer.
        biased;
        result = &mut running => return result,
        () = call.cancelled() => Refusal::Cancelled,
        () = tokio::time::sleep_until(call.deadline()) => {
            call.cancel();
            Refusal::Deadline
        }
    };
    let ended = tokio::time::timeout(BACKEND_STOPS_WITHIN, &mut running).await;
    // Before its mark is read: a call that was never sent may be repeated.
    drop(running);
    match ended {
        // It finished after all: the result is valid and is not discarded.
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err(after_handover(&call, stopped)),
    }
}
