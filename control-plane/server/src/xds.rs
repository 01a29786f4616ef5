//! The xDS server: pushes snapshots and endpoints, and tracks what each subscriber has acknowledged.
//!
//! Envoys use the state-of-the-world protocol ([`stream`]) with three services: ADS for those that want one stream,
//! ECDS for the edge filter and its revocations, EDS for the gateway clusters. Gateways use the incremental protocol
//! ([`delta`]) over ADS. Keeps true (invariant I-5): at most one outstanding push per subscriber and type; a rejected
//! version is recorded with its reason and not sent again; the last good one stays.

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
pub mod refused_parts;
pub mod resources;
mod revocations;
pub mod seen_revisions;
pub mod service;
pub mod stream;
pub mod subscribers;
pub mod subscription;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use endpoints::EndpointSet;
use published::Publication;

/// Name of the edge filter's resource and HTTP filter.
pub const EDGE_FILTER: &str = "asp-edge";
/// Name of the resource, HTTP filter and root of the recent revocations; it configures the same VM.
pub const EDGE_REVOKED: &str = "asp-revoked";
/// Separator in the version of revocations that were published ahead of other changes; the revision up to which
/// everything is published follows it.
const OVERTAKEN: char = '~';
/// Subscription of gateways: every part.
const EVERY_PART: &str = "*";
/// Largest message that a gateway accepts. Messages of parts are smaller, unless a single part is larger.
pub const MAX_MESSAGE: usize = 65 * 1024 * 1024;
/// Metadata key of a gateway's node: version that it has in force.
const IN_FORCE: &str = "version";
/// Metadata key of a gateway's node: `<ip>:<port>` at which Envoy reaches it.
const ADVERTISE: &str = "advertise";
/// Metadata key in the last request of a gateway that shuts down.
const LEAVING: &str = "leaving";
/// Timeout for the connection of a gateway to its control plane.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Range over which reconnects are spread, so that gateways do not stampede a restarted control plane.
const BACKOFF_MS: std::ops::Range<u64> = 200..1_000;
/// Envoy's cluster of the gateways of all pools; the metadata of a request selects the pool.
pub const ALL_POOLS: &str = "gateway-pools";
/// Pool of gateways that name none, and the name of its Envoy cluster.
pub const DEFAULT_POOL: &str = "gateway";

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The edge filter with its snapshot.
    Edge,
    /// Recent revocations for edges.
    Revocations,
    /// Addresses of gateways.
    Endpoints,
    /// Snapshot for gateways, in parts.
    Gateway,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Edge, Kind::Revocations, Kind::Endpoints, Kind::Gateway];

    /// Returns the type URL on the wire.
    pub const fn type_url(self) -> &'static str {
        match self {
            Kind::Edge | Kind::Revocations => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Gateway => "type.googleapis.com/asp.snapshot.v1.SnapshotPart",
        }
    }

    /// Returns the kind of a request; the edge filter and its revocations share a type URL and differ in the names.
    pub fn of(type_url: &str, names: &[String]) -> Option<Kind> {
        let found = Kind::ALL.into_iter().find(|kind| kind.type_url() == type_url)?;
        let is_revoked = !names.is_empty() && names.iter().all(|name| name == EDGE_REVOKED);
        Some(if found == Kind::Edge && is_revoked { Kind::Revocations } else { found })
    }

    /// Returns the name in `/api/snapshot` and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Edge => "edge",
            Kind::Revocations => "revocations",
            Kind::Endpoints => "endpoints",
            Kind::Gateway => "gateway",
        }
    }
}

/// State that is pushed to subscribers; always replaced as a whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Publication>>,
    /// Revision of the store up to which everything is published.
    pub covers: u64,
    pub endpoints: Arc<EndpointSet>,
}

impl XdsState {
    /// Returns the store revision up to which everything is in force at a subscriber of `kind` that acknowledged
    /// `acked` at `version`. Later changes may not have concerned it.
    pub fn covered(&self, kind: &str, acked: u64, version: &str) -> u64 {
        let Some(published) = &self.snapshot else { return acked };
        let (edge, recent) = (&published.edge.version, &published.recent.version);
        let is_newest = match kind {
            kind if kind == Kind::Edge.as_str() => version == edge || version == format!("{edge}+{recent}"),
            kind if kind == Kind::Revocations.as_str() => version == recent,
            kind if kind == Kind::Gateway.as_str() => version == published.gateway.version,
            _ => false,
        };
        if is_newest { published.revision } else { acked.min(covered_by_version(version)) }
    }
}

/// Returns the revision up to which everything is in force with a version, as far as the version limits it.
fn covered_by_version(version: &str) -> u64 {
    version.rsplit_once(OVERTAKEN).and_then(|(_, covers)| covers.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the revision of a version, and the revision up to which everything is in force with it. The second is lower
/// if only revocations have the first.
fn reach(version: &str) -> (u64, u64) {
    let revision = subscription::revision_in(version);
    (revision, revision.min(covered_by_version(version)))
}

/// Receiver of new [`XdsState`]s.
pub type XdsStateReceiver = watch::Receiver<XdsState>;
