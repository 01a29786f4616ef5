//! Answers and cancellations from a running call's caller, kept from their acceptance until the gateway that runs the
//! call has applied them.
//!
//! Owns: the [`Inbox`] port. Refuses: to read entries, which the gateway seals, and to order them: each is independent.
//! Keeps true: a stored entry is available to every gateway that runs the call until it is removed or expires, and is
//! never replaced; a full inbox rejects new entries and drops none; the entries of each call and each org are bounded
//! (I-4).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::records::CallId;

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryInbox;

/// Maximum number of entries of a call: it has fewer open questions.
pub const MAX_ENTRIES: usize = 32;
/// Maximum size of an entry in bytes: an answer of 1 MiB plus the overhead of sealing.
pub const MAX_ENTRY: usize = (1 << 20) + 1024;
/// Maximum bytes of the entries of a call together.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum bytes of the entries of an org together.
pub const MAX_ORG_BYTES: usize = 32 << 20;

/// Name of an entry within its inbox; a second entry of the same name is not stored while the first is there.
pub type EntryName = [u8; 16];

/// The inbox of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboxId {
    /// Digest of the id of the call's org.
    pub org: [u8; 16],
    pub call: CallId,
}

/// The outcome of storing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// An entry of this name exists and stays unchanged.
    Exists,
    /// The call or its org has no capacity left.
    Full,
}

#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    #[error("the inboxes of calls are not available: {0}")]
    Unavailable(String),
    #[error("an entry for the inbox of a call is larger than {MAX_ENTRY} bytes")]
    TooLarge,
}

/// Result of an operation on an inbox.
pub type Result<T, E = InboxError> = std::result::Result<T, E>;

/// Store of entries for running calls.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Stores an entry unless one of the same name exists. `keep` is the minimum lifetime of the whole inbox from now
    /// on; the longest one requested applies.
    async fn put(&self, inbox: InboxId, name: EntryName, entry: Bytes, keep: Duration) -> Result<Put>;

    /// Returns all entries of an inbox, in any order.
    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>>;

    /// Removes entries; missing ones are ignored.
    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<()>;
}

#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) fn check(entry: &Bytes) -> Result<()> {
    if entry.len() > MAX_ENTRY { Err(InboxError::TooLarge) } else { Ok(()) }
}
