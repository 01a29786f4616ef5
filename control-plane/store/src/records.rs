//! Records of calls: the data with which another gateway or worker can resume a running call, and the outcome of an
//! ended one to which a client may return.
//!
//! Owns: the [`CallRecords`] port. Refuses: to read what it stores; the gateway seals records, capsules, states and
//! outcomes. Keeps true: the record of a running call has one owner, and only the owner changes it; of several gateways
//! that try to take over an orphan exactly one succeeds; a checkpoint is never replaced by an older one; an ended call
//! never changes again; a record expires (ADR 6), and the ended ones of a user and of an org are bounded in number and
//! bytes, the first to end being deleted first (I-4).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

#[cfg(any(test, feature = "testing"))]
mod memory;
mod state;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryRecords;
pub use state::State;

/// Id of a call: a UUID of version 7, or of version 8 if derived from a value that its client chose.
pub type CallId = [u8; 16];
/// Digest of the principal that a call belongs to, with or without its client.
pub type Principal = [u8; 16];

/// Maximum retention of a record after its call has ended.
pub const MAX_KEEP: Duration = Duration::from_secs(24 * 3600);

/// Time after the end of its lease for which a gateway is believed to be alive before its calls are reported as lost: a
/// gateway that only waited for a slow store renews its lease in this time. Calls that can be taken over are taken over
/// at once.
pub const BELIEVED: Duration = Duration::from_secs(5);

/// Minimum age of a gateway's uninterrupted lease before it takes over calls of gateways with lapsed leases. After an
/// outage of the store all leases have lapsed, and in this time the live gateways renew theirs.
pub const STEADY: Duration = Duration::from_secs(8);

/// Maximum length of a lease that a clock allows. One that ends later was written before the clock was set back.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(60);

/// Time after the end of its lease for which a gateway that has not retired counts as one that may serve clients.
pub const ALONE_AFTER: Duration = Duration::from_secs(60);

/// Retention of an expired row whose gateway is still alive.
pub(crate) const KEEP_PAST: Duration = Duration::from_secs(3600);

/// Run of a gateway, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(pub [u8; 16]);

/// Owner of the records of calls that no gateway resumes ([`CallRecords::give_up`]); no gateway has this id.
pub const NOBODY: OwnerId = OwnerId([0; 16]);

/// Owner of a lease that gateways renew while they leave orphans for lack of capacity. As long as it is valid,
/// [`CallRecords::give_up`] gives up none. No gateway has this id.
pub const NO_ROOM: OwnerId = OwnerId([0xff; 16]);

/// Unsealed part of a call's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    pub call: CallId,
    pub org: String,
    pub principal: Principal,
    /// The principal regardless of the client, because a user can register any number of clients.
    pub user: Principal,
    /// Name of the virtual server.
    pub server: String,
    /// `id@version` of the plugin that runs the call.
    pub plugin: String,
    /// Context with which the caller groups calls; empty for a separate call.
    pub context: String,
    /// Unix milliseconds.
    pub created_ms: i64,
    /// Expiry of the record in Unix milliseconds; the latest one put applies.
    pub expires_ms: i64,
    /// Whether another gateway can resume the call from the record.
    pub resumes: bool,
}

/// Stored record of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    pub org: String,
    pub principal: Principal,
    pub user: Principal,
    pub server: String,
    pub plugin: String,
    pub context: String,
    pub state: State,
    pub created_ms: i64,
    /// Time at which the state was last stored.
    pub updated_ms: i64,
    pub expires_ms: i64,
    /// Gateway that runs the call; `None` when it has ended.
    pub owner: Option<OwnerId>,
    /// Whether that gateway is gone: it has retired, or has had no lease for [`BELIEVED`].
    pub is_left: bool,
    /// Whether it has retired or never had a lease, and so is gone for certain.
    pub is_retired: bool,
    pub resumes: bool,
    /// Number of gateways that have taken the call over.
    pub takeovers: u32,
    /// Sealed request of the call.
    pub record: Bytes,
    /// Number of the capsule; 0 before the first.
    pub seq: u64,
    /// Sealed checkpoint; empty before the first.
    pub capsule: Bytes,
    /// Sealed progress of the call; empty at first.
    pub memory: Bytes,
    /// Sealed outcome of the call; empty before its end.
    pub outcome: Bytes,
}

/// Status of a call: the small part of its record, for callers that poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    pub principal: Principal,
    pub server: String,
    pub state: State,
    /// Time at which the state was last stored, in Unix milliseconds.
    pub updated_ms: i64,
    /// Gateway that runs the call; `None` when it has ended.
    pub owner: Option<OwnerId>,
    /// See [`CallRecord::is_left`].
    pub is_left: bool,
    /// See [`CallRecord::is_retired`].
    pub is_retired: bool,
    pub resumes: bool,
}

impl CallRecord {
    /// Returns the time by which a list with this order places the record.
    pub fn time(&self, order: ListOrder) -> i64 {
        match order {
            ListOrder::Created => self.created_ms,
            ListOrder::Updated => self.updated_ms,
        }
    }

    /// Returns the status of the call.
    pub fn stand(&self) -> Stand {
        Stand {
            principal: self.principal,
            server: self.server.clone(),
            state: self.state,
            updated_ms: self.updated_ms,
            owner: self.owner,
            is_left: self.is_left,
            is_retired: self.is_retired,
            resumes: self.resumes,
        }
    }
}

/// End of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// A terminal state.
    pub state: State,
    /// Sealed; replaces the data that another gateway would have needed to resume the call.
    pub record: Bytes,
    pub outcome: Bytes,
    /// Retention, at most [`MAX_KEEP`].
    pub keep: Duration,
}

/// A resumable record whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub call: CallId,
    pub owner: OwnerId,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    Stored,
    /// A checkpoint with the same or a higher number is already stored.
    Stale,
    /// The record belongs to another owner, or its call has ended.
    NotOwner,
}

/// State of an owner's lease at its renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Valid until now, or renewed for the first time.
    Held,
    /// Expired before the renewal: others may have taken over records since.
    Lapsed,
}

/// Quota of calls: of ended ones, and of receivers of push notifications.
#[derive(Clone, Copy, Debug)]
pub struct CallQuota {
    pub records: u32,
    /// Bytes of records and outcomes.
    pub bytes: u32,
    /// Receivers of running and of ended calls.
    pub receivers: u32,
}

/// Quotas of calls, of one user and of one org.
#[derive(Clone, Copy, Debug)]
pub struct CallQuotas {
    pub of_user: CallQuota,
    pub of_org: CallQuota,
}

impl Default for CallQuotas {
    fn default() -> CallQuotas {
        CallQuotas {
            of_user: CallQuota { records: 1_000, bytes: 64 * 1024 * 1024, receivers: 2_500 },
            of_org: CallQuota { records: 4_000, bytes: 128 * 1024 * 1024, receivers: 10_000 },
        }
    }
}

/// Time by which records are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// [`CallRecord::created_ms`].
    Created,
    /// [`CallRecord::updated_ms`]. No index has this order: the records of a principal are few.
    Updated,
}

/// Selection of records of one principal at one server, those with the latest time first.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    pub principal: Principal,
    pub server: &'a str,
    pub order: ListOrder,
    /// Only calls before this one: its time in Unix milliseconds, and its id, which orders calls of the same time.
    pub before: Option<(i64, CallId)>,
    pub limit: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("records of calls are not available: {0}")]
    Unavailable(String),
    #[error("too many records of calls")]
    Full,
}

/// Result of an operation on records.
pub type Result<T, E = RecordError> = std::result::Result<T, E>;

/// Store of calls' records and outcomes. Data is durable once a method has returned `Ok`.
#[async_trait]
pub trait CallRecords: Send + Sync {
    /// Creates the record of a running call, or replaces the owner's own. A record that is not resumable does not
    /// replace a resumable one, but only updates its state and times.
    async fn put(&self, key: &RecordKey, owner: OwnerId, state: State, record: Bytes) -> Result<Save>;

    /// Stores a capsule with the number `seq`, which increases within a call from 1, together with the memory.
    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        capsule: (u64, Bytes),
        memory: Bytes,
    ) -> Result<Save>;

    /// Replaces the memory.
    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Save>;

    /// Returns the record of a call.
    async fn find(&self, call: CallId) -> Result<Option<CallRecord>>;

    /// Returns the status of a call like [`CallRecords::find`], without reading its record, capsule, memory or outcome.
    async fn stand(&self, call: CallId) -> Result<Option<Stand>>;

    /// Returns records of a principal at a server, without capsule, memory, outcome and takeovers.
    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>>;

    /// Stores the end of a call, creating its record if it had none. If quotas are exceeded, other records of its user
    /// and org are deleted.
    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Save>;

    /// Deletes the record of an ended call to which no client can return. A record of another owner stays, as does that
    /// of a later call with the same id, which its client may reuse. Returns false if `owner` has no such record.
    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool>;

    /// Renews the owner's lease on its records for `lease`.
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease>;

    /// Whether no other owner uses the store: none has a lease, or had one until less than [`ALONE_AFTER`] ago and has not
    /// retired.
    async fn is_alone(&self, _owner: OwnerId) -> Result<bool> {
        Ok(false)
    }

    /// Returns those of the calls that have a record, each with its owner, in a single read.
    async fn owners(&self, calls: &[CallId]) -> Result<Vec<(CallId, Option<OwnerId>)>> {
        let mut owners = Vec::with_capacity(calls.len());
        for call in calls {
            owners.extend(self.find(*call).await?.map(|record| (*call, record.owner)));
        }
        Ok(owners)
    }

    /// Returns those of the calls that have not ended and still get their end from a gateway: one that has a lease runs
    /// them, or they can be taken over. What only tells of a call, and what was given up, gets none.
    async fn continued(&self, calls: &[CallId]) -> Result<Vec<CallId>>;

    /// Ends the lease of an owner that runs no calls any more: its remaining calls are orphans at once, and its lease
    /// cannot be renewed.
    async fn retire(&self, owner: OwnerId) -> Result<()>;

    /// Returns at most `limit` resumable records that have not expired and whose owner has no lease.
    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>>;

    /// Makes `owner` the owner of an orphan and counts the takeover; returns false if it is no longer one. If the
    /// previous owner's lease has lapsed, an owner with a lease must have held its own for [`STEADY`].
    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool>;

    /// Gives up an orphan that no gateway resumes: its owner becomes [`NOBODY`] and its state [`State::Failed`], and it
    /// is kept for at least `keep`. Returns false if it is not an orphan, or while the lease of [`NO_ROOM`] is valid;
    /// `owner` must meet the condition of [`CallRecords::take`]. The sealed record is unchanged.
    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool>;

    /// Waits until records beyond the quotas are deleted, which no call waits for.
    async fn room_made(&self) {}
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
