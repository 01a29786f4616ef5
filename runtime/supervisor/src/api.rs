//! The Runtime Supervisor API (`proto/supervisor.proto`), implemented by the runtime.
//!
//! Every call comes from an authenticated [`Peer`]. For a plugin that cannot run, EnsurePlugin fails with
//! FAILED_PRECONDITION and a request for a worker gets a REJECTED admission, with the same reason.

pub mod callers;
pub mod listen;
pub mod shared;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::envelope::LINES;
use asp_proto::supervisor::ensure_plugin_response::State;
use asp_proto::supervisor::runtime_supervisor_server::RuntimeSupervisor;
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, CancelAllocationRequest, CancelAllocationResponse,
    CloseTunnelRequest, CloseTunnelResponse, DrainRequest, DrainResponse, EndExecutionRequest,
    EndExecutionResponse, EnsurePluginRequest, EnsurePluginResponse, HealthRequest, HealthResponse,
    MetricsEvent, MetricsStreamRequest, PppClientFrame,
};
use futures::{Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use crate::api::shared::{requested_plugin, unknown_handle};
use crate::pool::sampling;
use crate::ppp::outbox::multiplexer::MergedStream;
use crate::ppp::{duration, fields, number};
use crate::runtime::Runtime;
use crate::telemetry::metrics::{event, passes};
use crate::tunnel::peer::Peer;

/// Time limit of a drain without a deadline.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// Time limit for the first frame of a stream; it normally follows at once.
const FIRST_FRAME_WITHIN: Duration = Duration::from_secs(10);
/// Answer to the two older ways to open a tunnel.
const NOT_SHARED: &str = "a worker is requested on a shared stream (supervisor.proto); update the gateway";

#[derive(Clone, Debug)]
pub struct Api(pub Arc<Runtime>);

#[tonic::async_trait]
impl RuntimeSupervisor for Api {
    async fn ensure_plugin(
        &self,
        request: Request<EnsurePluginRequest>,
    ) -> Result<Response<EnsurePluginResponse>, Status> {
        Peer::of(&request)?;
        let request = request.into_inner();
        let plugin = requested_plugin(request.plugin)?;
        let ensured = self.0.ensure(&plugin, request.lines, request.prewarm).await;
        ensured.map_err(|refusal| Status::failed_precondition(refusal.to_string()))?;
        Ok(Response::new(EnsurePluginResponse {
            state: State::Ready.into(),
            isolation_level: self.0.machine.level.number(),
            bounds: self.0.machine.probe.bounds.name().to_owned(),
            features: vec![LINES.to_owned()],
            ..EnsurePluginResponse::default()
        }))
    }

    async fn allocate_worker(
        &self,
        request: Request<AllocateWorkerRequest>,
    ) -> Result<Response<AllocateWorkerResponse>, Status> {
        Peer::of(&request)?;
        Err(Status::unimplemented(NOT_SHARED))
    }

    type ProxyPppStream = MergedStream;

    async fn proxy_ppp(
        &self,
        request: Request<Streaming<PppClientFrame>>,
    ) -> Result<Response<Self::ProxyPppStream>, Status> {
        let peer = Peer::of(&request)?;
        let mut frames = request.into_inner();
        let first = timeout(FIRST_FRAME_WITHIN, frames.message())
            .await
            .map_err(|_| Status::deadline_exceeded("the stream has no first frame"))??
            .ok_or_else(|| Status::invalid_argument("the stream has no first frame"))?;
        if !shared::is_multiplexed(&first) {
            return Err(Status::unimplemented(NOT_SHARED));
        }
        Ok(Response::new(shared::serve(Arc::clone(&self.0), peer, frames)))
    }

    async fn close_tunnel(
        &self,
        request: Request<CloseTunnelRequest>,
    ) -> Result<Response<CloseTunnelResponse>, Status> {
        let peer = Peer::of(&request)?;
        let closed = self.0.handles.close(&peer, &request.get_ref().tunnel_id).ok_or_else(unknown_handle)?;
        Ok(Response::new(shared::final_response(closed).await))
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
            return Err(unknown_handle());
        }
        for handle in handles {
            self.0.handles.close(&peer, &handle).ok_or_else(unknown_handle)?;
        }
        Ok(Response::new(CancelAllocationResponse {}))
    }

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        Peer::of(&request)?;
        let (status, runtimes) = self.0.health();
        let bounds = self.0.machine.probe.bounds.name().to_owned();
        Ok(Response::new(HealthResponse { status: status.into(), runtimes: Some(runtimes), bounds }))
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
                Err(RecvError::Lagged(missed)) => {
                    Some((event("missed", [], fields([("events", number(missed))])), events))
                }
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
        let plugin = requested_plugin(request.plugin)?;
        let limit = match request.graceful {
            true => duration(request.deadline.as_ref()).unwrap_or(DRAIN_WITHIN),
            false => Duration::ZERO,
        };
        self.0.drain(&plugin, limit).await;
        Ok(Response::new(DrainResponse {}))
    }

    async fn end_execution(
        &self,
        request: Request<EndExecutionRequest>,
    ) -> Result<Response<EndExecutionResponse>, Status> {
        Peer::of(&request)?;
        let request_id = request.into_inner().request_id;
        if request_id.is_empty() {
            return Err(Status::invalid_argument("the request names no call"));
        }
        self.0.end_execution(&request_id).await.map_err(Status::from)?;
        Ok(Response::new(EndExecutionResponse {}))
    }
}
