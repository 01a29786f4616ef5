//! Answers of read-only calls, for retries under the same key at another gateway.
//!
//! Owns: the [`Answers`] port. Refuses: to read answers, which the gateway seals, and to decide which gateway executes:
//! two gateways may run a read for one key at the same time. Keeps true: the first answer under a key stays until it
//! expires; each org has a limit of answers and bytes of its own (I-4). No security decision and no charge depends on
//! it (I-6).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ledger::{Budget, LedgerKey, RequestHash};

#[cfg(any(test, feature = "testing"))]
mod memory;
mod quick_ledger;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryAnswers;
pub use quick_ledger::QuickLedger;

/// Budget of each org: answers of read-only calls are kept for minutes.
pub const BUDGET: Budget = Budget { keys: 20_000, bytes: 32 * 1024 * 1024 };

/// An answer and the hash of the request that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    pub hash: RequestHash,
    pub answer: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[error("the answers of other gateways are not available: {0}")]
pub struct AnswersError(pub String);

/// Store of answers. `org` is the digest of the id of the org that owns the key.
#[async_trait]
pub trait Answers: Send + Sync {
    /// Returns the answer under a key.
    async fn find(&self, org: [u8; 16], key: LedgerKey) -> Result<Option<StoredAnswer>, AnswersError>;

    /// Stores an answer for `keep`; returns false if the key already has one or the org's budget is used up.
    async fn keep(
        &self,
        org: [u8; 16],
        key: LedgerKey,
        answered: StoredAnswer,
        keep: Duration,
    ) -> Result<bool, AnswersError>;

    /// Returns the shard that stores an org's answers; shards fail independently.
    fn shard(&self, _org: [u8; 16]) -> u64 {
        0
    }
}
