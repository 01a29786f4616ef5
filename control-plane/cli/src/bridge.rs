//! Carries MCP between the standard input and output of a local client (MCP, stdio transport) and a server's URL
//! (Streamable HTTP), message by message, in both eras: sessions, headers, streams and reconnection are its work, what
//! the messages say is not.
//!
//! Keeps true: standard output has MCP messages alone, one a line; each request gets one answer, but for those that
//! their client cancelled; what may have taken effect is never sent again, and is told as such. Bounds:
//! [`MAX_MESSAGE`] a message, [`MAX_RUNNING`] requests at a time.

mod connection;
mod legacy;
mod lines;
mod modern;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_json::{Json, unmarked};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection::Connection;
pub(crate) use connection::{Credential, Place, below};
use legacy::Legacy;
use lines::{Line, MAX_MESSAGE};
use modern::Modern;

/// Requests without their answer, listening ones among them.
const MAX_RUNNING: usize = 256;
/// Messages on their way to standard output.
const OUTGOING: usize = 64;
/// For what is still to be said at the end: that the session is over.
const FAREWELL: Duration = Duration::from_secs(2);
/// For the POST of a message that has no answer.
const TELL: Duration = Duration::from_secs(30);

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const INTERNAL_ERROR: i64 = -32603;

/// Between one client and one server.
struct Bridge {
    connection: Connection,
    legacy: Legacy,
    modern: Modern,
    out: mpsc::Sender<String>,
    /// By the id of the request, as JSON.
    running: Mutex<HashMap<String, CancellationToken>>,
    tasks: TaskTracker,
    /// The client is gone.
    stop: CancellationToken,
}

/// Serves the client of this process until it closes standard input or `stopped` ends.
pub(crate) async fn run(place: Place, stopped: impl Future<Output = ()>) -> anyhow::Result<()> {
    let mut lines = lines::read();
    let (out, written) = lines::write(OUTGOING);
    let bridge = Arc::new(Bridge::new(place, out)?);
    let served = async {
        while let Some(line) = lines.recv().await {
            match line {
                Line::Whole(line) => take(&bridge, line).await,
                Line::TooLong => {
                    let why = format!("a message is larger than {MAX_MESSAGE} bytes");
                    bridge.refuse(&Value::Null, INVALID_REQUEST, &why, "invalid_request").await;
                }
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = written => {}
        () = stopped => {}
    }
    bridge.stop.cancel();
    // Err: it would take too long; the server finds out by itself.
    let _ = tokio::time::timeout(FAREWELL, bridge.legacy.end(&bridge.connection)).await;
    Ok(())
}

/// One message of the client.
async fn take(bridge: &Arc<Bridge>, line: String) {
    let Ok(message) = Json::parse(unmarked(line.as_bytes())) else {
        return bridge.refuse(&Value::Null, PARSE_ERROR, "a line is no JSON", "invalid_request").await;
    };
    let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
    let id = message.get("id").filter(|id| !id.is_null()).cloned();
    match (method, id) {
        // A batch of revision 2025-03-26 has its answers together.
        (Some(_), Some(_)) | (None, None) if message.is_array() || message.is_object() => {
            start(bridge, message);
        }
        (Some(method), None) if bridge.was_cancelled_here(&method, &message) => {}
        (Some(_), None) | (None, Some(_)) => {
            let told = tokio::time::timeout(TELL, bridge.legacy.tell(bridge, &message)).await;
            if !matches!(told, Ok(Ok(()))) {
                crate::print::note(
                    "asp mcp: the server did not take a notification or an answer of the client",
                );
            }
        }
        _ => {
            bridge.refuse(&Value::Null, INVALID_REQUEST, "a line is no message", "invalid_request").await;
        }
    }
}

/// Sends a request, and brings its answer in its own time.
fn start(bridge: &Arc<Bridge>, message: Json) {
    let id = message.get("id").cloned().unwrap_or_default();
    let key = id.to_string();
    let cancelled = bridge.stop.child_token();
    let has_room = {
        let mut running = bridge.running.lock();
        let has_room = running.len() < MAX_RUNNING;
        if has_room {
            running.insert(key.clone(), cancelled.clone());
        }
        has_room
    };
    let bridge_of = Arc::clone(bridge);
    bridge.tasks.spawn(async move {
        let bridge = bridge_of;
        if !has_room {
            let why = format!("more than {MAX_RUNNING} requests at a time; wait for answers");
            return bridge.refuse(&id, INTERNAL_ERROR, &why, "overloaded").await;
        }
        let answered = async {
            match modern::revision(&message) {
                Some(revision) => bridge.modern.request(&bridge, revision, &message).await,
                None => bridge.legacy.request(&bridge, &message).await,
            }
        };
        let outcome = tokio::select! {
            outcome = answered => outcome,
            // Nobody waits any more; what is closed here is cancelled there.
            () = cancelled.cancelled() => Ok(()),
        };
        bridge.running.lock().remove(&key);
        if let Err(fault) = outcome {
            bridge.refuse(&id, INTERNAL_ERROR, &fault.to_string(), fault.reason()).await;
        }
    });
}

impl Bridge {
    fn new(place: Place, out: mpsc::Sender<String>) -> anyhow::Result<Bridge> {
        Ok(Bridge {
            connection: Connection::new(place)?,
            legacy: Legacy::default(),
            modern: Modern::default(),
            out,
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Whether a notification cancels a request whose era cancels by closing (MCP 2026-07-28): it goes no further.
    fn was_cancelled_here(&self, method: &str, message: &Value) -> bool {
        if method != "notifications/cancelled" || self.legacy.is_open() {
            return false;
        }
        let request = message.pointer("/params/requestId").map(Value::to_string).unwrap_or_default();
        if let Some(cancelled) = self.running.lock().get(&request) {
            cancelled.cancel();
        }
        true
    }

    /// A message for the client. Err: the client is gone, which ends everything.
    async fn send(&self, message: String) {
        let _ = self.out.send(one_line(message)).await;
    }

    /// An error of the bridge's own.
    async fn refuse(&self, id: &Value, code: i64, message: &str, reason: &str) {
        let error = json!({"code": code, "message": message, "data": {"reason": reason}});
        self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()).await;
    }
}

/// Outside of strings JSON may be broken into lines (RFC 8259 section 2); within, it cannot be.
fn one_line(message: String) -> String {
    if message.contains(['\n', '\r']) { message.replace(['\n', '\r'], " ") } else { message }
}

#[cfg(test)]
mod tests;
