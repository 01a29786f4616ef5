//! The duty to give a worker's place back, and the taking note of what it cost.
//!
//! Keeps true: whatever becomes of a call, its place is closed, off the call's path; a process that ends leaves
//! that to its socket.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::supervisor::{CancelAllocationRequest, CloseTunnelRequest};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::ended::EndedTunnel;
use super::runtimes::Runtime;
use super::trunk::Trunk;
use crate::telemetry::metrics::Metrics;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What every tunnel of a gateway shares.
#[derive(Clone)]
pub(super) struct Closing {
    pub tasks: TaskTracker,
    pub metrics: Arc<Metrics>,
}

/// The duty to give a seat back; dropping it does.
pub(super) struct Lease {
    pub seat: Option<Seat>,
    pub trunk: Trunk,
    pub tasks: TaskTracker,
}

/// A handle and what its closing needs.
pub(super) struct Seat {
    pub runtime: Arc<Runtime>,
    pub tunnel: EndedTunnel,
    pub mcp_request_id: String,
    pub ready: bool,
}

impl Lease {
    pub(super) fn reason(&mut self, reason: &'static str) {
        if let Some(seat) = &mut self.seat {
            seat.tunnel.reason = reason;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        if seat.ready {
            // On the tunnel's own stream that is one frame.
            match self.trunk.close(seat.tunnel, self.tasks.token()) {
                Ok(()) => return,
                Err(tunnel) => seat.tunnel = tunnel,
            }
        }
        // Without a runtime the process is ending, and the socket with it.
        let Ok(runtime) = Handle::try_current() else { return };
        // Off the call's path: the caller has its answer already.
        self.tasks.spawn_on(
            async move {
                if tokio::time::timeout(CLOSE_TIMEOUT, close(&seat)).await.is_err() {
                    tracing::debug!(
                        language = seat.tunnel.language,
                        "runtime did not close a tunnel in time"
                    );
                }
            },
            &runtime,
        );
    }
}

/// Gives the place back by calls of their own: of a tunnel that was never used, or whose stream is full or gone.
async fn close(seat: &Seat) {
    // A runtime that is gone has no place to give back.
    let Some(mut client) = seat.runtime.client() else { return };
    if !seat.ready {
        let request = CancelAllocationRequest {
            tunnel_id: seat.tunnel.id.clone(),
            mcp_request_id: seat.mcp_request_id.clone(),
        };
        // An allocation that became ready meanwhile is closed below.
        let _ = client.cancel_allocation(request).await;
    }
    let request = CloseTunnelRequest { tunnel_id: seat.tunnel.id.clone(), reason: seat.tunnel.reason.into() };
    match client.close_tunnel(request).await {
        Ok(answer) => seat.tunnel.closed(answer.get_ref()),
        Err(status) => tracing::debug!(code = ?status.code(), "tunnel was gone before it was closed"),
    }
}
