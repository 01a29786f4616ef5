//! The idempotency ledger: one execution per key, and its answer for everyone who asks again.
//!
//! Owns: the [`Ledger`] port. Refuses: choosing keys and lifetimes (the ledger stage does). Keeps true: while a key
//! is held, no second execution of it begins, and nobody but its holder ends that; a key seen with another request
//! hash is a conflict, never a replay; what an org keeps is bounded in keys and bytes, and an org that has used up
//! its own takes nothing from another.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

mod memory;
pub(crate) mod rules;
pub(crate) mod shared;
pub(crate) mod waiters;

pub use memory::MemoryLedger;

/// SHA-256 of the scope and the key as the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LedgerKey(pub [u8; 32]);

/// SHA-256 of the request: same key, other hash means another request under a used key.
pub type RequestHash = [u8; 32];

/// Who holds a key: a call, on the one gateway that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The id of the call, which stays when another gateway goes on with it.
    pub call: [u8; 16],
    /// One run of one gateway.
    pub owner: [u8; 16],
    /// Digest of the id of the org that keeps the key and its answer.
    pub org: [u8; 16],
}

/// What one org may keep in a ledger.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Keys, running ones included; with all of them used a claim of another is refused ([`LedgerError::Full`]).
    pub keys: u32,
    /// Bytes of answers; with no room for one, [`Answer::short`] is stored.
    pub bytes: u32,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { keys: 1_000_000, bytes: 64 * 1024 * 1024 }
    }
}

/// What a key's execution ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub whole: Bytes,
    /// Stands for it where its org's budget has no room for the whole.
    pub short: Bytes,
}

impl Answer {
    /// An answer that has no shorter form.
    pub fn whole(answer: Bytes) -> Answer {
        Answer { whole: answer.clone(), short: answer }
    }
}

/// What a key stands for when it is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key is new and held by the claimant now, who must end with `complete` or `release`.
    New,
    /// The stored answer of the finished execution.
    Replay(Bytes),
    /// The key was used for another request.
    Conflict,
    /// An execution is still running at the end of the wait.
    InFlight,
    /// Whoever executed it died before it answered: what became of it is unknown. What may be repeated can be
    /// executed again after [`Ledger::reclaim`].
    Abandoned,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("ledger is not available: {0}")]
    Unavailable(String),
    #[error("the ledger has no room for another key of this org")]
    Full,
}

/// Remembers which keys are running and what the finished ones answered.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Claims `key` for at most `lease`; where another holder runs it, waits for its answer until `wait_until`.
    async fn claim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim, LedgerError>;

    /// Makes the key that the holder's call holds, wherever that ran, the holder's own, with a new lease; false, and
    /// nothing changes, where that call does not hold it for this request.
    async fn seize(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError>;

    /// Makes a key whose holder died ([`Claim::Abandoned`]) the holder's own, with a new lease; false, and nothing
    /// changes, where it is not abandoned under this request any more.
    async fn reclaim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError>;

    /// Begins the lease of a held key anew; false where `holder` does not hold it.
    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError>;

    /// Stores the answer of a held key for `keep`; false, and nothing is stored, where `holder` does not hold it.
    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Answer,
        keep: Duration,
    ) -> Result<bool, LedgerError>;

    /// The stored answer of a finished execution under this request; asks, and claims nothing.
    async fn answer(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<Bytes>, LedgerError>;

    /// The id of the call that runs under this key and request; asks, and claims nothing.
    async fn running(&self, key: LedgerKey, hash: RequestHash) -> Result<Option<[u8; 16]>, LedgerError>;

    /// Gives a held key back: nothing was executed, the next claim is new. Nothing where `holder` does not hold it.
    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError>;
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
