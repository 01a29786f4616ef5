//! `PUT` of a call: begins it, or is told of the one that has the id.
//!
//! Keeps true: one id is one call of one principal at one server, at whichever gateway and however often it is put; what
//! is refused before anything is begun leaves the id free, unless its client was told of the call; a client that goes away loses nothing, because it can put the
//! same again; the store knows of a call that runs on before its client is told that it does (I-3).

use std::sync::Arc;
use std::time::Duration;

use asp_json::{Json, Members};
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use axum::response::Response;
use http::{StatusCode, header};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::calls::told;
use super::problem::Problem;
use super::waiting::Place;
use crate::call::chosen::Chosen;
use crate::call::outcome::{Outcome, Refusal};
use crate::call::terms::{self, TermFault};
use crate::call::{Aim, Call, ClientAbilities, IdempotencyKey, Invocation};
use crate::durable::active::ActiveFault;
use crate::durable::active::told::kept_for;
use crate::faces::FaceRequest;

/// How long a client waits to learn whether a call is begun at all; later it is told by the call.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);

/// Time in which the end of a quick call is stored before its client is answered; a later one is told by the call.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// What is put.
struct Asked {
    entry: Arc<ListedPrimitive>,
    name: String,
    key: String,
    arguments: Json,
    chosen: Chosen,
    deadline: Option<Instant>,
}

pub(super) async fn put(request: &FaceRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let asked = asked(request, tool, name)?;
    if let Some(known) = request.find(asked.chosen.id()).await? {
        return joined(request, &asked, known).await;
    }
    let invocation = invocation(request, &asked);
    let pipeline = &request.gateway.pipeline;
    let begun =
        pipeline.begin_once(request.snapshot.clone(), invocation).map_err(|refusal| match refusal {
            // It is hidden by now.
            Refusal::Unknown => unknown(),
            Refusal::MissingScopes { required } => request.step_up(&required),
            refusal => Problem::of(&refusal),
        })?;
    if !begun.is_new {
        return joined(request, &asked, Place::Here(begun.call)).await;
    }
    let call = begun.call;
    let stored = keep(request, &call);
    began(&call).await?;
    // The store's own time bounds this.
    let stored = stored.await;
    if call.ownership.is_passed_on() {
        // Another gateway was faster.
        let known = request.find(asked.chosen.id()).await?.ok_or_else(Problem::elsewhere)?;
        return joined(request, &asked, known).await;
    }
    acknowledged(stored)?;
    ended(&call).await;
    accepted(&call).await?;
    let mut response = told(request, asked.chosen.id(), Place::Here(call), StatusCode::CREATED).await?;
    super::set(&mut response, header::LOCATION, request.uri.path());
    Ok(response)
}

fn asked(request: &FaceRequest, tool: &str, name: &str) -> Result<Asked, Problem> {
    let entry = request.tool(tool)?;
    let arguments = request.object()?;
    let deadline = terms::deadline(&request.headers).map_err(malformed)?;
    let place = (request.server.message.name.as_str(), name);
    let chosen = Chosen::of(&request.caller, place, &entry.primitive.version, &arguments);
    let key = terms::idempotency_key(None, &request.headers, &entry.primitive, &arguments);
    // One id is one call, also for whoever executes it.
    let key = key.map_err(malformed)?.unwrap_or_else(|| chosen.id().to_string());
    Ok(Asked { entry, name: name.into(), key, arguments, chosen, deadline })
}

fn malformed(fault: TermFault) -> Problem {
    Problem::invalid(StatusCode::BAD_REQUEST, &fault.to_string())
}

fn invocation(request: &FaceRequest, asked: &Asked) -> Invocation {
    let sampling = request.preferences().sampling;
    Invocation {
        caller: request.caller.clone(),
        subject: request.subject(),
        server: request.server.clone(),
        protocol: Protocol::Rest,
        entry: asked.entry.clone(),
        arguments: asked.arguments.clone(),
        meta: Members::default(),
        aim: Aim::Done,
        chosen: Some(asked.chosen),
        protocol_request_id: asked.name.clone(),
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
            tasks: true,
        },
        session: String::new(),
        trace: request.admitted.trace,
        bytes_in: request.body.len(),
        memory: request.memory.clone(),
        parent: None,
    }
}

/// From now on the call is there for whoever comes back for it, whether this client stays or not.
fn keep(request: &FaceRequest, call: &Arc<Call>) -> JoinHandle<Result<(), ActiveFault>> {
    call.authority.keep();
    call.authority.leave();
    let until = Instant::now() + kept_for(&call.entry.primitive);
    request.gateway.pipeline.registry.promise(call, until);
    store(request, call)
}

/// Ends when the store knows of the call, or has not taken it. A call that has ended tells its client all by its answer.
fn store(request: &FaceRequest, call: &Arc<Call>) -> JoinHandle<Result<(), ActiveFault>> {
    let pipeline = request.gateway.pipeline.clone();
    let call = call.clone();
    tokio::spawn(async move {
        // A call that is refused before it begins leaves no record at which another gateway would find it running.
        call.begins_or_ends(BEGINS_WITHIN).await;
        if call.void().is_some() || call.ownership.is_told() {
            return Ok(());
        }
        if call.outcome().is_none() {
            match pipeline.active.announce(&call).await {
                Err(error) if call.outcome().is_none() => {
                    tracing::warn!(call = %call.id, trace = %call.trace, %error, "the store does not take the record of a call: it runs on here, other gateways do not see it, and its client is told to send it again");
                    return Err(error);
                }
                // It has ended meanwhile.
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        // Whoever puts it again, at whichever gateway, is told the same.
        pipeline.active.tell_end(&call).await
    })
}

/// No client is told that its call runs which only this gateway knows of.
fn acknowledged(stored: Result<Result<(), ActiveFault>, JoinError>) -> Result<(), Problem> {
    match stored {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Problem::unstored()),
    }
}

fn unknown() -> Problem {
    Problem::not_found("no such tool")
}

/// Returns when the call is begun, or has ended before that for a reason of its own.
async fn began(call: &Call) -> Result<(), Problem> {
    call.begins_or_ends(BEGINS_WITHIN).await;
    accepted(call).await
}

/// Waits while the end of a call is being stored, so that a quick call is answered with its result.
async fn ended(call: &Call) {
    if call.ownership.has_given_row_up() {
        // A store that takes longer leaves the call running.
        let _ = tokio::time::timeout(ENDS_WITHIN, call.finished()).await;
    }
}

/// Refuses a call that has ended as if it had never been, so that nobody is told of it.
async fn accepted(call: &Call) -> Result<(), Problem> {
    if call.state().is_terminal() {
        call.finished().await;
    }
    match call.void().as_deref() {
        // Its executor found it gone (I-10).
        Some(Outcome::Refused(Refusal::Unknown)) => Err(unknown()),
        Some(Outcome::Refused(refusal)) => Err(Problem::of(refusal)),
        _ => Ok(()),
    }
}

/// The answer where the id is of a call that is there.
async fn joined(request: &FaceRequest, asked: &Asked, known: Place) -> Result<Response, Problem> {
    let taken = || Problem::invalid(StatusCode::CONFLICT, "the id is of another call: choose another one");
    let put = known.put().ok_or_else(taken)?;
    if !put.is_of(&asked.entry.primitive) {
        return Err(taken());
    }
    if !put.chosen.asks_the_same(&asked.chosen) {
        let detail = "the id is of a call with other arguments: choose another one";
        return Err(Problem::invalid(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    if put.key != Some(asked.key.as_str()) {
        return Err(taken());
    }
    if let Place::Here(call) = &known {
        request.gateway.pipeline.running.attend(call, &request.caller);
        call.authority.leave();
        let stored = store(request, call);
        began(call).await?;
        let stored = stored.await;
        if !call.ownership.is_passed_on() {
            acknowledged(stored)?;
            ended(call).await;
            accepted(call).await?;
        }
    }
    told(request, asked.chosen.id(), known, StatusCode::OK).await
}
