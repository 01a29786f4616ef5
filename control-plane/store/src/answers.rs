//! The answers of calls that only read, for whoever asks again under the same key at another gateway.
//!
//! Owns: the [`Answers`] port. Refuses: to read answers, which arrive sealed by the gateway, and to say who executes: two
//! gateways may read for one key at a time. Keeps true: the first answer under a key stays until its time is over; what
//! an org keeps is bounded in answers and bytes, and takes nothing from another (I-4). Nothing that security or money
//! depends on is here (I-6).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ledger::{Budget, LedgerKey, RequestHash};

mod memory;
mod quick_ledger;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryAnswers;
pub use quick_ledger::QuickLedger;

/// What an org may keep: calls that only read are kept for minutes.
pub const BUDGET: Budget = Budget { keys: 20_000, bytes: 32 * 1024 * 1024 };

/// An answer, and of which request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub hash: RequestHash,
    pub answer: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[error("the answers of other gateways are not available: {0}")]
pub struct AnswersError(pub String);

/// Keeps answers. `org` is the digest of the id of the org that the key belongs to.
#[async_trait]
pub trait Answers: Send + Sync {
    /// What a key was answered with.
    async fn find(&self, org: [u8; 16], key: LedgerKey) -> Result<Option<Answered>, AnswersError>;

    /// Keeps an answer for `keep`; false where there is one under the key already, or the org has no room.
    async fn keep(
        &self,
        org: [u8; 16],
        key: LedgerKey,
        answered: Answered,
        keep: Duration,
    ) -> Result<bool, AnswersError>;
}
