//! The xDS server: pushes snapshots and endpoints, and knows who has acknowledged what.
//!
//! One "state of the world" implementation ([`stream`]) stands behind three services: ADS for gateways and
//! for Envoys that want one stream, ECDS for the edge filter, EDS for the gateway clusters.
//! Keeps true (invariant I-5): at most one outstanding push per subscriber and type, a rejected version is
//! recorded with its reason and not sent again, and the last good one stays.

pub mod client;
pub mod endpoints;
pub mod keys;
pub mod peer;
pub mod resources;
pub mod service;
pub mod stream;
pub mod subscribers;
pub mod subscription;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asp_proto::snapshot::GatewaySnapshot;
use asp_snapshot::policy::Policy;
use tokio::sync::watch;

use endpoints::EndpointSet;

/// The edge filter's resource and HTTP filter name.
pub const EDGE_FILTER: &str = "asp-edge";
/// The resource name of the gateways' own subscription.
pub const GATEWAY_RESOURCE: &str = "gateway";
/// The largest message a gateway accepts: a snapshot's bound and room for its envelope.
pub const MAX_MESSAGE: usize = 65 * 1024 * 1024;
/// `<ip>:<port>` at which Envoy reaches a gateway, in its node's metadata.
const ADVERTISE: &str = "advertise";
/// In the metadata of the last request of a gateway that ends in order.
const LEAVING: &str = "leaving";
/// How long a gateway tries to connect to its control plane.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Reconnects are spread over this range, so that a restarted control plane is not stampeded.
const BACKOFF_MS: std::ops::Range<u64> = 200..1_000;
/// The cluster whose endpoints the gateways are.
pub const DEFAULT_POOL: &str = "gateway";

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The edge filter with its snapshot.
    Edge,
    /// The gateways' addresses.
    Endpoints,
    /// The gateways' snapshot.
    Gateway,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Edge, Kind::Endpoints, Kind::Gateway];

    /// The type url on the wire.
    pub const fn type_url(self) -> &'static str {
        match self {
            Kind::Edge => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Gateway => "type.googleapis.com/asp.snapshot.v1.GatewaySnapshot",
        }
    }

    pub fn from_type_url(url: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// The name in `/api/snapshot` and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Edge => "edge",
            Kind::Endpoints => "endpoints",
            Kind::Gateway => "gateway",
        }
    }
}

/// A snapshot that is pushed, encoded once for every subscriber.
pub struct Published {
    pub revision: u64,
    /// `<revision>-<first 8 hex digits of the digest>`
    pub version: String,
    pub snapshot: GatewaySnapshot,
    /// The encoded `GatewaySnapshot`.
    pub gateway: Vec<u8>,
    /// The encoded `TypedExtensionConfig` that holds the filter with its `EdgeSnapshot`.
    pub edge: Vec<u8>,
    /// Unix milliseconds.
    pub published_at: u64,
    evaluator: OnceLock<Option<Evaluator>>,
}

/// What evaluates callers, made of a snapshot once.
pub struct Evaluator {
    pub edge: asp_edge::Snapshot,
    pub policy: Policy,
}

impl Published {
    /// The parts that evaluate callers, built by the first question; `None` if the snapshot cannot be read.
    pub fn evaluator(&self) -> Option<&Evaluator> {
        let evaluator = self.evaluator.get_or_init(|| {
            let message = self.snapshot.edge.clone().unwrap_or_default();
            let edge = asp_edge::Snapshot::from_message(message).inspect_err(|error| {
                tracing::error!(
                    %error,
                    "the published edge snapshot cannot be read, so explain cannot answer; edges keep what they have"
                );
            });
            let GatewaySnapshot { bindings, observed_bindings, .. } = &self.snapshot;
            let policy = Policy::new(bindings.clone(), observed_bindings.clone()).inspect_err(|error| {
                tracing::error!(
                    %error,
                    "the published policy cannot be read, so explain cannot answer; gateways keep what they have"
                );
            });
            Some(Evaluator { edge: edge.ok()?, policy: policy.ok()? })
        });
        evaluator.as_ref()
    }
}

/// What subscribers are told; replaced whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Published>>,
    pub endpoints: Arc<EndpointSet>,
}

/// How everyone learns of a new [`XdsState`].
pub type XdsStateReceiver = watch::Receiver<XdsState>;
