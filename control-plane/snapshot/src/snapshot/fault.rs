//! Parts of a snapshot that a gateway could not put in force as they were sent.

use std::collections::BTreeMap;
use std::fmt;

/// The part keeps its last version.
pub(super) const LAST_FORM: &str = "its last form";
/// The server is not served.
pub(super) const NOT_SERVED: &str = "it is not served";
/// All primitives that the faulty bindings name are denied to the org.
pub(super) const NARROWED: &str = "the rest of the part; primitives that the faulty bindings name are denied";
/// The part contains values that this version does not know.
pub(super) const UNREAD: &str =
    "the rest of the part; unknown values allow nothing, and deny all that they may cover";
/// Every call of the org is denied.
pub(super) const ORG_DENIED: &str = "every call of the org is denied";
/// The keys and certificates of the org's machines are rejected.
pub(super) const NO_MACHINES: &str = "keys and certificates of the org's machines are rejected";
/// No server is served.
pub(super) const NOTHING_SERVED: &str = "no server is served";
/// A list of revocations applies as far as this version can read it.
pub(super) const AS_READ: &str = "the values that this version can read";
/// The part is of a kind that this version does not know.
pub(super) const LEFT_OUT: &str = "it is left out";

/// The reason why a part is not in force as it was sent, and what is in force instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFault {
    pub reason: String,
    pub in_force: &'static str,
}

impl fmt::Display for PartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; in force: {}", self.reason, self.in_force)
    }
}

/// Faults by part name, at most one for each part.
pub type PartFaults = BTreeMap<String, PartFault>;
