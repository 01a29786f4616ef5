//! Requests for a worker, and CloseTunnel, as a separate call or on a shared stream.
//!
//! Refuses ids that are too long and invalid credentials. Keeps true: unknown, ended and foreign handles get the same
//! answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asp_proto::grace::WORKER_STOPS_WITHIN;
use asp_proto::supervisor::admission::Status as Admitted;
use asp_proto::supervisor::{
    Admission, AllocateWorkerRequest, AllocateWorkerResponse, CloseTunnelResponse, Credential, PluginRef,
    TunnelHandle,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;

use crate::egress::CredentialLease;
use crate::pool::scheduler::QueuePosition;
use crate::ppp::{duration, fields, milliseconds, number, wire_duration};
use crate::refusal::Refusal;
use crate::runtime::{self, Allocation, Runtime};
use crate::tunnel::TunnelStats;
use crate::tunnel::peer::Peer;

/// Estimated duration of a cold start, for `estimated_start_delay`.
const COLD_START: Duration = Duration::from_millis(300);
const MAX_ID: usize = 512;

/// Decides on a request for a worker. Without an allocation, the response says why.
pub async fn allocate(
    runtime: &Runtime,
    peer: &Peer,
    request: AllocateWorkerRequest,
) -> Result<(AllocateWorkerResponse, Option<Allocation>), Status> {
    match runtime.allocate(peer.clone(), wanted(request)?).await {
        Ok(allocation) => Ok((allocation_response(&allocation), Some(allocation))),
        Err(refusal) => Ok((rejection(&refusal), None)),
    }
}

fn wanted(request: AllocateWorkerRequest) -> Result<runtime::Request, Status> {
    let context = request.ctx.unwrap_or_default();
    let ids = [&context.tenant_id, &context.mcp_request_id];
    if ids.iter().any(|id| id.len() > MAX_ID) {
        return Err(Status::invalid_argument("an id is too long"));
    }
    let plugin = requested_plugin(request.plugin)?;
    let lease = request.credential.map(|credential| lease(&plugin, &credential)).transpose()?;
    Ok(runtime::Request {
        plugin,
        lines: request.lines,
        lease,
        tenant: context.tenant_id,
        mcp_request_id: context.mcp_request_id,
        soft_deadline: duration(request.soft_deadline.as_ref()),
        fresh: request.force_fresh_process,
        subscription: request.subscription,
    })
}

/// Builds the request's credential lease. Only workers whose pool has the credential's name may use it.
fn lease(plugin: &PluginRef, credential: &Credential) -> Result<Arc<CredentialLease>, Status> {
    if plugin.credential.is_empty() {
        return Err(Status::invalid_argument("the credential has no name in `plugin`"));
    }
    let Credential { origin, header, value } = credential;
    let lease = CredentialLease::new(&plugin.credential, origin, header, value);
    lease.map(Arc::new).map_err(|bad| Status::invalid_argument(bad.to_string()))
}

/// Returns the plugin that a request names.
pub fn requested_plugin(plugin: Option<PluginRef>) -> Result<PluginRef, Status> {
    plugin.ok_or_else(|| Status::invalid_argument("the request names no plugin"))
}

/// Returns the answer to CloseTunnel once the tunnel has ended, which `stats` delivers.
pub async fn final_response(mut stats: watch::Receiver<Option<TunnelStats>>) -> CloseTunnelResponse {
    // A call that ignores its cancellation ends with its worker, soon after the grace period.
    let ended = timeout(WORKER_STOPS_WITHIN * 2, stats.wait_for(Option::is_some)).await;
    close_response(&ended.ok().and_then(Result::ok).and_then(|stats| *stats).unwrap_or_default())
}

/// Builds the answer to CloseTunnel.
pub fn close_response(stats: &TunnelStats) -> CloseTunnelResponse {
    let stats = fields([
        ("cpu_ms", number(stats.cpu_ms)),
        ("rss_max", number(stats.rss_max)),
        ("bytes_in", number(stats.bytes_in)),
        ("bytes_out", number(stats.bytes_out)),
        ("duration_ms", milliseconds(stats.duration)),
    ]);
    CloseTunnelResponse { stats: Some(stats) }
}

pub fn unknown_handle() -> Status {
    Status::not_found("the tunnel does not exist")
}

fn allocation_response(allocation: &Allocation) -> AllocateWorkerResponse {
    let (status, delay, worker, queue) = match &allocation.worker {
        Ok(worker) => (Admitted::Admitted, Duration::ZERO, worker.clone(), None),
        Err(position) if position.starting => (Admitted::Admitted, COLD_START, String::new(), None),
        Err(position) => (Admitted::Queued, position.eta, String::new(), Some(queue(*position))),
    };
    AllocateWorkerResponse {
        admission: Some(Admission {
            status: status.into(),
            estimated_start_delay: Some(wire_duration(delay)),
            reason: String::new(),
        }),
        handle: Some(TunnelHandle {
            tunnel_id: allocation.tunnel_id.clone(),
            runtime: "asp-runtime".to_owned(),
            worker_local_id: worker,
            not_before: Some(SystemTime::now().into()),
            ttl: None,
        }),
        queue,
        took: false,
    }
}

fn queue(position: QueuePosition) -> prost_types::Struct {
    fields([
        ("position", number(position.position as u64)),
        ("depth", number(position.depth as u64)),
        ("moving_eta", milliseconds(position.eta)),
    ])
}

fn rejection(refusal: &Refusal) -> AllocateWorkerResponse {
    let admission = Admission {
        status: Admitted::Rejected.into(),
        estimated_start_delay: None,
        reason: refusal.to_string(),
    };
    AllocateWorkerResponse { admission: Some(admission), handle: None, queue: None, took: false }
}
