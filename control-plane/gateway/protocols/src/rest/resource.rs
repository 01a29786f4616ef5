//! A call as a REST resource. Mirrors the resource of services that host calls (docs/http-calls.md), so that a server
//! can be such a service.
//!
//! Keeps true: one state has one entity tag, and different states have different tags; one question is shown at a time,
//! the oldest first.

use asp_call::call::event::Event;
use asp_call::call::event::log::LoggedEvent;
use asp_call::call::follower::CallSnapshot;
use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::question::{History, Question, Turn};
use asp_call::call::remote::RemoteCall;
use asp_call::call::{Call, State};
use asp_call::clock::rfc3339;
use asp_call::digest;
use asp_json::{Json, Members};
use asp_pipeline::pipeline::lookup::FoundCall;
use serde_json::{Value, json};

use crate::mcp::questions;

/// Longest shown part of a partial result, in bytes; its end is shown.
const MAX_PARTIAL: usize = 64 * 1024;
/// Message for a call that waits for answers at another gateway.
const ASKS_ELSEWHERE: &str =
    "the call waits for an answer at another gateway, which has its question: ask again";

/// One state of a call.
pub(super) struct CallView {
    /// Entity tag without its quotes.
    pub etag: String,
    pub status: &'static str,
    pub members: Members,
    /// Reason why the call ended without a result.
    pub refusal: Option<Refusal>,
}

impl CallView {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status, "success" | "failed" | "canceled")
    }

    /// Whether the call has ended or makes no progress until somebody answers.
    pub(super) fn waits_or_has_ended(&self) -> bool {
        self.has_ended() || self.status.starts_with("awaiting")
    }

    /// Returns the JSON object; `path` is the call's.
    pub(super) fn body(mut self, path: &str) -> Json {
        self.members.insert("links", json!({"self": path, "events": format!("{path}/events")}));
        self.members.to_json()
    }
}

/// Returns the client's view of a call at any gateway.
pub(super) fn of_found(found: &FoundCall) -> CallView {
    match found {
        FoundCall::Here(call) => of(call),
        FoundCall::Elsewhere(call) => remote_view(call),
    }
}

/// Returns the client's view of a call at this gateway.
pub(super) fn of(call: &Call) -> CallView {
    let CallSnapshot { state, shown, questions, history, outcome, next_event, .. } = CallSnapshot::of(call);
    let asked = match &outcome {
        Some(_) => None,
        None => questions.iter().find_map(|question| Some((question, question_view(question)?))),
    };
    let status = match (&outcome, &asked) {
        (Some(_), _) => ended(state),
        (None, Some((_, asked))) => asked.status,
        (None, None) if state == State::Submitted => "submitted",
        (None, None) => "running",
    };
    let open: Vec<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    let at = match &outcome {
        // The tag of an ended call is the same at every gateway.
        Some(_) => "the end".to_owned(),
        None => format!("{:08x} {next_event} {}", call.events.stream(), open.join(" ")),
    };
    let mut view = CallView::new(call.id.as_bytes(), &call.protocol_request_id, status, &at);
    view.times(call.began_ms(), call.changed_ms());
    match outcome {
        Some(outcome) => view.end(call, &outcome),
        None => {
            view.progress(&shown);
            view.answered(&history);
            let partial = call.events.partial(MAX_PARTIAL);
            if !partial.is_empty() {
                view.put("partial", partial);
            }
            if let Some((question, asked)) = asked {
                view.put(asked.member, asked.request);
                view.put("serverData", question.id.as_str());
            }
        }
    }
    view
}

/// Returns the view of a call at another gateway: its state, without its questions.
fn remote_view(call: &RemoteCall) -> CallView {
    let status = if call.state == State::Submitted { "submitted" } else { "running" };
    let at = format!("{} {}", call.state.as_str(), call.updated_ms);
    let name = call.put.as_ref().map(|put| put.name.as_str()).unwrap_or_default();
    let mut view = CallView::new(call.id.as_bytes(), name, status, &at);
    view.times(call.created_ms, call.updated_ms);
    if call.state == State::InputRequired {
        view.put("progress", json!({"progress": 0, "message": ASKS_ELSEWHERE}));
    }
    view
}

/// Returns the status of a call in a list.
pub(super) const fn listed(state: State) -> &'static str {
    match state {
        State::Submitted => "submitted",
        State::Working | State::InputRequired | State::AuthRequired => "running",
        state => ended(state),
    }
}

const fn ended(state: State) -> &'static str {
    match state {
        State::Completed => "success",
        State::Cancelled => "canceled",
        _ => "failed",
    }
}

/// A question, in the terms of the call resource.
pub(super) struct ShownQuestion {
    pub status: &'static str,
    pub member: &'static str,
    /// The whole MCP request.
    pub request: Json,
}

/// Returns the question in the terms of the call resource; `None` if REST cannot express it.
pub(super) fn question_view(question: &Question) -> Option<ShownQuestion> {
    let (method, params) = questions::request(question, None);
    let (status, member) = match method {
        "elicitation/create" => ("awaitingElicitationResult", "elicitationRequest"),
        "sampling/createMessage" => ("awaitingSamplingResult", "samplingRequest"),
        _ => return None,
    };
    Some(ShownQuestion { status, member, request: questions::whole((method, params)) })
}

impl CallView {
    fn new(id: &[u8], name: &str, status: &'static str, at: &str) -> CallView {
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let tag = digest::shortened(&[&id, status, at]);
        let etag: String = tag.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut view = CallView { etag: etag.clone(), status, members: Members::default(), refusal: None };
        view.put("id", name);
        view.put("etag", etag);
        view.put("status", status);
        view
    }

    fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.members.insert(name, value);
    }

    fn times(&mut self, began_ms: u64, changed_ms: u64) {
        self.put("createdAt", rfc3339(began_ms));
        self.put("updatedAt", rfc3339(changed_ms));
    }

    fn progress(&mut self, shown: &[LoggedEvent]) {
        let last = |of: fn(&Event) -> Option<Json>| shown.iter().rev().find_map(|logged| of(&logged.event));
        if let Some(progress) = last(progress).or_else(|| last(phase)) {
            self.put("progress", progress);
        }
    }

    fn answered(&mut self, history: &History) {
        let turns: Vec<Json> = history.turns().filter_map(turn).collect();
        if !turns.is_empty() {
            let turns: Vec<&str> = turns.iter().map(Json::text).collect();
            self.put("history", Json::part(format!("[{}]", turns.join(","))));
        }
        if history.dropped_turns() > 0 {
            self.put("historyGone", Value::from(history.dropped_turns()));
        }
    }

    fn end(&mut self, call: &Call, outcome: &Outcome) {
        match outcome {
            Outcome::Done { output, replayed } => self.put("result", result(output, *replayed)),
            Outcome::Refused(refusal) => {
                self.put("error", error(call, refusal));
                self.refusal = Some(refusal.clone());
            }
        }
    }
}

/// Returns a question and its answer; `None` for a question that REST cannot express.
fn turn(turn: &Turn) -> Option<Json> {
    let ShownQuestion { member, request, .. } = question_view(&turn.question)?;
    let mut said = Members::default();
    said.insert("answeredAt", rfc3339(turn.at_ms));
    said.insert("serverData", turn.question.id.as_str());
    said.insert(member, request);
    match turn.answer.clone().into_result(&turn.question.ask) {
        Ok(result) => said.insert("result", result),
        Err(why) => said.insert("error", json!({"message": why})),
    }
    Some(said.to_json())
}

pub(super) fn progress(event: &Event) -> Option<Json> {
    let Event::Progress { progress, total, message, gauges } = event else { return None };
    let mut told = Members::default();
    told.insert("progress", progress.as_json());
    if let Some(total) = total {
        told.insert("total", total.as_json());
    }
    if let Some(message) = message {
        told.insert("message", message.as_str());
    }
    if !gauges.is_empty() {
        told.insert("gauges", json!(gauges));
    }
    Some(told.to_json())
}

/// Returns the phase of a call, shown until it has reported progress.
fn phase(event: &Event) -> Option<Json> {
    let Event::Status { phase, message } = event else { return None };
    Some(json!({"progress": 0, "message": message.as_ref().unwrap_or(phase)}).into())
}

/// Returns an MCP `CallToolResult`, as services that host calls return it.
fn result(output: &Output, replayed: bool) -> Json {
    let Output::Tool { content, structured, is_error, meta, more } = output else {
        return Json::part(serde_json::to_string(output).unwrap_or_else(|_| "null".to_owned()));
    };
    let blocks: Vec<&str> = content.iter().map(Json::text).collect();
    let mut result = Members::default();
    result.insert("content", Json::part(format!("[{}]", blocks.join(","))));
    result.insert("isError", *is_error);
    if let Some(structured) = structured {
        result.insert("structuredContent", structured.clone());
    }
    more.iter().for_each(|(name, value)| result.insert(name, value.clone()));
    let mut meta = meta.clone();
    if replayed {
        meta.insert("asp/replayed", true);
    }
    if !meta.is_empty() {
        result.insert("_meta", meta.to_json());
    }
    result.to_json()
}

fn error(call: &Call, refusal: &Refusal) -> Value {
    let reason = refusal.reason();
    let mut error = json!({
        "code": reason.as_str(),
        "message": refusal.public_message(),
        "recoveryHint": reason.recovery_hint(),
        "traceId": call.trace.to_string(),
    });
    if let (Some(error), Refusal::InvalidArguments { pointer, .. }) = (error.as_object_mut(), refusal) {
        error.insert("pointer".into(), pointer.as_str().into());
    }
    if let Some(error) = error.as_object_mut() {
        error.extend(refusal.revocation_members().map(|(name, value)| (name.to_owned(), value.into())));
    }
    error
}
