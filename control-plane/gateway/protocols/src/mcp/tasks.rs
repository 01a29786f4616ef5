//! The tasks extension of MCP 2026-07-28 (SEP-2663): a call of a task primitive to which its client returns.
//!
//! Keeps true: a task is stored before it is reported to its client; a task of another user or server is reported as
//! unknown, and a caller without the scopes that it required gets a challenge; its questions are shown only to a client
//! that can answer them; closing a response does not end it.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::authority::Attachment;
use asp_call::call::event::Event;
use asp_call::call::event::log::{EventReader, LoggedEvent};
use asp_call::call::follower::CallSnapshot;
use asp_call::call::remote::{InputFault, RemoteCall};
use asp_call::call::terms::retention;
use asp_call::call::{self, Call, ClientAbilities, State};
use asp_call::clock::rfc3339;
use asp_edge::{Caller, Reason};
use asp_json::Members;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Kind;
use asp_snapshot::ListedPrimitive;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use uuid::Uuid;

use super::all_servers;
use super::codec::{Message, RpcFailure, error_object};
use super::lacking::{TASKS, TASKS_EXTENSION, has_scopes, has_scopes_of, incapable};
use super::questions;
use super::results::{self, RequestKind};
use crate::ProtocolRequest;
use crate::replica::Replica;

/// Maximum number of tasks on one stream.
pub(super) const MAX_WATCHED: usize = 100;
/// Recommended polling interval.
const POLL: Duration = Duration::from_secs(1);
/// Status message of a task that waits for answers at another gateway.
const ASKS_ELSEWHERE: &str =
    "the task waits for answers at another gateway, which has its questions: ask again";
const REVISION: Revision = Revision::V2026_07_28;

/// Whether a client that declares `capabilities` supports tasks.
pub(super) fn is_declared(capabilities: &Value) -> bool {
    let extensions = capabilities.get("extensions");
    extensions.and_then(|extensions| extensions.get(TASKS_EXTENSION)).is_some_and(Value::is_object)
}

/// Whether a request for a call is answered with a task. `again`: the request answered questions.
pub(super) fn is_due(call: &Call, abilities: ClientAbilities, again: bool) -> bool {
    let primitive = &call.entry.primitive;
    let asks = || call.questions.pending().iter().any(|question| abilities.answers(&question.ask));
    abilities.tasks
        && primitive.kind() == Kind::Task
        // A call that has ended is answered directly.
        && call.outcome().is_none()
        && match again {
            true => !asks(),
            false => !primitive.task_after_input,
        }
}

/// A client whose task has not been reported yet. If it disconnects before, the call is cancelled, like any other call.
struct WaitingClient(Attachment);

impl Drop for WaitingClient {
    fn drop(&mut self) {
        if self.0.close() {
            self.0.call().abandon();
        }
    }
}

/// Turns the call into a task; if the store rejects it, the client stays attached and waits for the answer.
pub(super) async fn create(
    request: &ProtocolRequest,
    call: &Arc<Call>,
    abilities: ClientAbilities,
) -> Result<Members, Attachment> {
    let _announcing = WaitingClient(Attachment::to(call.clone(), abilities));
    match request.gateway.pipeline.promise_task(call).await {
        true => Ok(described(call, "working")),
        false => Err(Attachment::to(call.clone(), abilities)),
    }
}

/// Stream of a task's state, at first and after every change, up to its end.
pub(super) type TaskChanges = BoxStream<'static, Members>;

/// Returns the changes of the caller's task with this id at this gateway; `None` for any other task.
pub(super) fn changes(
    request: &ProtocolRequest,
    id: &str,
    abilities: ClientAbilities,
) -> Option<TaskChanges> {
    let id = Uuid::parse_str(id).ok().filter(|_| abilities.tasks)?;
    let mut holders = all_servers::holders(request);
    let (call, caller) = holders.find_map(|(caller, server)| {
        let call = request.gateway.pipeline.here(id, caller, server)?;
        Some((call, caller.clone()))
    })?;
    has_scopes(request, &call).ok()?;
    let events = call.events.reader_from(call.events.next_number());
    let gateway = request.gateway.clone();
    let following = TaskFollower { gateway, caller, call, abilities, events, told: None, over: false };
    let is_task = following.call.entry.primitive.kind() == Kind::Task;
    is_task.then(|| stream::unfold(following, TaskFollower::next).boxed())
}

struct TaskFollower {
    gateway: Arc<Replica>,
    caller: Arc<Caller>,
    call: Arc<Call>,
    abilities: ClientAbilities,
    events: EventReader,
    /// The status and the open questions that were last sent.
    told: Option<(Value, Vec<String>)>,
    /// Whether the events have ended.
    over: bool,
}

impl TaskFollower {
    async fn next(mut self) -> Option<(Members, TaskFollower)> {
        loop {
            let task = detailed(&self.call, self.abilities);
            if self.call.ownership.continued.is_set() {
                self = self.continued().await?;
                continue;
            }
            let asked = task.get("inputRequests").and_then(|asked| asked.as_object());
            let asked = asked.into_iter().flat_map(|asked| asked.keys().cloned()).collect();
            let stands = (task.get("status").map(|status| status.view().clone()).unwrap_or_default(), asked);
            if self.told.as_ref() != Some(&stands) {
                self.told = Some(stands);
                return Some((task, self));
            }
            if self.over {
                return None;
            }
            // The outcome is set before the events end.
            self.over = self.events.next().await.is_none();
        }
    }

    /// Continues at this gateway if it took the call over; `None` if the call cannot be followed here and the client
    /// has to poll.
    async fn continued(mut self) -> Option<TaskFollower> {
        let server = self.call.server.message.name.as_str();
        let found = self.gateway.pipeline.find(self.call.id, &self.caller, server).await;
        let Ok(Some(FoundCall::Here(call))) = found else { return None };
        self.events = call.events.reader_from(call.events.next_number());
        (self.call, self.over) = (call, false);
        Some(self)
    }
}

/// Answers a request of the extension; `None` for any other request.
pub(super) async fn answer(
    request: &ProtocolRequest,
    message: &Message,
    abilities: ClientAbilities,
) -> Option<Result<Members, RpcFailure>> {
    match message.method.as_deref()? {
        method @ ("tasks/get" | "tasks/update" | "tasks/cancel") => {
            Some(of_task(request, message, abilities, method).await)
        }
        _ => None,
    }
}

async fn of_task(
    request: &ProtocolRequest,
    message: &Message,
    abilities: ClientAbilities,
    method: &str,
) -> Result<Members, RpcFailure> {
    if !abilities.tasks {
        return Err(incapable(&[TASKS.to_owned()], REVISION));
    }
    let unknown = || RpcFailure::with(Reason::InvalidParams, "unknown task").in_call();
    let id = message.text_param("taskId").and_then(|id| Uuid::parse_str(id).ok()).ok_or_else(unknown)?;
    let pipeline = &request.gateway.pipeline;
    let unsaid = |_| {
        RpcFailure::with(Reason::UpstreamUnavailable, "the store of calls does not answer: try again")
            .in_call()
    };
    let found = pipeline.find(id, &request.caller, &request.server.message.name).await;
    let found = found.map_err(unsaid)?.ok_or_else(unknown)?;
    let entry = task_entry(request, &found).ok_or_else(unknown)?;
    has_scopes_of(request, entry)?;
    match (method, &found) {
        ("tasks/get", FoundCall::Here(call)) => return Ok(detailed(call, abilities)),
        ("tasks/get", FoundCall::Elsewhere(call)) => return Ok(remote_task(call)),
        ("tasks/cancel", _) => {
            let whose = (&request.caller, &request.server);
            pipeline.cancel_found(&found, whose).await.map_err(input_fault)?;
        }
        (_, FoundCall::Here(call)) => update(request, message, call).await?,
        // Only the gateway that runs the task knows its questions.
        (_, FoundCall::Elsewhere(_)) => return Err(input_fault(InputFault::Unavailable)),
    }
    Ok(Members::default())
}

/// Passes on the answers in the request.
async fn update(request: &ProtocolRequest, message: &Message, call: &Arc<Call>) -> Result<(), RpcFailure> {
    let results = message.sent_param("inputResponses").filter(|results| results.is_object());
    let results = results.ok_or_else(|| {
        RpcFailure::with(Reason::InvalidParams, "params.inputResponses must be an object").in_call()
    })?;
    let pipeline = &request.gateway.pipeline;
    pipeline.renew_authority(call, &request.caller);
    let answers = questions::answers(&call.questions, &results);
    pipeline.answer_each(call, answers).await.map_err(input_fault)
}

fn input_fault(fault: InputFault) -> RpcFailure {
    RpcFailure::of_input_fault(fault).in_call()
}

/// Returns a task as its caller sees it.
fn detailed(call: &Call, abilities: ClientAbilities) -> Members {
    let CallSnapshot { state, shown, questions: mut asked, outcome, .. } = CallSnapshot::of(call);
    asked.retain(|question| abilities.answers(&question.ask));
    let Some(outcome) = outcome else {
        let status = if asked.is_empty() { "working" } else { "input_required" };
        let mut task = described(call, status);
        if let Some(said) = last_status(&shown) {
            task.insert("statusMessage", said);
        }
        if !asked.is_empty() {
            task.insert("inputRequests", questions::requests(&asked));
        }
        return task;
    };
    if state == State::Cancelled {
        return described(call, "cancelled");
    }
    // A tool that failed has completed; only a protocol error fails a task.
    match results::of_outcome(&outcome, call, RequestKind::Tool, REVISION) {
        Ok(mut result) => {
            result.put("resultType", "complete".into());
            let mut task = described(call, "completed");
            task.insert("result", result.to_json());
            task
        }
        Err(failure) => {
            let mut task = described(call, "failed");
            task.insert("statusMessage", failure.message.clone());
            task.insert("error", error_object(&failure, Some(call.trace)));
            task
        }
    }
}

/// Returns the last status message of the call.
fn last_status(shown: &[LoggedEvent]) -> Option<&str> {
    shown.iter().rev().find_map(|logged| match &logged.event {
        Event::Status { phase, message } => Some(message.as_deref().unwrap_or(phase)),
        _ => None,
    })
}

fn described(call: &Call, status: &str) -> Members {
    of_times(call.id, status, call.changed_ms(), retention(&call.entry.primitive))
}

/// Returns the primitive of a call if it is a task.
fn task_entry<'a>(request: &'a ProtocolRequest, found: &'a FoundCall) -> Option<&'a ListedPrimitive> {
    let entry = match found {
        FoundCall::Here(call) => Some(&call.entry),
        FoundCall::Elsewhere(call) => {
            request.server.entries.iter().find(|entry| call.is_of(&entry.primitive))
        }
    };
    entry.filter(|entry| entry.primitive.kind() == Kind::Task).map(Arc::as_ref)
}

/// Returns a task known only by its record: its state, without its questions.
fn remote_task(call: &RemoteCall) -> Members {
    if call.state != State::InputRequired {
        return of_times(call.id, "working", call.updated_ms, call.kept_for);
    }
    let mut task = of_times(call.id, "input_required", call.updated_ms, call.kept_for);
    task.insert("inputRequests", json!({}));
    task.insert("statusMessage", ASKS_ELSEWHERE);
    task
}

fn of_times(id: Uuid, status: &str, changed_ms: u64, ttl: Duration) -> Members {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut task = Members::default();
    task.insert("taskId", id.to_string());
    task.insert("status", status);
    task.insert("createdAt", rfc3339(call::began_ms(id)));
    task.insert("lastUpdatedAt", rfc3339(changed_ms));
    task.insert("ttlMs", milliseconds(ttl));
    task.insert("pollIntervalMs", milliseconds(POLL));
    task
}
