//! The events of a running call that its client was or will be told on a stream, kept beyond the gateway that runs it,
//! so that another gateway can tell them again and go on.
//!
//! Owns: the [`Outbox`] port. Refuses: to read events; they arrive sealed by the gateway. Keeps true: numbers are
//! consecutive, one entry for each; only the call's present owner adds, and one that another has replaced adds nothing
//! more; what is kept of a call is bounded in entries, bytes and age, and the oldest go first (I-4), but for those that are open:
//! they stay beside the others until they are no more, within bounds of their own.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::records::{CallId, OwnerId};

mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryOutbox;

/// Most entries that are kept of a call.
pub const MAX_ENTRIES: usize = 256;
/// Most bytes that are kept of a call, of its entries together. The newest entry is kept whatever it has.
pub const MAX_BYTES: usize = 1 << 20;
/// Bytes of one entry.
pub const MAX_ENTRY: usize = 256 * 1024;
/// Maximum number of open entries that are kept beside the others: a call has no more open questions. Their bytes have the bound
/// [`MAX_BYTES`] again; what is beyond is dropped as any other entry.
pub const MAX_PINNED: usize = 16;
/// The largest number that an entry may be followed by: the numbers of Redis's scripts are exact up to here.
pub const MAX_NUMBER: u64 = 1 << 53;

/// Whether an open entry fits beside those that are kept.
pub(crate) fn fits(pinned: usize, bytes: usize, entry: &Bytes) -> bool {
    pinned < MAX_PINNED && bytes.saturating_add(entry.len()) <= MAX_BYTES
}

/// Which log the numbers are of: a call that begins anew elsewhere counts anew.
pub type LogId = u32;

/// What is kept of a call. There are no entries where its log was begun with none, where what is asked for is still to
/// come, and where the store has lost them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub log: LogId,
    /// The number of the first of the entries; where there are none, of the one that comes next.
    pub first: u64,
    pub entries: Vec<Bytes>,
    /// Open entries from before the oldest of the others, by their numbers; only for who asks for what is gone.
    pub pinned: Vec<(u64, Bytes)>,
}

impl Kept {
    /// The number of the entry that comes next.
    pub fn next(&self) -> u64 {
        self.first.saturating_add(count(self.entries.len()))
    }
}

/// Entries to append.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub log: LogId,
    /// The number of the first of them.
    pub first: u64,
    /// Each of at most [`MAX_ENTRY`] bytes.
    pub entries: &'a [Bytes],
    /// Whether they replace what is kept of the call.
    pub anew: bool,
    /// The numbers of all entries of the call that are open from now on.
    pub open: &'a [u64],
    /// Open entries from before the first of these, where they replace what is kept.
    pub pinned: &'a [(u64, Bytes)],
}

impl Batch<'_> {
    /// Bytes of all its entries.
    pub fn bytes(&self) -> usize {
        let pinned = self.pinned.iter().map(|(_, entry)| entry.len());
        self.entries.iter().map(Bytes::len).chain(pinned).sum()
    }

    /// What no outbox takes.
    pub(crate) fn check(&self) -> Result<(), OutboxError> {
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

/// What became of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    Stored,
    /// Another owner has the call.
    NotOwner,
    /// What was before the first of them is not there: it is lost, its time is over, or it is of another log. All that
    /// the owner still has is to be appended again, anew.
    Missing,
}

#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("the events of calls are not available: {0}")]
    Unavailable(String),
    #[error("an event of a call is larger than {MAX_ENTRY} bytes")]
    TooLarge,
}

/// Keeps the events of calls. `keep` is for how long at least from now on: of several that are said, the longest
/// counts.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Appends entries. Those whose numbers are there already are passed over, as those of a retry whose answer was
    /// lost. Of a call that nothing is known of, only a batch that is `anew` is stored, and its owner has the call from
    /// then on. Nothing comes of a batch that is not stored, of its `keep` neither.
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<Appended, OutboxError>;

    /// `owner` goes on with the call, and nobody else adds anything from now on. What is kept of it: `None` where no
    /// log was begun, and then only the owner is remembered, whose first batch has to be `anew`.
    async fn take(&self, call: CallId, owner: OwnerId, keep: Duration) -> Result<Option<Kept>, OutboxError>;

    /// What is kept of a call from a number on, or from the oldest entry on where that has a higher number. `None`
    /// where no log was begun, or its time is over.
    async fn read(&self, call: CallId, from: u64) -> Result<Option<Kept>, OutboxError>;
}

pub(crate) fn count(entries: usize) -> u64 {
    u64::try_from(entries).unwrap_or(u64::MAX)
}
