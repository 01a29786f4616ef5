//! Names, metadata keys and bounds that both ends of a stream agree on, and the kinds of resources.

use std::time::Duration;

/// Name of the edge filter's resource and HTTP filter.
pub const EDGE_FILTER: &str = "asp-edge";
/// Name of the resource, HTTP filter and root of the recent revocations; it configures the same VM.
pub const EDGE_REVOKED: &str = "asp-revoked";
/// Subscription of gateways: every part.
pub(crate) const EVERY_PART: &str = "*";
/// Largest message that a gateway accepts. Messages of parts are smaller, unless a single part is larger.
pub(crate) const MAX_MESSAGE: usize = 65 * 1024 * 1024;
/// Metadata key of a gateway's node: version that it has in force.
pub(crate) const IN_FORCE: &str = "version";
/// Metadata key of a gateway's node: `<ip>:<port>` at which Envoy reaches it.
pub(crate) const ADVERTISE: &str = "advertise";
/// Metadata key in the last request of a gateway that shuts down.
pub(crate) const LEAVING: &str = "leaving";
/// Timeout for the connection of a gateway to its control plane.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Range over which reconnects are spread, so that gateways do not stampede a restarted control plane.
pub(crate) const BACKOFF_MS: std::ops::Range<u64> = 200..1_000;
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
