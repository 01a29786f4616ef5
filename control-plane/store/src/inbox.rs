//! Answers and cancels of a running call's caller, kept from the moment they are accepted until the gateway that runs the call has
//! applied them.
//!
//! Owns: the [`Inbox`] port. Refuses: to read entries, which arrive sealed by the gateway, and to order them: each stands on its own.
//! Keeps true: an entry that was stored is there for every gateway that runs the call, until it is removed or its time is over, and
//! is not replaced; a full inbox refuses what comes and drops nothing; what is kept is bounded for each call and each org (I-4).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::records::CallId;

mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryInbox;

/// Maximum number of entries of a call: its open questions are fewer.
pub const MAX_ENTRIES: usize = 32;
/// Maximum bytes of one entry: an answer of one MiB, and what sealing adds.
pub const MAX_ENTRY: usize = (1 << 20) + 1024;
/// Maximum bytes of the entries of a call together.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum bytes of the entries of an org together.
pub const MAX_ORG_BYTES: usize = 32 << 20;

/// Name of an entry within its inbox: while an entry is there, no other one of its name is stored.
pub type EntryName = [u8; 16];

/// The inbox of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboxId {
    /// Digest of the id of the org whose call it is.
    pub org: [u8; 16],
    pub call: CallId,
}

/// Whether an entry was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// An entry of this name is there, and stays as it is.
    Exists,
    /// The call or its org has no room left.
    Full,
}

#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    #[error("the inboxes of calls are not available: {0}")]
    Unavailable(String),
    #[error("an entry for the inbox of a call is larger than {MAX_ENTRY} bytes")]
    TooLarge,
}

/// Keeps entries for running calls.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Stores an entry unless one of the same name is there. `keep` is the minimum lifetime of the whole inbox from now on; the longest
    /// that was named counts.
    async fn put(
        &self,
        inbox: InboxId,
        name: EntryName,
        entry: Bytes,
        keep: Duration,
    ) -> Result<Put, InboxError>;

    /// Returns all entries of an inbox, in any order.
    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>, InboxError>;

    /// Removes entries; those that are not there are ignored.
    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<(), InboxError>;
}

pub(crate) fn check(entry: &Bytes) -> Result<(), InboxError> {
    if entry.len() > MAX_ENTRY { Err(InboxError::TooLarge) } else { Ok(()) }
}
