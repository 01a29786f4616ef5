//! Requests for an existing call: its state, the answer to its question, its cancellation.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::{Call, chosen};
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_proto::grace::BACKEND_STOPS_WITHIN;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;

use super::problem::Problem;
use super::resource;
use super::{json, set};
use crate::ProtocolRequest;
use crate::mcp::questions;

/// Time that a cancel waits for the call to end.
const ENDS_WITHIN: Duration = BACKEND_STOPS_WITHIN.saturating_mul(2);

/// Returns the call's state, at once or after a change, as the client prefers.
pub(super) async fn get(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let found = find(request, tool, name).await?;
    let Some(known) = request.tags(&header::IF_NONE_MATCH)? else {
        return respond_once_settled(request, found, StatusCode::OK).await;
    };
    let changed = |view: &resource::CallView| !known.match_weakly(&view.etag);
    let view = request.view_once(found, changed).await?;
    if changed(&view) {
        return Ok(respond(request, view, StatusCode::OK));
    }
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    set(&mut response, header::ETAG, &format!("\"{}\"", view.etag));
    set(&mut response, header::CACHE_CONTROL, "no-store");
    preferred(request, &mut response);
    Ok(response)
}

/// Answers the call's question: `{serverData?, result?, error?}`.
pub(super) async fn advance(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let call = here(request, tool, name).await?;
    let body = request.object()?;
    let misfit = |detail: &str| Problem::invalid(StatusCode::UNPROCESSABLE_ENTITY, detail);
    // Many clients write null for an absent member.
    let member = |name: &str| body.member(name).filter(|member| !member.is_null());
    let result = member("result");
    let error = member("error");
    if [&result, &error].into_iter().flatten().any(|member| !member.is_object()) {
        return Err(misfit("`result` and `error` must be objects"));
    }
    if result.is_none() && error.is_none() {
        return Err(misfit("the answer must have a `result` or an `error`"));
    }
    // Preconditions are evaluated after errors that hold in any state of the call (RFC 9110, 13.2.1).
    let view = resource::of(&call);
    if request.tags(&header::IF_MATCH)?.is_some_and(|tags| !tags.match_strongly(&view.etag)) {
        let detail = "the call has changed since: get it again";
        return Err(Problem::unreadable(StatusCode::PRECONDITION_FAILED, detail));
    }
    let waits_not =
        || Problem::invalid(StatusCode::CONFLICT, "the call does not wait for this answer: get it again");
    let shown = view.members.get("serverData").and_then(|shown| shown.as_str());
    let asked = match body.get("serverData") {
        None | Some(Value::Null) => shown,
        Some(asked) => asked.as_str(),
    };
    let question = asked.and_then(|asked| call.questions.find(asked)).ok_or_else(waits_not)?;
    let answer = match result {
        Some(result) => questions::answer(&question, &result),
        None => Some(questions::no_answer(&question, error.as_deref())),
    };
    let answer = answer.ok_or_else(|| misfit("the result does not answer the question"))?;
    request.gateway.pipeline.renew_authority(&call, &request.caller);
    let answered = request.gateway.pipeline.answer(&call, &question.id, answer).await;
    if !answered.map_err(Problem::of_input_fault)? {
        return match call.questions.find(&question.id) {
            Some(_) => Err(misfit("the result does not match the question")),
            None => Err(waits_not()),
        };
    }
    respond_once_settled(request, FoundCall::Here(call), StatusCode::OK).await
}

/// Requests the call's cancellation; a call that has ended does not change.
pub(super) async fn cancel(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let found = find(request, tool, name).await?;
    let whose = (&request.caller, &request.server);
    let cancelled = request.gateway.pipeline.cancel_found(&found, whose).await;
    cancelled.map_err(Problem::of_input_fault)?;
    if let Some(call) = found.call() {
        // A call that takes longer to end is seen to end in a later request.
        let _ = tokio::time::timeout(ENDS_WITHIN, call.finished()).await;
        request.gateway.pipeline.end_stored(call).await;
    }
    Ok(respond(request, resource::of_found(&found), StatusCode::OK))
}

/// Returns the caller's call of this tool with this id; someone else's call is reported as not found (I-10).
async fn find(request: &ProtocolRequest, tool: &str, name: &str) -> Result<FoundCall, Problem> {
    let entry = request.tool(tool)?;
    let id = chosen::id(&request.caller, &request.server.message.name, name);
    let found = request.find(id).await?;
    let is_it = |found: &FoundCall| found.put().is_some_and(|put| put.is_of(&entry.primitive));
    found.filter(is_it).ok_or_else(|| Problem::not_found("no such call"))
}

/// Returns the same if this gateway runs the call; otherwise fails.
pub(super) async fn here(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Arc<Call>, Problem> {
    match find(request, tool, name).await? {
        FoundCall::Here(call) => Ok(call),
        FoundCall::Elsewhere(_) => Err(Problem::runs_remotely()),
    }
}

/// Returns the call once it has ended or waits for an answer, or when the client's wait is over.
pub(super) async fn respond_once_settled(
    request: &ProtocolRequest,
    found: FoundCall,
    status: StatusCode,
) -> Result<Response, Problem> {
    let view = request.view_once(found, resource::CallView::waits_or_has_ended).await?;
    Ok(respond(request, view, status))
}

fn respond(request: &ProtocolRequest, view: resource::CallView, status: StatusCode) -> Response {
    let path =
        request.uri.path().strip_suffix("/advance").or_else(|| request.uri.path().strip_suffix("/cancel"));
    let etag = format!("\"{}\"", view.etag);
    let mut response = json(status, &view.body(path.unwrap_or(request.uri.path())));
    set(&mut response, header::ETAG, &etag);
    preferred(request, &mut response);
    response
}

/// Reports the preference that was applied (RFC 7240 section 3).
fn preferred(request: &ProtocolRequest, response: &mut Response) {
    if let Some(wait) = request.preferences().wait {
        let applied = http::HeaderName::from_static("preference-applied");
        set(response, applied, &format!("wait={}", wait.as_secs()));
    }
}
