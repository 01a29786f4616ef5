//! The JSON-RPC binding: one request, and its response or a stream of responses.
//!
//! Keeps true: a client of 0.3 that accepts a stream alone gets a refusal as its only event.

use asp_a2a::jsonrpc::{
    RpcRequest, decode_request, encode_answer, encode_error, encode_event, read_envelope,
};
use asp_a2a::{A2aFailure, Generation, OperationKind, Request as AgentRequest};
use asp_call::media_type;
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{Method, StatusCode, header};

use super::extensions::Negotiation;
use super::operations::{OperationResult, perform};
use super::refused::RefusedRequest;
use super::sse;
use super::version::check_version;
use crate::{ProtocolRequest, events};

/// Answers one request.
pub(super) async fn serve(request: &ProtocolRequest) -> Response {
    if request.method != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]).into_response();
    }
    let envelope = match read_envelope(asp_json::unmarked(&request.body)) {
        Ok(envelope) => envelope,
        Err(fault) => return refuse(request, fault.id, fault.failure.into()),
    };
    let generation = envelope.generation;
    let negotiation = Negotiation::of(request, generation);
    let performed = match read(request, &envelope) {
        Ok(asked) => perform(request, asked, &negotiation).await,
        Err(failure) => Err(failure.into()),
    };
    let mut response = match performed {
        Ok(OperationResult::Answer(answer)) => {
            json(StatusCode::OK, encode_answer(envelope.id, generation, &answer))
        }
        Ok(OperationResult::Stream(stream)) => {
            let id = envelope.id.map(str::to_owned);
            sse::respond(stream, move |event| encode_event(id.as_deref(), generation, event))
        }
        Err(refused) if is_stream_of_v03(request, &envelope) => {
            return respond(request, envelope.id, refused, |error| {
                events::respond(stream::iter([format!("data: {error}\n\n")]))
            });
        }
        Err(refused) => return refuse(request, envelope.id, refused),
    };
    negotiation.echo(response.headers_mut());
    response
}

/// Reads the parameters; the version header is checked after them.
fn read(request: &ProtocolRequest, envelope: &RpcRequest<'_>) -> Result<AgentRequest, A2aFailure> {
    let asked = decode_request(envelope)?;
    check_version(request, envelope.generation)?;
    Ok(asked)
}

/// Whether a client of 0.3 accepts a stream alone.
fn is_stream_of_v03(request: &ProtocolRequest, envelope: &RpcRequest<'_>) -> bool {
    let accepts = |essence: &str| media_type::accepts(&request.headers, essence);
    matches!(envelope.kind, OperationKind::Stream | OperationKind::Subscribe)
        && envelope.generation == Generation::V03
        && accepts("text/event-stream")
        && !accepts("application/json")
}

/// Returns the response of a refused request; `id` is JSON.
pub(super) fn refuse(request: &ProtocolRequest, id: Option<&str>, refused: RefusedRequest) -> Response {
    respond(request, id, refused, |error| json(StatusCode::OK, error))
}

/// Returns the response of a refused request; `write` makes one with status 200 of its error.
fn respond(
    request: &ProtocolRequest,
    id: Option<&str>,
    refused: RefusedRequest,
    write: impl FnOnce(String) -> Response,
) -> Response {
    let refused = refused.traced(request.admitted.trace);
    let status = StatusCode::from_u16(refused.jsonrpc_status()).unwrap_or(StatusCode::OK);
    let error = encode_error(id, &refused.failure);
    let mut response = match status {
        StatusCode::OK => write(error),
        status => json(status, error),
    };
    refused.complete(&mut response);
    response
}

fn json(status: StatusCode, body: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
