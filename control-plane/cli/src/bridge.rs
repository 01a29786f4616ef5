//! Forwards MCP between a local client's standard input and output (MCP, stdio transport) and a server's URL (Streamable
//! HTTP), message by message, in both eras. It handles sessions, headers, streams and reconnection, and does not interpret
//! the messages otherwise.
//!
//! Keeps true: standard output carries only MCP messages, one a line; each request gets one answer, unless its client
//! cancelled it; a message that may have taken effect is never resent, and its error says so; requests that were read are
//! answered also after the end of standard input. Bounds: [`MAX_MESSAGE`] for a message, [`MAX_RUNNING`] concurrent requests;
//! the time of a request is bounded by the server's deadlines.

mod connection;
mod legacy;
mod lines;
mod modern;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_command::print;
use asp_json::{Json, unmarked};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection::Connection;
pub(crate) use connection::{Credential, ServerEndpoint, below};
use legacy::LegacyEra;
use lines::{Line, MAX_MESSAGE};
use modern::ModernEra;

/// Maximum number of unanswered requests, listening ones included.
const MAX_RUNNING: usize = 256;
/// Maximum number of messages waiting for standard output.
const OUTGOING: usize = 64;
/// Timeout for ending the session at the server when the client is gone.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the POST of a message without an answer.
const TELL: Duration = Duration::from_secs(30);

/// Method of a request that has no answer while the client listens (MCP 2026-07-28).
const LISTEN: &str = "subscriptions/listen";

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const INTERNAL_ERROR: i64 = -32603;

/// The connection between one client and one server.
struct Bridge {
    connection: Connection,
    legacy: LegacyEra,
    modern: ModernEra,
    out: mpsc::Sender<String>,
    /// Cancellation of each running request, by the request's id as JSON.
    running: Mutex<HashMap<String, CancellationToken>>,
    requests: TaskTracker,
    /// Tasks without an end of their own.
    background: TaskTracker,
    /// Cancelled when the client is gone.
    stop: CancellationToken,
    /// Cancelled when the client sends no more messages; a child of `stop`.
    input: CancellationToken,
}

/// Serves this process's client until it has closed standard input and its requests are answered, or until it no longer reads
/// standard output or `stopped` completes.
pub(crate) async fn run(place: ServerEndpoint, stopped: impl Future<Output = ()>) -> anyhow::Result<()> {
    let (out, written) = lines::write(OUTGOING);
    let bridge = Arc::new(Bridge::new(place, out)?);
    tokio::pin!(written, stopped);
    let is_answered = tokio::select! {
        () = serve(&bridge, lines::read()) => true,
        () = &mut written => false,
        () = &mut stopped => false,
    };
    bridge.stop.cancel();
    // Err: the server did not answer in time; it will expire the session by itself.
    let _ = tokio::time::timeout(END_TIMEOUT, bridge.legacy.end(&bridge.connection)).await;
    if is_answered {
        bridge.background.close();
        bridge.background.wait().await;
        // Without a sender, standard output ends after its last line.
        drop(bridge);
        tokio::select! {
            () = written => {}
            () = stopped => {}
        }
    }
    Ok(())
}

/// Handles lines up to their end, then waits for the answers of the requests among them.
async fn serve(bridge: &Arc<Bridge>, mut lines: mpsc::Receiver<Line>) {
    while let Some(line) = lines.recv().await {
        match line {
            Line::Whole(line) => take(bridge, line).await,
            Line::TooLong => {
                let why = format!("a message is larger than {MAX_MESSAGE} bytes");
                bridge.refuse(&Value::Null.into(), INVALID_REQUEST, &why, "invalid_request").await;
            }
        }
    }
    bridge.input.cancel();
    bridge.requests.close();
    bridge.requests.wait().await;
}

/// Handles one message of the client.
async fn take(bridge: &Arc<Bridge>, line: String) {
    let Ok(message) = Json::parse(unmarked(line.as_bytes())) else {
        return bridge
            .refuse(&Value::Null.into(), PARSE_ERROR, "a line is not JSON", "invalid_request")
            .await;
    };
    let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
    let id = message.get("id").filter(|id| !id.is_null()).cloned();
    match (method, id) {
        // A batch (revision 2025-03-26) is answered as a whole.
        (Some(_), Some(_)) | (None, None) if message.is_array() || message.is_object() => {
            start(bridge, message);
        }
        (Some(method), None) if bridge.cancels_by_closing(&method, &message) => {}
        (Some(_), None) | (None, Some(_)) => {
            let told = tokio::time::timeout(TELL, bridge.legacy.tell(bridge, &message)).await;
            if !matches!(told, Ok(Ok(()))) {
                print::note("asp mcp: the server did not accept a notification or an answer of the client");
            }
        }
        _ => {
            bridge
                .refuse(&Value::Null.into(), INVALID_REQUEST, "a line is not a message", "invalid_request")
                .await;
        }
    }
}

/// Starts a request; its answer is forwarded whenever it arrives.
fn start(bridge: &Arc<Bridge>, message: Json) {
    let id = id_of(&message);
    let key = id.text().to_owned();
    let is_listening = message.get("method").and_then(Value::as_str) == Some(LISTEN);
    let cancelled = if is_listening { bridge.input.child_token() } else { bridge.stop.child_token() };
    let has_room = {
        let mut running = bridge.running.lock();
        let has_room = running.len() < MAX_RUNNING;
        if has_room {
            running.insert(key.clone(), cancelled.clone());
        }
        has_room
    };
    let bridge_of = Arc::clone(bridge);
    bridge.requests.spawn(async move {
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
            // The client no longer waits; closing the request here cancels it at the server.
            () = cancelled.cancelled() => Ok(()),
        };
        bridge.running.lock().remove(&key);
        if let Err(fault) = outcome {
            bridge.refuse(&id, INTERNAL_ERROR, &fault.to_string(), fault.reason()).await;
        }
    });
}

/// Returns the id of a request as it was written; null without one.
fn id_of(message: &Json) -> Json {
    message.member("id").unwrap_or_else(|| Value::Null.into())
}

impl Bridge {
    fn new(place: ServerEndpoint, out: mpsc::Sender<String>) -> anyhow::Result<Bridge> {
        let stop = CancellationToken::new();
        Ok(Bridge {
            connection: Connection::new(place)?,
            legacy: LegacyEra::default(),
            modern: ModernEra::default(),
            out,
            running: Mutex::default(),
            requests: TaskTracker::new(),
            background: TaskTracker::new(),
            input: stop.child_token(),
            stop,
        })
    }

    /// Whether a notification cancels a request of an era that cancels by closing the request (MCP 2026-07-28); such a
    /// notification is not forwarded.
    fn cancels_by_closing(&self, method: &str, message: &Json) -> bool {
        if method != "notifications/cancelled" || self.legacy.is_open() {
            return false;
        }
        let running = self.running.lock();
        let request = message.pointed("/params/requestId");
        if let Some(cancelled) = request.and_then(|request| running.get(request.text())) {
            cancelled.cancel();
        }
        true
    }

    /// Sends a message to the client. Err: the client is gone, which stops the bridge anyway.
    async fn send(&self, message: String) {
        let _ = self.out.send(one_line(message)).await;
    }

    /// Answers with an error of the bridge itself.
    async fn refuse(&self, id: &Json, code: i64, message: &str, reason: &str) {
        let error = json!({"code": code, "message": message, "data": {"reason": reason}});
        self.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)).await;
    }
}

/// Replaces line breaks, which JSON allows outside of strings only (RFC 8259 section 2).
fn one_line(message: String) -> String {
    if message.contains(['\n', '\r']) { message.replace(['\n', '\r'], " ") } else { message }
}

#[cfg(test)]
mod tests;
