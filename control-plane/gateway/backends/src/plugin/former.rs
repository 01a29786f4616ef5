//! The runtimes that may still run a previous execution of a call that continues elsewhere.
//!
//! Keeps true: no execution begins while one of them reports a previous one. A runtime that cannot be reached is not
//! waited for: it is assumed to be gone.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_proto::grace::EXECUTION_STOPS_WITHIN;
use asp_proto::supervisor::EndExecutionRequest;
use asp_runtime_client::runtimes::{Fleet, Runtime};
use futures::stream::{FuturesUnordered, StreamExt};
use tonic::Code;

/// Timeout of ending an execution; more than a runtime that answers gives it to end.
const END_WITHIN: Duration = EXECUTION_STOPS_WITHIN.saturating_add(Duration::from_secs(4));

/// Runtimes that have not confirmed that they do not run the call.
#[derive(Default)]
pub(super) struct FormerRuntimes(Vec<Arc<Runtime>>);

/// A runtime still runs the call and did not end it in time.
pub(super) struct StillRuns;

impl FormerRuntimes {
    /// Returns all runtimes where a call may run whose gateway is gone.
    pub(super) fn anywhere(fleet: &Fleet) -> FormerRuntimes {
        FormerRuntimes(fleet.all())
    }

    /// Records that the call was lost at this runtime.
    pub(super) fn is_at(&mut self, runtime: &Arc<Runtime>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, runtime)) {
            self.0.push(Arc::clone(runtime));
        }
    }

    /// Ends the call wherever it may run, except at `next`, which ends its own execution before it begins another.
    /// Cancel-safe.
    pub(super) async fn end(&mut self, next: &Arc<Runtime>, call: &Call) -> Result<(), StillRuns> {
        let others = self.0.iter().filter(|runtime| !Arc::ptr_eq(runtime, next));
        let asked: FuturesUnordered<_> = others.map(|runtime| end_at(runtime, call)).collect();
        let running: Vec<Arc<Runtime>> = asked.filter_map(std::future::ready).collect().await;
        let has_ended = running.is_empty();
        self.0 = running;
        if has_ended { Ok(()) } else { Err(StillRuns) }
    }
}

/// Ends the call at a runtime; returns the runtime if the call still runs there.
async fn end_at(runtime: &Arc<Runtime>, call: &Call) -> Option<Arc<Runtime>> {
    let mut client = runtime.any_client();
    let request = EndExecutionRequest { request_id: call.id.to_string() };
    let why = match tokio::time::timeout(END_WITHIN, client.end_execution(request)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(status)) if status.code() == Code::AlreadyExists => return Some(Arc::clone(runtime)),
        Ok(Err(status)) => status.to_string(),
        Err(late) => late.to_string(),
    };
    tracing::info!(call = %call.id, trace = %call.trace, runtime = runtime.name(), %why, "a runtime where a call may still run could not confirm its end; the call continues at another one");
    None
}
