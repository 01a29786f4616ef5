//! What a plugin call saves for a successor of its worker: its checkpoint and the answers it was given.
//!
//! Owns: sealing and the row in the store. Keeps true: a checkpoint is acknowledged after it is stored; the
//! store holds nothing it could read (design §10); the row goes with the call.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::{Checkpoint, CheckpointAck, Resume};
use asp_store::active::{ActiveCalls, ActiveKey, Saved as Kept};
use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::Job;
use super::history::History;
use crate::call::Call;
use crate::clock::unix_ms;
use crate::seal::{Purpose, Sealer};

/// Largest capsule in bytes (plugin.proto).
const MAX_CAPSULE: usize = 64 << 10;
/// How long the store may take, so that a stuck one does not stop the call.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The saved state of a gateway's plugin calls.
#[derive(Clone)]
pub struct Saved {
    pub active: Arc<dyn ActiveCalls>,
    pub sealer: Arc<Sealer>,
}

/// The saved state could not be read back.
#[derive(Debug, thiserror::Error)]
#[error("the call's checkpoint cannot be read: {0}")]
pub(super) struct Unreadable(String);

impl Saved {
    /// Stores a checkpoint; the answer says whether the plugin may rely on it.
    pub(super) async fn checkpoint(
        &self,
        job: &Job<'_>,
        history: &mut History,
        checkpoint: Checkpoint,
    ) -> CheckpointAck {
        let Checkpoint { request_id, seq, capsule } = checkpoint;
        let error = if capsule.len() > MAX_CAPSULE {
            "too_large"
        } else if seq <= history.saved_seq {
            "stale"
        } else {
            match self.store(job, seq, &capsule).await {
                Ok(Kept::Stored) => {
                    history.saved(seq);
                    ""
                }
                Ok(Kept::Stale) => "stale",
                Err(why) => {
                    tracing::warn!(call = %job.call().id, error = %why, "checkpoint was not stored");
                    "unavailable"
                }
            }
        };
        CheckpointAck { request_id, seq, error: error.into() }
    }

    async fn store(&self, job: &Job<'_>, seq: u64, capsule: &[u8]) -> Result<Kept, String> {
        let context = context(job, seq);
        let sealed =
            self.sealer.seal_bytes(Purpose::Capsule, &context, capsule).map_err(|e| e.to_string())?;
        let key = key(job);
        let saving = self.active.save_capsule(&key, seq, Bytes::from(sealed));
        in_time(saving).await
    }

    /// Stores the answers so far; a store that does not take them costs a successor only its memory of them.
    pub(super) async fn answers(&self, job: &Job<'_>, history: &mut History) {
        if !history.resumes() {
            return;
        }
        let answers = history.answers().encode_to_vec();
        let stored = match self.sealer.seal_bytes(Purpose::Answers, &context(job, 0), &answers) {
            Ok(sealed) => in_time(self.active.save_answers(&key(job), Bytes::from(sealed))).await,
            Err(error) => Err(error.to_string()),
        };
        match stored {
            Ok(()) => history.has_row = true,
            Err(why) => tracing::warn!(call = %job.call().id, error = %why, "answers were not stored"),
        }
    }

    /// Adds the stored capsule to what the next execution goes on with.
    pub(super) async fn with_capsule(&self, job: &Job<'_>, mut resume: Resume) -> Result<Resume, Unreadable> {
        if resume.seq > 0 {
            let call = *job.call().id.as_bytes();
            let row = in_time(self.active.find(call)).await.map_err(Unreadable)?;
            let row = row.ok_or_else(|| Unreadable("it is gone".into()))?;
            let opened = self.sealer.open_bytes(Purpose::Capsule, &context(job, row.seq), &row.capsule);
            resume.capsule = opened.ok_or_else(|| Unreadable("it was altered".into()))?;
            resume.seq = row.seq;
        }
        Ok(resume)
    }

    /// The call has ended.
    pub(super) async fn end(&self, call: &Call) {
        if let Err(why) = in_time(self.active.end(*call.id.as_bytes())).await {
            // The row's own time ends it.
            tracing::debug!(call = %call.id, error = %why, "row of an ended call stays");
        }
    }
}

async fn in_time<T, E: std::fmt::Display>(storing: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(STORE_TIMEOUT, storing).await {
        Ok(stored) => stored.map_err(|e| e.to_string()),
        Err(_) => Err("the store did not answer in time".into()),
    }
}

/// A capsule opens only for its call, its caller's org, its plugin and its number.
fn context(job: &Job<'_>, seq: u64) -> Vec<u8> {
    let call = job.call();
    let texts = [call.caller.org.as_str(), job.plugin.id.as_str(), job.plugin.version.as_str()];
    [call.id.as_bytes().as_slice(), &seq.to_be_bytes(), &crate::digest::of_parts(&texts)].concat()
}

fn key(job: &Job<'_>) -> ActiveKey {
    let call = job.call();
    let left = call.deadline.saturating_duration_since(Instant::now());
    let expires = unix_ms().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    ActiveKey {
        call: *call.id.as_bytes(),
        org: call.caller.org.clone(),
        plugin: format!("{}@{}", job.plugin.id, job.plugin.version),
        expires_ms: i64::try_from(expires).unwrap_or(i64::MAX),
    }
}
