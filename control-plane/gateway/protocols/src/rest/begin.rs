//! `PUT` of a call: begins it, or returns the existing call with that id. `POST` to a tool: begins a call under an id of the
//! platform's, and returns its result.
//!
//! Keeps true: one id is one call of one principal at one server, at whichever gateway and however often it is put; a
//! call rejected before it started leaves the id free, unless the call was reported to its client; a client that
//! disconnects loses nothing, because it can repeat the request; the store records a running call before it is reported
//! to the client (I-3).

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::chosen::ChosenId;
use asp_call::call::outcome::Refusal;
use asp_call::call::terms::{self, TermFault};
use asp_call::call::{ClientAbilities, IdempotencyKey, Invocation};
use asp_json::Json;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_pipeline::pipeline::promise::{Keeper, PromiseFault};
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use axum::response::Response;
use http::{StatusCode, header};
use tokio::time::Instant;
use uuid::Uuid;

use super::calls::respond_once_settled;
use super::problem::Problem;
use super::resource::CallView;
use crate::ProtocolRequest;

/// Time for which a `POST` is held open until its call ends, unless the client prefers another one.
const WAIT: Duration = Duration::from_secs(30);

/// The content of a request that begins a call.
struct PutRequest {
    entry: Arc<ListedPrimitive>,
    name: String,
    key: String,
    arguments: Json,
    chosen: ChosenId,
    deadline: Option<Instant>,
}

pub(super) async fn put(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let asked = parse_put(request, tool, name)?;
    if let Some(known) = request.find(asked.chosen.id()).await? {
        return joined(request, &asked, known).await;
    }
    let (found, is_new) = begin(request, &asked).await?;
    if !is_new {
        return joined(request, &asked, found).await;
    }
    let mut response = respond_once_settled(request, found, StatusCode::CREATED).await?;
    super::set(&mut response, header::LOCATION, request.uri.path());
    Ok(response)
}

/// Calls a tool once: answers with the result or, if the call has not ended within the client's wait or asks something,
/// with the call, under whose path it continues.
pub(super) async fn post(request: &ProtocolRequest, tool: &str) -> Result<Response, Problem> {
    let name = Uuid::now_v7().to_string();
    let asked = parse_put(request, tool, &name)?;
    let (found, _) = begin(request, &asked).await?;
    let wait = request.preferences().wait.unwrap_or(WAIT);
    let mut view = request.view_within(wait, found, CallView::waits_or_has_ended).await?;
    if let Some(refusal) = &view.refusal {
        return Err(Problem::of(refusal).of_call());
    }
    if let Some(result) = view.members.remove("result") {
        return Ok(super::json(StatusCode::OK, &result));
    }
    let path = format!("{}/calls/{name}", request.uri.path());
    let mut response = super::json(StatusCode::ACCEPTED, &view.body(&path));
    super::set(&mut response, header::LOCATION, &path);
    Ok(response)
}

/// Begins the call, and stores it before it is reported; returns it, and whether its id was free.
async fn begin(request: &ProtocolRequest, asked: &PutRequest) -> Result<(FoundCall, bool), Problem> {
    let invocation = invocation(request, asked);
    let pipeline = &request.gateway.pipeline;
    let begun = pipeline.begin_once(request.snapshot.clone(), invocation).map_err(|refusal| {
        let problem = match refusal {
            // The tool has been hidden since.
            Refusal::Unknown => unknown(),
            Refusal::MissingScopes { required } => request.step_up(&required),
            refusal => Problem::of(&refusal),
        };
        problem.of_call()
    })?;
    if !begun.is_new {
        return Ok((FoundCall::Here(begun.call), false));
    }
    let promised = pipeline.promise_chosen(&begun.call).await.map_err(unpromised)?;
    if matches!(promised, Keeper::AnotherGateway) {
        let known = request.find(asked.chosen.id()).await?.ok_or_else(Problem::runs_remotely)?;
        return Ok((known, false));
    }
    Ok((FoundCall::Here(begun.call), true))
}

fn parse_put(request: &ProtocolRequest, tool: &str, name: &str) -> Result<PutRequest, Problem> {
    let entry = request.tool(tool)?;
    let arguments = request.object()?;
    let deadline = terms::deadline(&request.headers).map_err(malformed)?;
    let place = (request.server.message.name.as_str(), name);
    let chosen = ChosenId::of(&request.caller, place, &entry.primitive.version, &arguments);
    let key = terms::idempotency_key(None, &request.headers, &entry.primitive, &arguments);
    // One id is one call, for its backend as well.
    let key = key.map_err(malformed)?.unwrap_or_else(|| chosen.id().to_string());
    Ok(PutRequest { entry, name: name.into(), key, arguments, chosen, deadline })
}

fn malformed(fault: TermFault) -> Problem {
    Problem::invalid(StatusCode::BAD_REQUEST, &fault.to_string())
}

fn invocation(request: &ProtocolRequest, asked: &PutRequest) -> Invocation {
    let sampling = request.preferences().sampling;
    let mut invocation = request.invocation(Protocol::Rest, &asked.entry, asked.arguments.clone());
    invocation.request.chosen = Some(asked.chosen);
    invocation.request.protocol_request_id = asked.name.clone();
    Invocation {
        idempotency_key: Some(IdempotencyKey::Explicit(asked.key.clone())),
        deadline: asked.deadline,
        abilities: ClientAbilities {
            elicitation: true,
            pages: true,
            sampling,
            sampling_tools: sampling,
            sampling_context: sampling,
            roots: false,
            roots_change: false,
            late_arguments: false,
            tasks: true,
        },
        ..invocation
    }
}

fn unknown() -> Problem {
    Problem::not_found("no such tool")
}

/// Returns the refusal of a call that could not be promised to its client.
fn unpromised(fault: PromiseFault) -> Problem {
    match fault {
        // The backend found the tool gone (I-10).
        PromiseFault::Void(Refusal::Unknown) => unknown().of_call(),
        PromiseFault::Void(refusal) => Problem::of(&refusal).of_call(),
        PromiseFault::Unstored => Problem::unstored(),
    }
}

/// Returns the answer if a call with the id exists.
async fn joined(
    request: &ProtocolRequest,
    asked: &PutRequest,
    known: FoundCall,
) -> Result<Response, Problem> {
    let taken = || Problem::invalid(StatusCode::CONFLICT, "the id is used by another call: choose another");
    let put = known.put().ok_or_else(taken)?;
    if !put.is_of(&asked.entry.primitive) {
        return Err(taken());
    }
    if !put.chosen.asks_the_same(&asked.chosen) {
        let detail = "the id is used by a call with other arguments: choose another";
        return Err(Problem::invalid(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    if put.key.as_deref() != Some(asked.key.as_str()) {
        return Err(taken());
    }
    if let FoundCall::Here(call) = &known {
        // If another gateway took the call over, its state there is reported.
        request.gateway.pipeline.promise_again(call, &request.caller).await.map_err(unpromised)?;
    }
    respond_once_settled(request, known, StatusCode::OK).await
}
