//! Server-sent events as text (WHATWG HTML, server-sent events).

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

/// Envoy and other proxies close what stays silent for longer.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What keeps a quiet stream open.
pub(super) const COMMENT: &str = ":\r\n\r\n";
/// How long a client waits before it comes back to a stream that was closed, in milliseconds.
const RETRY_MS: u64 = 1000;

/// A response of server-sent events.
pub(super) fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One message, which holds no line breaks.
pub(super) fn message(message: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("event: message\nid: {id}\ndata: {message}\n\n"),
        None => format!("event: message\ndata: {message}\n\n"),
    }
}

/// An event without a message, so that the client can come back to where it is (2025-11-25 transports, sending messages
/// to the server).
pub(super) fn primer(id: &str) -> String {
    format!("id: {id}\ndata:\n\n")
}

/// The same as the last one before the connection is closed.
pub(super) fn pause(id: &str) -> String {
    format!("id: {id}\nretry: {RETRY_MS}\ndata:\n\n")
}
