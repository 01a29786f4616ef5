//! The idempotency ledger: one execution per key, and its answer for everyone who asks again.
//!
//! Owns: the [`Ledger`] port and its in-process backend. Refuses: choosing keys and lifetimes (the ledger
//! stage does). Keeps true: while a key is held, no second execution of it begins, and nobody but its holder
//! ends that; a key seen with another request hash is a conflict, never a replay (design §6 stage 6).

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Most keys the in-process backend keeps.
const MAX_KEYS: usize = 100_000;
/// Least time between two sweeps of a full table.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

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
    /// Whoever executed it died before it answered: what became of it is unknown.
    Abandoned,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("ledger is not available: {0}")]
    Unavailable(String),
    #[error("ledger is full")]
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

    /// Begins the lease of a held key anew; false where `holder` does not hold it.
    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError>;

    /// Stores the answer of a held key for `keep`; false, and nothing is stored, where `holder` does not hold it.
    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Bytes,
        keep: Duration,
    ) -> Result<bool, LedgerError>;

    /// Gives a held key back: nothing was executed, the next claim is new. Nothing where `holder` does not hold it.
    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError>;
}

/// The ledger of one process.
#[derive(Default)]
pub struct MemoryLedger {
    keys: Mutex<HashMap<LedgerKey, Entry>>,
    swept: Mutex<Option<Instant>>,
}

struct Entry {
    hash: RequestHash,
    holder: Holder,
    state: watch::Sender<State>,
    /// The end of the lease while running, of the answer after.
    expires: Instant,
}

#[derive(Clone)]
enum State {
    Running,
    Released,
    Done(Bytes),
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn claim(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim, LedgerError> {
        loop {
            let mut running = match self.look(key, hash, holder, lease)? {
                Looked::Answer(claim) => return Ok(claim),
                Looked::Running(state) => state,
            };
            let ended = running.wait_for(|state| !matches!(state, State::Running));
            match tokio::time::timeout_at(wait_until, ended).await {
                // Look again: the key is answered, or free for the next one.
                Ok(_) => continue,
                Err(_) => return Ok(Claim::InFlight),
            }
        }
    }

    async fn seize(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let mut keys = self.keys.lock();
        let its =
            |entry: &&mut Entry| entry.hash == hash && entry.holder.call == holder.call && entry.is_running();
        let Some(entry) = keys.get_mut(&key).filter(its) else { return Ok(false) };
        entry.holder = holder;
        entry.expires = Instant::now() + lease;
        Ok(true)
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError> {
        let mut keys = self.keys.lock();
        let Some(entry) = keys.get_mut(&key).filter(|entry| entry.is_held_by(holder)) else {
            return Ok(false);
        };
        entry.expires = Instant::now() + lease;
        Ok(true)
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Bytes,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        let mut keys = self.keys.lock();
        let Some(entry) = keys.get_mut(&key).filter(|entry| entry.is_held_by(holder)) else {
            return Ok(false);
        };
        entry.expires = Instant::now() + keep;
        entry.state.send_replace(State::Done(answer));
        Ok(true)
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        let mut keys = self.keys.lock();
        if keys.get(&key).is_some_and(|entry| entry.is_held_by(holder))
            && let Some(entry) = keys.remove(&key)
        {
            entry.state.send_replace(State::Released);
        }
        Ok(())
    }
}

impl Entry {
    fn is_held_by(&self, holder: Holder) -> bool {
        self.holder == holder && self.is_running()
    }

    fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running)
    }
}

enum Looked {
    Answer(Claim),
    Running(watch::Receiver<State>),
}

impl MemoryLedger {
    fn look(
        &self,
        key: LedgerKey,
        hash: RequestHash,
        holder: Holder,
        lease: Duration,
    ) -> Result<Looked, LedgerError> {
        let now = Instant::now();
        let mut keys = self.keys.lock();
        if let Some(entry) = keys.get(&key) {
            let state = entry.state.borrow().clone();
            let expired = entry.expires <= now;
            match state {
                State::Done(_) if expired => {}
                _ if entry.hash != hash => return Ok(Looked::Answer(Claim::Conflict)),
                State::Done(answer) => return Ok(Looked::Answer(Claim::Replay(answer))),
                State::Running if expired => return Ok(Looked::Answer(Claim::Abandoned)),
                State::Running | State::Released => return Ok(Looked::Running(entry.state.subscribe())),
            }
        }
        if keys.len() >= MAX_KEYS {
            // A full table is looked through at most once a second, however many claims come.
            let mut swept = self.swept.lock();
            if swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EVERY) {
                *swept = Some(now);
                keys.retain(|_, entry| entry.expires > now);
            }
        }
        if keys.len() >= MAX_KEYS {
            return Err(LedgerError::Full);
        }
        let (state, _) = watch::channel(State::Running);
        keys.insert(key, Entry { hash, holder, state, expires: now + lease });
        Ok(Looked::Answer(Claim::New))
    }
}

/// The port's conformance suite; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(std::sync::Arc::new(MemoryLedger::default())).await;
    }
}
