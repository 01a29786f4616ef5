//! A call as a task.
//!
//! Keeps true: a task is the same at every gateway, as far as its record and its events are known there; one question is
//! shown at a time, the oldest first; the last state of a task has its result or the reason why there is none.

use asp_a2a::{
    Artifact, Message, Part, PartContent, StreamEvent, Task, TaskArtifactUpdate, TaskState, TaskStatus,
    TaskStatusUpdate, Timestamp,
};
use asp_call::call::event::log::{LoggedEvent, first_generation};
use asp_call::call::event::{Amount, Event};
use asp_call::call::follower::CallSnapshot;
use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::question::{Ask, History, Question};
use asp_call::call::remote::RemoteCall;
use asp_call::call::{Call, State};
use asp_call::clock::unix_ms;
use asp_json::{Json, Members};
use asp_pipeline::pipeline::lookup::FoundCall;
use futures::FutureExt;
use serde_json::{Value, json};

use super::extensions::{self, ActiveExtensions, CallEnd};
use super::ids::TaskIds;
use super::modes::OutputForms;
use super::{history, parts, reading};

/// Id of the artifact with the result. Parts of it are appended while the task runs; the end replaces it.
pub(super) const RESULT: &str = "result";
/// Id of the artifact of a task without a result, if an extension reports its end.
const FAILURE: &str = "failure";
/// Longest shown part of a result before the end, in bytes; its end is shown.
const MAX_PARTIAL: usize = 64 * 1024;
/// Metadata with a number that rises with each change of the task, whichever gateways run it.
pub(super) const GENERATION: &str = "asp/generation";
/// Metadata with the number of events that a stream has lost.
pub(super) const GAP: &str = "asp/gap";
/// Member of an output's `_meta` with the form of the answer, and its value for a message.
const REPLY: &str = "asp/reply";
const MESSAGE: &str = "message";
/// Message of a task that waits for an answer at another gateway.
const ASKS_ELSEWHERE: &str =
    "the task waits for an answer at another gateway, which has its question: get it again";

/// Optional contents of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskContents {
    /// Maximum number of messages of the history; `None` for all.
    pub(super) history: Option<u32>,
    pub(super) artifacts: bool,
    /// Forms of the result that the client accepts.
    pub(super) forms: OutputForms,
    pub(super) extensions: ActiveExtensions,
}

impl TaskContents {
    /// Everything but the messages that are too many.
    pub(super) const fn with_history(history: Option<u32>, extensions: ActiveExtensions) -> TaskContents {
        TaskContents { history, artifacts: true, forms: OutputForms::ANY, extensions }
    }
}

/// Returns the task of a call at any gateway.
pub(super) fn of_found(found: &FoundCall, contents: TaskContents) -> Task {
    match found {
        FoundCall::Here(call) => of_snapshot(call, &CallSnapshot::of(call), contents),
        FoundCall::Elsewhere(call) => of_remote(call, contents),
    }
}

/// Returns the task of a call at another gateway: its state, without its open questions.
fn of_remote(call: &RemoteCall, contents: TaskContents) -> Task {
    let context = call.put.as_ref().map(|put| put.context.clone()).unwrap_or_default();
    let ids = TaskIds { task: call.id.to_string(), context };
    let state = state_of(call.state);
    let message = state.is_interrupted().then(|| ids.message("elsewhere", vec![parts::text(ASKS_ELSEWHERE)]));
    let status = TaskStatus { state, message, timestamp: Some(Timestamp(call.updated_ms)) };
    let history = history::messages(&ids, call.opening.as_ref(), &call.history, contents.history);
    let notes = reading::notes(call.opening.as_ref());
    let metadata = (!notes.is_empty()).then(|| notes.to_json());
    Task { id: ids.task, context_id: ids.context, status, history, metadata, artifacts: Vec::new() }
}

/// Returns the task that a call was when it started.
pub(super) fn at_start(call: &Call, length: Option<u32>) -> Task {
    let ids = TaskIds::of(call);
    let timestamp = Some(Timestamp(call.began_ms()));
    let status = TaskStatus { state: TaskState::Submitted, message: None, timestamp };
    let history = history::messages(&ids, call.opening.as_ref(), &History::default(), length);
    let metadata = Some(with_notes(with_generation(first_generation(0)), call).to_json());
    Task { id: ids.task, context_id: ids.context, status, history, metadata, artifacts: Vec::new() }
}

/// Returns the task of a call in this state.
pub(super) fn of_snapshot(call: &Call, snapshot: &CallSnapshot, contents: TaskContents) -> Task {
    let ids = TaskIds::of(call);
    let outcome = snapshot.outcome.as_deref();
    let metadata = with_generation(snapshot.generation + u64::from(outcome.is_some()));
    let mut metadata = with_notes(metadata, call);
    if let Some(Outcome::Refused(refusal)) = outcome {
        metadata.insert("asp/reason", refusal.reason().as_str());
    }
    Task {
        status: TaskStatus {
            state: state(snapshot),
            message: message(&ids, snapshot),
            timestamp: Some(Timestamp(call.changed_ms())),
        },
        artifacts: if contents.artifacts { artifacts(call, snapshot, contents) } else { Vec::new() },
        history: history::messages(&ids, call.opening.as_ref(), &snapshot.history, contents.history),
        metadata: Some(metadata.to_json()),
        id: ids.task,
        context_id: ids.context,
    }
}

/// Adds who chose skill and arguments of a task, if its message did not name them.
fn with_notes(mut metadata: Members, call: &Call) -> Members {
    let notes = reading::notes(call.opening.as_ref());
    notes.iter().for_each(|(name, value)| metadata.insert(name, value.clone()));
    metadata
}

/// Returns the message that a call answers with instead of a task, if its output says so.
pub(super) fn reply(call: &Call, forms: OutputForms) -> Option<Message> {
    let outcome = call.outcome()?;
    let Outcome::Done { output, .. } = &*outcome else { return None };
    let Output::Tool { meta, is_error: false, .. } = output else { return None };
    if meta.get(REPLY).and_then(|form| form.as_str()) != Some(MESSAGE) {
        return None;
    }
    let parts = parts::of_output(output, &[], forms);
    (!parts.is_empty()).then(|| Message { task_id: None, ..TaskIds::of(call).message("reply", parts) })
}

/// Returns the state of a task; a tool error is a failed task.
fn state(snapshot: &CallSnapshot) -> TaskState {
    match snapshot.outcome.as_deref() {
        Some(Outcome::Done { output, .. }) if output.is_error() => TaskState::Failed,
        Some(outcome) => state_of(outcome.state()),
        None => match snapshot.questions.first() {
            Some(question) => state_of_question(question),
            None if snapshot.state == State::Submitted => TaskState::Submitted,
            None => TaskState::Working,
        },
    }
}

/// Returns the state of a task that waits for an answer; at a page its user signs in somewhere.
pub(super) const fn state_of_question(question: &Question) -> TaskState {
    match question.ask {
        Ask::Page { .. } => TaskState::AuthRequired,
        Ask::Form { .. } | Ask::Sampling(_) | Ask::Roots => TaskState::InputRequired,
    }
}

pub(super) const fn state_of(state: State) -> TaskState {
    match state {
        State::Submitted => TaskState::Submitted,
        State::Working => TaskState::Working,
        State::InputRequired => TaskState::InputRequired,
        State::AuthRequired => TaskState::AuthRequired,
        State::Completed => TaskState::Completed,
        State::Failed => TaskState::Failed,
        State::Cancelled => TaskState::Canceled,
        State::Rejected => TaskState::Rejected,
    }
}

/// Returns what the agent says about the state.
fn message(ids: &TaskIds, snapshot: &CallSnapshot) -> Option<Message> {
    match (snapshot.outcome.as_deref(), snapshot.questions.first()) {
        (Some(Outcome::Done { output, .. }), _) => {
            output.is_error().then(|| ids.message("end", parts::of_output(output, &[], OutputForms::ANY)))
        }
        (Some(Outcome::Refused(refusal)), _) => {
            Some(ids.message("end", vec![parts::text(&refusal.public_message())]))
        }
        (None, Some(question)) => Some(ids.question(question)),
        (None, None) => {
            let phase = phase(&snapshot.shown);
            snapshot.shown.iter().rev().find_map(|logged| ids.spoken_message(logged, phase))
        }
    }
}

/// Returns the phase that a task is in after these events.
pub(super) fn phase(events: &[LoggedEvent]) -> Option<&str> {
    events.iter().rev().find_map(|logged| match &logged.event {
        Event::Status { phase, .. } => Some(phase.as_str()),
        _ => None,
    })
}

fn artifacts(call: &Call, snapshot: &CallSnapshot, contents: TaskContents) -> Vec<Artifact> {
    let mut found: Vec<Artifact> = snapshot.shown.iter().filter_map(|logged| file(&logged.event)).collect();
    let result = match snapshot.outcome.as_deref() {
        Some(Outcome::Done { output, .. }) if !output.is_error() => {
            let linked: Vec<&str> = found.iter().map(|artifact| artifact.artifact_id.as_str()).collect();
            Some(result(call, output, &linked, contents))
        }
        Some(outcome) => failure(call, outcome, contents),
        None => Some(Artifact {
            artifact_id: RESULT.to_owned(),
            parts: partial(call, snapshot.next_event).iter().map(|text| parts::text(text)).collect(),
            ..Artifact::default()
        }),
    };
    // An artifact has at least one part (A2A 1.0, `Artifact.parts`).
    found.extend(result.filter(|result| !result.parts.is_empty()));
    found
}

fn result(call: &Call, output: &Output, linked: &[&str], contents: TaskContents) -> Artifact {
    let meta = meta(output);
    let mut parts = parts::of_output(output, linked, contents.forms);
    if !contents.forms.is_text_only() {
        parts.extend(extensions::skills(&meta));
    }
    let mut shown = meta.clone();
    shown.retain(|name| !extensions::is_value(name));
    let metadata = (!shown.is_empty()).then(|| shown.to_json());
    let mut artifact = Artifact { artifact_id: RESULT.to_owned(), parts, metadata, ..Artifact::default() };
    contents.extensions.report(&mut artifact, &end(call, &meta, true));
    artifact
}

/// Returns the artifact of a call that ended without a result; `None` unless an active extension reports its end.
fn failure(call: &Call, outcome: &Outcome, contents: TaskContents) -> Option<Artifact> {
    let (meta, parts) = match outcome {
        Outcome::Done { output, .. } => (meta(output), parts::of_output(output, &[], contents.forms)),
        Outcome::Refused(refusal) => (Members::default(), vec![parts::text(&refusal.public_message())]),
    };
    let mut artifact = Artifact { artifact_id: FAILURE.to_owned(), parts, ..Artifact::default() };
    contents.extensions.report(&mut artifact, &end(call, &meta, false));
    (!artifact.extensions.is_empty()).then_some(artifact)
}

fn meta(output: &Output) -> Members {
    match output {
        Output::Tool { meta, .. } => meta.clone(),
        _ => Members::default(),
    }
}

fn end<'e>(call: &Call, meta: &'e Members, success: bool) -> CallEnd<'e> {
    let took_ms = call.changed_ms().saturating_sub(call.began_ms());
    CallEnd { meta, tokens: call.model_usage.total(), took_ms, success }
}

/// Whether an artifact reports the end of its task.
pub(super) fn is_last(artifact: &Artifact) -> bool {
    matches!(artifact.artifact_id.as_str(), RESULT | FAILURE)
}

/// Returns an artifact of the call as a file.
fn file(event: &Event) -> Option<Artifact> {
    let Event::Artifact { uri, content_type, description } = event else { return None };
    let media_type = content_type.clone();
    let filename = parts::filename(uri);
    let file = Part { media_type, filename, ..PartContent::Url(uri.clone()).into() };
    Some(Artifact {
        artifact_id: uri.clone(),
        description: description.clone(),
        parts: vec![file],
        ..Artifact::default()
    })
}

/// Returns the parts of the result before event number `next`; `None` if there are none.
fn partial(call: &Call, next: u64) -> Option<String> {
    let mut text = String::new();
    let mut events = call.events.reader_from(0);
    while let Some(Some(logged)) = events.next().now_or_never() {
        if logged.number >= next {
            break;
        }
        if let Event::Chunk { text: part } = logged.event {
            text.push_str(&part);
        }
    }
    let cut = text.floor_char_boundary(text.len().saturating_sub(MAX_PARTIAL));
    text.drain(..cut);
    (!text.is_empty()).then_some(text)
}

/// Returns the metadata of a task with this generation.
fn with_generation(generation: u64) -> Members {
    [(GENERATION, generation)].into_iter().collect()
}

impl TaskIds {
    /// Returns a progress or status event as a message; `phase` is the one that the task was in last.
    fn spoken_message(&self, logged: &LoggedEvent, phase: Option<&str>) -> Option<Message> {
        let parts = match &logged.event {
            Event::Progress { progress, total, message, .. } => {
                parts::of_progress(message.as_deref()?, phase, percentage(progress, total.as_ref()))
            }
            Event::Status { phase, message } => {
                parts::of_progress(message.as_deref().unwrap_or(phase), Some(phase.as_str()), None)
            }
            _ => return None,
        };
        Some(self.message(&logged.number.to_string(), parts))
    }

    /// Returns the question as a change of the state.
    pub(super) fn question_update(
        &self,
        question: &Question,
        state: TaskState,
        generation: u64,
    ) -> TaskStatusUpdate {
        let timestamp = Some(Timestamp(unix_ms()));
        let status = TaskStatus { state, message: Some(self.question(question)), timestamp };
        self.status(status, with_generation(generation))
    }

    /// Returns the end of a task that was withdrawn from its caller, as a change of the state.
    pub(super) fn withdrawal_update(&self, refusal: &Refusal, generation: u64) -> TaskStatusUpdate {
        let message = self.message("end", vec![parts::text(&refusal.public_message())]);
        let mut metadata = with_generation(generation);
        metadata.insert("asp/reason", refusal.reason().as_str());
        let timestamp = Some(Timestamp(unix_ms()));
        self.status(TaskStatus { state: TaskState::Canceled, message: Some(message), timestamp }, metadata)
    }

    /// Returns a change of the state.
    pub(super) fn status(&self, status: TaskStatus, metadata: Members) -> TaskStatusUpdate {
        TaskStatusUpdate {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            is_final: status.state.is_terminal(),
            status,
            metadata: Some(metadata.to_json()),
        }
    }

    /// Returns a whole artifact.
    pub(super) fn artifact(&self, artifact: Artifact) -> TaskArtifactUpdate {
        TaskArtifactUpdate {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            artifact,
            last_chunk: true,
            ..TaskArtifactUpdate::default()
        }
    }

    /// Returns the use of a tool as a change of the state, if the client has activated that.
    pub(super) fn tool_update(
        &self,
        logged: &LoggedEvent,
        extensions: ActiveExtensions,
    ) -> Option<StreamEvent> {
        let Event::Tool(tool_use) = &logged.event else { return None };
        let message = extensions.tool_message(self, logged.number, tool_use)?;
        let timestamp = Some(Timestamp(logged.at_ms));
        let status = TaskStatus { state: TaskState::Working, message: Some(message), timestamp };
        Some(StreamEvent::Status(self.status(status, with_generation(logged.generation))))
    }

    /// Returns an event of a running call as one of a stream; `None` for one that changes nothing of a task. `appends`:
    /// whether the stream has parts of the result already. `phase`: the one that the task was in last.
    pub(super) fn event(
        &self,
        logged: &LoggedEvent,
        appends: bool,
        phase: Option<&str>,
    ) -> Option<StreamEvent> {
        let mut metadata = with_generation(logged.generation);
        match &logged.event {
            Event::Chunk { text } => {
                let parts = vec![parts::text(text)];
                let artifact = Artifact { artifact_id: RESULT.to_owned(), parts, ..Artifact::default() };
                let part = self.artifact(artifact);
                let metadata = Some(metadata.to_json());
                let update = TaskArtifactUpdate { append: appends, last_chunk: false, metadata, ..part };
                return Some(StreamEvent::Artifact(update));
            }
            Event::Artifact { .. } => {
                let whole = self.artifact(file(&logged.event)?);
                let metadata = Some(metadata.to_json());
                return Some(StreamEvent::Artifact(TaskArtifactUpdate { metadata, ..whole }));
            }
            Event::Progress { .. } => metadata.insert("asp/progress", progress(&logged.event)?),
            Event::Log { level, logger, data } => {
                let mut log = Members::default();
                log.insert("level", level.as_str());
                log.insert("logger", Value::from(logger.clone()));
                log.insert("data", data.clone());
                metadata.insert("asp/log", log.to_json());
            }
            Event::Status { phase, .. } => metadata.insert("asp/phase", phase.as_str()),
            Event::Resumed => {}
            Event::Asked { .. }
            | Event::Answered { .. }
            | Event::TakenBack { .. }
            | Event::Visited { .. }
            | Event::Tool(_) => {
                return None;
            }
        }
        let timestamp = Some(Timestamp(logged.at_ms));
        let message = self.spoken_message(logged, phase);
        let status = TaskStatus { state: TaskState::Working, message, timestamp };
        Some(StreamEvent::Status(self.status(status, metadata)))
    }
}

/// Returns how much of `total` is done; `None` if there is no total.
fn percentage(progress: &Amount, total: Option<&Amount>) -> Option<Json> {
    let total = total.map(Amount::value).filter(|total| *total > 0.0)?;
    let percentage = Amount::from(progress.value() * 100.0 / total);
    percentage.value().is_finite().then(|| percentage.as_json())
}

fn progress(event: &Event) -> Option<Json> {
    let Event::Progress { progress, total, gauges, .. } = event else { return None };
    let mut shown = Members::default();
    shown.insert("progress", progress.as_json());
    if let Some(total) = total {
        shown.insert("total", total.as_json());
    }
    if !gauges.is_empty() {
        shown.insert("gauges", json!(gauges));
    }
    Some(shown.to_json())
}

#[cfg(test)]
mod tests;
