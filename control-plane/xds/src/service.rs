//! The gRPC services, and the stream of an Envoy: requests in, pushes out, for every kind of resource that it asks for and
//! may have. The stream of a gateway is [`super::delta::stream::serve`].
//!
//! Envoys use state-of-the-world streams, because `api_type: GRPC` asks for nothing else. Other methods answer
//! "unimplemented".

use std::collections::BTreeMap;
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
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::context::{Context, STOPPING, end_stream, next_request};
use super::contract::{BACKOFF_MS, CONNECT_TIMEOUT, Kind};
use super::peer::{Caller, SUBSCRIBERS};
use super::published::XdsStateReceiver;
use super::subscribers::Participant;
use super::subscription::Subscription;

/// Keepalive of a connection: a peer that vanished silently is noticed after the sum of the two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request. It holds names and a node; acknowledgements are small, rejections carry a reason.
const MAX_REQUEST: usize = 1024 * 1024;
/// Maximum size of a request of a gateway, which lists its parts when it reconnects.
const MAX_GATEWAY_REQUEST: usize = 16 * 1024 * 1024;

/// Maximum number of queued pushes: at most one of each kind is unanswered.
const OUTBOUND: usize = Kind::ALL.len();

/// Time after its first gateway for which a control plane leaves an Envoy the endpoints of an earlier one. Gateways
/// reconnect one by one, each within one attempt and its backoff (`client.rs`); the first of them would get all
/// requests. A gateway that notices the loss only by its keepalive reconnects later and is added then.
const SETTLE: Duration = CONNECT_TIMEOUT.saturating_add(Duration::from_millis(BACKOFF_MS.end + 500));

type PushResult = Result<DiscoveryResponse, Status>;
type Pushes = ReceiverStream<PushResult>;

/// Serves xDS on `listener` until the context's stop token is cancelled. If the context has a certificate, serves only
/// subscribers that prove their identity.
pub async fn run(listener: TcpListener, context: Context) -> Result<(), tonic::transport::Error> {
    let stop = context.stop.clone();
    let proof = context.proof.clone();
    let address = listener.local_addr().ok().map(|address| address.to_string());
    tracing::info!(address, proved = proof.peer().is_some(), "xds server listens");
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

/// Serves one stream in a task of its own. `default_kind` is for services whose requests may omit the type URL.
fn serve(
    context: &Context,
    inbound: Streaming<DiscoveryRequest>,
    default_kind: Option<Kind>,
    caller: Caller,
) -> Result<mpsc::Receiver<PushResult>, Status> {
    let other = Participant::admit(&context.subscribers, &context.seen_revisions, caller)?;
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let stream = StreamState {
        xds_state: context.xds_state.clone(),
        default_kind,
        other,
        subscriptions: BTreeMap::new(),
    };
    let stop = context.stop.clone();
    let freshness = context.freshness.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => end_stream(&outbound, STOPPING),
            // Health checks alone do not move an Envoy: it keeps its open streams.
            () = freshness.until_envoys_leave() => {
                end_stream(&outbound, "this control plane cannot read its store");
            }
            () = stream.run(inbound, outbound.clone()) => {}
        }
    });
    Ok(receiver)
}

struct StreamState {
    xds_state: XdsStateReceiver,
    default_kind: Option<Kind>,
    other: Participant,
    subscriptions: BTreeMap<Kind, Subscription>,
}

impl StreamState {
    async fn run(mut self, mut inbound: Streaming<DiscoveryRequest>, outbound: mpsc::Sender<PushResult>) {
        loop {
            let xds_state = self.xds_state.borrow_and_update().clone();
            let settled = xds_state.endpoints.since.map(|since| since + SETTLE);
            let mut held = None;
            for (kind, subscription) in &mut self.subscriptions {
                if *kind == Kind::Endpoints && subscription.resumed {
                    held = settled.filter(|settled| Instant::now() < *settled);
                    if held.is_some() {
                        continue;
                    }
                }
                let Some(push) = subscription.next_push(&xds_state) else {
                    if let Some(refusal) = subscription.take_refusal() {
                        self.other.refused(*kind, refusal);
                    }
                    continue;
                };
                self.other.entry.pushed(*kind, subscription.pushed_revision().unwrap_or(0));
                if outbound.send(Ok(push)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                request = next_request(&mut inbound, &self.other.node.id) => {
                    let Some(request) = request else { return };
                    if let Err(status) = self.on_request(request).await {
                        // The receiver may be gone already.
                        let _ = outbound.send(Err(status)).await;
                        return;
                    }
                }
                changed = self.xds_state.changed() => if changed.is_err() { return end_stream(&outbound, STOPPING) },
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
            }
        }
    }

    async fn on_request(&mut self, mut request: DiscoveryRequest) -> Result<(), Status> {
        if let Some(node) = request.node.take() {
            self.other.name(node, !self.subscriptions.is_empty())?;
        }
        let url = match (request.type_url.as_str(), self.default_kind) {
            ("", Some(kind)) => kind.type_url(),
            (url, None) => url,
            (url, Some(kind)) if url == kind.type_url() => url,
            // ADS clients may ask for types that this server does not have; the protocol's answer is silence.
            _ => return Ok(()),
        };
        let kind = match Kind::of(url, &request.resource_names) {
            None | Some(Kind::Gateway) => return Ok(()),
            Some(kind) => kind,
        };
        if !self.subscriptions.contains_key(&kind) {
            self.other.authorize(kind).await?;
        }
        let subscription = self.subscriptions.entry(kind).or_insert_with(|| Subscription::new(kind));
        let event = subscription.on_request(request);
        self.other.note(kind, event, (subscription.in_force(), subscription.version()))
    }
}
