//! A standing fault: a part of the state that is not published as it is stored, what holds instead, and the way
//! out. The rest is published.

use serde::Serialize;
use utoipa::ToSchema;

/// Faults that are listed; more of them are counted.
pub const MAX_LISTED: usize = 100;

/// What is not published as it is stored. The names are metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Server,
    Org,
    Revocation,
    Issuer,
    /// Routes or homes.
    Placement,
    /// The whole edge snapshot.
    Edge,
}

impl Part {
    pub const ALL: [Part; 6] =
        [Part::Server, Part::Org, Part::Revocation, Part::Issuer, Part::Placement, Part::Edge];

    pub const fn as_str(self) -> &'static str {
        match self {
            Part::Server => "server",
            Part::Org => "org",
            Part::Revocation => "revocation",
            Part::Issuer => "issuer",
            Part::Placement => "placement",
            Part::Edge => "edge",
        }
    }
}

/// One standing fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    pub part: Part,
    /// The server's, org's, revocation's or issuer's name; `routes` or `homes`.
    pub name: String,
    /// What is wrong.
    pub fault: String,
    /// What holds instead.
    pub in_force: &'static str,
    pub way_out: &'static str,
}

/// The part stays as it was published last.
pub const LAST_FORM: &str = "its last published form";
/// Nothing of the server is served.
pub const NOT_SERVED: &str = "it is not served";
/// Every call of the org is refused.
pub const ORG_DENIED: &str = "every call of the org is denied";
/// None of its tokens is taken.
pub const NO_TOKENS: &str = "its tokens are refused";
/// Of homes that do not fit.
pub const HOMES_CUT: &str =
    "the most specific homes that fit; every other org is refused (421, unknown_region)";
/// Of routes that do not fit.
pub const ROUTES_CLOSED: &str = "all requests to a server of which a primitive is routed are refused (503)";
