//! The changes of one task, from a first snapshot to its end.
//!
//! Keeps true: every stream of a task has the same events in the same order, under generations that never fall; an event is
//! published to other gateways before a client gets it (I-3); events that the call's log has dropped, or that a gateway has
//! lost with the call, are reported as a gap; the end comes once and last; the end of a stream ends no task; nothing is sent
//! under a token that has expired or was revoked but the reason. A client of 1.0 gets the whole task once more at the end; clients of 0.3
//! accept one task a stream. A call that answers with a message has a stream of this message alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asp_a2a::{Generation, StreamEvent, Task, TaskState, TaskStatus, TaskStatusUpdate};
use asp_call::call::Call;
use asp_call::call::authority::ends_at;
use asp_call::call::event::Event;
use asp_call::call::event::log::{LoggedEvent, first_generation};
use asp_call::call::follower::{CallSnapshot, Follower, FollowerItem};
use asp_call::call::outcome::{Outcome, Refusal, Withdrawal};
use asp_call::call::question::Question;
use asp_call::clock::wait_until;
use asp_edge::Caller;
use asp_json::Members;
use asp_pipeline::pipeline::admission::AdmissionPermit;
use asp_pipeline::pipeline::lookup::FoundCall;
use tokio::time::Instant;

use super::extensions::ActiveExtensions;
use super::ids::TaskIds;
use super::refused::RefusedRequest;
use super::task::{self, GAP, GENERATION, RESULT, TaskContents, is_last};
use crate::ProtocolRequest;
use crate::events::KEEP_ALIVE;
use crate::replica::Replica;

/// Time in which a call answers that answers with a message. Later its stream has begun as that of a task.
const REPLIES_WITHIN: Duration = Duration::from_millis(100);

/// One element of a stream.
pub(super) enum StreamItem {
    Event(Box<StreamEvent>),
    /// No change; keeps the connection open.
    Quiet,
}

/// The first element of a stream.
#[derive(Clone, Copy)]
pub(super) enum StreamStart {
    /// The task as it started, and then everything since.
    Beginning,
    /// The task as it is now.
    Now,
}

/// One stream.
pub(super) struct TaskStream {
    gateway: Arc<Replica>,
    caller: Arc<Caller>,
    /// Contents of each whole task.
    contents: TaskContents,
    /// Expiry of the token.
    until: Option<Instant>,
    call: Arc<Call>,
    ids: TaskIds,
    follower: Follower,
    /// Number of the next event to send, if the log still has it.
    position: u64,
    /// Generation of the task with the last event that was sent.
    generation: u64,
    /// Item of the call to send after a gap.
    held: Option<FollowerItem>,
    /// Events to send before the next item of the call.
    due: VecDeque<StreamEvent>,
    /// Whether the client has parts of the result.
    has_parts: bool,
    /// The phase that the task was in last.
    phase: Option<String>,
    ended: bool,
    _permit: AdmissionPermit,
}

impl TaskStream {
    /// Follows a call at this gateway.
    pub(super) async fn open(
        request: &ProtocolRequest,
        call: Arc<Call>,
        (start, contents): (StreamStart, TaskContents),
    ) -> Result<TaskStream, RefusedRequest> {
        let permit = request.gateway.waiting.admit(&request.caller.org);
        let permit = permit.map_err(|full| RefusedRequest::of(&full))?;
        if matches!(start, StreamStart::Beginning) {
            let _ = tokio::time::timeout(REPLIES_WITHIN, call.finished()).await;
        }
        let reply = task::reply(&call, contents.forms);
        if reply.is_some() {
            request.gateway.pipeline.end_stored(&call).await;
        }
        let mut phase = None;
        let (first, generation, task) = match start {
            StreamStart::Beginning => (0, first_generation(0), task::at_start(&call, contents.history)),
            StreamStart::Now => {
                let snapshot = CallSnapshot::of(&call);
                phase = task::phase(&snapshot.shown).map(str::to_owned);
                let task = task::of_snapshot(&call, &snapshot, contents);
                (snapshot.next_event, snapshot.generation, task)
            }
        };
        wait_until_published(&call, first).await;
        Ok(TaskStream {
            gateway: request.gateway.clone(),
            caller: request.caller.clone(),
            contents,
            until: ends_at(&request.caller),
            ids: TaskIds::of(&call),
            follower: Follower::from(call.clone(), first),
            position: first,
            generation,
            held: None,
            has_parts: task.artifacts.iter().any(|artifact| artifact.artifact_id == RESULT),
            phase,
            ended: reply.is_some(),
            due: VecDeque::from([reply.map_or(StreamEvent::Task(task), StreamEvent::Message)]),
            call,
            _permit: permit,
        })
    }

    /// Returns the next item; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<StreamItem> {
        if self.is_over() {
            return self.refuse_rest();
        }
        if let Some(event) = self.due.pop_front() {
            return Some(StreamItem::Event(Box::new(event)));
        }
        if self.ended {
            return None;
        }
        let until = self.until;
        let shown = match self.held.take() {
            Some(shown) => shown,
            None => tokio::select! {
                biased;
                shown = self.follower.next() => shown,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(StreamItem::Quiet),
                () = wait_until(until) => return None,
            },
        };
        if self.is_over() {
            return self.refuse_rest();
        }
        // The log dropped events that arrived since the previous check.
        let oldest = self.follower.first_retained();
        if self.position < oldest {
            self.held = Some(shown);
            return Some(self.gap(oldest));
        }
        self.position = self.position.max(self.follower.position());
        self.generation = self.generation.max(self.follower.generation());
        wait_until_published(&self.call, self.position).await;
        self.take(shown).await
    }

    async fn take(&mut self, shown: FollowerItem) -> Option<StreamItem> {
        match shown {
            // Another question may be open, which is shown now.
            FollowerItem::Event(LoggedEvent {
                event: Event::Answered { .. } | Event::TakenBack { .. },
                ..
            }) => {
                let snapshot = CallSnapshot::of(&self.call);
                Some(snapshot.questions.first().map_or(StreamItem::Quiet, |next| self.ask(next)))
            }
            FollowerItem::Event(logged) => {
                let used = self.ids.tool_update(&logged, self.contents.extensions);
                let phase = self.phase.as_deref();
                let event = used.or_else(|| self.ids.event(&logged, self.has_parts, phase));
                if let Event::Status { phase, .. } = logged.event {
                    self.phase = Some(phase);
                }
                self.has_parts |= is_part(event.as_ref());
                Some(event.map_or(StreamItem::Quiet, |event| StreamItem::Event(Box::new(event))))
            }
            FollowerItem::Asked(question) => Some(self.ask(&question)),
            FollowerItem::Ended(_) if self.call.ownership.continued.is_set() => {
                self.moved().await.then_some(StreamItem::Quiet)
            }
            FollowerItem::Ended(_) => self.end().await,
        }
    }

    /// Shows a question as the state of the task.
    fn ask(&mut self, question: &Question) -> StreamItem {
        let state = task::state_of_question(question);
        let update = self.ids.question_update(question, state, self.generation);
        // A client of 0.3 answers after the end of its stream.
        self.ended = self.version() == Generation::V03 && state == TaskState::InputRequired;
        let update = TaskStatusUpdate { is_final: self.ended, ..update };
        StreamItem::Event(Box::new(StreamEvent::Status(update)))
    }

    /// Returns the first event of the end: the whole result, the last state, and the whole task.
    async fn end(&mut self) -> Option<StreamItem> {
        self.ended = true;
        self.gateway.pipeline.end_stored(&self.call).await;
        let snapshot = CallSnapshot::of(&self.call);
        // Without an outcome the call was withdrawn from its caller.
        snapshot.outcome.as_ref()?;
        let task = task::of_snapshot(&self.call, &snapshot, self.contents);
        if let Some(last) = task.artifacts.iter().find(|artifact| is_last(artifact)) {
            self.due.push_back(StreamEvent::Artifact(self.ids.artifact(last.clone())));
        }
        let metadata = task.metadata.as_ref().map(Members::of).unwrap_or_default();
        self.due.push_back(StreamEvent::Status(self.ids.status(task.status.clone(), metadata)));
        if self.version() == Generation::V10 {
            self.due.push_back(StreamEvent::Task(task));
        }
        self.due.pop_front().map(|event| StreamItem::Event(Box::new(event)))
    }

    /// Returns the last event for a caller that is revoked or blocked: why the task was taken from it. Shows nothing else.
    fn refuse_rest(&mut self) -> Option<StreamItem> {
        self.due.clear();
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let notice = self.gateway.snapshot()?.revocation(&self.caller)?;
        let has_ended = |outcome: &Outcome| !matches!(outcome, Outcome::Refused(Refusal::Withdrawn(_)));
        if self.call.outcome().is_some_and(|outcome| has_ended(&outcome)) {
            return None;
        }
        let refusal = Refusal::Withdrawn(Withdrawal::of_revocation(notice));
        let update = self.ids.withdrawal_update(&refusal, self.generation.saturating_add(1));
        Some(StreamItem::Event(Box::new(StreamEvent::Status(update))))
    }

    /// Follows the call from the gateway that continues it; false if it cannot be followed here, and its client has to
    /// subscribe again.
    async fn moved(&mut self) -> bool {
        let server = self.call.server.message.name.as_str();
        let found = self.gateway.pipeline.find(self.call.id, &self.caller, server).await;
        let Ok(Some(FoundCall::Here(call))) = found else { return false };
        let events = &call.events;
        let continues =
            events.counts(self.call.events.stream()) && events.continues_at(self.position, self.generation);
        if !continues {
            // Its events are numbered from the start, or from before the last one that was sent: the others are not known.
            let snapshot = CallSnapshot::of(&call);
            (self.position, self.generation) = (snapshot.next_event, snapshot.generation);
            wait_until_published(&call, self.position).await;
            self.due.push_back(gap_update(&self.ids, &call, &snapshot, (0, self.generation)));
        }
        self.follower = Follower::from(call.clone(), self.position);
        self.call = call;
        true
    }

    /// Reports that events before number `oldest` are missing.
    fn gap(&mut self, oldest: u64) -> StreamItem {
        let lost = oldest.saturating_sub(self.position);
        self.position = self.position.max(oldest);
        // The events that follow are those of before the present state.
        let before = self.follower.generation().saturating_sub(1);
        self.generation = self.generation.max(before);
        let snapshot = CallSnapshot::of(&self.call);
        let update = gap_update(&self.ids, &self.call, &snapshot, (lost, self.generation));
        StreamItem::Event(Box::new(update))
    }

    const fn version(&self) -> Generation {
        self.contents.extensions.generation
    }

    /// Whether the token has expired or was revoked.
    fn is_over(&self) -> bool {
        let revoked = || self.gateway.snapshot().is_none_or(|snapshot| snapshot.revoked(&self.caller));
        self.until.is_some_and(|until| until <= Instant::now()) || revoked()
    }
}

/// Waits until other gateways can read the events before number `next`: a client that comes back elsewhere misses none.
pub(super) async fn wait_until_published(call: &Call, next: u64) {
    if let Some(publication) = call.ownership.publication() {
        publication.wait_for(next).await;
    }
}

/// Returns the state of a task whose stream has lost events, under a generation; 0 if their number is not known.
fn gap_update(
    ids: &TaskIds,
    call: &Call,
    snapshot: &CallSnapshot,
    (lost, generation): (u64, u64),
) -> StreamEvent {
    let contents = TaskContents::with_history(Some(0), ActiveExtensions::NONE);
    let contents = TaskContents { artifacts: false, ..contents };
    let Task { mut status, metadata, .. } = task::of_snapshot(call, snapshot, contents);
    if status.state.is_terminal() {
        // The end is reported apart.
        status = TaskStatus { state: TaskState::Working, message: None, ..status };
    }
    let mut metadata = metadata.as_ref().map(Members::of).unwrap_or_default();
    metadata.insert(GENERATION, generation);
    metadata.insert(GAP, lost);
    StreamEvent::Status(ids.status(status, metadata))
}

/// Whether an event has a part of the result.
fn is_part(event: Option<&StreamEvent>) -> bool {
    matches!(event, Some(StreamEvent::Artifact(update)) if update.artifact.artifact_id == RESULT)
}
