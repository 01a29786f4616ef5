//! Responses of server-sent events (WHATWG HTML, section 9.2), for every protocol.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use http::{HeaderName, header};

/// Interval of comments in a quiet stream. Envoy and other proxies close connections that are silent for longer. Also
/// bounds how late a revoked token is noticed in a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A comment that keeps a quiet stream open.
pub(super) const COMMENT: &str = ":\r\n\r\n";

/// Returns a response with these events as its body.
pub(super) fn respond(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events.map(Ok::<String, Infallible>))).into_response()
}
