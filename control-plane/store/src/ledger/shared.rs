//! Claims of keys in a ledger that several processes write.
//!
//! Keeps true: waiting for a key only reads, with exponential backoff, unless its holder ends in this process.

use std::time::Duration;

use asp_platform::pauses::doubling;
use bytes::Bytes;
use tokio::time::Instant;

use super::rules::{KeyStatus, State};
use super::waiters::Waiters;
use super::{Claim, Holder, LedgerError, LedgerKey, RequestHash};

/// First and longest interval of reads while another process holds a claim; the interval doubles in between.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// States of a row.
pub(crate) const RUNNING: i64 = 0;
pub(crate) const ANSWERED: i64 = 1;

/// State of a key's row as a claim sees it.
pub(crate) enum KeyLookup {
    Decided(Claim),
    /// `expired`: there is an expired answer, which does not count.
    Free {
        expired: bool,
    },
    Running,
}

impl KeyLookup {
    /// Returns the state of an existing row.
    pub(crate) fn at(state: State, same_request: bool, answer: Bytes) -> KeyLookup {
        match state.status_for(same_request) {
            KeyStatus::Free => KeyLookup::Free { expired: true },
            KeyStatus::Conflict => KeyLookup::Decided(Claim::Conflict),
            KeyStatus::Answer => KeyLookup::Decided(Claim::Replay(answer)),
            KeyStatus::Abandoned => KeyLookup::Decided(Claim::Abandoned),
            KeyStatus::Running => KeyLookup::Running,
        }
    }
}

/// Rows of a ledger that several processes write.
pub(crate) trait SharedKeys: Sync {
    /// Calls of this process that wait for a key.
    fn waiters(&self) -> &Waiters;

    /// Reads a key without changing it; fails if there is no row and no capacity for one.
    fn look(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
    ) -> impl Future<Output = Result<KeyLookup, LedgerError>> + Send;

    /// Takes a key that was found free; returns false if another was faster.
    fn take_free(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        held: (Duration, bool),
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;
}

/// Implements [`super::Ledger::claim`].
pub(crate) async fn claim(
    keys: &impl SharedKeys,
    key: LedgerKey,
    hash: RequestHash,
    holder: Holder,
    (wait_until, lease): (Instant, Duration),
) -> Result<Claim, LedgerError> {
    let mut pauses = doubling(FIRST_LOOK, LAST_LOOK);
    loop {
        let waiter = keys.waiters().of(key);
        let ended = waiter.ended.notified();
        tokio::pin!(ended);
        // Registered before the row is read, so that no end is missed.
        ended.as_mut().enable();
        match keys.look(key, hash, holder).await? {
            KeyLookup::Decided(claim) => return Ok(claim),
            KeyLookup::Free { expired } => {
                if keys.take_free(key, hash, holder, (lease, expired)).await? {
                    return Ok(Claim::New);
                }
                // Another was faster.
            }
            KeyLookup::Running => {}
        }
        if Instant::now() >= wait_until {
            return Ok(Claim::InFlight);
        }
        let next = (Instant::now() + pauses.next().unwrap_or(LAST_LOOK)).min(wait_until);
        // Woken by this process or by the timer; in both cases the row decides.
        let _ = tokio::time::timeout_at(next, ended).await;
    }
}
