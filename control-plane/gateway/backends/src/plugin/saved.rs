//! State that a plugin call saves for a successor of its worker or of its gateway: its checkpoint and its progress.
//!
//! Keeps true: a checkpoint is acknowledged after it is stored; the row is deleted with the call (ADR 6).

use asp_call::durable::active::ActiveFault;
use asp_call::durable::record::Record;
use asp_proto::plugin::{Checkpoint, CheckpointAck, Resume};
use asp_store::records::Save;

use super::attempt_state::AttemptState;
use super::dependencies::SavedCalls;
use super::job::Job;

/// Maximum size of a capsule in bytes (plugin.proto).
const MAX_CAPSULE: usize = 64 << 10;

impl SavedCalls {
    /// Stores a checkpoint; the acknowledgement says whether the plugin may rely on it.
    pub(super) async fn checkpoint(
        &self,
        job: &Job<'_>,
        attempt_state: &mut AttemptState,
        checkpoint: Checkpoint,
    ) -> CheckpointAck {
        let Checkpoint { request_id, seq, capsule } = checkpoint;
        let error = if capsule.len() > MAX_CAPSULE {
            "too_large"
        } else if seq <= attempt_state.saved_seq {
            "stale"
        } else {
            match self.store(job, seq, &capsule, attempt_state.memory(true)).await {
                Ok(Save::Stored) => {
                    attempt_state.saved(seq);
                    note_saved(job, attempt_state);
                    ""
                }
                Ok(Save::Stale) => "stale",
                Ok(Save::NotOwner) => "unavailable",
                Err(error) => {
                    tracing::warn!(call = %job.call().id, trace = %job.call().trace, %error, "a checkpoint was not stored, and its plugin was notified; after a loss the call continues from an earlier one: check the store");
                    "unavailable"
                }
            }
        };
        CheckpointAck { request_id, seq, error: error.into() }
    }

    async fn store(
        &self,
        job: &Job<'_>,
        seq: u64,
        capsule: &[u8],
        memory: Vec<u8>,
    ) -> Result<Save, ActiveFault> {
        self.row(job).await?;
        self.active.save_capsule(job.call(), seq, capsule, &memory).await
    }

    /// Stores the state of a call whose plugin can resume from there; if the store fails, a successor lacks only this
    /// state.
    pub(super) async fn state(&self, job: &Job<'_>, attempt_state: &mut AttemptState) {
        if !attempt_state.resumes() {
            return;
        }
        let memory = attempt_state.memory(false);
        let stored = match self.row(job).await {
            Ok(()) => self.active.save_memory(job.call(), &memory).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => note_saved(job, attempt_state),
            Err(error) => {
                tracing::warn!(call = %job.call().id, trace = %job.call().trace, %error, "the state of a call was not stored: at another gateway it would ask answered questions again; check the store");
            }
        }
    }

    /// Stores that the call was taken over, before its worker gets it: otherwise a call that crashes its gateway
    /// would crash every gateway in turn.
    pub(super) async fn save_takeover(&self, job: &Job<'_>, attempt_state: &mut AttemptState) {
        match self.active.save_memory(job.call(), &attempt_state.memory(false)).await {
            Ok(()) if attempt_state.resumes() => {
                job.call().ownership.resumes.set();
            }
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(call = %job.call().id, trace = %job.call().trace, %error, "the takeover of a call was not stored: if the call crashes this gateway, the next one does not count it; check the store");
            }
        }
    }

    /// Creates the call's row before it saves something for the first time.
    async fn row(&self, job: &Job<'_>) -> Result<(), ActiveFault> {
        let call = job.call();
        if call.ownership.is_stored() {
            return Ok(());
        }
        let execution = job.execution;
        self.active.put(call, &Record::of(call, &execution.arguments, execution.budget, true)).await
    }

    /// Adds the stored capsule to the state from which the next execution resumes.
    pub(super) async fn with_capsule(
        &self,
        job: &Job<'_>,
        mut resume: Resume,
    ) -> Result<Resume, ActiveFault> {
        if resume.seq > 0 {
            (resume.seq, resume.capsule) = self.active.capsule(job.call()).await?;
        }
        Ok(resume)
    }
}

/// Records that the state and the answers in it are stored.
fn note_saved(job: &Job<'_>, attempt_state: &mut AttemptState) {
    let call = job.call();
    call.ownership.resumes.set();
    for question in attempt_state.unsaved.drain(..) {
        call.questions.note_saved(question);
    }
}
