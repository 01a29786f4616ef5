//! The Runtime Supervisor API (`proto/supervisor.proto`) over the runtime.
//!
//! Every call is made by a known [`Peer`]. A plugin that cannot run is FAILED_PRECONDITION for EnsurePlugin and
//! a REJECTED admission for AllocateWorker, with the same reason.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asp_proto::supervisor::admission::Status as Admitted;
use asp_proto::supervisor::ensure_plugin_response::State;
use asp_proto::supervisor::runtime_supervisor_server::RuntimeSupervisor;
use asp_proto::supervisor::{
    Admission, AllocateWorkerRequest, AllocateWorkerResponse, CancelAllocationRequest,
    CancelAllocationResponse, CloseTunnelRequest, CloseTunnelResponse, DrainRequest, DrainResponse,
    EnsurePluginRequest, EnsurePluginResponse, HealthRequest, HealthResponse, MetricsEvent,
    MetricsStreamRequest, PluginRef, PppClientFrame, TunnelHandle,
};
use futures::{Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use crate::handles::{NoHandle, TTL, TunnelStats};
use crate::metrics::passes;
use crate::peer::Peer;
use crate::pool::TicketState;
use crate::ppp::{duration, fields, milliseconds, number, wire_duration};
use crate::refusal::Refusal;
use crate::runtime::{self, Allocation, Runtime};
use crate::sampling;
use crate::scheduler::Place;
use crate::tunnel::inbound::Inbound;
use crate::tunnel::outbox::{Frames, outbox};
use crate::tunnel::{GRACE, Tunnel};

/// A drain without a deadline.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// The first frame of a tunnel follows its stream at once.
const FIRST_FRAME_WITHIN: Duration = Duration::from_secs(10);
/// What a cold start is thought to take, for `estimated_start_delay`.
const COLD_START: Duration = Duration::from_millis(300);
const MAX_ID: usize = 512;

#[derive(Clone, Debug)]
pub struct Api(Arc<Runtime>);

impl Api {
    pub fn new(runtime: Arc<Runtime>) -> Api {
        Api(runtime)
    }
}

#[tonic::async_trait]
impl RuntimeSupervisor for Api {
    async fn ensure_plugin(
        &self,
        request: Request<EnsurePluginRequest>,
    ) -> Result<Response<EnsurePluginResponse>, Status> {
        Peer::of(&request)?;
        let request = request.into_inner();
        let plugin = named(request.plugin)?;
        let ensured = self.0.ensure(&plugin, request.prewarm).await;
        ensured.map_err(|refusal| Status::failed_precondition(refusal.to_string()))?;
        let mut warnings = Vec::new();
        if !request.env.is_empty() {
            warnings.push("env is ignored: a worker's environment is fixed".to_owned());
        }
        Ok(Response::new(EnsurePluginResponse {
            state: State::Ready.into(),
            warnings,
            isolation_level: self.0.machine.level.number(),
        }))
    }

    async fn allocate_worker(
        &self,
        request: Request<AllocateWorkerRequest>,
    ) -> Result<Response<AllocateWorkerResponse>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let context = request.ctx.unwrap_or_default();
        if context.tenant_id.len() > MAX_ID || context.mcp_request_id.len() > MAX_ID {
            return Err(Status::invalid_argument("an id is too long"));
        }
        let wanted = runtime::Request {
            plugin: named(request.plugin)?,
            tenant: context.tenant_id,
            mcp_request_id: context.mcp_request_id,
            soft_deadline: duration(request.soft_deadline.as_ref()),
            fresh: request.force_fresh_process,
        };
        let response = match self.0.allocate(peer, wanted).await {
            Ok(allocation) => allocated(allocation),
            Err(refusal) => rejected(&refusal),
        };
        Ok(Response::new(response))
    }

    type ProxyPppStream = Frames;

    async fn proxy_ppp(
        &self,
        request: Request<Streaming<PppClientFrame>>,
    ) -> Result<Response<Self::ProxyPppStream>, Status> {
        let peer = Peer::of(&request)?;
        let mut frames = request.into_inner();
        let first = timeout(FIRST_FRAME_WITHIN, frames.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no frame named the tunnel"))??
            .ok_or_else(|| Status::invalid_argument("no frame named the tunnel"))?;
        let id = first.tunnel_id.clone();
        let attached = self.0.handles.attach(&peer, &id).map_err(no_handle)?;
        let (sender, stream) = outbox(&id);
        let tunnel = Tunnel::new(id, Inbound::new(first, frames), sender);
        let (handles, metrics) = (Arc::clone(&self.0.handles), self.0.machine.metrics.clone());
        self.0.tasks.spawn(tunnel.run(attached, handles, metrics));
        Ok(Response::new(stream))
    }

    async fn close_tunnel(
        &self,
        request: Request<CloseTunnelRequest>,
    ) -> Result<Response<CloseTunnelResponse>, Status> {
        let peer = Peer::of(&request)?;
        let stats = match self.0.handles.close(&peer, &request.get_ref().tunnel_id).map_err(no_handle)? {
            None => TunnelStats::default(),
            Some(mut stats) => {
                // A call that ignores its cancel ends with its worker, soon after the grace.
                let ended = timeout(GRACE * 2, stats.wait_for(Option::is_some)).await;
                ended.ok().and_then(Result::ok).and_then(|stats| *stats).unwrap_or_default()
            }
        };
        let stats = fields([
            ("cpu_ms", number(stats.cpu_ms)),
            ("rss_max", number(stats.rss_max)),
            ("bytes_in", number(stats.bytes_in)),
            ("bytes_out", number(stats.bytes_out)),
            ("duration_ms", milliseconds(stats.duration)),
        ]);
        Ok(Response::new(CloseTunnelResponse { stats: Some(stats) }))
    }

    async fn cancel_allocation(
        &self,
        request: Request<CancelAllocationRequest>,
    ) -> Result<Response<CancelAllocationResponse>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let handles = match (request.tunnel_id.is_empty(), request.mcp_request_id.is_empty()) {
            (false, _) => vec![request.tunnel_id],
            (true, false) => self.0.handles.of_request(&peer, &request.mcp_request_id),
            (true, true) => return Err(Status::invalid_argument("the request names no allocation")),
        };
        if handles.is_empty() {
            return Err(no_handle(NoHandle));
        }
        for handle in handles {
            self.0.handles.close(&peer, &handle).map_err(no_handle)?;
        }
        Ok(Response::new(CancelAllocationResponse {}))
    }

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        Peer::of(&request)?;
        let (status, runtimes) = self.0.health();
        Ok(Response::new(HealthResponse { status: status.into(), runtimes: Some(runtimes) }))
    }

    type MetricsStreamStream = Pin<Box<dyn Stream<Item = Result<MetricsEvent, Status>> + Send>>;

    async fn metrics_stream(
        &self,
        request: Request<MetricsStreamRequest>,
    ) -> Result<Response<Self::MetricsStreamStream>, Status> {
        Peer::of(&request)?;
        let filter = request.into_inner().filter;
        let events = self.0.machine.metrics.subscribe();
        let first = futures::stream::iter(sampling::now(&self.0.all_pools()));
        let stream = futures::stream::unfold(events, |mut events| async move {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(RecvError::Lagged(missed)) => Some((missed_events(missed), events)),
                Err(RecvError::Closed) => None,
            }
        });
        let stream =
            first.chain(stream).filter(move |event| futures::future::ready(passes(event, &filter))).map(Ok);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        Peer::of(&request)?;
        let request = request.into_inner();
        let plugin = named(request.plugin)?;
        let limit = match request.graceful {
            true => duration(request.deadline.as_ref()).unwrap_or(DRAIN_WITHIN),
            false => Duration::ZERO,
        };
        self.0.drain(&plugin, limit).await;
        Ok(Response::new(DrainResponse {}))
    }
}

fn named(plugin: Option<PluginRef>) -> Result<PluginRef, Status> {
    plugin.ok_or_else(|| Status::invalid_argument("the request names no plugin"))
}

/// Unknown, used, expired and foreign handles are answered alike.
fn no_handle(_: NoHandle) -> Status {
    Status::not_found("there is no such tunnel")
}

fn allocated(allocation: Allocation) -> AllocateWorkerResponse {
    let (status, delay, worker, queue) = match &allocation.state {
        TicketState::Seated(worker) => (Admitted::Admitted, Duration::ZERO, worker.id.clone(), None),
        TicketState::Waiting(place) if place.starting => {
            (Admitted::Admitted, COLD_START, String::new(), None)
        }
        TicketState::Waiting(place) => (Admitted::Queued, place.eta, String::new(), Some(queue(*place))),
        TicketState::Refused(refusal) => return rejected(refusal),
    };
    AllocateWorkerResponse {
        admission: Some(Admission {
            status: status.into(),
            estimated_start_delay: Some(wire_duration(delay)),
            reason: String::new(),
        }),
        handle: Some(TunnelHandle {
            tunnel_id: allocation.tunnel_id,
            runtime: "asp-runtime".to_owned(),
            worker_local_id: worker,
            not_before: Some(SystemTime::now().into()),
            ttl: Some(wire_duration(TTL)),
        }),
        queue,
    }
}

fn queue(place: Place) -> prost_types::Struct {
    fields([
        ("position", number(place.position as u64)),
        ("depth", number(place.depth as u64)),
        ("moving_eta", milliseconds(place.eta)),
    ])
}

fn rejected(refusal: &Refusal) -> AllocateWorkerResponse {
    let admission = Admission {
        status: Admitted::Rejected.into(),
        estimated_start_delay: None,
        reason: refusal.to_string(),
    };
    AllocateWorkerResponse { admission: Some(admission), handle: None, queue: None }
}

fn missed_events(missed: u64) -> MetricsEvent {
    MetricsEvent {
        at: Some(SystemTime::now().into()),
        name: "missed".to_owned(),
        fields: Some(fields([("events", number(missed))])),
        ..MetricsEvent::default()
    }
}
