//! REST: calls as resources under ids that clients choose. Mirrors the protocol of services that host calls
//! (docs/rest.md, docs/http-calls.md).
//!
//! Owns: paths, methods, headers and the shape of every answer. Keeps true: errors reveal nothing about a tool that the
//! caller cannot see (I-10); every refusal is a problem document.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_edge::Reason;
use asp_json::{Json, unmarked};
use asp_pipeline::pipeline::entitlement::{ServerView, entitle};
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};

use crate::ProtocolRequest;

mod begin;
mod calls;
pub mod conditions;
pub mod event_id;
mod events;
mod list;
pub mod openapi;
pub mod path;
mod problem;
mod resource;
mod tools;
mod waiting;

use conditions::{Preferences, Tags};
use path::{CallPart, Resource};
use problem::Problem;

/// Answers one request.
pub async fn serve(mut request: ProtocolRequest) -> Response {
    let trace = request.admitted.trace;
    if let Err(fault) = request.hold() {
        return Problem::of_memory_fault(&fault).respond(trace);
    }
    answer(&request).await.unwrap_or_else(|problem| problem.respond(trace))
}

/// Returns the refusal of a request that was rejected before REST's own checks.
pub fn refuse(reason: Reason, trace: asp_edge::Trace) -> Response {
    let status = StatusCode::from_u16(reason.http_status(asp_edge::Era::Legacy));
    Problem::new(status.unwrap_or(StatusCode::BAD_REQUEST), reason, reason.message()).respond(trace)
}

async fn answer(request: &ProtocolRequest) -> Result<Response, Problem> {
    request.check_headers()?;
    let resource = path::parse(request.uri.path()).ok_or_else(|| Problem::not_found("no such path"))?;
    let method = match &request.method {
        // The HTTP server drops the body of the answer to HEAD (RFC 9110 section 9.3.2).
        method if method == Method::HEAD => &Method::GET,
        method => method,
    };
    match resource {
        Resource::OpenApi => match *method {
            Method::GET => openapi::get(request),
            _ => Err(Problem::no_method("GET, HEAD")),
        },
        Resource::Tools => match *method {
            Method::GET => Ok(tools::list(request)),
            _ => Err(Problem::no_method("GET, HEAD")),
        },
        Resource::Tool { tool } => match *method {
            Method::POST => begin::post(request, tool).await,
            _ => Err(Problem::no_method("POST")),
        },
        Resource::Calls { tool } => match *method {
            Method::GET => list::list(request, tool).await,
            _ => Err(Problem::no_method("GET, HEAD")),
        },
        Resource::Call { tool, id, part } => match (part, method) {
            (CallPart::Whole, &Method::PUT) => begin::put(request, tool, id).await,
            (CallPart::Whole, &Method::GET) => calls::get(request, tool, id).await,
            (CallPart::Advance, &Method::POST) => calls::advance(request, tool, id).await,
            (CallPart::Cancel, &Method::POST) => calls::cancel(request, tool, id).await,
            (CallPart::Events, &Method::GET) => events::follow(request, tool, id).await,
            (CallPart::Whole, _) => Err(Problem::no_method("GET, HEAD, PUT")),
            (CallPart::Events, _) => Err(Problem::no_method("GET, HEAD")),
            (CallPart::Advance | CallPart::Cancel, _) => Err(Problem::no_method("POST")),
        },
    }
}

/// Headers that REST reads.
const READ: [&str; 7] = [
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "last-event-id",
    "prefer",
    "x-deadline-ms",
];

impl ProtocolRequest {
    /// Rejects headers that could be read in more than one way.
    fn check_headers(&self) -> Result<(), Problem> {
        let unreadable =
            |name: &&&str| self.headers.get_all(**name).iter().any(|value| value.to_str().is_err());
        match READ.iter().find(unreadable) {
            None => Ok(()),
            Some(name) => {
                let detail = format!("the header {name} is not visible ASCII");
                Err(Problem::unreadable(StatusCode::BAD_REQUEST, &detail))
            }
        }
    }

    /// Returns the tool that the caller may call by this name.
    fn tool(&self, name: &str) -> Result<Arc<ListedPrimitive>, Problem> {
        let unknown = || Problem::not_found("no such tool");
        let entry = self.server.rest_tool(name).ok_or_else(unknown)?;
        let mut view = ServerView::of(&self.snapshot, &self.server, &self.caller, Protocol::Rest);
        if !view.shows(entry) || !self.gateway.pipeline.offers(&self.server, entry) {
            return Err(unknown());
        }
        match entitle(&self.snapshot, &self.server, &self.caller, entry, Protocol::Rest) {
            Err(Refusal::MissingScopes { required }) => Err(self.step_up(&required)),
            Ok(_) | Err(_) => Ok(entry.clone()),
        }
    }

    /// Returns the challenge for missing scopes. It names every scope of the operation, so that the client can step up
    /// (RFC 6750 section 3).
    fn step_up(&self, required: &[String]) -> Problem {
        let missing = Refusal::MissingScopes { required: required.to_vec() };
        let public_url = &self.gateway.config.public_url;
        let challenge = asp_edge::reply::challenge(
            Reason::InsufficientScope,
            public_url,
            &self.server.message.name,
            required,
        );
        Problem::of(&missing).header(header::WWW_AUTHENTICATE, &challenge)
    }

    /// Returns the body as a JSON object; an empty body is an empty object. A byte order mark does not count.
    fn object(&self) -> Result<Json, Problem> {
        let body = unmarked(&self.body);
        if body.trim_ascii().is_empty() {
            return Ok(Value::Object(Map::new()).into());
        }
        let media_type = self.header("content-type").and_then(|value| value.split(';').next());
        if !media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json")) {
            let detail = "the body must be application/json";
            return Err(Problem::unreadable(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        match Json::parse_request(body) {
            Ok(object) if object.is_object() => Ok(object),
            Ok(_) => Err(Problem::unreadable(StatusCode::BAD_REQUEST, "the body must be a JSON object")),
            Err(_) => {
                let detail = "the body is not valid JSON, or has a number beyond the range of a double";
                Err(Problem::new(StatusCode::BAD_REQUEST, Reason::ParseError, detail))
            }
        }
    }

    /// Returns a header's value if it is present and visible ASCII; OWS is trimmed.
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim)
    }

    fn preferences(&self) -> Preferences {
        let values = self.headers.get_all("prefer").iter();
        conditions::preferences(values.filter_map(|value| value.to_str().ok()))
    }

    /// Returns the entity tags of a condition; `None` if the request has no such header.
    fn tags(&self, name: &HeaderName) -> Result<Option<Tags<'_>>, Problem> {
        let malformed = || {
            let detail = format!("{name} must be a list of entity tags, or *");
            Problem::unreadable(StatusCode::BAD_REQUEST, &detail)
        };
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(malformed());
        }
        value.to_str().ok().and_then(conditions::tags).ok_or_else(malformed).map(Some)
    }

    /// Returns the query parameter with this name; the last one counts.
    fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.rfind(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Returns a JSON response that must not be cached.
fn json(status: StatusCode, body: &impl ToString) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

/// Sets a header; a value that is not a valid one is left out.
fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
