//! The idempotency ledger: one execution per key, and its answer for every retry.
//!
//! Owns: the [`Ledger`] port. Refuses: to choose keys and lifetimes (the ledger stage does). Keeps true: while a key is
//! held, no second execution of it starts, and only its holder ends it; a key used with another request hash is a
//! conflict, never a replay; each org's keys and bytes are bounded, and an org that has used up its own takes none from
//! another.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

mod memory;
pub(crate) mod rules;
pub(crate) mod waiters;

pub use memory::MemoryLedger;

/// SHA-256 of the scope and the key as given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LedgerKey(pub [u8; 32]);

/// SHA-256 of the request; a different hash means another request under a used key.
pub type RequestHash = [u8; 32];

/// A request under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRequest {
    pub key: LedgerKey,
    pub hash: RequestHash,
}

/// Holder of a key: a call on the gateway that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the call, which stays the same if another gateway resumes it.
    pub call: [u8; 16],
    /// Run of a gateway, from its start to its end.
    pub owner: [u8; 16],
    /// Digest of the id of the org to which the key and its answer are charged.
    pub org: [u8; 16],
}

/// Limits of one org in a ledger.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Maximum number of keys, running ones included; beyond it, a claim of another fails ([`LedgerError::Full`]).
    pub keys: u32,
    /// Maximum bytes of answers; an answer that does not fit is replaced by [`Answer::short`].
    pub bytes: u32,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { keys: 1_000_000, bytes: 64 * 1024 * 1024 }
    }
}

/// Answer of a finished execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub whole: Bytes,
    /// Stored instead if the org's budget has no capacity for the whole answer.
    pub short: Bytes,
}

impl Answer {
    /// Creates an answer without a shorter form.
    pub fn whole(answer: Bytes) -> Answer {
        Answer { whole: answer.clone(), short: answer }
    }
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key was free and is now held by the claimant, who must call `complete` or `release`.
    New,
    /// The stored answer of the finished execution.
    Replay(Bytes),
    /// The key was used for another request.
    Conflict,
    /// An execution is still running at the end of the wait.
    InFlight,
    /// The holder died before it answered, and the outcome is unknown. A call that may be repeated can be executed
    /// again after [`Ledger::reclaim`].
    Abandoned,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("ledger is not available: {0}")]
    Unavailable(String),
    #[error("the ledger has no room for another key of this org")]
    Full,
}

/// Result of an operation of the ledger.
pub type Result<T, E = LedgerError> = std::result::Result<T, E>;

/// Ledger of the running keys and of the answers of finished ones.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Claims the key for at most `lease`; if another holder runs it, waits for its answer until `wait_until`.
    async fn claim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim>;

    /// Transfers a key from an earlier run of the holder's call, on any gateway, to `holder`, with a new lease. Returns
    /// false and changes nothing if that call does not hold it for this request.
    async fn seize(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool>;

    /// Transfers an abandoned key ([`Claim::Abandoned`]) to `holder`, with a new lease. Returns false and changes
    /// nothing if it is no longer abandoned under this request.
    async fn reclaim(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool>;

    /// Renews the lease of a held key; returns false if `holder` does not hold it.
    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool>;

    /// Stores the answer of a held key for `keep`; returns false and stores nothing if `holder` does not hold it.
    async fn complete(&self, key: LedgerKey, holder: Holder, answer: Answer, keep: Duration) -> Result<bool>;

    /// Returns the stored answer of a finished execution of this request, without claiming the key.
    async fn answer(&self, request: LedgerRequest) -> Result<Option<Bytes>>;

    /// Returns the id of the call that runs under this key and request, without claiming the key.
    async fn running(&self, request: LedgerRequest) -> Result<Option<[u8; 16]>>;

    /// Releases a held key after nothing was executed, so that the next claim is new. No effect if `holder` does not
    /// hold it.
    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<()>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
