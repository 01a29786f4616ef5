//! The idempotency ledger: one execution per key, and its answer for everyone who asks again.
//!
//! Owns: the [`Ledger`] port and its in-process backend. Refuses: choosing keys and lifetimes (the ledger
//! stage does). Keeps true: while a key is held, no second execution of it begins; a key seen with another
//! request hash is a conflict, never a replay (design §6 stage 6).

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Most keys the in-process backend keeps.
const MAX_KEYS: usize = 100_000;

/// SHA-256 of the scope and the key as the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LedgerKey(pub [u8; 32]);

/// SHA-256 of the request: same key, other hash means another request under a used key.
pub type RequestHash = [u8; 32];

/// What a key stands for when it is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key is new and held by the caller now, who must end with `complete` or `release`.
    New,
    /// The stored answer of the finished execution.
    Replay(Bytes),
    /// The key was used for another request.
    Conflict,
    /// An execution is still running at the deadline.
    InFlight,
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
    /// Claims `key`; where it is running, waits for its answer until `deadline`.
    async fn claim(&self, key: LedgerKey, hash: RequestHash, deadline: Instant)
    -> Result<Claim, LedgerError>;

    /// Stores the answer of a claimed key for `keep`.
    async fn complete(&self, key: LedgerKey, answer: Bytes, keep: Duration) -> Result<(), LedgerError>;

    /// Gives a claimed key back: nothing was executed, the next claim is new.
    async fn release(&self, key: LedgerKey) -> Result<(), LedgerError>;
}

/// The ledger of one process.
#[derive(Default)]
pub struct MemoryLedger {
    keys: Mutex<HashMap<LedgerKey, Entry>>,
}

struct Entry {
    hash: RequestHash,
    state: watch::Sender<State>,
    /// None while running.
    expires: Option<Instant>,
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
        deadline: Instant,
    ) -> Result<Claim, LedgerError> {
        loop {
            let mut running = match self.look(key, hash)? {
                Looked::Answer(claim) => return Ok(claim),
                Looked::Running(state) => state,
            };
            let ended = running.wait_for(|state| !matches!(state, State::Running));
            match tokio::time::timeout_at(deadline, ended).await {
                // Look again: the key is answered, or free for the next one.
                Ok(_) => continue,
                Err(_) => return Ok(Claim::InFlight),
            }
        }
    }

    async fn complete(&self, key: LedgerKey, answer: Bytes, keep: Duration) -> Result<(), LedgerError> {
        if let Some(entry) = self.keys.lock().get_mut(&key) {
            entry.expires = Some(Instant::now() + keep);
            entry.state.send_replace(State::Done(answer));
        }
        Ok(())
    }

    async fn release(&self, key: LedgerKey) -> Result<(), LedgerError> {
        if let Some(entry) = self.keys.lock().remove(&key) {
            entry.state.send_replace(State::Released);
        }
        Ok(())
    }
}

enum Looked {
    Answer(Claim),
    Running(watch::Receiver<State>),
}

impl MemoryLedger {
    fn look(&self, key: LedgerKey, hash: RequestHash) -> Result<Looked, LedgerError> {
        let now = Instant::now();
        let mut keys = self.keys.lock();
        if let Some(entry) = keys.get(&key)
            && entry.expires.is_none_or(|expires| expires > now)
        {
            if entry.hash != hash {
                return Ok(Looked::Answer(Claim::Conflict));
            }
            let state = entry.state.borrow().clone();
            return Ok(match state {
                State::Done(answer) => Looked::Answer(Claim::Replay(answer)),
                State::Running | State::Released => Looked::Running(entry.state.subscribe()),
            });
        }
        if keys.len() >= MAX_KEYS {
            keys.retain(|_, entry| entry.expires.is_none_or(|expires| expires > now));
        }
        if keys.len() >= MAX_KEYS {
            return Err(LedgerError::Full);
        }
        let (state, _) = watch::channel(State::Running);
        keys.insert(key, Entry { hash, state, expires: None });
        Ok(Looked::Answer(Claim::New))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const KEY: LedgerKey = LedgerKey([1; 32]);
    const HASH: RequestHash = [2; 32];
    const KEEP: Duration = Duration::from_secs(60);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_key_replays_its_answer_until_it_expires() {
        let ledger = MemoryLedger::default();
        assert_eq!(ledger.claim(KEY, HASH, soon()).await.unwrap(), Claim::New);
        ledger.complete(KEY, Bytes::from_static(b"42"), KEEP).await.unwrap();
        assert_eq!(
            ledger.claim(KEY, HASH, soon()).await.unwrap(),
            Claim::Replay(Bytes::from_static(b"42"))
        );
        tokio::time::advance(KEEP + Duration::from_secs(1)).await;
        assert_eq!(ledger.claim(KEY, HASH, soon()).await.unwrap(), Claim::New);
    }

    #[tokio::test]
    async fn another_request_under_a_used_key_is_a_conflict() {
        let ledger = MemoryLedger::default();
        ledger.claim(KEY, HASH, soon()).await.unwrap();
        assert_eq!(ledger.claim(KEY, [3; 32], soon()).await.unwrap(), Claim::Conflict);
        ledger.complete(KEY, Bytes::new(), KEEP).await.unwrap();
        assert_eq!(ledger.claim(KEY, [3; 32], soon()).await.unwrap(), Claim::Conflict);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_claim_waits_for_the_first_and_gets_its_answer() {
        let ledger = Arc::new(MemoryLedger::default());
        ledger.claim(KEY, HASH, soon()).await.unwrap();
        let second = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.claim(KEY, HASH, soon()).await.unwrap() }
        });
        tokio::task::yield_now().await;
        ledger.complete(KEY, Bytes::from_static(b"ok"), KEEP).await.unwrap();
        assert_eq!(second.await.unwrap(), Claim::Replay(Bytes::from_static(b"ok")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_key_is_in_flight_at_the_deadline_and_free_after_a_release() {
        let ledger = MemoryLedger::default();
        ledger.claim(KEY, HASH, soon()).await.unwrap();
        assert_eq!(ledger.claim(KEY, HASH, soon()).await.unwrap(), Claim::InFlight);
        ledger.release(KEY).await.unwrap();
        assert_eq!(ledger.claim(KEY, HASH, soon()).await.unwrap(), Claim::New);
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_one_waiter_executes_after_a_release() {
        let ledger = Arc::new(MemoryLedger::default());
        ledger.claim(KEY, HASH, soon()).await.unwrap();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let ledger = ledger.clone();
                tokio::spawn(async move { ledger.claim(KEY, HASH, soon()).await.unwrap() })
            })
            .collect();
        tokio::task::yield_now().await;
        ledger.release(KEY).await.unwrap();
        let mut new = 0;
        for waiter in waiters {
            match waiter.await.unwrap() {
                Claim::New => new += 1,
                Claim::InFlight => {}
                other => panic!("unexpected claim {other:?}"),
            }
        }
        assert_eq!(new, 1);
    }
}
