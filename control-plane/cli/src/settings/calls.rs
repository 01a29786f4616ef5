//! How many calls a gateway runs, and how much of them is recorded.

use asp_gateway::pipeline::admission::Bounds;

use super::source::Reader;

pub const ENV_AUDIT_MAX_BYTES: &str = "ASP_AUDIT_MAX_BYTES";
pub const ENV_MAX_CALLS: &str = "ASP_MAX_CALLS";
pub const ENV_MAX_CALLS_PER_ORG: &str = "ASP_MAX_CALLS_PER_ORG";

/// Of the audit log in bytes: about three million events.
const DEFAULT_AUDIT: u64 = 1 << 30;
const MIN_AUDIT: u64 = 1 << 20;
const MAX_AUDIT: u64 = 1 << 40;
/// More calls than memory holds.
const MOST: usize = 1_000_000;

/// The bounds of calls.
#[derive(Clone, Copy, Debug)]
pub struct CallSection {
    /// The most calls at a time.
    pub bounds: Bounds,
    /// What the audit log may take on the disk, in bytes.
    pub audit_max_bytes: u64,
}

pub(super) fn read(reader: &mut Reader<'_>) -> CallSection {
    let default = Bounds::default();
    CallSection {
        bounds: Bounds {
            whole: reader.number(ENV_MAX_CALLS, default.whole, 1..=MOST),
            per_org: reader.number(ENV_MAX_CALLS_PER_ORG, default.per_org, 1..=MOST),
        },
        audit_max_bytes: reader.number(ENV_AUDIT_MAX_BYTES, DEFAULT_AUDIT, MIN_AUDIT..=MAX_AUDIT),
    }
}
