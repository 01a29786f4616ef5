//! The server-sent events of MCP as text.

/// How long a client waits before it comes back to a stream that was closed, in milliseconds.
const RETRY_MS: u64 = 1000;

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
