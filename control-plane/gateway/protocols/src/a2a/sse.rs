//! Streams of a task's events as server-sent events, for JSON-RPC and REST.

use asp_a2a::StreamEvent;
use axum::response::Response;
use futures::stream;

use super::stream::{StreamItem, TaskStream};
use crate::events::{COMMENT, respond as respond_with};

/// Returns a response with the events of a stream; `encode` writes one event on one line.
pub(super) fn respond(
    stream: Box<TaskStream>,
    encode: impl Fn(&StreamEvent) -> String + Send + 'static,
) -> Response {
    respond_with(stream::unfold((stream, encode), |(mut stream, encode)| async move {
        let text = match stream.next().await? {
            StreamItem::Event(event) => format!("data: {}\n\n", encode(&event)),
            StreamItem::Quiet => COMMENT.to_owned(),
        };
        Some((text, (stream, encode)))
    }))
}
