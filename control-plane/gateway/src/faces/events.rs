//! A response of server-sent events (WHATWG HTML, section 9.2), whatever face says them.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};

/// Envoy and other proxies close what stays silent for longer; and how late a revoked token is seen in a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What keeps a quiet stream open.
pub(super) const COMMENT: &str = ":\r\n\r\n";

/// The response whose body are these events.
pub(super) fn respond(events: Body) -> Response {
    let mut response = Response::new(events);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
