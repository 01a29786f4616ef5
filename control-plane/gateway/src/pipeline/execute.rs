//! Stage 8: runs the call on its executor, bounded by the deadline and the caller's cancel.
//!
//! Keeps true: at most once, always; a call that was handed over and then lost ends as `outcome_unknown`
//! unless it only reads; a cancelled executor has 100 ms (`call/cancel.rs`) to stop before it is dropped.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::State;
use crate::call::cancel::BACKEND_STOPS_WITHIN;
use crate::call::outcome::{Output, Refusal, after_handover};
use crate::execution::{Execution, Executor};

/// With less than this left, the call is refused instead of started (ADR 6).
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Executes; the result is what the executor produced or why it did not.
pub async fn execute(executor: &dyn Executor, execution: Execution) -> Result<Output, Refusal> {
    let call = execution.call.clone();
    if call.deadline().saturating_duration_since(Instant::now()) < LEAST_TIME {
        return Err(Refusal::Deadline);
    }
    if call.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    call.enter(State::Working);
    let mut running = executor.run(execution);
    let stopped = tokio::select! {
        // What is done at once needs no timer.
        biased;
        result = &mut running => return result,
        () = call.cancelled() => Refusal::Cancelled,
        () = tokio::time::sleep_until(call.deadline()) => {
            call.cancel();
            Refusal::Deadline
        }
    };
    let ended = tokio::time::timeout(BACKEND_STOPS_WITHIN, &mut running).await;
    // Before its mark is read: what was never sent may be called again.
    drop(running);
    match ended {
        // It finished after all: the result is true and is not thrown away.
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err(after_handover(&call, stopped)),
    }
}
