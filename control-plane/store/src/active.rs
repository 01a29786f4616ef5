//! Running calls that could go on elsewhere: what another worker needs to take one over.
//!
//! Owns: the [`ActiveCalls`] port and its in-process backend. Refuses: reading what it keeps; capsules and
//! answers arrive sealed by the gateway. Keeps true: a checkpoint is never replaced by an older one; a row ends
//! with its call or with its time (design §10).

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

/// Most rows the in-process backend keeps.
const MAX_ROWS: usize = 10_000;

/// The id of a call: its UUID.
pub type CallId = [u8; 16];

/// Whose row it is and how long it may live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    pub call: CallId,
    pub org: String,
    /// `id@version` of the plugin that runs the call.
    pub plugin: String,
    /// Unix milliseconds; the end of the call's time.
    pub expires_ms: i64,
}

/// What is kept of a running call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCall {
    pub org: String,
    pub plugin: String,
    /// The number of the capsule; 0 before the first.
    pub seq: u64,
    /// Sealed; empty before the first.
    pub capsule: Bytes,
    /// Sealed; what the caller has answered so far, empty before the first answer.
    pub answers: Bytes,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    Stored,
    /// One with the same or a higher number is stored already.
    Stale,
}

#[derive(Debug, thiserror::Error)]
pub enum ActiveError {
    #[error("active calls are not available: {0}")]
    Unavailable(String),
    #[error("too many active calls")]
    Full,
}

/// Keeps what running calls have saved.
#[async_trait]
pub trait ActiveCalls: Send + Sync {
    /// Stores a capsule with the number `seq`, which rises within a call from 1; on return it is durable.
    async fn save_capsule(&self, key: &ActiveKey, seq: u64, capsule: Bytes) -> Result<Saved, ActiveError>;

    /// Replaces the answers; on return they are durable.
    async fn save_answers(&self, key: &ActiveKey, answers: Bytes) -> Result<(), ActiveError>;

    /// What is kept of a call.
    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError>;

    /// The call has ended; nothing of it is needed any more.
    async fn end(&self, call: CallId) -> Result<(), ActiveError>;
}

/// The active calls of one process.
#[derive(Default)]
pub struct MemoryActive {
    rows: Mutex<HashMap<CallId, (i64, ActiveCall)>>,
}

impl MemoryActive {
    fn change<T>(
        &self,
        key: &ActiveKey,
        change: impl FnOnce(&mut ActiveCall) -> T,
    ) -> Result<T, ActiveError> {
        let mut rows = self.rows.lock();
        if rows.len() >= MAX_ROWS && !rows.contains_key(&key.call) {
            let now = crate::calls::now_ms();
            rows.retain(|_, (expires_ms, _)| *expires_ms > now);
            if rows.len() >= MAX_ROWS {
                return Err(ActiveError::Full);
            }
        }
        let (_, row) = rows.entry(key.call).or_insert_with(|| {
            let row = ActiveCall {
                org: key.org.clone(),
                plugin: key.plugin.clone(),
                seq: 0,
                capsule: Bytes::new(),
                answers: Bytes::new(),
            };
            (key.expires_ms, row)
        });
        Ok(change(row))
    }
}

#[async_trait]
impl ActiveCalls for MemoryActive {
    async fn save_capsule(&self, key: &ActiveKey, seq: u64, capsule: Bytes) -> Result<Saved, ActiveError> {
        self.change(key, |row| {
            if seq <= row.seq {
                return Saved::Stale;
            }
            (row.seq, row.capsule) = (seq, capsule);
            Saved::Stored
        })
    }

    async fn save_answers(&self, key: &ActiveKey, answers: Bytes) -> Result<(), ActiveError> {
        self.change(key, |row| row.answers = answers)
    }

    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError> {
        Ok(self.rows.lock().get(&call).map(|(_, row)| row.clone()))
    }

    async fn end(&self, call: CallId) -> Result<(), ActiveError> {
        self.rows.lock().remove(&call);
        Ok(())
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
        suite::run(&MemoryActive::default()).await;
    }

    #[tokio::test]
    async fn the_memory_backend_is_bounded_and_makes_room_by_time() {
        let active = MemoryActive::default();
        let key = |n: usize, expires_ms: i64| ActiveKey {
            call: (n as u128).to_be_bytes(),
            org: String::new(),
            plugin: String::new(),
            expires_ms,
        };
        for n in 0..MAX_ROWS {
            let expires_ms = if n == 0 { 0 } else { i64::MAX };
            active.save_capsule(&key(n, expires_ms), 1, Bytes::new()).await.unwrap();
        }
        active.save_capsule(&key(MAX_ROWS, i64::MAX), 1, Bytes::new()).await.unwrap();
        assert!(active.find(key(0, 0).call).await.unwrap().is_none());
        let refused = active.save_capsule(&key(MAX_ROWS + 1, i64::MAX), 1, Bytes::new()).await;
        assert!(matches!(refused, Err(ActiveError::Full)));
    }
}
