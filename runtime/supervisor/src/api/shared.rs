//! Dispatches the frames that a gateway sends on a shared stream to their tunnels, and answers its requests for a worker
//! and to close a tunnel.
//!
//! Refuses ids that are too long and invalid credentials. Keeps true: unknown, ended and foreign handles get the same
//! answer; a frame that names no tunnel of this stream, cannot be decoded or is wrong in any other way is answered
//! under the name that it carries, and affects nothing else; no tunnel blocks the reading of other tunnels' frames.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asp_proto::grace::WORKER_STOPS_WITHIN;
use asp_proto::supervisor::admission::Status as Admitted;
use asp_proto::supervisor::{
    Admission, AllocateWorkerRequest, AllocateWorkerResponse, CloseTunnelRequest, CloseTunnelResponse,
    Credential, PluginRef, PppClientFrame, PppServerFrame, TunnelHandle,
};
use prost::Message;
use prost_types::Any;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::egress::CredentialLease;
use crate::pool::scheduler::QueuePosition;
use crate::ppp::outbox::Outbox;
use crate::ppp::outbox::multiplexer::{MergedStream, Multiplexer, TunnelStream, multiplexer};
use crate::ppp::{Inbound, closed_frame, duration, fields, milliseconds, number, wire_duration};
use crate::refusal::Refusal;
use crate::runtime::{self, Allocation, Runtime};
use crate::tunnel::peer::Peer;
use crate::tunnel::{Tunnel, TunnelStats};

/// Maximum length of the name that a gateway gives a tunnel before it has a handle.
const MAX_NAME: usize = 64;
/// Estimated duration of a cold start, for `estimated_start_delay`.
const COLD_START: Duration = Duration::from_millis(300);
const MAX_ID: usize = 512;

/// The reading half of a shared stream.
struct SharedStreamReader {
    runtime: Arc<Runtime>,
    peer: Peer,
    multiplexer: Arc<Multiplexer>,
}

/// Whether a stream that begins with this frame carries many tunnels.
pub fn is_multiplexed(first: &PppClientFrame) -> bool {
    first.keepalive && first.tunnel_id.is_empty() && first.ppp.is_none()
}

/// Serves a shared stream of `peer`: reads in a task of its own, which ends with the stream.
pub fn serve(runtime: Arc<Runtime>, peer: Peer, frames: Streaming<PppClientFrame>) -> MergedStream {
    let (multiplexer, merged) = multiplexer(&runtime.outboxes);
    tokio::spawn(SharedStreamReader { runtime, peer, multiplexer }.run(frames));
    merged
}

impl SharedStreamReader {
    async fn run(self, mut frames: Streaming<PppClientFrame>) {
        loop {
            tokio::select! {
                biased;
                frame = self.next(&mut frames) => match frame {
                    Ok(Some(frame)) => self.take(frame),
                    Ok(None) => break self.multiplexer.half_close(),
                    // Nothing after it can be read either.
                    Err(status) => return self.multiplexer.end(Err(status)),
                },
                () = self.multiplexer.wait_for_close() => return,
                () = self.runtime.wait_until_stopped() => return self.multiplexer.end(Ok(())),
            }
        }
        // The gateway sends no more; running calls continue.
        tokio::select! {
            () = self.multiplexer.wait_for_close() => {}
            () = self.multiplexer.wait_until_empty() => self.multiplexer.end(Ok(())),
            () = self.runtime.wait_until_stopped() => self.multiplexer.end(Ok(())),
        }
    }

    /// Returns the next frame, once there is capacity for an answer. Cancel-safe.
    async fn next(&self, frames: &mut Streaming<PppClientFrame>) -> Result<Option<PppClientFrame>, Status> {
        self.multiplexer.wait_for_capacity().await;
        frames.message().await
    }

    fn take(&self, frame: PppClientFrame) {
        let PppClientFrame { tunnel_id, ppp, keepalive } = frame;
        let stream = self.multiplexer.stream(&tunnel_id);
        match (ppp, stream) {
            (Some(any), _) if is(&any, "CloseTunnelRequest") => self.close(&tunnel_id, &any),
            (Some(any), None) if is(&any, "AllocateWorkerRequest") => self.allocate(tunnel_id, &any),
            (Some(_), Some(stream)) if stream.queue.own_name() == tunnel_id => {
                let text = "a message is sent under the tunnel's handle, or with the request as its `work`";
                self.refuse(&tunnel_id, Status::failed_precondition(text));
            }
            (Some(any), Some(stream)) => stream.inbox.put(any),
            (None, Some(stream)) if keepalive => stream.queue.extend_window(),
            (None, Some(_)) => {}
            // The tunnel has just ended.
            (None, None) if keepalive => {}
            (_, None) => self.refuse(&tunnel_id, unknown_handle()),
        }
    }

    fn refuse(&self, name: &str, status: Status) {
        self.multiplexer.send_streamless(closed_frame(name, &Err(status)), true);
    }

    /// Handles a request for a worker under the gateway's own name. The tunnel begins on this stream.
    fn allocate(&self, name: String, any: &Any) {
        let mut request = match AllocateWorkerRequest::decode(any.value.as_slice()) {
            Ok(request) => request,
            Err(error) => return self.refuse(&name, Status::invalid_argument(error.to_string())),
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return self.refuse(&name, Status::invalid_argument("the tunnel's name is empty or too long"));
        }
        let Ok(stream) = self.multiplexer.open(&name) else {
            return self.refuse(&name, Status::resource_exhausted("the stream has too many tunnels"));
        };
        let work = request.work.take();
        let runtime = Arc::clone(&self.runtime);
        let peer = self.peer.clone();
        let multiplexer = Arc::clone(&self.multiplexer);
        let request = NamedRequest { name, request, work };
        self.runtime.tasks.spawn(begin(runtime, peer, multiplexer, stream, request));
    }

    fn close(&self, tunnel_id: &str, any: &Any) {
        let named = CloseTunnelRequest::decode(any.value.as_slice()).map(|request| request.tunnel_id);
        let closed = match named {
            Ok(named) if named.is_empty() || named == tunnel_id => {
                self.runtime.handles.close(&self.peer, tunnel_id).ok_or_else(unknown_handle)
            }
            Ok(_) => Err(Status::invalid_argument("the request names another tunnel")),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        };
        let stats = match closed {
            Ok(stats) => stats,
            Err(status) => return self.refuse(tunnel_id, status),
        };
        let known = *stats.borrow();
        if let Some(stats) = known {
            let answer = close_response(&stats);
            return self.multiplexer.send_streamless(PppServerFrame::carrying(tunnel_id, &answer), false);
        }
        let multiplexer = Arc::clone(&self.multiplexer);
        let tunnel_id = tunnel_id.to_owned();
        self.runtime.tasks.spawn(async move {
            let answer = final_response(stats).await;
            multiplexer.send_streamless(PppServerFrame::carrying(&tunnel_id, &answer), false);
        });
    }
}

/// A request for a worker.
struct NamedRequest {
    /// Name that the gateway gave the tunnel.
    name: String,
    request: AllocateWorkerRequest,
    /// The work that the request brought.
    work: Option<Any>,
}

/// Runs a tunnel whose worker was requested on its stream, from the request to its end.
async fn begin(
    runtime: Arc<Runtime>,
    peer: Peer,
    multiplexer: Arc<Multiplexer>,
    stream: TunnelStream,
    NamedRequest { name, request, work }: NamedRequest,
) {
    let answered = allocate(&runtime, &peer, request).await;
    let (mut answer, allocation) = match answered {
        Ok(answered) => answered,
        Err(status) => {
            multiplexer.forget(&stream.queue);
            return multiplexer.send_streamless(closed_frame(&name, &Err(status)), true);
        }
    };
    let Some(Allocation { tunnel_id: id, worker, attached }) = allocation else {
        multiplexer.forget(&stream.queue);
        return multiplexer.send_streamless(PppServerFrame::carrying(&name, &answer), true);
    };
    // Without a worker the gateway sends the work again.
    let work = work.filter(|_| worker.is_ok());
    answer.took = work.is_some();
    let answer = PppServerFrame::carrying(&name, &answer);
    if multiplexer.name(&id, &stream).is_err() {
        // The stream has gone: the slot is released unused.
        multiplexer.forget(&stream.queue);
        return runtime.handles.record_close(&id, TunnelStats::default());
    }
    let handles = Arc::clone(&runtime.handles);
    let metrics = runtime.machine.metrics.clone();
    let mut tunnel = tunnel(&id, &stream);
    let Some(work) = work else {
        multiplexer.send_streamless(answer, true);
        // Boxed: otherwise the task would be moved with the future in it.
        return Box::pin(tunnel.run(attached, handles, metrics)).await;
    };
    stream.inbox.put(work);
    let outbox = tunnel.begin_with_work(answer);
    tokio::select! {
        biased;
        () = Box::pin(tunnel.run(attached, handles, metrics)) => {}
        () = outbox.open_late() => {}
    }
}

fn tunnel(id: &str, stream: &TunnelStream) -> Tunnel {
    let outbox = Outbox::new(id, Arc::clone(&stream.queue));
    Tunnel::new(id.to_owned(), Inbound::new(Arc::clone(&stream.inbox)), outbox)
}

/// Whether `any` is the named message of the API itself.
fn is(any: &Any, name: &str) -> bool {
    any.type_url.strip_suffix(name).is_some_and(|before| before.ends_with("asp.runtime.supervisor.v1."))
}

/// Decides on a request for a worker. Without an allocation, the response says why.
async fn allocate(
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
fn close_response(stats: &TunnelStats) -> CloseTunnelResponse {
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
