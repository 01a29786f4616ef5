//! Mode `mcp-stdio`: an existing MCP server on a process's standard input and output, presented as a PPP worker.
//!
//! Owns the translation: invoke is `tools/call`, its end `completed` or `failed`; progress is progress, cancel
//! is `notifications/cancelled`, a ping is a ping. Refuses what the server asks of its client (sampling, roots,
//! elicitation): such a server is told that there is no such method.
//! Keeps true: a line that is no JSON-RPC message or is too long is a protocol fault; nobody waits for a
//! cancelled call, since MCP servers do not answer one.
//! Source: Model Context Protocol 2025-11-25, basic/transports (stdio), basic/lifecycle, server/tools.

mod wire;

use std::collections::{BTreeMap, BTreeSet};

use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{
    ClientMessage, Completed, Failed, InvokeRequest, Json, LogLine, Pong, Progress, ServerMessage,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use crate::cause::Cause;
use crate::ppp::MAX_MESSAGE;
use wire::{Answer, Message, parse};

const PROTOCOL_VERSION: &str = "2025-11-25";
/// Messages from the server that the runtime has not taken.
const FROM_SERVER: usize = 16;
/// Cancelled calls whose late answers are dropped; older ones were forgotten by any server.
const MAX_CANCELLED: usize = 1024;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// What the runtime reads instead of a session stream.
pub type Inbox = mpsc::Receiver<Result<ServerMessage, Cause>>;

/// A server that has answered `initialize`.
pub struct Bridge {
    stdin: ChildStdin,
    lines: mpsc::Receiver<Result<Message, Cause>>,
    next_id: u64,
    /// Calls by the id of their request to the server.
    calls: BTreeMap<u64, String>,
    pings: BTreeMap<u64, String>,
    cancelled: BTreeSet<u64>,
    out: mpsc::Sender<Result<ServerMessage, Cause>>,
}

/// Speaks the handshake. Returns the bridge, which is to be run, and what it will say.
pub async fn open(stdin: ChildStdin, stdout: ChildStdout) -> Result<(Bridge, Inbox), Cause> {
    let (sender, lines) = mpsc::channel(FROM_SERVER);
    tokio::spawn(read(stdout, sender));
    let (out, inbox) = mpsc::channel(FROM_SERVER);
    let mut bridge = Bridge {
        stdin,
        lines,
        next_id: 1,
        calls: BTreeMap::new(),
        pings: BTreeMap::new(),
        cancelled: BTreeSet::new(),
        out,
    };
    let client = json!({"name": "asp-runtime", "version": env!("CARGO_PKG_VERSION")});
    let params = json!({"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client});
    let id = bridge.request("initialize", &params).await?;
    loop {
        match bridge.lines.recv().await.unwrap_or(Err(Cause::Protocol("standard output was closed")))? {
            Message::Response { id: answered, answer: Answer::Result(_) } if answered == id => break,
            Message::Response { .. } => return Err(Cause::Protocol("initialize was refused")),
            Message::Request { id, .. } => bridge.refuse(&id).await?,
            Message::Notification { .. } => {}
        }
    }
    bridge.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
    Ok((bridge, inbox))
}

impl Bridge {
    /// Translates both ways until either side ends; a fault of the server is the last thing said.
    pub async fn run(mut self, mut messages: mpsc::Receiver<ClientMessage>) {
        let fault = loop {
            let step = tokio::select! {
                message = messages.recv() => match message.and_then(|message| message.payload) {
                    Some(payload) => self.send(payload).await,
                    None => return,
                },
                line = self.lines.recv() => match line {
                    Some(Ok(message)) => self.receive(message).await,
                    Some(Err(cause)) => Err(cause),
                    // The process is ending, and says why by itself.
                    None => return,
                },
            };
            if let Err(cause) = step {
                break cause;
            }
        };
        // Err: the worker is being ended already.
        let _ = self.out.send(Err(fault)).await;
    }

    async fn send(&mut self, payload: In) -> Result<(), Cause> {
        match payload {
            In::Invoke(invoke) => self.call(invoke).await,
            In::Cancel(cancel) => self.cancel(&cancel.request_id, &cancel.reason).await,
            In::Ping(ping) => {
                let id = self.request("ping", &json!({})).await?;
                self.pings.insert(id, ping.nonce);
                // A server that answers none is killed after a few.
                while self.pings.len() > 16 {
                    self.pings.pop_first();
                }
                Ok(())
            }
            // A server that asks nothing is told nothing.
            In::Init(_) | In::UserInput(_) | In::DelegationResult(_) | In::CheckpointAck(_) => Ok(()),
        }
    }

    async fn call(&mut self, invoke: InvokeRequest) -> Result<(), Cause> {
        let bytes = invoke.arguments.map(|arguments| arguments.value).unwrap_or_default();
        let arguments: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}));
        let params = json!({
            "name": invoke.primitive, "arguments": arguments, "_meta": {"progressToken": invoke.request_id},
        });
        let id = self.request("tools/call", &params).await?;
        // Bounded by the pool's slots.
        self.calls.insert(id, invoke.request_id);
        Ok(())
    }

    async fn cancel(&mut self, request_id: &str, reason: &str) -> Result<(), Cause> {
        let found = self.calls.iter().find(|(_, call)| *call == request_id).map(|(id, _)| *id);
        let Some(id) = found else { return Ok(()) };
        self.calls.remove(&id);
        self.cancelled.insert(id);
        if self.cancelled.len() > MAX_CANCELLED {
            self.cancelled.pop_first();
        }
        let params = json!({"requestId": id, "reason": reason});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await?;
        self.say(failed(request_id, "CANCELLED", reason)).await;
        Ok(())
    }

    async fn receive(&mut self, message: Message) -> Result<(), Cause> {
        match message {
            Message::Response { id, answer } => self.answered(id, answer).await,
            Message::Request { id, method } if method == "ping" => {
                self.write(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await
            }
            Message::Request { id, .. } => self.refuse(&id).await,
            Message::Notification { method, params } => {
                if let Some(payload) = notified(&method, &params) {
                    // Progress of a call that has ended says nothing any more.
                    let late =
                        matches!(&payload, Out::Progress(progress) if !self.runs(&progress.request_id));
                    if !late {
                        self.say(payload).await;
                    }
                }
                Ok(())
            }
        }
    }

    async fn answered(&mut self, id: u64, answer: Answer) -> Result<(), Cause> {
        if let Some(nonce) = self.pings.remove(&id) {
            // Whatever it says of the ping, it is alive.
            self.say(Out::Pong(Pong { nonce })).await;
            return Ok(());
        }
        if self.cancelled.remove(&id) {
            return Ok(());
        }
        let Some(request_id) = self.calls.remove(&id) else {
            return Err(Cause::Protocol("an answer to an unknown request"));
        };
        let payload = match answer {
            Answer::Result(result) => completed(&request_id, &result),
            Answer::Error { code: INVALID_PARAMS, message } => {
                failed(&request_id, "INVALID_ARGUMENT", &message)
            }
            Answer::Error { message, .. } => failed(&request_id, "INTERNAL", &message),
        };
        self.say(payload).await;
        Ok(())
    }

    fn runs(&self, request_id: &str) -> bool {
        self.calls.values().any(|call| call == request_id)
    }

    async fn say(&self, payload: Out) {
        // Err: the worker is being ended.
        let _ = self.out.send(Ok(ServerMessage { payload: Some(payload) })).await;
    }

    async fn refuse(&mut self, id: &Value) -> Result<(), Cause> {
        let error = json!({"code": METHOD_NOT_FOUND, "message": "this client does not do that"});
        self.write(&json!({"jsonrpc": "2.0", "id": id, "error": error})).await
    }

    async fn request(&mut self, method: &str, params: &Value) -> Result<u64, Cause> {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    async fn write(&mut self, message: &Value) -> Result<(), Cause> {
        let line = format!("{message}\n");
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.map_err(|_| Cause::Protocol("standard input was closed"))
    }
}

/// Reads the server's lines until it closes its output or breaks a rule.
async fn read(stdout: ChildStdout, lines: mpsc::Sender<Result<Message, Cause>>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_MESSAGE as u64).read_until(b'\n', &mut line).await;
        let message = match read {
            Ok(0) | Err(_) => return,
            Ok(_) if line.last() != Some(&b'\n') => Err(Cause::Protocol("an oversize or broken message")),
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(_) => parse(&line),
        };
        let end = message.is_err();
        if lines.send(message).await.is_err() || end {
            return;
        }
    }
}

fn completed(request_id: &str, result: &Value) -> Out {
    let json = |value: &Value| Json { value: value.to_string().into_bytes() };
    Out::Completed(Completed {
        request_id: request_id.to_owned(),
        output: result.get("structuredContent").map(json),
        content: result.get("content").map(json),
        is_error: result.get("isError").and_then(Value::as_bool).unwrap_or(false),
        ..Completed::default()
    })
}

fn failed(request_id: &str, code: &str, message: &str) -> Out {
    Out::Failed(Failed {
        request_id: request_id.to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        ..Failed::default()
    })
}

/// What a notification means to a call, if anything.
fn notified(method: &str, params: &Value) -> Option<Out> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match method {
        "notifications/progress" => {
            let number = |name: &str| params.get(name).and_then(Value::as_f64);
            let done = number("progress")?;
            let percent = match number("total") {
                Some(total) if total > 0.0 => done / total * 100.0,
                _ => done,
            };
            Some(Out::Progress(Progress {
                request_id: text("progressToken"),
                percent: percent.clamp(0.0, 100.0),
                message: text("message"),
                ..Progress::default()
            }))
        }
        "notifications/message" => {
            let message = params.get("data").map(|data| match data {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            Some(Out::Log(LogLine { message: message.unwrap_or_default(), ..LogLine::default() }))
        }
        _ => None,
    }
}
