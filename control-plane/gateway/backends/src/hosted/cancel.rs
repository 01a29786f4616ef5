//! Cancel notices: requests, in tasks of their own, that tell a service that its call was given up.
//!
//! Keeps true: a call that may exist at a service without an end is cancelled there as soon as nothing here follows
//! it; the number of cancel requests and the time of each are bounded.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_proto::grace::CANCEL_REQUEST_WITHIN;
use reqwest::StatusCode;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::service::Service;

/// Maximum number of concurrent cancel requests; a call that is given up beyond it ends at its deadline, which its
/// service knows.
const MOST: usize = 4096;
/// Pauses before the requests: a service may not know the call yet, or be unavailable for a moment.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(250), Duration::from_secs(1)];

/// A call at a service. If dropped while `due`, the service is told to cancel it, unless another gateway continues
/// the call.
pub(super) struct CancelNotice {
    call: Arc<Call>,
    service: Service,
    tasks: TaskTracker,
    /// The service may have the call, and the call has not ended.
    pub due: bool,
}

impl CancelNotice {
    pub(super) fn new(call: &Arc<Call>, service: &Service, tasks: &TaskTracker) -> CancelNotice {
        CancelNotice { call: call.clone(), service: service.clone(), tasks: tasks.clone(), due: false }
    }
}

impl Drop for CancelNotice {
    fn drop(&mut self) {
        if !self.due || self.call.ownership.passed_on.is_set() || self.tasks.len() >= MOST {
            return;
        }
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(cancel(self.service.clone()), &runtime);
        }
    }
}

async fn cancel(service: Service) {
    for pause in PAUSES {
        tokio::time::sleep(pause).await;
        match service.cancel(CANCEL_REQUEST_WITHIN).await {
            // The request that creates the call may arrive after this one.
            None | Some(StatusCode::NOT_FOUND | StatusCode::TOO_MANY_REQUESTS) => {}
            Some(status) if status.is_server_error() => {}
            Some(_) => return,
        }
    }
    tracing::debug!("a service did not accept a cancel");
}
