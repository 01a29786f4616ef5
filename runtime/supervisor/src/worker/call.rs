//! One call in a worker: what it may send, and how long it may run.
//!
//! Keeps true: artifact bytes come without gaps and within the plugin's disk bound, questions are declared and
//! at most `MAX_QUESTIONS` are open. A gateway that reads slowly slows its worker down, however long it takes, unless a
//! call beside it waits for its own end meanwhile; one that reads nothing for `PATIENCE` loses the call, and is told.
//! The end of a call waits for nobody.

mod stall;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{ArtifactData, ArtifactEmitted, Checkpoint, ServerMessage};
use asp_proto::supervisor::PppServerFrame;
use asp_proto::supervisor::tunnel_event::Type;
use parking_lot::Mutex;
use prost::Name;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use stall::{Stall, Stalled};

use crate::cause::Cause;
use crate::ppp::outbox::{Outbox, Unsent};
use crate::ppp::{boolean, event_frame, fields, text};

/// Between a cancel and the end of a worker that ignores it.
pub const GRACE: Duration = Duration::from_secs(2);
const MAX_QUESTIONS: usize = 16;
/// Correlation ids are the plugin's own: a name and a digest in each of our languages.
const MAX_CORRELATION: usize = 1024;
/// Over the whole call, as at the gateway: an empty artifact takes no bytes, and a file and a name in the store.
const MAX_ARTIFACTS: usize = 256;
const MAX_PIECE: usize = 64 << 10;
/// Longest URI of an artifact in bytes, as at the gateway: a call's are kept to its end.
const MAX_URI: usize = 4096;
const MAX_CAPSULE: usize = 64 << 10;
/// Checkpoints that the gateway has not acknowledged.
const MAX_UNSAVED: usize = 16;
/// How long a gateway may read nothing of a call whose outbox is full. The worker's stream is not read meanwhile, so
/// that its other calls wait too; a gateway gives up a store that does not answer sooner than this.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Beyond the input timeout, which the gateway keeps: so that its answer arrives first.
const QUESTION_SLACK: Duration = Duration::from_secs(5);
const SILENT_HEARTBEATS: u32 = 3;

/// What the plugin's manifest says of its calls.
#[derive(Clone, Debug)]
pub struct Rules {
    pub max_runtime: Duration,
    pub input_timeout: Duration,
    /// Of a task; `None` for the other kinds.
    pub heartbeat: Option<Duration>,
    pub artifact_bytes: u64,
    pub log_bytes_per_second: u64,
    pub elicitations: BTreeSet<String>,
    pub delegations: BTreeSet<String>,
    /// The worker is an MCP server, which asks in its own protocol and declares nothing.
    pub is_mcp: bool,
}

/// How a call ended for its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The worker said `completed` or `failed`.
    Answered,
    Crashed(Cause),
}

#[derive(Debug)]
pub struct Call {
    pub request_id: String,
    outbox: Outbox,
    rules: Arc<Rules>,
    state: Mutex<State>,
    end: watch::Sender<Option<End>>,
    /// The call must end now: what its gateway does not take at once is dropped, so that the end gets through.
    hurry: CancellationToken,
    /// The call is to be run again.
    superseded: CancellationToken,
    stall: Arc<Stall>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    /// The gateway's own end of the call.
    deadline: Option<Instant>,
    /// The only end of what stays.
    stays_until: Option<Instant>,
    delivered: bool,
    /// Open elicitations and delegations, by their kind and id.
    questions: BTreeSet<(bool, String)>,
    /// When the first of the open questions was asked.
    asked: Option<Instant>,
    /// Time spent with open questions before now.
    paused: Duration,
    last_event: Instant,
    /// Bytes so far of those that were begun and not emitted, by their URI.
    artifacts: BTreeMap<String, u64>,
    artifacts_begun: usize,
    artifact_bytes: u64,
    unsaved: usize,
    /// It was told to end.
    stopped: bool,
    /// Its worker goes: an end as cancelled is a loss to the gateway, which cancelled nothing.
    closed: bool,
    /// An event was dropped: those after it would tell of what the gateway has not seen.
    cut: bool,
    /// Nobody listens any more; the worker may still be finishing.
    muted: bool,
}

impl Call {
    pub fn new(request_id: String, outbox: Outbox, rules: Arc<Rules>, deadline: Option<Instant>) -> Call {
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

    /// The call is one of the worker whose stalls these are.
    pub fn of_worker(self, stall: Arc<Stall>) -> Call {
        Call { stall, ..self }
    }

    /// When the call's worker could not be heard.
    pub fn stall(&self) -> &Stall {
        &self.stall
    }

    /// It is no call that runs, but stays: nothing else ends it by time.
    pub fn stay_until(&self, end: Instant) {
        self.state.lock().stays_until = Some(end);
    }

    /// The worker has been given the call.
    pub fn delivered(&self) {
        self.state.lock().delivered = true;
    }

    /// Takes an event from the worker. `Err`: the worker broke a rule, and must end.
    pub async fn receive(&self, payload: Payload) -> Result<(), Cause> {
        let ends = matches!(payload, Payload::Completed(_) | Payload::Failed(_));
        self.check(&payload)?;
        if self.is_cut_off(&payload) {
            self.crash(Cause::Drained);
            return Ok(());
        }
        let message = ServerMessage { payload: Some(payload) };
        if ends {
            self.conclude(&message);
            self.end.send_replace(Some(End::Answered));
        } else {
            self.pass(&message, Some(&self.stall)).await;
        }
        Ok(())
    }

    /// Passes an event to the gateway, waiting as long as it reads; ends the call for one that does not.
    pub async fn forward<M: Name>(&self, message: &M) {
        self.pass(message, None).await;
    }

    /// `stall`: of the stream that nobody reads meanwhile.
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
        let stalled = Stalled::on(stall);
        let sent = tokio::select! {
            sent = self.outbox.send(frame, PATIENCE) => Some(sent),
            () = stalled.given_up() => Some(Err(Unsent::NoRoom)),
            () = self.hurry.cancelled() => None,
        };
        drop(stalled);
        match sent {
            Some(Ok(()) | Err(Unsent::Gone)) => {}
            None => self.state.lock().cut = true,
            Some(Err(Unsent::NoRoom)) => {
                self.state.lock().muted = true;
                self.overload();
            }
        }
    }

    /// Passes the call's last message to the gateway, whether it reads or not.
    pub fn conclude<M: Name>(&self, message: &M) {
        if !self.state.lock().muted {
            self.outbox.send_last(PppServerFrame::carrying(self.outbox.tunnel_id(), message));
        }
    }

    /// From now on the call's end is what counts.
    pub fn hurry(&self) {
        self.hurry.cancel();
    }

    /// Notes that a question was answered.
    pub fn answered(&self, delegation: bool, id: &str) {
        let mut state = self.state.lock();
        if state.questions.remove(&(delegation, id.to_owned())) && state.questions.is_empty() {
            let now = Instant::now();
            let asked = state.asked.take();
            state.paused += asked.map_or(Duration::ZERO, |asked| now - asked);
            state.last_event = now;
        }
    }

    /// Notes that the call was told to end. `closed`: because its worker goes.
    pub fn stop(&self, closed: bool) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.closed |= closed;
    }

    /// Whether the call was told to end, by the runtime, its gateway or its own worker.
    pub fn was_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Notes that a checkpoint was acknowledged.
    pub fn saved(&self) {
        let mut state = self.state.lock();
        state.unsaved = state.unsaved.saturating_sub(1);
    }

    /// Drops what the worker still sends for this call.
    pub fn mute(&self) {
        self.state.lock().muted = true;
    }

    /// Asks the call to end, because it is run again elsewhere.
    pub fn supersede(&self) {
        self.superseded.cancel();
    }

    /// Ends when the call is run again elsewhere.
    pub async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    /// When the call must be cancelled, and why, unless something changes before.
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
                let heard = self.stall.last().map_or(state.last_event, |moment| moment.max(state.last_event));
                limits.extend(silence.map(|silence| (heard + silence, "no heartbeat")));
            }
        }
        // There is always one: the question's or the runtime's.
        limits.into_iter().min_by_key(|(end, _)| *end).unwrap_or((state.started, "deadline"))
    }

    /// The end of the call, once it is there.
    pub async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        // Err: the sender is in `self`.
        end.wait_for(Option::is_some).await.ok().and_then(|end| *end).unwrap_or(End::Answered)
    }

    /// The end of the call, if it is there.
    pub fn end(&self) -> Option<End> {
        *self.end.borrow()
    }

    /// The call ends with its worker.
    pub fn crash(&self, cause: Cause) {
        let (delivered, muted) = {
            let state = self.state.lock();
            (state.delivered, state.muted)
        };
        if !muted {
            let details = fields([("cause", text(cause.name())), ("delivered", boolean(delivered))]);
            let frame =
                event_frame(self.outbox.tunnel_id(), Type::WorkerCrashed, &cause.to_string(), Some(details));
            self.outbox.send_last(frame);
        }
        self.end.send_replace(Some(End::Crashed(cause)));
    }

    /// A call that is not part of the session stream has ended as it should.
    pub fn finish(&self) {
        self.end.send_replace(Some(End::Answered));
    }

    fn overload(&self) {
        let text = "the gateway did not read the call's results in time";
        tracing::warn!(
            runtime = true,
            call = self.request_id,
            "{text}: the call is ended, so that others of its worker go on; see whether the gateway or its caller hangs"
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
                self.answered(true, &asked.correlation_id);
                Ok(())
            }
            Payload::McpRequested(asked) => self.ask(true, &asked.correlation_id, self.rules.is_mcp),
            Payload::McpListsChanged(_) if !self.rules.is_mcp => {
                Err(Cause::Protocol("a plugin's lists stand in specs"))
            }
            Payload::ArtifactData(piece) => self.piece(piece),
            Payload::Artifact(artifact) => self.artifact(artifact),
            Payload::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            _ => Ok(()),
        }
    }

    /// Whether the call ends because its worker goes, not because it was done.
    fn is_cut_off(&self, payload: &Payload) -> bool {
        let Payload::Failed(end) = payload else { return false };
        let cancelled = end.code == "CANCELLED";
        let mut state = self.state.lock();
        // A shim keeps the deadline too, and may be faster.
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
            // One that lies elsewhere takes nothing here.
            None if artifact.uri.starts_with("https://") => 0,
            None => state.begin_artifact().map(|()| 0)?,
        };
        if artifact.size != sent {
            return Err(Cause::Protocol("an artifact's size is not what was sent"));
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
