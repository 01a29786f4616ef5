//! The gRPC services; each calls [`super::stream::serve`], for gateways [`super::delta::stream::serve`].
//!
//! Envoys use state-of-the-world streams, because `api_type: GRPC` asks for nothing else. Other methods answer
//! "unimplemented".

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use asp_proto::xds::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use asp_proto::xds::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use asp_proto::xds::envoy::service::extension::v3::extension_config_discovery_service_server::{
    ExtensionConfigDiscoveryService, ExtensionConfigDiscoveryServiceServer,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::context::Context;
use super::contract::Kind;
use super::peer::{Caller, SUBSCRIBERS};
use super::stream::serve;

/// Keepalive of a connection: a peer that vanished silently is noticed after the sum of the two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request. It holds names and a node; acknowledgements are small, rejections carry a reason.
const MAX_REQUEST: usize = 1024 * 1024;
/// Maximum size of a request of a gateway, which lists its parts when it reconnects.
const MAX_GATEWAY_REQUEST: usize = 16 * 1024 * 1024;

type Pushes = ReceiverStream<Result<DiscoveryResponse, Status>>;

/// Serves xDS on `listener` until the context's stop token is cancelled. If the context has a certificate, serves only
/// subscribers that prove their identity.
pub async fn run(listener: TcpListener, context: Context) -> Result<(), tonic::transport::Error> {
    let stop = context.stop.clone();
    let proof = context.proof.clone();
    let address: Option<SocketAddr> = listener.local_addr().ok();
    tracing::info!(?address, proved = proof.peer().is_some(), "xds server listens");
    let ads = AggregatedDiscoveryServiceServer::new(Ads(context.clone()))
        .max_decoding_message_size(MAX_GATEWAY_REQUEST);
    let ecds = ExtensionConfigDiscoveryServiceServer::new(Ecds(context.clone()))
        .max_decoding_message_size(MAX_REQUEST);
    let health = super::health::service(context.freshness.clone(), context.xds_state.clone());
    let keys = super::keys::service(Arc::clone(&context.keys), proof.clone());
    let revocations = super::revocations::service(context.clone());
    let eds = EndpointDiscoveryServiceServer::new(Eds(context)).max_decoding_message_size(MAX_REQUEST);
    let router = tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(ads)
        .add_service(ecds)
        .add_service(eds)
        .add_service(keys)
        .add_service(health)
        .add_service(revocations);
    let stopped = stop.cancelled_owned();
    match proof.peer() {
        None => {
            let accepted = asp_peer::paced(TcpListenerStream::new(listener));
            router.serve_with_incoming_shutdown(accepted, stopped).await
        }
        Some(peer) => {
            let proved = asp_peer::incoming(listener, peer.clone(), SUBSCRIBERS);
            router.serve_with_incoming_shutdown(proved, stopped).await
        }
    }
}

struct Ads(Context);
struct Ecds(Context);
struct Eds(Context);

fn open(
    context: &Context,
    request: Request<Streaming<DiscoveryRequest>>,
    kind: Option<Kind>,
) -> Result<Response<Pushes>, Status> {
    let caller = Caller::of(&request, &context.proof)?;
    let pushes = serve(context, request.into_inner(), kind, caller)?;
    Ok(Response::new(ReceiverStream::new(pushes)))
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Pushes;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Pushes>, Status> {
        open(&self.0, request, None)
    }

    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let caller = Caller::of(&request, &self.0.proof)?;
        let pushes = super::delta::stream::serve(&self.0, request.into_inner(), caller)?;
        Ok(Response::new(ReceiverStream::new(pushes)))
    }
}

#[tonic::async_trait]
impl ExtensionConfigDiscoveryService for Ecds {
    type StreamExtensionConfigsStream = Pushes;

    async fn stream_extension_configs(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Pushes>, Status> {
        open(&self.0, request, Some(Kind::Edge))
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for Eds {
    type StreamEndpointsStream = Pushes;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Pushes>, Status> {
        open(&self.0, request, Some(Kind::Endpoints))
    }
}
