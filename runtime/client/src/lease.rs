//! Return of a worker's place, and the recording of its cost.
//!
//! Keeps true: however a call ends, its place is closed, off the call's path; a process that ends leaves that to its
//! socket.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::supervisor::{CancelAllocationRequest, CloseTunnelRequest};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::admission::{Account, EndedTunnel, UsageRecorder};
use super::multiplexer::Multiplexer;
use super::runtimes::Runtime;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// State that all tunnels of a client share.
#[derive(Clone)]
pub struct TunnelContext {
    pub tasks: TaskTracker,
    pub usage: UsageRecorder,
}

impl TunnelContext {
    /// Returns the account of a tunnel to a plugin of this language.
    pub fn account(&self, language: &'static str) -> Account {
        Account { language, usage: self.usage.clone(), tasks: self.tasks.clone() }
    }
}

/// Records no cost.
impl Default for TunnelContext {
    fn default() -> TunnelContext {
        TunnelContext { tasks: TaskTracker::new(), usage: Arc::new(|_, _| ()) }
    }
}

/// Obligation to return an assignment; dropping it returns the assignment.
pub struct WorkerLease {
    pub assignment: Option<Assignment>,
    pub multiplexer: Multiplexer,
    pub tasks: TaskTracker,
}

/// A handle and what is needed to close it.
pub struct Assignment {
    pub runtime: Arc<Runtime>,
    pub tunnel: EndedTunnel,
    pub mcp_request_id: String,
    pub ready: bool,
}

impl WorkerLease {
    /// Records that the runtime has closed the tunnel itself.
    pub fn closed(&mut self) {
        self.assignment = None;
    }

    pub fn reason(&mut self, reason: &'static str) {
        if let Some(assignment) = &mut self.assignment {
            assignment.tunnel.reason = reason;
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        let Some(mut assignment) = self.assignment.take() else { return };
        if assignment.ready {
            // On the tunnel's own stream, one frame is enough.
            match self.multiplexer.close(assignment.tunnel) {
                Ok(()) => return,
                Err(tunnel) => assignment.tunnel = tunnel,
            }
        }
        // Without a runtime the process is ending, and the socket with it.
        let Ok(runtime) = Handle::try_current() else { return };
        // Off the call's path: the caller already has its answer.
        self.tasks.spawn_on(
            async move {
                if tokio::time::timeout(CLOSE_TIMEOUT, close(&assignment)).await.is_err() {
                    tracing::debug!(
                        language = assignment.tunnel.account.language,
                        "runtime did not close a tunnel in time"
                    );
                }
            },
            &runtime,
        );
    }
}

/// Returns the place by separate requests: for a tunnel that was never used, or whose stream is full or gone.
async fn close(assignment: &Assignment) {
    // A lost runtime has no place to return.
    let Some(mut client) = assignment.runtime.client() else { return };
    if !assignment.ready {
        let request = CancelAllocationRequest {
            tunnel_id: assignment.tunnel.id.clone(),
            mcp_request_id: assignment.mcp_request_id.clone(),
        };
        // An allocation that became ready in between is closed below.
        let _ = client.cancel_allocation(request).await;
    }
    let request = CloseTunnelRequest {
        tunnel_id: assignment.tunnel.id.clone(),
        reason: assignment.tunnel.reason.into(),
    };
    match client.close_tunnel(request).await {
        Ok(answer) => assignment.tunnel.closed(answer.get_ref().stats.as_ref()),
        Err(status) => tracing::debug!(code = ?status.code(), "tunnel had ended before it was closed"),
    }
}
