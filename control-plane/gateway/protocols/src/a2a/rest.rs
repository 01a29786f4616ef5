//! The REST binding (HTTP+JSON): routes below the agent's path, and streams of server-sent events.
//!
//! Keeps true: an answer has the media type of its request.

use asp_a2a::rest::{
    MEDIA_TYPE, Route, RouteFault, decode_request, encode_answer, encode_error_as, encode_event, route,
};
use asp_a2a::{A2aError, A2aFailure, Generation, Request as AgentRequest};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::extensions::Negotiation;
use super::operations::{OperationResult, perform};
use super::refused::RefusedRequest;
use super::sse;
use super::version::check_version;
use crate::ProtocolRequest;

/// Answers a request for `path`, the part of its path below the agent's.
pub(super) async fn serve(request: &ProtocolRequest, path: &str) -> Response {
    let route = match route(request.method.as_str(), path) {
        Ok(route) => route,
        Err(RouteFault::Unknown) => return refuse(request, path, A2aError::MethodNotFound.into()),
        Err(fault @ RouteFault::Method { allowed }) => {
            let failure = A2aFailure::new(A2aError::MethodNotFound, fault.to_string());
            let mut response = refuse(request, path, failure.into());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
            return response;
        }
    };
    if has_other_media_type(request) {
        let message = "the body must be application/json or application/a2a+json";
        let failure = A2aFailure::new(A2aError::ContentTypeNotSupported, message);
        return respond(request, path, failure.into(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let generation = route.generation;
    let negotiation = Negotiation::of(request, generation);
    let performed = match read(request, route) {
        Ok(asked) => perform(request, asked, &negotiation).await,
        Err(failure) => Err(failure.into()),
    };
    let mut response = match performed {
        Ok(OperationResult::Answer(answer)) => {
            json(request, StatusCode::OK, encode_answer(generation, &answer))
        }
        Ok(OperationResult::Stream(stream)) => {
            sse::respond(stream, move |event| encode_event(generation, event))
        }
        Err(refused) => return refuse(request, path, refused),
    };
    negotiation.echo(response.headers_mut());
    response
}

/// Reads the parameters; the version header is checked after them.
fn read(request: &ProtocolRequest, route: Route) -> Result<AgentRequest, A2aFailure> {
    let generation = route.generation;
    let body = asp_json::unmarked(&request.body);
    let asked = decode_request(route, request.uri.query().unwrap_or_default(), body)?;
    check_version(request, generation)?;
    Ok(asked)
}

/// Whether the request has a body of a media type that A2A does not have.
fn has_other_media_type(request: &ProtocolRequest) -> bool {
    let body = asp_json::unmarked(&request.body);
    !body.trim_ascii().is_empty() && media_type(request).is_none()
}

/// Returns the media type of the request's body, if A2A has it.
fn media_type(request: &ProtocolRequest) -> Option<&'static str> {
    let stated = request.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let stated = stated.split(';').next()?.trim();
    ["application/json", MEDIA_TYPE].into_iter().find(|known| stated.eq_ignore_ascii_case(known))
}

/// Returns the response of a refused request.
pub(super) fn refuse(request: &ProtocolRequest, path: &str, refused: RefusedRequest) -> Response {
    let status = StatusCode::from_u16(refused.failure.error.http_status());
    respond(request, path, refused, status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
}

/// Returns the response of a refused request with this status.
fn respond(request: &ProtocolRequest, path: &str, refused: RefusedRequest, status: StatusCode) -> Response {
    let generation = match path.strip_prefix("/v1") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Generation::V03,
        _ => Generation::V10,
    };
    let refused = refused.traced(request.admitted.trace);
    let body = encode_error_as(status.as_u16(), generation, &refused.failure);
    let mut response = json(request, status, body);
    refused.complete(&mut response);
    response
}

fn json(request: &ProtocolRequest, status: StatusCode, body: String) -> Response {
    let media_type = media_type(request).unwrap_or("application/json");
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
