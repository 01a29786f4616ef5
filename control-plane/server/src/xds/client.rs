//! The gateway's own subscription: receives snapshots over ADS, applies them, acknowledges or rejects.
//!
//! Keeps true: whatever happens to the control plane, the gateway keeps the snapshot it has; a snapshot
//! that it refuses is answered with the reason.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::GatewaySnapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use envoy_types::pb::google::rpc;
use prost::Message;
use rand::Rng;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Endpoint, Uri};

use super::peer::Peer;
use super::{GATEWAY_RESOURCE, Kind, MAX_MESSAGE};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A control plane that vanished silently is noticed after the two together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Reconnects are spread over this range, so that a restarted control plane is not stampeded.
pub(super) const BACKOFF_MS: std::ops::Range<u64> = 200..1_000;
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
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("connect: {0}")]
    Connect(#[from] tonic::transport::Error),
    #[error("stream: {0}")]
    Status(#[from] tonic::Status),
    #[error("the control plane ended the stream")]
    Ended,
}

/// Subscribes until `stop` is cancelled, reconnecting for ever.
pub async fn run(target: Target, apply: Apply, stop: CancellationToken) {
    // The same fault is told once, not at every attempt.
    let mut told = String::new();
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow(&target, &apply) => ended,
        };
        let fault = ended.to_string();
        if fault == told {
            tracing::debug!(error = %fault, "snapshot subscription broke");
        } else {
            tracing::warn!(error = %fault, control = %target.uri, "snapshot subscription broke, retrying");
            told = fault;
        }
        let backoff = Duration::from_millis(rand::rng().random_range(BACKOFF_MS));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff) => {}
        }
    }
}

/// Follows one stream until it breaks.
async fn follow(target: &Target, apply: &Apply) -> StreamError {
    match open(target).await {
        Err(error) => error,
        Ok((requests, mut pushes)) => loop {
            match pushes.message().await {
                Ok(Some(push)) => {
                    let reply = answer(push, apply).await;
                    if requests.send(reply).await.is_err() {
                        return StreamError::Ended;
                    }
                }
                Ok(None) => return StreamError::Ended,
                Err(status) => return StreamError::Status(status),
            }
        },
    }
}

type Stream = (mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>);

async fn open(target: &Target) -> Result<Stream, StreamError> {
    let mut endpoint = Endpoint::from(target.uri.clone());
    if let Some(peer) = &target.peer {
        endpoint = endpoint.tls_config(peer.client())?;
    }
    let channel = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect()
        .await?;
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    // One request answers one push: no more than one ever waits.
    let (requests, receiver) = mpsc::channel(1);
    let first = DiscoveryRequest {
        node: Some(node(target)),
        resource_names: vec![GATEWAY_RESOURCE.into()],
        type_url: Kind::Gateway.type_url().into(),
        ..DiscoveryRequest::default()
    };
    if requests.send(first).await.is_err() {
        return Err(StreamError::Ended);
    }
    let pushes = client.stream_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
    Ok((requests, pushes))
}

fn node(target: &Target) -> Node {
    let text = |text: &str| Value { kind: Some(value::Kind::StringValue(text.to_owned())) };
    let fields = [("advertise".to_owned(), text(&target.advertise)), ("pool".to_owned(), text(&target.pool))];
    Node {
        id: target.node_id.clone(),
        cluster: target.pool.clone(),
        metadata: Some(Struct { fields: fields.into() }),
        user_agent_name: "asp".into(),
        ..Node::default()
    }
}

/// Applies a push and makes the ACK or NACK.
async fn answer(push: DiscoveryResponse, apply: &Apply) -> DiscoveryRequest {
    let apply = Arc::clone(apply);
    let (nonce, version) = (push.nonce.clone(), push.version_info.clone());
    // Compiling schemas takes milliseconds: not on a thread that serves requests.
    let applied = tokio::task::spawn_blocking(move || take(&push, &apply)).await;
    let outcome = applied.unwrap_or_else(|error| Err(format!("apply failed: {error}")));
    let error_detail = match &outcome {
        Ok(()) => {
            tracing::info!(%version, "snapshot applied");
            None
        }
        Err(reason) => {
            tracing::error!(%version, %reason, "snapshot refused, the last good one stays");
            Some(rpc::Status { code: INVALID_ARGUMENT, message: reason.clone(), ..rpc::Status::default() })
        }
    };
    DiscoveryRequest {
        version_info: if outcome.is_ok() { version } else { String::new() },
        resource_names: vec![GATEWAY_RESOURCE.into()],
        type_url: Kind::Gateway.type_url().into(),
        response_nonce: nonce,
        error_detail,
        ..DiscoveryRequest::default()
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
