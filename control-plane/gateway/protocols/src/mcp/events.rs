//! MCP's server-sent events as text.

/// Time that a client waits before it reconnects to a closed stream, in milliseconds.
const RETRY_MS: u64 = 1000;

/// Returns an event with one message, which must contain no line breaks.
pub(super) fn message(message: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("event: message\nid: {id}\ndata: {message}\n\n"),
        None => format!("event: message\ndata: {message}\n\n"),
    }
}

/// Returns an event without a message, whose id lets the client resume from this position (2025-11-25 transports,
/// sending messages to the server).
pub(super) fn primer(id: &str) -> String {
    format!("id: {id}\ndata:\n\n")
}

/// Returns the same event with a reconnection time, as the last one before the connection is closed.
pub(super) fn pause(id: &str) -> String {
    format!("id: {id}\nretry: {RETRY_MS}\ndata:\n\n")
}
