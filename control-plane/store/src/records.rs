//! Records of calls: what another gateway or another worker needs to go on with one that runs, and how one ended that
//! somebody may come back for.
//!
//! Owns: the [`CallRecords`] port. Refuses: reading what it keeps; records, capsules, states and outcomes arrive sealed
//! by the gateway. Keeps true: the record of a running call has one owner, and only its owner changes it; of several
//! that would take over an orphan exactly one does; a checkpoint is never replaced by an older one; what has ended
//! never changes again; a record ends with its time (ADR 6), and the ended ones of a user and of an org are bounded in
//! number and bytes, the first to end go first (I-4).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

mod memory;
mod state;

pub use memory::MemoryRecords;
pub use state::State;

/// The id of a call: its UUID, of version 7, or of version 8 where its client chose what it is made from.
pub type CallId = [u8; 16];
/// Whose a call is: a digest of who that is, with the client or without.
pub type Principal = [u8; 16];

/// The longest that a record is kept after its call has ended.
pub const MAX_KEEP: Duration = Duration::from_secs(24 * 3600);

/// How long after its lease a gateway is believed to live, where somebody would be told that its call is lost: one that
/// only waited for a slow store renews its lease in this time. What can be taken over is, at once.
pub const BELIEVED: Duration = Duration::from_secs(5);

/// Time for which the lease of a gateway must have held without a gap before it takes what gateways with lapsed leases left. When
/// the store was away all leases have lapsed, and in this time those that live renew theirs.
pub const STEADY: Duration = Duration::from_secs(8);

/// Time after which a row goes that is past its own time and whose gateway still lives.
pub(crate) const KEEP_PAST: Duration = Duration::from_secs(3600);

/// One run of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(pub [u8; 16]);

/// Owner of the records of calls with which no gateway goes on ([`CallRecords::give_up`]): no gateway has this id.
pub const NOBODY: OwnerId = OwnerId([0; 16]);

/// Owner of a lease that gateways renew while they leave orphans for want of room. As long as it holds,
/// [`CallRecords::give_up`] gives up none. No gateway has this id.
pub const NO_ROOM: OwnerId = OwnerId([0xff; 16]);

/// What a record says of its call in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    pub call: CallId,
    pub org: String,
    pub principal: Principal,
    /// The principal whatever the client: a user can register any number of these.
    pub user: Principal,
    /// The name of the virtual server.
    pub server: String,
    /// `id@version` of what runs the call.
    pub plugin: String,
    /// What the caller groups calls by; empty for a call on its own.
    pub context: String,
    /// Unix milliseconds.
    pub created_ms: i64,
    /// Unix milliseconds; until when the record counts: of several that are put, the latest.
    pub expires_ms: i64,
    /// Whether the record is enough for another gateway to go on with the call.
    pub resumes: bool,
}

/// What is kept of a call.
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
    /// When the state was stored last.
    pub updated_ms: i64,
    pub expires_ms: i64,
    /// Who runs the call; `None` when it has ended.
    pub owner: Option<OwnerId>,
    /// Whether that gateway is gone: it has given up its lease, or has had none for [`BELIEVED`].
    pub is_left: bool,
    /// Whether it has given up its lease, or never had one: it is gone for certain.
    pub is_retired: bool,
    pub resumes: bool,
    /// Sealed; what the call was asked for.
    pub record: Bytes,
    /// The number of the capsule; 0 before the first.
    pub seq: u64,
    /// Sealed; empty before the first.
    pub capsule: Bytes,
    /// Sealed; what the call has come to so far, empty at first.
    pub memory: Bytes,
    /// Sealed; how the call ended, empty before.
    pub outcome: Bytes,
}

/// The standing of a call: the small part of its record, for callers that look again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    pub principal: Principal,
    pub server: String,
    pub state: State,
    /// When the state was stored last, in Unix milliseconds.
    pub updated_ms: i64,
    /// The gateway that runs the call; `None` when it has ended.
    pub owner: Option<OwnerId>,
    /// The same as in [`CallRecord`].
    pub is_left: bool,
    /// The same as in [`CallRecord`].
    pub is_retired: bool,
    pub resumes: bool,
}

impl CallRecord {
    /// Returns the standing of its call.
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

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// A state in which a call stays.
    pub state: State,
    /// Sealed; takes the place of what another gateway needed to go on.
    pub record: Bytes,
    pub outcome: Bytes,
    /// At most [`MAX_KEEP`].
    pub keep: Duration,
}

/// A record whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub call: CallId,
    pub owner: OwnerId,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    Stored,
    /// A checkpoint with the same or a higher number is stored already.
    Stale,
    /// The record is another owner's, or its call has ended.
    NotOwner,
}

/// Whether an owner's lease had held until it was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It had, or it is the first.
    Held,
    /// It had ended: records may have been taken over in between.
    Lapsed,
}

/// What somebody may keep of calls that have ended.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub records: u32,
    /// Of records and outcomes.
    pub bytes: u32,
}

/// What one user and one org may keep of calls that have ended.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub of_user: Share,
    pub of_org: Share,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            of_user: Share { records: 1_000, bytes: 64 * 1024 * 1024 },
            of_org: Share { records: 4_000, bytes: 128 * 1024 * 1024 },
        }
    }
}

/// Which records of one principal at one server are asked for, the latest calls first.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    pub principal: Principal,
    pub server: &'a str,
    /// Only calls that began before this one: when it began, in Unix milliseconds, and its id, which orders those of one time.
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

/// Keeps what calls have saved and how they ended. On return of `Ok`, what was stored is durable.
#[async_trait]
pub trait CallRecords: Send + Sync {
    /// Makes the record of a call that runs, or replaces the owner's own. One that is not enough to go on with replaces
    /// none that is, only its state, and from when on it tells.
    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Saved, RecordError>;

    /// Stores a capsule with the number `seq`, which rises within a call from 1, and the memory beside it.
    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        capsule: (u64, Bytes),
        memory: Bytes,
    ) -> Result<Saved, RecordError>;

    /// Replaces the memory.
    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Saved, RecordError>;

    /// What is kept of a call.
    async fn find(&self, call: CallId) -> Result<Option<CallRecord>, RecordError>;

    /// Returns the standing of a call, as [`CallRecords::find`] does: reads neither its record, capsule and memory nor its outcome.
    async fn stand(&self, call: CallId) -> Result<Option<Stand>, RecordError>;

    /// The records of a principal at a server.
    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>, RecordError>;

    /// The call has ended, and its record says how; one that had none gets it now. Others of its user
    /// and org make room where the bounds are reached.
    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Saved, RecordError>;

    /// The call that began then has ended, and nobody will ask how. The record of another owner stays, and so does that of a later call
    /// with the same id, which its client may choose again. False where there is none of `owner`'s.
    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool, RecordError>;

    /// Keeps the owner's records its own for another `lease`.
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, RecordError>;

    /// Those of the calls that have a record, with its owner. One read for all of them.
    async fn owners(&self, calls: &[CallId]) -> Result<Vec<(CallId, Option<OwnerId>)>, RecordError> {
        let mut owners = Vec::with_capacity(calls.len());
        for call in calls {
            owners.extend(self.find(*call).await?.map(|record| (*call, record.owner)));
        }
        Ok(owners)
    }

    /// The owner runs no calls any more: those it leaves are orphans at once, and its lease is not renewed again.
    async fn retire(&self, owner: OwnerId) -> Result<(), RecordError>;

    /// At most `limit` records that another gateway can go on with, whose time has not ended and whose owner has no
    /// lease.
    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, RecordError>;

    /// Makes an orphan the record of `owner`; false when it is none any more. An owner with a lease of its own takes what has a
    /// lapsed one only once its own has held for [`STEADY`].
    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError>;

    /// Ends the wait for a gateway that goes on with an orphan: it is no orphan any more, its owner is [`NOBODY`] and its state
    /// [`State::Failed`], and it is kept for `keep` at least. False when it is no orphan, or while the lease of [`NO_ROOM`] holds;
    /// `owner` is who judges that, as in [`CallRecords::take`]. Its record stays as it is.
    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool, RecordError>;

    /// Waits until what is over the bounds is deleted, which no call waits for.
    async fn room_made(&self) {}
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
