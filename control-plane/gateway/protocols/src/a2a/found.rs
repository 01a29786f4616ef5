//! Lookup of tasks, and waiting until a task ends or waits for its client.
//!
//! Keeps true: a task of another caller, server or protocol is reported like an unknown one (I-10); a waiting request
//! holds a permit, of which a gateway has a limited number (I-4), and ends with its token.

use std::sync::Arc;
use std::time::Duration;

use asp_a2a::{A2aFailure, Task};
use asp_call::call::State;
use asp_call::call::authority::ends_at;
use asp_call::call::follower::CallSnapshot;
use asp_call::call::outcome::Refusal;
use asp_call::clock::wait_until;
use asp_pipeline::pipeline::entitlement::entitle;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use tokio::time::Instant;
use uuid::Uuid;

use super::refused::RefusedRequest;
use super::stream::wait_until_published;
use super::task::{self, TaskContents};
use crate::ProtocolRequest;

/// Polling interval for a task at another gateway.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Returns the caller's task with this id.
pub(super) async fn find(request: &ProtocolRequest, id: &str) -> Result<FoundCall, RefusedRequest> {
    let unknown = || RefusedRequest::from(A2aFailure::task_not_found(id));
    let call = Uuid::parse_str(id).map_err(|_| unknown())?;
    let found = look_up(request, call).await?.ok_or_else(unknown)?;
    if is_shown(request, &found)? { Ok(found) } else { Err(unknown()) }
}

/// Whether the caller may see the task.
pub(super) fn is_shown(request: &ProtocolRequest, found: &FoundCall) -> Result<bool, RefusedRequest> {
    let Some(entry) = entry(request, found) else { return Ok(false) };
    match entitle(&request.snapshot, &request.server, &request.caller, entry, Protocol::A2a) {
        Ok(_) => Ok(true),
        Err(Refusal::MissingScopes { required }) => Err(RefusedRequest::step_up(request, &required)),
        Err(_) => Ok(false),
    }
}

/// Returns the caller's call with this id at any gateway, whatever started it.
pub(super) async fn look_up(
    request: &ProtocolRequest,
    id: Uuid,
) -> Result<Option<FoundCall>, RefusedRequest> {
    let server = request.server.message.name.as_str();
    let found = request.gateway.pipeline.find_task(id, &request.caller, server).await;
    found.map_err(RefusedRequest::of_store)
}

/// Returns the primitive of a task; `None` for a call over another protocol.
pub(super) fn entry<'a>(request: &'a ProtocolRequest, found: &'a FoundCall) -> Option<&'a ListedPrimitive> {
    let put = found.put().filter(|put| put.protocol == Protocol::A2a)?;
    match found {
        FoundCall::Here(call) => Some(&*call.entry),
        FoundCall::Elsewhere(_) => {
            let entries = request.server.entries.iter();
            entries.map(Arc::as_ref).find(|entry| put.is_of(&entry.primitive))
        }
    }
}

/// Returns the call once its task has ended or waits for its client, and at the latest when the caller's token expires
/// or this gateway shuts down.
pub(super) async fn settled(
    request: &ProtocolRequest,
    mut found: FoundCall,
) -> Result<FoundCall, RefusedRequest> {
    let id = found.id();
    let until = ends_at(&request.caller);
    let mut permit = None;
    loop {
        if found.has_moved() {
            found = look_up(request, id).await?.ok_or_else(RefusedRequest::runs_remotely)?;
        }
        // The reader starts before the state is read, so that no change in between is missed.
        let events = found.call().map(|call| call.events.reader_from(call.events.next_number()));
        let is_settled = is_settled(&found);
        if found.has_moved() {
            continue;
        }
        let is_late = until.is_some_and(|until| until <= Instant::now());
        if is_settled || is_late || request.gateway.pipeline.is_leaving() {
            return Ok(found);
        }
        if permit.is_none() {
            let admitted = request.gateway.waiting.admit(&request.caller.org);
            permit = Some(admitted.map_err(|full| RefusedRequest::of(&full))?);
        }
        let Some((call, mut events)) = found.call().cloned().zip(events) else {
            tokio::time::sleep(LOOK_EVERY).await;
            // The call may have moved here and ended in between.
            found = look_up(request, id).await?.ok_or_else(RefusedRequest::runs_remotely)?;
            continue;
        };
        tokio::select! {
            _ = events.next() => {}
            _ = call.finished() => {}
            () = wait_until(until) => {}
        }
    }
}

fn is_settled(found: &FoundCall) -> bool {
    match found {
        FoundCall::Here(call) => call.outcome().is_some() || !call.questions.pending().is_empty(),
        FoundCall::Elsewhere(call) => !matches!(call.state, State::Submitted | State::Working),
    }
}

/// Returns the task for its client: what it shows is stored or published first, so that no gateway contradicts it or shows an
/// earlier task later.
pub(super) async fn report(request: &ProtocolRequest, found: &FoundCall, contents: TaskContents) -> Task {
    let FoundCall::Here(call) = found else { return task::of_found(found, contents) };
    request.gateway.pipeline.end_stored(call).await;
    let snapshot = CallSnapshot::of(call);
    if snapshot.outcome.is_none() {
        wait_until_published(call, snapshot.next_event).await;
    }
    task::of_snapshot(call, &snapshot, contents)
}
