//! Placement of requests: routes to gateway pools, regions, and the home regions of orgs.

use serde::{Deserialize, Serialize};

/// Maximum number of routes that admins write.
pub const MAX_ROUTES: usize = 256;
/// Maximum number of regions.
pub const MAX_REGIONS: usize = 64;
/// Maximum number of homes, each for an org or a pattern of orgs.
pub const MAX_HOMES: usize = 2_000;

/// A route of a kind of request to a pool. The key is everything but the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteRecord {
    /// Exact or `*`.
    pub server: String,
    /// Exact or `*`.
    pub method: String,
    /// Primitive id: exact, `prefix*` or `*`.
    pub primitive: String,
    pub pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionRecord {
    pub name: String,
    /// Envoy cluster that leads to the region; empty for the local region.
    pub cluster: String,
}

/// Home region of an org. The key is the org.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HomeRecord {
    /// Exact, `prefix*` or `*`.
    pub org: String,
    /// May be a region that is not stored.
    pub region: String,
}

/// All routes, regions and homes, each list in the order of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub routes: Vec<RouteRecord>,
    pub regions: Vec<RegionRecord>,
    pub homes: Vec<HomeRecord>,
}
