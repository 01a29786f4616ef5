//! Limits on a gateway's concurrent calls, on the size of their audit log, and on writes by admins.

use asp_control::admin::queues::WriteRate;
use asp_pipeline::pipeline::admission::{AdmissionBounds, MEMORY};
use clap::Args;

use super::values::number;

/// Minimum memory for requests; above the worst case for one body of 1 MiB.
const MIN_MEMORY: usize = 512 << 20;
const MAX_MEMORY: usize = 1 << 40;
/// Upper bound of a call limit: more calls than memory can hold.
const MOST: usize = 1_000_000;
/// Default size of the audit log in bytes: about three million events.
const DEFAULT_AUDIT: u64 = 1 << 30;
const MIN_AUDIT: u64 = 1 << 20;
const MAX_AUDIT: u64 = 1 << 40;

/// Limits on calls and on writes
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct CallSection {
    /// Maximum concurrent calls of a gateway
    #[arg(long, env = "ASP_MAX_CALLS", default_value_t = AdmissionBounds::default().whole, value_parser = number(1..=MOST))]
    max_calls: usize,
    /// Maximum concurrent calls of one org at a gateway
    #[arg(long, env = "ASP_MAX_CALLS_PER_ORG", default_value_t = AdmissionBounds::default().per_org, value_parser = number(1..=MOST))]
    max_calls_per_org: usize,
    /// Memory in bytes for request bodies at a gateway; one org may use half of it
    #[arg(long, env = "ASP_REQUEST_MEMORY_BYTES", default_value_t = MEMORY.whole, value_parser = number(MIN_MEMORY..=MAX_MEMORY))]
    request_memory: usize,
    /// Disk space in bytes for the audit log of calls; the oldest events are deleted first, all of them after 30 days
    #[arg(long, env = "ASP_AUDIT_MAX_BYTES", default_value_t = DEFAULT_AUDIT, value_parser = number(MIN_AUDIT..=MAX_AUDIT))]
    pub audit_max_bytes: u64,
    /// Changes a second by the admins of one org or of one server; ten times as many for revocations; 0: unlimited
    #[arg(long, env = "ASP_ADMIN_WRITES_PER_SECOND", default_value_t = WriteRate::default().per_second, value_parser = number(0..=100_000_u32))]
    admin_writes: u32,
    /// Burst of changes above that rate; ten times as many for revocations
    #[arg(long, env = "ASP_ADMIN_WRITE_BURST", default_value_t = WriteRate::default().burst, value_parser = number(1..=100_000_u32))]
    admin_burst: u32,
}

impl CallSection {
    /// Returns the maximum numbers of concurrent calls.
    pub fn bounds(&self) -> AdmissionBounds {
        AdmissionBounds { whole: self.max_calls, per_org: self.max_calls_per_org }
    }

    /// Returns the maximum memory for requests in bytes.
    pub fn memory(&self) -> AdmissionBounds {
        AdmissionBounds { whole: self.request_memory, per_org: self.request_memory / 2 }
    }

    /// Returns the rate limit for writes by the admins of an org.
    pub fn writes(&self) -> WriteRate {
        WriteRate { burst: self.admin_burst, per_second: self.admin_writes }
    }
}
