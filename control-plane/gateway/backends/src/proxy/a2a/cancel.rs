//! Cancel notices: requests, in tasks of their own, that ask an agent to cancel the task of a call that was given up.
//!
//! Keeps true: a task that may run at an agent is cancelled there as soon as nothing here follows it; the number of cancel
//! requests and the time of each are bounded.

use std::time::Duration;

use asp_proto::grace::CANCEL_REQUEST_WITHIN;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::agent::Agent;

/// Maximum number of concurrent cancel requests; a task that is given up beyond it ends at the agent's own bounds.
const MOST: usize = 4096;
/// Pauses before the requests: an agent may be unavailable for a moment.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(250), Duration::from_secs(1)];

/// The task of a call at its agent. If dropped while there is one, the agent is asked to cancel it.
pub(super) struct CancelNotice {
    agent: Agent,
    requests: TaskTracker,
    /// Id of the task, until it has ended.
    pub(super) task: Option<String>,
}

impl CancelNotice {
    pub(super) fn new(agent: &Agent, requests: &TaskTracker) -> CancelNotice {
        CancelNotice { agent: agent.clone(), requests: requests.clone(), task: None }
    }
}

impl Drop for CancelNotice {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|_| self.requests.len() < MOST) else { return };
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current() {
            self.requests.spawn_on(cancel(self.agent.clone(), task), &runtime);
        }
    }
}

async fn cancel(agent: Agent, task: String) {
    for pause in PAUSES {
        tokio::time::sleep(pause).await;
        if agent.cancel(&task, CANCEL_REQUEST_WITHIN).await {
            return;
        }
    }
    tracing::debug!("an agent did not accept a cancel");
}
