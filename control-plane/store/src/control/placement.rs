//! Where requests go: routes to gateway pools, regions, and the orgs that are at home there.

use serde::{Deserialize, Serialize};

/// Routes that admins write.
pub const MAX_ROUTES: usize = 256;
/// Regions that are known.
pub const MAX_REGIONS: usize = 64;
/// Homes, each of an org or of a pattern of orgs.
pub const MAX_HOMES: usize = 2_000;

/// Which pool a kind of request goes to. The key is all but the pool.
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

/// A region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionRecord {
    pub name: String,
    /// Envoy's cluster that leads there; empty: it is this one.
    pub cluster: String,
}

/// Where an org is at home. The key is the org.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HomeRecord {
    /// Exact, `prefix*` or `*`.
    pub org: String,
    /// It need not be a region that is known.
    pub region: String,
}

/// All of it, each list in the order of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub routes: Vec<RouteRecord>,
    pub regions: Vec<RegionRecord>,
    pub homes: Vec<HomeRecord>,
}
