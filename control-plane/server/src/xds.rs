//! The xDS server: pushes snapshots and endpoints, and knows who has acknowledged what.
//!
//! Envoys are told the state of the world ([`stream`]) by three services: ADS for those that want one stream, ECDS for
//! the edge filter and its revocations, EDS for the gateway clusters. Gateways are told what changed ([`delta`]), by ADS.
//! Keeps true (invariant I-5): at most one outstanding push per subscriber and type, a rejected version is
//! recorded with its reason and not sent again, and the last good one stays.

pub mod client;
pub mod context;
pub mod delta;
pub mod endpoints;
pub mod freshness;
mod health;
pub mod keys;
pub mod participant;
pub mod parts;
pub mod peer;
pub mod published;
pub mod raised;
pub mod refused_parts;
pub mod resources;
mod revocations;
pub mod service;
pub mod stream;
pub mod subscribers;
pub mod subscription;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use endpoints::EndpointSet;
use published::Published;

/// The edge filter's resource and HTTP filter name.
pub const EDGE_FILTER: &str = "asp-edge";
/// The resource, the HTTP filter and the root of what was revoked lately; it configures the same VM.
pub const EDGE_REVOKED: &str = "asp-revoked";
/// Mark in the version of revocations that came ahead of the rest: the revision up to which all is said follows.
const OVERTAKEN: char = '~';
/// What gateways subscribe to: every part.
const EVERY_PART: &str = "*";
/// The largest message a gateway accepts. Parts come in messages of less, unless one alone is larger.
pub const MAX_MESSAGE: usize = 65 * 1024 * 1024;
/// In the metadata of a gateway's node: the version that it has in force.
const IN_FORCE: &str = "version";
/// `<ip>:<port>` at which Envoy reaches a gateway, in its node's metadata.
const ADVERTISE: &str = "advertise";
/// In the metadata of the last request of a gateway that ends in order.
const LEAVING: &str = "leaving";
/// How long a gateway tries to connect to its control plane.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Reconnects are spread over this range, so that a restarted control plane is not stampeded.
const BACKOFF_MS: std::ops::Range<u64> = 200..1_000;
/// Envoy's cluster of the gateways of every pool; which of them a request goes to is in its metadata.
pub const ALL_POOLS: &str = "gateway-pools";
/// The pool of gateways that name none, and Envoy's cluster of them.
pub const DEFAULT_POOL: &str = "gateway";

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The edge filter with its snapshot.
    Edge,
    /// What was revoked lately, for edges.
    Revocations,
    /// The gateways' addresses.
    Endpoints,
    /// The gateways' snapshot, in parts.
    Gateway,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Edge, Kind::Revocations, Kind::Endpoints, Kind::Gateway];

    /// The type url on the wire.
    pub const fn type_url(self) -> &'static str {
        match self {
            Kind::Edge | Kind::Revocations => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Gateway => "type.googleapis.com/asp.snapshot.v1.SnapshotPart",
        }
    }

    /// Filters are told apart by their names.
    pub fn of(type_url: &str, names: &[String]) -> Option<Kind> {
        let found = Kind::ALL.into_iter().find(|kind| kind.type_url() == type_url)?;
        let is_revoked = !names.is_empty() && names.iter().all(|name| name == EDGE_REVOKED);
        Some(if found == Kind::Edge && is_revoked { Kind::Revocations } else { found })
    }

    /// The name in `/api/snapshot` and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Edge => "edge",
            Kind::Revocations => "revocations",
            Kind::Endpoints => "endpoints",
            Kind::Gateway => "gateway",
        }
    }
}

/// What subscribers are told; replaced whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Published>>,
    /// The store's revision up to which all that is to be said is said.
    pub covers: u64,
    pub endpoints: Arc<EndpointSet>,
}

impl XdsState {
    /// Up to which revision of the store all is in force at a subscriber of `kind` that has acknowledged `acked`, at
    /// `version`: of what came later nothing may have concerned it.
    pub fn covered(&self, kind: &str, acked: u64, version: &str) -> u64 {
        let Some(published) = &self.snapshot else { return acked };
        let (edge, recent) = (&published.edge.version, &published.recent.version);
        let is_newest = match kind {
            kind if kind == Kind::Edge.as_str() => version == edge || version == format!("{edge}+{recent}"),
            kind if kind == Kind::Revocations.as_str() => version == recent,
            kind if kind == Kind::Gateway.as_str() => version == published.gateway.version,
            _ => false,
        };
        if is_newest { published.revision } else { acked.min(said_through(version)) }
    }
}

/// The revision up to which all is in force with a version at most.
fn said_through(version: &str) -> u64 {
    version.rsplit_once(OVERTAKEN).and_then(|(_, covers)| covers.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the revision of a version, and the one up to which all is in force with it: a lower one where revocations alone are of
/// the first.
fn reach(version: &str) -> (u64, u64) {
    let revision = subscription::revision_in(version);
    (revision, revision.min(said_through(version)))
}

/// How everyone learns of a new [`XdsState`].
pub type XdsStateReceiver = watch::Receiver<XdsState>;
