//! Stage 8: runs the call on its executor, bounded by the deadline and the caller's cancel.
//!
//! Keeps true: at most once, always; a call that was handed over and then lost ends as `outcome_unknown`
//! unless it only reads; a cancelled executor has 100 ms to stop before it is dropped.

use std::time::Duration;

use tokio::time::Instant;

use super::outcome::{Output, Refusal};
use super::{Call, State};
use crate::executors::{Execution, Executors};

/// With less than this left, the call is refused instead of started (ADR 6).
const LEAST_TIME: Duration = Duration::from_millis(50);
/// How long a cancelled executor may take to stop.
const GRACE: Duration = Duration::from_millis(100);

/// Executes; the result is what the executor produced or why it did not.
pub async fn execute(executors: &Executors, execution: Execution) -> Result<Output, Refusal> {
    let call = execution.call.clone();
    if call.deadline().saturating_duration_since(Instant::now()) < LEAST_TIME {
        return Err(Refusal::Deadline);
    }
    if call.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    call.enter(State::Working);
    let running = executors.run(execution);
    tokio::pin!(running);
    let stopped = tokio::select! {
        result = &mut running => return result,
        () = call.cancelled() => Refusal::Cancelled,
        () = tokio::time::sleep_until(call.deadline()) => {
            call.cancel();
            Refusal::Deadline
        }
    };
    match tokio::time::timeout(GRACE, &mut running).await {
        // It finished after all: the result is true and is not thrown away.
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err(after_handover(&call, stopped)),
    }
}

/// What a call that was stopped ends with.
pub fn after_handover(call: &Call, stopped: Refusal) -> Refusal {
    match stopped {
        Refusal::Cancelled => Refusal::Cancelled,
        stopped if !call.was_handed_over() => stopped,
        stopped => call.unanswered(stopped),
    }
}
