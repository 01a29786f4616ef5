//! Running executions of a plugin's calls.
//!
//! Keeps true: at most one execution of a call runs at a time. A gateway that lost its stream, or took over the calls
//! of another gateway, runs a call again at once, while the previous execution may still need time to end.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::grace::EXECUTION_STOPS_WITHIN;
use parking_lot::Mutex;
use tokio::time::timeout;
use tonic::Status;

use crate::worker::call::Call;

/// The running executions of one plugin's calls, by the call's id.
#[derive(Debug, Default)]
pub struct Executions(Mutex<HashMap<String, Arc<Call>>>);

/// An execution that runs as long as this is held.
#[derive(Debug)]
pub struct Execution<'a> {
    all: &'a Executions,
    call: Arc<Call>,
}

/// Error: the call's previous execution did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRuns;

impl From<StillRuns> for Status {
    fn from(_: StillRuns) -> Status {
        Status::already_exists("an earlier call with this request_id does not end")
    }
}

impl Executions {
    /// Tells a previous execution of the call to end, and waits until it has. Cancel-safe.
    pub async fn end_previous(&self, request_id: &str) -> Result<(), StillRuns> {
        let Some(former) = self.0.lock().get(request_id).cloned() else { return Ok(()) };
        former.superseded.cancel();
        timeout(EXECUTION_STOPS_WITHIN, former.wait_for_end()).await.map(drop).map_err(|_| StillRuns)
    }

    /// Records that an execution has begun.
    pub fn enter(&self, call: &Arc<Call>) -> Execution<'_> {
        self.0.lock().insert(call.request_id.clone(), Arc::clone(call));
        Execution { all: self, call: Arc::clone(call) }
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        let mut running = self.all.0.lock();
        // A successor may be registered already.
        if running.get(&self.call.request_id).is_some_and(|call| Arc::ptr_eq(call, &self.call)) {
            running.remove(&self.call.request_id);
        }
    }
}
