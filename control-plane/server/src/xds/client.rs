//! The gateway's own subscription: receives snapshots over ADS, applies them, acknowledges or rejects.
//!
//! Keeps true: whatever happens to the control plane, the gateway keeps the snapshot it has and says so when it
//! comes back; a snapshot that it refuses is answered with the reason; one that ends says so.

use std::sync::Arc;
use std::time::Duration;

use asp_peer::{Peer, Role};
use asp_proto::snapshot::GatewaySnapshot;
use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use asp_proto::xds::google::rpc;
use prost::Message;
use prost_types::{Struct, Value, value};
use rand::Rng;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{ADVERTISE, BACKOFF_MS, CONNECT_TIMEOUT, GATEWAY_RESOURCE, Kind, LEAVING, MAX_MESSAGE};

/// A control plane that vanished silently is noticed after the two together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an end waits for the control plane to have heard of it.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// gRPC status code INVALID_ARGUMENT, in a rejection.
const INVALID_ARGUMENT: i32 = 3;

/// Takes a snapshot, or says why not.
pub type Apply = Arc<dyn Fn(GatewaySnapshot) -> Result<(), String> + Send + Sync>;

/// Who subscribes, and where.
#[derive(Clone, Debug)]
pub struct Target {
    /// The control plane, e.g. `http://127.0.0.1:18000`.
    pub uri: Uri,
    pub node_id: String,
    /// `<ip>:<port>` on which Envoy reaches this gateway.
    pub advertise: String,
    /// The Envoy cluster it belongs to.
    pub pool: String,
    /// How both sides prove themselves; `None` on one machine or within a mesh.
    pub peer: Option<Peer>,
    /// The name in the control plane's certificate; the host of `uri` by default.
    pub name: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("connect: {0}")]
    Connect(#[from] tonic::transport::Error),
    #[error("stream: {0}")]
    Status(#[from] tonic::Status),
    #[error("the control plane ended the stream")]
    Ended,
    #[error("this process ends")]
    Stopped,
}

/// Subscribes until `stop` is cancelled, reconnecting for ever.
pub async fn run(target: Target, apply: Apply, stop: CancellationToken) {
    // The same fault is told once, not at every attempt.
    let mut told = String::new();
    let mut subscriber = Subscriber { target, apply, applied: String::new() };
    loop {
        let fault = match subscriber.follow(&stop).await {
            StreamError::Stopped => return,
            // A connect that fails says why only in what caused it.
            StreamError::Connect(error) => format!("connect: {}", root_cause(&error)),
            ended => ended.to_string(),
        };
        if fault == told {
            tracing::debug!(error = %fault, "snapshot subscription broke");
        } else {
            let control = &subscriber.target.uri;
            tracing::warn!(error = %fault, %control, "snapshot subscription broke, retrying; the last snapshot stays");
            told = fault;
        }
        let backoff = Duration::from_millis(rand::rng().random_range(BACKOFF_MS));
        if stop.run_until_cancelled(tokio::time::sleep(backoff)).await.is_none() {
            return;
        }
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

struct Subscriber {
    target: Target,
    apply: Apply,
    /// The version in force here; empty before the first. The control plane is told it on every new stream: with
    /// it this gateway takes part again, whatever becomes of the next push.
    applied: String,
}

impl Subscriber {
    /// Follows one stream until it breaks or this process ends.
    async fn follow(&mut self, stop: &CancellationToken) -> StreamError {
        let (requests, mut pushes) = match stop.run_until_cancelled(open(&self.target, &self.applied)).await {
            None => return StreamError::Stopped,
            Some(Err(error)) => return error,
            Some(Ok(stream)) => stream,
        };
        loop {
            let push = match stop.run_until_cancelled(pushes.message()).await {
                None => {
                    self.announce_leave(requests, pushes).await;
                    return StreamError::Stopped;
                }
                Some(Ok(Some(push))) => push,
                Some(Ok(None)) => return StreamError::Ended,
                Some(Err(status)) => return StreamError::Status(status),
            };
            let reply = self.answer(push).await;
            if requests.send(reply).await.is_err() {
                return StreamError::Ended;
            }
        }
    }

    /// Tells the control plane that this gateway ends, so that Envoy sends it nothing new from now on.
    async fn announce_leave(
        &self,
        requests: mpsc::Sender<DiscoveryRequest>,
        mut pushes: Streaming<DiscoveryResponse>,
    ) {
        let mut node = node(&self.target);
        let leaving = Value { kind: Some(value::Kind::StringValue("true".to_owned())) };
        node.metadata.get_or_insert_default().fields.insert(LEAVING.to_owned(), leaving);
        let last = DiscoveryRequest { node: Some(node), ..request() };
        let heard = async {
            if requests.send(last).await.is_ok() {
                drop(requests);
                // The control plane ends the stream when it has read all of it.
                while let Ok(Some(_)) = pushes.message().await {}
            }
        };
        if tokio::time::timeout(LEAVE_TIMEOUT, heard).await.is_err() {
            tracing::warn!(
                "the control plane did not hear that this gateway ends; Envoy's health checks will"
            );
        }
    }

    /// Applies a push and makes the ACK or NACK.
    async fn answer(&mut self, push: DiscoveryResponse) -> DiscoveryRequest {
        let apply = Arc::clone(&self.apply);
        let nonce = push.nonce.clone();
        let version = push.version_info.clone();
        // Compiling schemas takes milliseconds: not on a thread that serves requests.
        let applied = tokio::task::spawn_blocking(move || take(&push, &apply)).await;
        let outcome = applied.unwrap_or_else(|error| Err(format!("apply failed: {error}")));
        let error_detail = match outcome {
            Ok(()) => {
                tracing::info!(%version, "snapshot applied");
                self.applied = version;
                None
            }
            Err(reason) => {
                tracing::error!(%version, %reason, "snapshot refused, the last good one stays");
                Some(rpc::Status { code: INVALID_ARGUMENT, message: reason })
            }
        };
        DiscoveryRequest {
            version_info: self.applied.clone(),
            response_nonce: nonce,
            error_detail,
            ..request()
        }
    }
}

type Stream = (mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>);

/// Connects to the control plane as whoever the target's peer is.
pub(super) async fn connect(target: &Target) -> Result<Channel, tonic::transport::Error> {
    let endpoint = match target.peer {
        None => Endpoint::from(target.uri.clone()),
        Some(_) => Endpoint::from(asp_peer::endpoint_uri(&target.uri)),
    };
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    match &target.peer {
        None => endpoint.connect().await,
        Some(peer) => {
            let connector = asp_peer::connector(peer.clone(), Role::Control, target.name.clone());
            endpoint.connect_with_connector(connector).await
        }
    }
}

async fn open(target: &Target, applied: &str) -> Result<Stream, StreamError> {
    let channel = connect(target).await?;
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    // One request answers one push: no more than one ever waits.
    let (requests, receiver) = mpsc::channel(1);
    let first = DiscoveryRequest { node: Some(node(target)), version_info: applied.to_owned(), ..request() };
    if requests.send(first).await.is_err() {
        return Err(StreamError::Ended);
    }
    let pushes = client.stream_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
    Ok((requests, pushes))
}

/// What every request says.
fn request() -> DiscoveryRequest {
    DiscoveryRequest {
        resource_names: vec![GATEWAY_RESOURCE.into()],
        type_url: Kind::Gateway.type_url().into(),
        ..DiscoveryRequest::default()
    }
}

fn node(target: &Target) -> Node {
    let text = |text: &str| Value { kind: Some(value::Kind::StringValue(text.to_owned())) };
    let fields = [(ADVERTISE.to_owned(), text(&target.advertise)), ("pool".to_owned(), text(&target.pool))];
    Node {
        id: target.node_id.clone(),
        cluster: target.pool.clone(),
        metadata: Some(Struct { fields: fields.into() }),
        user_agent_name: "asp".into(),
    }
}

fn take(push: &DiscoveryResponse, apply: &Apply) -> Result<(), String> {
    let Some(resource) = push.resources.first() else {
        return Err("the push carries no snapshot".into());
    };
    let snapshot =
        GatewaySnapshot::decode(resource.value.as_slice()).map_err(|e| format!("decode snapshot: {e}"))?;
    apply(snapshot)
}
