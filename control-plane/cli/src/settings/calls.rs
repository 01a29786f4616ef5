//! Limits on a gateway's concurrent calls, and on the size of their audit log.

use asp_control::admin::queues::WriteRate;
use asp_gateway::pipeline::admission::{AdmissionBounds, MEMORY};

use super::source::Reader;

pub const ENV_AUDIT_MAX_BYTES: &str = "ASP_AUDIT_MAX_BYTES";
pub const ENV_MAX_CALLS: &str = "ASP_MAX_CALLS";
pub const ENV_MAX_CALLS_PER_ORG: &str = "ASP_MAX_CALLS_PER_ORG";
pub const ENV_ADMIN_WRITES: &str = "ASP_ADMIN_WRITES_PER_SECOND";
pub const ENV_ADMIN_BURST: &str = "ASP_ADMIN_WRITE_BURST";
pub const ENV_REQUEST_MEMORY: &str = "ASP_REQUEST_MEMORY_BYTES";

/// Default size of the audit log in bytes: about three million events.
const DEFAULT_AUDIT: u64 = 1 << 30;
const MIN_AUDIT: u64 = 1 << 20;
const MAX_AUDIT: u64 = 1 << 40;
/// Minimum memory for requests; above the worst case for one body of 1 MiB.
const MIN_MEMORY: usize = 512 << 20;
const MAX_MEMORY: usize = 1 << 40;
/// Upper bound of a call limit: more calls than memory can hold.
const MOST: usize = 1_000_000;

/// Reads the rate limit for writes by the admins of an org.
pub(super) fn writes(reader: &mut Reader<'_>) -> WriteRate {
    let default = WriteRate::default();
    WriteRate {
        burst: reader.number(ENV_ADMIN_BURST, default.burst, 1..=100_000),
        per_second: reader.number(ENV_ADMIN_WRITES, default.per_second, 0..=100_000),
    }
}

/// Limits on calls.
#[derive(Clone, Copy, Debug)]
pub struct CallSection {
    /// Maximum number of concurrent calls.
    pub bounds: AdmissionBounds,
    /// Maximum memory for requests in bytes.
    pub memory: AdmissionBounds,
    /// Maximum size of the audit log on disk in bytes.
    pub audit_max_bytes: u64,
}

pub(super) fn read(reader: &mut Reader<'_>) -> CallSection {
    let default = AdmissionBounds::default();
    let memory = reader.number(ENV_REQUEST_MEMORY, MEMORY.whole, MIN_MEMORY..=MAX_MEMORY);
    CallSection {
        // One org may use half of it.
        memory: AdmissionBounds { whole: memory, per_org: memory / 2 },
        bounds: AdmissionBounds {
            whole: reader.number(ENV_MAX_CALLS, default.whole, 1..=MOST),
            per_org: reader.number(ENV_MAX_CALLS_PER_ORG, default.per_org, 1..=MOST),
        },
        audit_max_bytes: reader.number(ENV_AUDIT_MAX_BYTES, DEFAULT_AUDIT, MIN_AUDIT..=MAX_AUDIT),
    }
}
