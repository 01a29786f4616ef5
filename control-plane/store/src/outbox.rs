//! Events of a running call for its client's stream, kept outside the gateway that runs it, so that another gateway can
//! send them again and resume the call.
//!
//! Owns: the [`Outbox`] port. Refuses: to read events, which the gateway seals. Keeps true: numbers are consecutive,
//! one per entry; only the call's current owner appends, and a replaced owner appends nothing more; a call's entries
//! are bounded in number, bytes and age, and the oldest are evicted first (I-4), except open ones, which stay until
//! they are closed, within limits of their own.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::records::{CallId, OwnerId};

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryOutbox;

/// Maximum number of entries kept per call.
pub const MAX_ENTRIES: usize = 256;
/// Maximum bytes of a call's entries together. The newest entry is kept whatever its size.
pub const MAX_BYTES: usize = 1 << 20;
/// Maximum size of an entry in bytes.
pub const MAX_ENTRY: usize = 256 * 1024;
/// Maximum number of open entries kept in addition to the others: a call has no more open questions. Their bytes are
/// limited to another [`MAX_BYTES`]; entries beyond that are evicted like any other.
pub const MAX_PINNED: usize = 16;
/// Maximum next number of a log: Redis scripts count exactly up to here.
pub const MAX_NUMBER: u64 = 1 << 53;

/// Id of the log that the numbers belong to: a call that restarts elsewhere restarts its numbers.
pub type LogId = u32;

/// Entries kept of a call. Empty if its log started without any, if the requested ones are still to come, or if the
/// store has lost them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvents {
    pub log: LogId,
    /// Number of the first entry; of the next one if there are none.
    pub first: u64,
    pub entries: Vec<Bytes>,
    /// Open entries before the oldest of the others, by number; only for a read from before that one.
    pub pinned: Vec<(u64, Bytes)>,
}

impl StoredEvents {
    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.first.saturating_add(count(self.entries.len()))
    }
}

/// Entries to append.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub log: LogId,
    /// Number of the first entry.
    pub first: u64,
    /// Entries of at most [`MAX_ENTRY`] bytes each.
    pub entries: &'a [Bytes],
    /// Whether they replace the stored log of the call.
    pub reset: bool,
    /// Numbers of all entries of the call that are open from now on.
    pub open: &'a [u64],
    /// Open entries before the first of these, if they replace the stored log.
    pub pinned: &'a [(u64, Bytes)],
}

impl Batch<'_> {
    /// Returns the bytes of all its entries.
    pub fn bytes(&self) -> usize {
        let pinned = self.pinned.iter().map(|(_, entry)| entry.len());
        self.entries.iter().map(Bytes::len).chain(pinned).sum()
    }

    /// Rejects batches that no outbox accepts.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn check(&self) -> Result<()> {
        let pinned = self.pinned.iter().map(|(_, entry)| entry);
        if self.entries.iter().chain(pinned).any(|entry| entry.len() > MAX_ENTRY) {
            return Err(OutboxError::TooLarge);
        }
        match self.first.checked_add(count(self.entries.len())) {
            Some(next) if next <= MAX_NUMBER => Ok(()),
            _ => Err(OutboxError::Unavailable(format!("there are no numbers beyond {MAX_NUMBER}"))),
        }
    }
}

/// The outcome of appending entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    Stored,
    /// Another owner has the call.
    NotOwner,
    /// The entry before the first of them is not stored: it is lost or expired, or belongs to another log. The owner
    /// must append all that it still has as a new log (`reset`).
    Missing,
}

#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("the events of calls are not available: {0}")]
    Unavailable(String),
    #[error("an event of a call is larger than {MAX_ENTRY} bytes")]
    TooLarge,
}

/// Result of an operation on the outbox.
pub type Result<T, E = OutboxError> = std::result::Result<T, E>;

/// Store of the events of calls. `keep` is a minimum retention from now on; the longest one requested applies.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Appends entries. Those with numbers that are already stored are skipped, as in a retry after a lost answer. For
    /// an unknown call, only a batch with `reset` is stored, and its owner becomes the call's owner. A batch that is
    /// not stored has no effect, not even that of its `keep`.
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome>;

    /// Makes `owner` the only one that may append from now on. Returns the stored entries; `None` if no log was
    /// started, in which case only the owner is stored, and its first batch must have `reset`.
    async fn take(&self, call: CallId, owner: OwnerId, keep: Duration) -> Result<Option<StoredEvents>>;

    /// Returns the entries from a number on, or from the oldest stored one if that is later. `None` if no log was
    /// started, or it has expired.
    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>>;
}

pub(crate) fn count(entries: usize) -> u64 {
    u64::try_from(entries).unwrap_or(u64::MAX)
}
