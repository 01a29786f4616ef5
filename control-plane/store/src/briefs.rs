//! Records of calls that only read and have ended, which gateways share outside of the database.
//!
//! Owns: the [`BriefRecords`] port. Refuses: to read records, which the gateway seals. Keeps true: the first record under an
//! id stays until its time is over or newer ones displace it; each list has a limit of records, and each org of records and
//! bytes (I-4). No security decision and no charge depends on it, and a record may be lost (I-6).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ledger::Budget;
use crate::records::CallId;

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryBriefs;

/// Quotas, beyond which the oldest records are deleted.
#[derive(Clone, Copy, Debug)]
pub struct BriefQuotas {
    /// Maximum number of records in one list.
    pub listed: u32,
    pub of_org: Budget,
}

impl Default for BriefQuotas {
    fn default() -> BriefQuotas {
        BriefQuotas { listed: 1_000, of_org: Budget { keys: 4_000, bytes: 64 * 1024 * 1024 } }
    }
}

/// List of records. Both are digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BriefList {
    pub org: [u8; 16],
    /// The caller and the server.
    pub list: [u8; 16],
}

/// Record of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BriefRecord {
    pub call: CallId,
    /// Time of the end in Unix milliseconds, by which records are listed.
    pub ended_ms: i64,
    /// Sealed. If it is empty, the database has the call, and no list has the record.
    pub sealed: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[error("records of calls that only read are not available: {0}")]
pub struct BriefError(pub String);

/// Result of an operation on records.
pub type Result<T, E = BriefError> = std::result::Result<T, E>;

/// Store of records.
#[async_trait]
pub trait BriefRecords: Send + Sync {
    /// Stores a record for `keep`. If its call has one, it takes its place if it `replaces`; otherwise returns false.
    async fn put(&self, list: BriefList, record: BriefRecord, keep: Duration, replaces: bool)
    -> Result<bool>;

    /// Returns the sealed record of a call of an org.
    async fn find(&self, org: [u8; 16], call: CallId) -> Result<Option<Bytes>>;

    /// Returns at most `limit` records of a list, those that ended last first: only those before the one with this time and
    /// this id, which orders records of the same time.
    async fn list(
        &self,
        list: BriefList,
        before: Option<(i64, CallId)>,
        limit: u32,
    ) -> Result<Vec<BriefRecord>>;
}
