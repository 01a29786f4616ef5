//! How a key is claimed in a ledger that other processes write too.
//!
//! Keeps true: whoever waits for a key only reads, more and more rarely, unless its holder ends in this process.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::rules::{Found, State};
use super::waiters::Waiters;
use super::{Claim, Holder, LedgerError, LedgerKey, RequestHash};

/// How soon a claim held by another process is looked at again; the pause doubles up to the longest.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// The states of a row.
pub(crate) const RUNNING: i64 = 0;
pub(crate) const ANSWERED: i64 = 1;

/// What a key's row says.
pub(crate) enum Looked {
    Decided(Claim),
    /// `expired`: there is an answer past its time, which is as good as none.
    Free {
        expired: bool,
    },
    Running,
}

impl Looked {
    /// Of a row that there is.
    pub(crate) fn at(state: State, same_request: bool, answer: Bytes) -> Looked {
        match state.found(same_request) {
            Found::Free => Looked::Free { expired: true },
            Found::Conflict => Looked::Decided(Claim::Conflict),
            Found::Answer => Looked::Decided(Claim::Replay(answer)),
            Found::Abandoned => Looked::Decided(Claim::Abandoned),
            Found::Running => Looked::Running,
        }
    }
}

/// The rows of such a ledger.
pub(crate) trait SharedKeys: Sync {
    /// Those of this process who wait for a key.
    fn waiters(&self) -> &Waiters;

    /// One look at a key, which changes nothing; refuses where there is no row and no room for one.
    fn look(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
    ) -> impl Future<Output = Result<Looked, LedgerError>> + Send;

    /// Takes a key that was found free; false where somebody else was faster.
    fn take_free(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        held: (Duration, bool),
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;
}

/// [`super::Ledger::claim`].
pub(crate) async fn claim(
    keys: &impl SharedKeys,
    key: LedgerKey,
    hash: RequestHash,
    holder: Holder,
    (wait_until, lease): (Instant, Duration),
) -> Result<Claim, LedgerError> {
    let mut pause = FIRST_LOOK;
    loop {
        let waiter = keys.waiters().of(key);
        let ended = waiter.ended.notified();
        tokio::pin!(ended);
        // From here on an end is not missed, also while the row is read.
        ended.as_mut().enable();
        match keys.look(key, hash, holder).await? {
            Looked::Decided(claim) => return Ok(claim),
            Looked::Free { expired } => {
                if keys.take_free(key, hash, holder, (lease, expired)).await? {
                    return Ok(Claim::New);
                }
                // Somebody else was faster.
            }
            Looked::Running => {}
        }
        if Instant::now() >= wait_until {
            return Ok(Claim::InFlight);
        }
        let next = (Instant::now() + pause).min(wait_until);
        // Woken by this process or by the clock; either way the row decides.
        let _ = tokio::time::timeout_at(next, ended).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}
