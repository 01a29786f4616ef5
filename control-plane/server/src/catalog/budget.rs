//! Budgets for the parts of a snapshot that belong to the platform, in encoded bytes, and limits of whole snapshots. Those
//! that orgs share are in [`super::usage`].
//!
//! A write may always shrink what is stored. [`super::build`] handles stored data that exceeds a budget nevertheless.

use prost::Message;

pub(super) const KIB: usize = 1024;
pub(super) const MIB: usize = 1024 * KIB;

/// Limit of the whole edge snapshot, which every Envoy worker copies (`snapshot.proto`).
pub const EDGE: usize = 4 * MIB;
/// Limit of the whole gateway snapshot, including the edge's.
pub const GATEWAY: usize = 144 * MIB;
/// Compiled servers and their primitives.
pub const SERVERS: PlatformBudget =
    PlatformBudget { what: "servers and their primitives", bytes: 36 * MIB, remedy: FEWER_SERVERS };
/// Servers in the edge snapshot.
pub const EDGE_SERVERS: PlatformBudget =
    PlatformBudget { what: "servers at the edge", bytes: 256 * KIB, remedy: FEWER_SERVERS };
const FEWER_SERVERS: &str = "delete a server that is no longer needed, or shorten schemas and texts";
/// Routes, including those in the servers' own files.
pub const ROUTES: PlatformBudget = PlatformBudget {
    what: "routes at the edge",
    bytes: 64 * KIB,
    remedy: "route whole servers or every primitive (`*`), or leave `pool` to the server",
};
/// Home regions of orgs.
pub const HOMES: PlatformBudget = PlatformBudget {
    what: "homes of orgs",
    bytes: 128 * KIB,
    remedy: "name many orgs by one pattern (`prefix*`, `*`), or delete homes that say no other than the pattern",
};
/// Issuers with their keys.
pub const ISSUERS: usize = asp_issuers::faults::ISSUERS_BYTES;
/// Keys and certificates of machines, which only gateways receive.
pub const MACHINE_KEYS: usize = asp_store::control::MAX_MACHINE_KEYS * KIB;
/// Part of a gateway snapshot left free for upstreams, digests and framing.
pub const SLACK: usize = MIB;
/// Maximum length of the tag and length prefix of an entry in a repeated field.
pub const FRAMING: usize = 6;

/// Encoded bytes of the entries of a repeated field.
pub fn bytes(messages: &[impl Message]) -> usize {
    messages.iter().map(|message| message.encoded_len() + FRAMING).sum()
}

/// Budget of one kind of data that belongs to the platform, not to orgs.
#[derive(Debug)]
pub struct PlatformBudget {
    pub what: &'static str,
    pub bytes: usize,
    pub remedy: &'static str,
}

impl PlatformBudget {
    /// Admits a write after which the data takes `all` bytes; a write that adds nothing is always admitted.
    pub fn admit(&self, grows: bool, all: usize) -> Result<(), BudgetError> {
        if !grows || all <= self.bytes {
            return Ok(());
        }
        let remedy = self.remedy;
        Err(BudgetError::Beyond { what: self.what, scope: "together", bytes: all, bound: self.bytes, remedy })
    }
}

/// A write that exceeds a budget.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("the {what} {scope} would take {bytes} bytes of a snapshot, {bound} is the limit: {remedy}")]
    Beyond { what: &'static str, scope: &'static str, bytes: usize, bound: usize, remedy: &'static str },
    /// Does not report what the other orgs use: an org could see from it when another one writes.
    #[error("the budget that all orgs share for {what} is used up: {remedy}")]
    Shared { what: &'static str, remedy: &'static str },
}
