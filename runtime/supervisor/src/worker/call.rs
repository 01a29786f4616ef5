//! One call in a worker: the messages it may send, and how long it may run.
//!
//! Keeps true: artifact bytes arrive without gaps and within the plugin's disk limit; questions are declared, and at
//! most `MAX_QUESTIONS` are open, and as many requests for the plugin's storage. A gateway that reads slowly slows its worker
//! down without a time limit, unless another call of the worker waits for its own end; a gateway that reads nothing for
//! `MAX_STALL` loses the call, and is notified. The end of a call does not wait for anything.

mod stall;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asp_proto::grace::MAX_STALL;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{ArtifactData, ArtifactEmitted, Checkpoint, ServerMessage, StorageRequested};
use asp_proto::supervisor::PppServerFrame;
use asp_proto::supervisor::tunnel_event::Type;
use parking_lot::Mutex;
use prost::Name;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use stall::{Stall, StallGuard};

use crate::cause::Cause;
use crate::ppp::outbox::{Outbox, SendError};
use crate::ppp::{event_frame, fields};

/// Fault of a plugin that speaks as a stdio server.
pub const ONLY_STDIO: Cause = Cause::Protocol("a message that only a stdio server sends");
const MAX_QUESTIONS: usize = 16;
/// Maximum length of a correlation id. The plugin chooses it: a name and a digest in each of our languages.
const MAX_CORRELATION: usize = 1024;
/// Maximum number of artifacts over the whole call, as at the gateway: an empty artifact has no bytes, but takes a file
/// and a name in the store.
const MAX_ARTIFACTS: usize = 256;
const MAX_PIECE: usize = 64 << 10;
/// Maximum length of an artifact's URI in bytes, as at the gateway, which keeps the URIs of a call until it ends.
const MAX_URI: usize = 4096;
const MAX_CAPSULE: usize = 64 << 10;
/// Maximum number of checkpoints that the gateway has not acknowledged.
const MAX_UNSAVED: usize = 16;
/// Maximum number of storage requests that the gateway has not answered.
const MAX_STORAGE_REQUESTS: usize = 16;
/// Time in addition to the input timeout, which the gateway enforces: its answer must arrive first.
const QUESTION_SLACK: Duration = Duration::from_secs(5);
const SILENT_HEARTBEATS: u32 = 3;

/// The manifest's rules for the plugin's calls.
#[derive(Clone, Debug)]
pub struct CallRules {
    pub max_runtime: Duration,
    pub input_timeout: Duration,
    /// Heartbeat interval of a task; `None` for the other kinds.
    pub heartbeat: Option<Duration>,
    pub artifact_bytes: u64,
    pub log_bytes_per_second: u64,
    pub elicitations: BTreeSet<String>,
    pub delegations: BTreeSet<String>,
    /// Whether the worker is a stdio server, which is called by lines, asks in its own protocol and declares nothing.
    pub is_stdio: bool,
}

/// Outcome of a call for its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The worker sent `completed` or `failed`.
    Answered,
    Crashed(Cause),
}

#[derive(Debug)]
pub struct Call {
    pub request_id: String,
    outbox: Outbox,
    rules: Arc<CallRules>,
    state: Mutex<State>,
    end: watch::Sender<Option<CallEnd>>,
    /// Cancelled when the call must end now: messages that its gateway does not take at once are dropped, so that the
    /// end gets through.
    hurry: CancellationToken,
    /// Cancelled when the call must end because it is run again elsewhere.
    pub superseded: CancellationToken,
    stall: Arc<Stall>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    /// The gateway's own deadline for the call.
    deadline: Option<Instant>,
    /// End of a subscription; no other time limit applies to it.
    stays_until: Option<Instant>,
    delivered: bool,
    /// Open elicitations and delegations, by kind (true: delegation) and id.
    questions: BTreeSet<(bool, String)>,
    /// Time at which the first of the open questions was asked.
    asked: Option<Instant>,
    /// Time spent with open questions, excluding the current ones.
    paused: Duration,
    last_event: Instant,
    /// Bytes so far of artifacts that were begun and not emitted, by URI.
    artifacts: BTreeMap<String, u64>,
    artifacts_begun: usize,
    artifact_bytes: u64,
    unsaved: usize,
    storage_requests: usize,
    /// Whether the call was cancelled.
    stopped: bool,
    /// Whether its worker is being stopped: ending as cancelled is then a loss to the gateway, which cancelled nothing.
    closed: bool,
    /// Whether an event was dropped: the events after it would refer to something that the gateway has not seen.
    cut: bool,
    /// Whether events are discarded because nobody reads them; the worker may still be finishing.
    muted: bool,
}

impl Call {
    pub fn new(request_id: String, outbox: Outbox, rules: Arc<CallRules>, deadline: Option<Instant>) -> Call {
        let now = Instant::now();
        let state = State {
            started: now,
            deadline,
            stays_until: None,
            delivered: false,
            questions: BTreeSet::new(),
            asked: None,
            paused: Duration::ZERO,
            last_event: now,
            artifacts: BTreeMap::new(),
            artifacts_begun: 0,
            artifact_bytes: 0,
            unsaved: 0,
            storage_requests: 0,
            stopped: false,
            closed: false,
            cut: false,
            muted: false,
        };
        Call {
            request_id,
            outbox,
            rules,
            state: Mutex::new(state),
            end: watch::Sender::new(None),
            hurry: CancellationToken::new(),
            superseded: CancellationToken::new(),
            stall: Arc::default(),
        }
    }

    /// Assigns the call to the worker that has these stalls.
    pub fn of_worker(self, stall: Arc<Stall>) -> Call {
        Call { stall, ..self }
    }

    /// Stalls of the call's worker: times in which its messages were not read.
    pub fn stall(&self) -> &Stall {
        &self.stall
    }

    /// Makes the call a subscription that lasts until `end`; no other time limit applies.
    pub fn stay_until(&self, end: Instant) {
        self.state.lock().stays_until = Some(end);
    }

    /// Records that the worker received the call.
    pub fn record_delivery(&self) {
        self.state.lock().delivered = true;
    }

    /// Handles an event from the worker. `Err`: the worker broke a rule, and must be stopped.
    pub async fn receive(&self, payload: Payload) -> Result<(), Cause> {
        let ends = matches!(payload, Payload::Completed(_) | Payload::Failed(_) | Payload::LineAnswer(_));
        self.check(&payload)?;
        if self.is_cut_off(&payload) {
            self.crash(Cause::Drained);
            return Ok(());
        }
        let message = ServerMessage { payload: Some(payload) };
        if ends {
            self.conclude(&message);
            self.end.send_replace(Some(CallEnd::Answered));
        } else {
            self.pass(&message, Some(&self.stall)).await;
        }
        Ok(())
    }

    /// Forwards an event to the gateway, waiting as long as the gateway reads; ends the call if it does not.
    pub async fn forward<M: Name>(&self, message: &M) {
        self.pass(message, None).await;
    }

    /// `stall`: the stall of the stream that is not read in the meantime.
    async fn pass<M: Name>(&self, message: &M, stall: Option<&Stall>) {
        {
            let mut state = self.state.lock();
            state.last_event = Instant::now();
            if state.muted || state.cut {
                return;
            }
        }
        let frame = PppServerFrame::carrying(self.outbox.tunnel_id(), message);
        let Err(frame) = self.outbox.try_send(frame) else { return };
        let stalled = StallGuard::on(stall);
        let sent = tokio::select! {
            sent = self.outbox.send(frame, MAX_STALL) => Some(sent),
            () = stalled.wait_until_given_up() => Some(Err(SendError::NoRoom)),
            () = self.hurry.cancelled() => None,
        };
        drop(stalled);
        match sent {
            Some(Ok(()) | Err(SendError::Gone)) => {}
            None => self.state.lock().cut = true,
            Some(Err(SendError::NoRoom)) => {
                self.state.lock().muted = true;
                self.overload();
            }
        }
    }

    /// Sends the call's last message to the gateway, whether or not it reads.
    pub fn conclude<M: Name>(&self, message: &M) {
        if !self.state.lock().muted {
            self.outbox.send_last(PppServerFrame::carrying(self.outbox.tunnel_id(), message));
        }
    }

    /// Drops events that would have to wait from now on, so that the call's end gets through.
    pub fn drop_when_blocked(&self) {
        self.hurry.cancel();
    }

    /// Records that a question was answered.
    pub fn record_answer(&self, delegation: bool, id: &str) {
        let mut state = self.state.lock();
        if state.questions.remove(&(delegation, id.to_owned())) && state.questions.is_empty() {
            let now = Instant::now();
            let asked = state.asked.take();
            state.paused += asked.map_or(Duration::ZERO, |asked| now - asked);
            state.last_event = now;
        }
    }

    /// Records that the call was cancelled. `closed`: because its worker is being stopped.
    pub fn stop(&self, closed: bool) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.closed |= closed;
    }

    /// Whether the call was cancelled, by the runtime, its gateway or its own worker.
    pub fn was_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Records that a checkpoint was acknowledged.
    pub fn record_checkpoint(&self) {
        let mut state = self.state.lock();
        state.unsaved = state.unsaved.saturating_sub(1);
    }

    /// Records that a storage request was answered.
    pub fn record_storage_answer(&self) {
        let mut state = self.state.lock();
        state.storage_requests = state.storage_requests.saturating_sub(1);
    }

    /// Discards everything that the worker still sends for this call.
    pub fn mute(&self) {
        self.state.lock().muted = true;
    }

    /// Returns the time at which the call must be cancelled, unless something changes before, and the reason.
    pub fn limit(&self) -> (Instant, &'static str) {
        let state = self.state.lock();
        if let Some(end) = state.stays_until {
            return (end, "deadline");
        }
        let mut limits = Vec::with_capacity(3);
        limits.extend(state.deadline.map(|end| (end, "deadline")));
        match state.asked {
            Some(asked) => limits.push((asked + self.rules.input_timeout + QUESTION_SLACK, "input expired")),
            None => {
                limits.push((state.started + state.paused + self.rules.max_runtime, "maximum runtime"));
                let silence = self.rules.heartbeat.map(|beat| beat * SILENT_HEARTBEATS);
                let last_sign =
                    self.stall.last().map_or(state.last_event, |moment| moment.max(state.last_event));
                limits.extend(silence.map(|silence| (last_sign + silence, "no heartbeat")));
            }
        }
        // There is always one: for the question or for the runtime.
        limits.into_iter().min_by_key(|(end, _)| *end).unwrap_or((state.started, "deadline"))
    }

    /// Waits for the end of the call.
    pub async fn wait_for_end(&self) -> CallEnd {
        let mut end = self.end.subscribe();
        // Err: impossible, the sender is in `self`.
        end.wait_for(Option::is_some).await.ok().and_then(|end| *end).unwrap_or(CallEnd::Answered)
    }

    /// Returns the end of the call, if it has ended.
    pub fn end(&self) -> Option<CallEnd> {
        *self.end.borrow()
    }

    /// Ends the call together with its worker.
    pub fn crash(&self, cause: Cause) {
        let (delivered, muted) = {
            let state = self.state.lock();
            (state.delivered, state.muted)
        };
        if !muted {
            let details = fields([("cause", cause.name().into()), ("delivered", delivered.into())]);
            let frame =
                event_frame(self.outbox.tunnel_id(), Type::WorkerCrashed, &cause.to_string(), Some(details));
            self.outbox.send_last(frame);
        }
        self.end.send_replace(Some(CallEnd::Crashed(cause)));
    }

    /// Ends a call that is not part of the session stream and has succeeded.
    pub fn finish(&self) {
        self.end.send_replace(Some(CallEnd::Answered));
    }

    fn overload(&self) {
        let text = "the gateway did not read the call's results in time";
        tracing::warn!(
            runtime = true,
            call = self.request_id,
            "a gateway did not read the results of a call in time; the call was ended so that others of its worker \
             continue; check whether the gateway or its caller hangs"
        );
        let frame = event_frame(self.outbox.tunnel_id(), Type::RuntimeOverload, text, None);
        self.outbox.give_up(frame);
    }

    fn check(&self, payload: &Payload) -> Result<(), Cause> {
        match payload {
            Payload::Elicitation(asked) => self.ask(
                false,
                &asked.elicitation_id,
                self.rules.elicitations.contains(&asked.elicitation_id),
            ),
            Payload::Delegation(asked) => {
                if asked.correlation_id.len() > MAX_CORRELATION {
                    return Err(Cause::Protocol("a delegation's correlation id is too long"));
                }
                self.ask(true, &asked.correlation_id, self.rules.delegations.contains(&asked.delegate_id))
            }
            Payload::McpRequested(asked) if asked.withdrawn => {
                self.record_answer(true, &asked.correlation_id);
                Ok(())
            }
            Payload::McpRequested(asked) => self.ask(true, &asked.correlation_id, self.rules.is_stdio),
            Payload::McpListsChanged(_) => {
                Err(Cause::Protocol("a plugin cannot change lists: specs define them"))
            }
            Payload::LineNotification(_) if !self.rules.is_stdio => Err(ONLY_STDIO),
            Payload::ArtifactData(piece) => self.piece(piece),
            Payload::Artifact(artifact) => self.artifact(artifact),
            Payload::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            Payload::StorageRequested(asked) => self.storage_request(asked),
            _ => Ok(()),
        }
    }

    /// Whether the call ends because its worker is being stopped, and not because it is complete.
    fn is_cut_off(&self, payload: &Payload) -> bool {
        let Payload::Failed(end) = payload else { return false };
        let cancelled = end.code == "CANCELLED";
        let mut state = self.state.lock();
        // A shim enforces the deadline too, and may be faster.
        state.stopped |= cancelled || end.code == "DEADLINE";
        state.closed && cancelled && !end.yielded
    }

    fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), Cause> {
        if checkpoint.capsule.len() > MAX_CAPSULE {
            return Err(Cause::Protocol("an oversize checkpoint"));
        }
        let mut state = self.state.lock();
        state.unsaved += 1;
        if state.unsaved > MAX_UNSAVED {
            return Err(Cause::Limit("unacknowledged checkpoints"));
        }
        Ok(())
    }

    fn storage_request(&self, asked: &StorageRequested) -> Result<(), Cause> {
        if asked.correlation_id.len() > MAX_CORRELATION {
            return Err(Cause::Protocol("a storage request's correlation id is too long"));
        }
        let mut state = self.state.lock();
        state.storage_requests += 1;
        if state.storage_requests > MAX_STORAGE_REQUESTS {
            return Err(Cause::Limit("unanswered storage requests"));
        }
        Ok(())
    }

    fn ask(&self, delegation: bool, id: &str, declared: bool) -> Result<(), Cause> {
        if !declared {
            return Err(Cause::Protocol("an undeclared elicitation or delegation"));
        }
        let mut state = self.state.lock();
        state.questions.insert((delegation, id.to_owned()));
        if state.questions.len() > MAX_QUESTIONS {
            return Err(Cause::Limit("open questions"));
        }
        state.asked.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn piece(&self, piece: &ArtifactData) -> Result<(), Cause> {
        if piece.data.len() > MAX_PIECE {
            return Err(Cause::Protocol("a piece of an artifact is too large"));
        }
        if piece.uri.len() > MAX_URI {
            return Err(Cause::Protocol("an artifact's URI is too long"));
        }
        let mut state = self.state.lock();
        let length = piece.data.len() as u64;
        if !state.artifacts.contains_key(&piece.uri) {
            state.begin_artifact()?;
        }
        let next = state.artifacts.entry(piece.uri.clone()).or_default();
        if *next != piece.offset {
            return Err(Cause::Protocol("an artifact with gaps"));
        }
        *next += length;
        state.artifact_bytes += length;
        if state.artifact_bytes > self.rules.artifact_bytes {
            return Err(Cause::Limit("artifact bytes"));
        }
        Ok(())
    }

    fn artifact(&self, artifact: &ArtifactEmitted) -> Result<(), Cause> {
        let mut state = self.state.lock();
        let sent = match state.artifacts.remove(&artifact.uri) {
            Some(sent) => sent,
            // An artifact stored elsewhere takes nothing here.
            None if artifact.uri.starts_with("https://") => 0,
            None => state.begin_artifact().map(|()| 0)?,
        };
        if artifact.size != sent {
            return Err(Cause::Protocol("an artifact's size differs from the sent bytes"));
        }
        Ok(())
    }
}

impl State {
    fn begin_artifact(&mut self) -> Result<(), Cause> {
        self.artifacts_begun += 1;
        if self.artifacts_begun > MAX_ARTIFACTS { Err(Cause::Limit("artifacts")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
