//! Standing faults: parts of the state that are not published as stored, what is in force instead, and the remedy.
//! Everything else is published.

use serde::Serialize;
use utoipa::ToSchema;

/// Maximum number of faults that are listed; the others are only counted.
pub const MAX_LISTED: usize = 100;

/// Kind of the part that is not published as stored. The names are metric labels.
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
    /// Description of the fault.
    pub fault: String,
    /// Consequence: what is in force instead.
    pub in_force: &'static str,
    #[serde(rename = "wayOut")]
    pub remedy: &'static str,
}

/// The part keeps its last published form.
pub const LAST_FORM: &str = "its last published form";
/// The server is not served at all.
pub const NOT_SERVED: &str = "it is not served";
/// Every call of the org is refused.
pub const ORG_DENIED: &str = "every call of the org is denied";
/// All tokens of the issuer are refused.
pub const NO_TOKENS: &str = "its tokens are refused";
/// Consequence of homes that do not fit.
pub const HOMES_CUT: &str =
    "the most specific homes that fit; every other org is refused (421, unknown_region)";
/// Consequence of routes that do not fit.
pub const ROUTES_CLOSED: &str = "all requests to a server with a routed primitive are refused (503)";
