//! Responses of server-sent events (WHATWG HTML, section 9.2), for every protocol.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};

/// Interval of comments in a quiet stream. Envoy and other proxies close connections that are silent for longer. Also
/// bounds how late a revoked token is noticed in a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A comment that keeps a quiet stream open.
pub(super) const COMMENT: &str = ":\r\n\r\n";

/// Returns a response with these events as its body.
pub(super) fn respond(events: Body) -> Response {
    let mut response = Response::new(events);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
