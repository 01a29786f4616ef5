//! One worker's part of a tool or task call: handles the worker's messages until the call ends or the worker is lost.
//!
//! Keeps true: exactly one end counts; a message that a worker may not send ends the call as a loss of the worker; a
//! cancel reaches the worker before the place is closed.

use std::time::Duration;

use asp_call::call::event::{Amount, Event};
use asp_call::call::outcome::Refusal;
use asp_call::clock::wait_until;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{
    CancelRequest, DelegationRequested, ElicitationRequested, InitResponse, LogLine, Progress, StatusUpdated,
    cancel_request::Mode, client_message,
};
use asp_proto::snapshot::Kind;
use asp_proto::supervisor::{TunnelEvent, tunnel_event};
use asp_runtime_client::admission::Rejection;
use asp_runtime_client::tunnel::{Tunnel, TunnelMessage};
use futures::StreamExt;
use tokio::time::Instant;

use super::admission;
use super::artifacts::{ArtifactFault, ArtifactReceiver, StoreResult};
use super::asking::{self, DuplicateQuestion};
use super::attempt_state::{AttemptState, Delivery, Key};
use super::dependencies::SavedCalls;
use super::job::Job;
use super::reads;
use super::recovery::AttemptOutcome;
use super::reference::STDIO;
use super::relayed::{self, RelayedRequests};
use super::results::{self, Extras};
use super::storage::{StorageRequests, TooManyOpen};
use super::tunnel_events;

mod stdio;

/// Maximum silence of a worker after it was told that a question expired, before the call ends as expired.
const AFTER_EXPIRY: Duration = Duration::from_secs(10);
/// Time before its deadline when a call is asked to finish its current step.
const SOFT_LEAD: Duration = Duration::from_secs(2);
/// Maximum length of a counter's name in bytes.
const MAX_NAME: usize = 128;

/// One worker and the parts of the result that it has sent.
pub(super) struct WorkerSession<'a> {
    pub job: &'a Job<'a>,
    pub attempt_state: &'a mut AttemptState,
    saved: &'a SavedCalls,
    tunnel: Tunnel,
    receiving: ArtifactReceiver,
    relayed: RelayedRequests,
    storage: StorageRequests,
    cancelling: bool,
    /// The gateway is shutting down: the worker was asked to save and yield.
    preempting: bool,
    /// Time of the notice to the worker that the deadline is near; `None` once it was sent, or if it would not help.
    soften: Option<Instant>,
    /// Set while a worker that was told of an expired question has not continued.
    expires: Option<Instant>,
}

/// Follows the worker to the end of its attempt.
pub(super) async fn run(job: &Job<'_>, attempt_state: &mut AttemptState, tunnel: Tunnel) -> AttemptOutcome {
    let mut session = WorkerSession {
        job,
        attempt_state,
        saved: &job.deps.saved,
        tunnel,
        receiving: ArtifactReceiver::new(job.deps.artifacts.clone(), job.call().clone()),
        relayed: RelayedRequests::of(job),
        storage: StorageRequests::default(),
        cancelling: false,
        preempting: false,
        soften: soften_at(job),
        expires: None,
    };
    let ended = session.follow().await;
    session.tunnel.closes_because(match &ended {
        AttemptOutcome::Ended(Ok(_)) => "completed",
        AttemptOutcome::Ended(Err(Refusal::Cancelled)) => "cancelled",
        AttemptOutcome::Ended(Err(Refusal::Deadline)) => "timeout",
        AttemptOutcome::Ended(Err(_)) => "failed",
        AttemptOutcome::Asked(_) => "asked",
        AttemptOutcome::Rejected(_) | AttemptOutcome::Lost { .. } => "lost",
    });
    ended
}

/// Effect of one message on the session; `Err` ends it.
pub(super) type Step = Result<(), AttemptOutcome>;

impl WorkerSession<'_> {
    async fn follow(&mut self) -> AttemptOutcome {
        loop {
            let call = self.job.call().clone();
            let step = tokio::select! {
                // If the buffer for bytes that the store has not accepted is full, the runtime and its worker wait
                // (back-pressure).
                heard = self.tunnel.next(), if self.receiving.has_room() => match heard {
                    Ok(heard) => self.hear(heard).await,
                    Err(fault) => Err(AttemptOutcome::of_fault(&call, &fault)),
                },
                stored = self.receiving.stored(), if self.receiving.is_storing() => self.stored(stored),
                Some(delivery) = self.attempt_state.waiting.next(), if !self.attempt_state.waiting.is_empty() => {
                    self.deliver(delivery).await
                }
                answer = self.relayed.next(), if !self.relayed.is_empty() => match answer {
                    Some(answer) => self.send(client_message::Payload::McpAnswer(answer)).await,
                    None => Ok(()),
                },
                Some(answer) = self.storage.next(), if !self.storage.is_empty() => {
                    self.send(client_message::Payload::StorageAnswer(answer)).await
                }
                () = call.cancelled(), if !self.cancelling => self.cancel().await,
                () = call.ownership.preempted(), if !self.preempting && !self.cancelling => self.preempt().await,
                () = wait_until(self.soften), if !self.cancelling => {
                    self.soften = None;
                    self.send_cancel("the deadline is near", Mode::Soft).await
                }
                () = wait_until(self.expires) => {
                    self.cancelling = true;
                    let _ = self.send_cancel("a question was not answered in time", Mode::Hard).await;
                    Err(AttemptOutcome::Ended(Err(Refusal::InputExpired)))
                }
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    async fn hear(&mut self, heard: TunnelMessage) -> Step {
        match heard {
            TunnelMessage::Message(payload) => self.read(payload).await,
            TunnelMessage::Event(event) => self.event(event).await,
            TunnelMessage::Content(_)
            | TunnelMessage::Prompt(_)
            | TunnelMessage::Listed(_)
            | TunnelMessage::Updated(_) => Err(self.lost_because("a message of another kind")),
            TunnelMessage::End => Err(self.lost_because("the stream ended before the call")),
        }
    }

    async fn read(&mut self, payload: Payload) -> Step {
        self.check_request(&payload)?;
        // Any message but a failure shows that the worker continues after an expiry.
        use Payload::{Failed, Log, Pong};
        if !matches!(payload, Failed(_) | Log(_) | Pong(_)) {
            self.expires = None;
        }
        match payload {
            Payload::Init(init) => self.handle_init(init).await,
            Payload::Status(status) => self.status(status),
            Payload::Progress(progress) => self.progress(progress),
            Payload::Log(line) => self.log(line),
            Payload::Chunk(chunk) => {
                let text = self.attempt_state.chunks.push(&chunk);
                self.job.call().emit(Event::Chunk { text });
                Ok(())
            }
            Payload::Artifact(artifact) => {
                let emitted = self.receiving.emit(&mut self.attempt_state.emitted, artifact);
                emitted.map_err(|ArtifactFault(what)| self.lost_because(what))
            }
            Payload::ArtifactData(piece) => {
                let taken = self.receiving.piece(&piece);
                taken.map_err(|ArtifactFault(what)| self.lost_because(what))
            }
            Payload::Checkpoint(checkpoint) => {
                let ack = self.saved.checkpoint(self.job, self.attempt_state, checkpoint).await;
                self.send(client_message::Payload::CheckpointAck(ack)).await
            }
            Payload::Elicitation(asked) => self.elicitation(asked).await,
            Payload::Delegation(asked) => self.delegation(asked).await,
            Payload::ResourceChanged(changed) => {
                self.job.execution.platform.resource_changed(self.job.call(), &changed.uri);
                Ok(())
            }
            Payload::ElicitationCompleted(done) => {
                asking::visited(self.job, self.attempt_state, &done.elicitation_id);
                Ok(())
            }
            Payload::McpRequested(asked) => {
                let taken = self.relayed.take(asked);
                taken.map_err(|relayed::RelayFault(what)| self.lost_because(what))
            }
            Payload::StorageRequested(asked) => {
                let begun = self.storage.begin(self.job, &mut self.attempt_state.storage_requests, asked);
                begun.map_err(|TooManyOpen| self.lost_because("too many storage requests are open"))
            }
            Payload::LineAnswer(_) | Payload::LineNotification(_) if self.job.language != STDIO => {
                Err(self.lost_because("a message that only a stdio server sends"))
            }
            Payload::LineAnswer(answer) => Err(self.answered(&answer)),
            Payload::LineNotification(notification) => {
                self.notify(&notification);
                Ok(())
            }
            Payload::Completed(end) => Err(self.completed(&end)),
            Payload::Failed(end) => Err(self.failed(&end)),
            Payload::Cancel(_) | Payload::Pong(_) | Payload::McpListsChanged(_) => Ok(()),
        }
    }

    async fn elicitation(&mut self, asked: ElicitationRequested) -> Step {
        let key = Key::Input(asked.elicitation_id.clone());
        self.begin_question(&key, |job, attempt_state| asking::elicit(job, attempt_state, asked)).await
    }

    async fn delegation(&mut self, asked: DelegationRequested) -> Step {
        let key = Key::Delegation(asked.correlation_id.clone());
        self.begin_question(&key, |job, attempt_state| asking::delegate(job, attempt_state, asked)).await
    }

    /// Handles the worker's first message, which states its capabilities.
    async fn handle_init(&mut self, init: InitResponse) -> Step {
        if !init.ok {
            let why = format!("plugin refused to start: {}", init.message);
            return Err(AttemptOutcome::Rejected(Rejection::Refuses(why)));
        }
        let before = self.attempt_state.checkpoints;
        let names_it = |ids: &str| ids.split(' ').any(|id| id == self.job.primitive);
        let saves = |value: &String| value == "true" || value.strip_prefix("of ").is_some_and(names_it);
        self.attempt_state.checkpoints |= init.caps.get("checkpoint").is_some_and(saves);
        if self.attempt_state.checkpoints && !before && self.job.call().ownership.is_stored() {
            // From now on another gateway can continue the call.
            self.saved.state(self.job, self.attempt_state).await;
        }
        Ok(())
    }

    /// Handles a result of the artifact store.
    fn stored(&mut self, stored: StoreResult) -> Step {
        let taken = self.receiving.take(&mut self.attempt_state.emitted, stored);
        taken.map_err(|ArtifactFault(what)| self.lost_because(what))
    }

    /// Checks that a worker's message is about the call that it was given.
    fn check_request(&mut self, payload: &Payload) -> Step {
        let request_id = payload.request_id();
        let whole_worker = match payload {
            Payload::Init(_) | Payload::Pong(_) => true,
            // A log line of the worker itself has no call.
            Payload::Log(_) => request_id.is_empty(),
            _ => false,
        };
        if whole_worker || request_id == self.job.call().id.to_string() {
            return Ok(());
        }
        Err(self.lost_because("an unknown request id"))
    }

    async fn event(&mut self, event: TunnelEvent) -> Step {
        let call = self.job.call();
        match event.r#type() {
            tunnel_event::Type::AllocationStarted if !self.tunnel.is_ready() => {
                admission::tell_started(call);
                Ok(())
            }
            tunnel_event::Type::RuntimeOverload if !call.was_handed_over() => {
                Err(AttemptOutcome::Rejected(Rejection::of_reason("overload", None)))
            }
            _ => tunnel_events::handle(self.job, &mut self.tunnel, &event).await,
        }
    }

    fn status(&mut self, status: StatusUpdated) -> Step {
        if !status.task_id.is_empty() {
            self.attempt_state.task_id = status.task_id;
        }
        if !status.phase.is_empty() {
            self.job.call().emit(Event::Status { phase: status.phase, message: None });
        }
        Ok(())
    }

    fn progress(&mut self, progress: Progress) -> Step {
        if !progress.task_id.is_empty() {
            self.attempt_state.task_id = progress.task_id;
        }
        let percent = progress.percent.clamp(0.0, 100.0);
        if percent.is_finite() {
            self.job.call().emit(Event::Progress {
                progress: percent.into(),
                total: Some(Amount::from(100.0)),
                message: (!progress.message.is_empty()).then_some(progress.message),
                gauges: progress
                    .gauges
                    .into_iter()
                    .filter(|(name, value)| name.len() <= MAX_NAME && value.is_finite())
                    .collect(),
            });
        }
        Ok(())
    }

    fn log(&self, line: LogLine) -> Step {
        let (level, text) = self.job.handle_log(line);
        let logger = Some(self.job.call().entry.primitive.id.clone());
        self.job.call().emit(Event::Log { level, logger, data: text.into() });
        Ok(())
    }

    /// Starts a question of the worker, unless its answer is already known.
    async fn begin_question(
        &mut self,
        key: &Key,
        begin: impl FnOnce(&Job<'_>, &mut AttemptState) -> Result<(), DuplicateQuestion>,
    ) -> Step {
        if let Some(delivery) = self.attempt_state.early.remove(key) {
            return self.pass(delivery).await;
        }
        begin(self.job, self.attempt_state)
            .map_err(|DuplicateQuestion| self.lost_because("the same question twice at once"))?;
        if self.attempt_state.asks_client(key) {
            // The answer may take long, and may arrive at another gateway.
            self.saved.state(self.job, self.attempt_state).await;
        }
        Ok(())
    }

    /// Records an answer and passes it to the worker, once that has asked.
    async fn deliver(&mut self, delivery: Delivery) -> Step {
        let key = delivery.key();
        let is_early = self.attempt_state.is_early(&key);
        self.attempt_state.answered(&delivery);
        self.saved.state(self.job, self.attempt_state).await;
        if is_early {
            self.attempt_state.early.insert(key, delivery);
            return Ok(());
        }
        self.pass(delivery).await
    }

    /// Sends an answer to the worker.
    async fn pass(&mut self, delivery: Delivery) -> Step {
        if delivery.error() == "expired" && matches!(delivery, Delivery::Input(_)) {
            self.expires = Some(Instant::now() + AFTER_EXPIRY);
        }
        let message = match delivery {
            Delivery::Input(input) => client_message::Payload::UserInput(input),
            Delivery::Delegation(result) => client_message::Payload::DelegationResult(result),
        };
        self.send(message).await
    }

    async fn send(&mut self, message: client_message::Payload) -> Step {
        let sent = self.tunnel.send(message).await;
        sent.map_err(|fault| AttemptOutcome::of_fault(self.job.call(), &fault))
    }

    /// Passes the caller's cancel, or the deadline, to the worker, which has until the pipeline's grace period ends.
    async fn cancel(&mut self) -> Step {
        if !self.tunnel.is_ready() {
            return Err(AttemptOutcome::cancelled());
        }
        self.cancelling = true;
        let late = Instant::now() >= self.job.call().deadline();
        self.send_cancel(if late { "deadline" } else { "user_cancel" }, Mode::Hard).await
    }

    /// Asks a worker that can resume elsewhere to save and yield at its next step, because the gateway is shutting
    /// down.
    async fn preempt(&mut self) -> Step {
        self.preempting = true;
        if !self.tunnel.is_ready() || !self.attempt_state.resumes() {
            return Ok(());
        }
        self.send_cancel("the gateway ends", Mode::Preempt).await
    }

    async fn send_cancel(&mut self, reason: &str, mode: Mode) -> Step {
        let cancel = CancelRequest {
            request_id: self.job.call().id.to_string(),
            reason: reason.to_owned(),
            mode: mode.into(),
        };
        self.send(client_message::Payload::Cancel(cancel)).await
    }

    fn completed(&mut self, end: &asp_proto::plugin::Completed) -> AttemptOutcome {
        if let Err(refusal) = self.check_artifacts() {
            return AttemptOutcome::Ended(Err(refusal));
        }
        let emitted = &self.attempt_state.emitted;
        let extras = Extras {
            links: emitted.blocks(),
            uris: emitted.uris(),
            chunks: std::mem::take(&mut self.attempt_state.chunks),
        };
        AttemptOutcome::Ended(results::completed(end, extras))
    }

    /// Checks the emitted artifacts against the primitive's schema for them.
    fn check_artifacts(&self) -> Result<(), Refusal> {
        let Some(schema) = &self.job.call().entry.artifacts else { return Ok(()) };
        schema.check(&self.attempt_state.emitted.described()).map_err(|misfit| Refusal::InvalidOutput {
            pointer: format!("artifacts{}", misfit.pointer),
            message: misfit.message,
        })
    }

    fn failed(&mut self, end: &asp_proto::plugin::Failed) -> AttemptOutcome {
        if end.yielded && self.preempting && self.job.call().ownership.is_stored() {
            self.job.call().ownership.passed_on.set();
            return AttemptOutcome::Ended(Err(Refusal::Upstream("the gateway ends".into())));
        }
        if end.yielded && self.attempt_state.resumes() {
            return AttemptOutcome::Lost { delivered: true, why: "the plugin yielded its place".into() };
        }
        if self.expires.is_some() {
            return AttemptOutcome::Ended(Err(Refusal::InputExpired));
        }
        let call = self.job.call();
        AttemptOutcome::Ended(match call.entry.primitive.kind() {
            Kind::Resource | Kind::ResourceTemplate | Kind::Prompt => reads::failure(self.job, end),
            _ => asp_call::call::content::failed(call, end),
        })
    }

    /// Returns the loss of the worker. One that violates the protocol counts as lost.
    fn lost_because(&self, why: &str) -> AttemptOutcome {
        AttemptOutcome::of_loss(self.job.call(), why)
    }
}

/// Returns the start of the last tenth of the call, at most [`SOFT_LEAD`] before its end: a plugin that checks for it
/// may still finish with what it has.
fn soften_at(job: &Job<'_>) -> Option<Instant> {
    // A stdio server knows only one cancel, after which it answers nothing.
    if job.language == STDIO {
        return None;
    }
    let call = job.call();
    let whole = call.deadline().saturating_duration_since(call.runs_since());
    call.deadline().checked_sub((whole / 10).min(SOFT_LEAD))
}
