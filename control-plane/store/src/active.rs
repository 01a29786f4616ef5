//! Running calls that could go on elsewhere: what another gateway or another worker needs to take one over.
//!
//! Owns: the [`ActiveCalls`] port. Refuses: reading what it keeps; records, capsules and states arrive sealed by
//! the gateway. Keeps true: a row has one owner, and only its owner changes it; of several that would take over
//! an orphan exactly one does; a checkpoint is never replaced by an older one; a row ends with its call or with
//! its time (ADR 6).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

mod memory;

pub use memory::MemoryActive;

/// The id of a call: its UUID.
pub type CallId = [u8; 16];

/// One run of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(pub [u8; 16]);

/// Whose row it is and how long it may live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    pub call: CallId,
    pub org: String,
    /// `id@version` of what runs the call.
    pub plugin: String,
    /// Unix milliseconds; the end of the call's time.
    pub expires_ms: i64,
}

/// What is kept of a running call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCall {
    pub org: String,
    pub plugin: String,
    pub owner: OwnerId,
    /// Sealed; what the call was asked for.
    pub record: Bytes,
    /// The number of the capsule; 0 before the first.
    pub seq: u64,
    /// Sealed; empty before the first.
    pub capsule: Bytes,
    /// Sealed; what the call has come to so far, empty at first.
    pub state: Bytes,
}

/// A row whose owner is gone.
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
    /// The row is another owner's, or it has ended.
    NotOwner,
}

/// Whether an owner's lease had held until it was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It had, or it is the first.
    Held,
    /// It had ended: rows may have been taken over in between.
    Lapsed,
}

#[derive(Debug, thiserror::Error)]
pub enum ActiveError {
    #[error("active calls are not available: {0}")]
    Unavailable(String),
    #[error("too many active calls")]
    Full,
}

/// Keeps what running calls have saved. On return of `Ok`, what was stored is durable.
#[async_trait]
pub trait ActiveCalls: Send + Sync {
    /// Makes the row of a call, or replaces the record of the owner's own.
    async fn put(&self, key: &ActiveKey, owner: OwnerId, record: Bytes) -> Result<Saved, ActiveError>;

    /// Stores a capsule with the number `seq`, which rises within a call from 1, and the state beside it.
    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        capsule: (u64, Bytes),
        state: Bytes,
    ) -> Result<Saved, ActiveError>;

    /// Replaces the state.
    async fn save_state(&self, call: CallId, owner: OwnerId, state: Bytes) -> Result<Saved, ActiveError>;

    /// What is kept of a call.
    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError>;

    /// The call has ended; nothing of it is needed any more. A row of another owner stays.
    async fn end(&self, call: CallId, owner: OwnerId) -> Result<(), ActiveError>;

    /// Keeps the owner's rows its own for another `lease`.
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, ActiveError>;

    /// The owner runs no calls any more: those it leaves are orphans at once.
    async fn retire(&self, owner: OwnerId) -> Result<(), ActiveError>;

    /// At most `limit` rows whose time has not ended and whose owner has no lease.
    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, ActiveError>;

    /// Makes an orphan the row of `owner`; false when it is none any more.
    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, ActiveError>;
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
