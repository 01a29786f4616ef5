//! Mode `mcp-stdio`: an existing MCP server on a process's standard input and output, presented as a PPP worker.
//!
//! Owns the translation: invoke is `tools/call`, a read `resources/read`, a prompt `prompts/get`; progress is progress,
//! cancel is `notifications/cancelled`, a ping is a ping. A request of the server to its client (elicitation, sampling,
//! roots) becomes a question of its only call; it is refused while no call or several run, because nothing identifies
//! its call. A change of its lists is reported to every running call whose gateway wants it, or else to the next one.
//! Keeps true: nothing that a server writes ends the process, which other calls share (`lines`); nothing waits for a
//! cancelled call, since MCP servers do not answer one; each request of the server is answered exactly once.
//! Source: Model Context Protocol 2025-11-25, basic/transports (stdio), basic/lifecycle, server, client.

mod handshake;
mod lines;
mod listing;
mod reading;
mod server_requests;
mod translation;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use asp_json::{Json, Members};
use asp_proto::envelope::MCP_LISTS;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{ClientMessage, InvokeRequest, McpListsChanged, Pong, ServerMessage};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::cause::Cause;
pub use handshake::open;
pub use listing::Listing;
use listing::NamedLists;
use reading::ReadOutcome;
pub use reading::{ReadPart, Reading, Work};
use server_requests::ServerRequests;
use translation::{failed, translate_error, translate_notification, translate_result};
use wire::{RpcAnswer, RpcMessage, ServerLine};

/// Capacity for messages from the server that the runtime has not taken. Each may be large, so there are few.
const FROM_SERVER: usize = 4;
/// Capacity for reads and prompts that were not sent to the server yet; each comes with a slot of the pool.
const READINGS: usize = 16;
/// Maximum number of requests whose late answers are dropped; a server has forgotten older ones.
const MAX_IGNORED: usize = 1024;
const INVALID_PARAMS: i64 = -32602;
/// Notifications of a server whose lists have changed.
const METHODS_OF_LISTS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
];

/// The reason why an answer cannot be used, as its call receives it.
struct Unusable {
    code: &'static str,
    status: Code,
    message: &'static str,
}

const TOO_LARGE: Unusable = Unusable {
    code: "TOO_LARGE",
    status: Code::ResourceExhausted,
    message: "the server's answer has more than 16 MiB (16777216 bytes)",
};
const MALFORMED: Unusable = Unusable {
    code: "INTERNAL",
    status: Code::Internal,
    message: "the server's answer is not a JSON-RPC result or error",
};

/// Messages of the server, which take the place of a session stream.
pub type Inbox = mpsc::Receiver<Result<ServerMessage, Cause>>;
/// Queue of reads and prompts, which are not part of a session stream.
pub type Readings = mpsc::Sender<Reading>;

/// A server that has answered `initialize`.
pub struct Bridge {
    stdin: ChildStdin,
    lines: mpsc::Receiver<ServerLine>,
    readings: mpsc::Receiver<Reading>,
    next_id: u64,
    /// Calls by the id of their request to the server. Bounded by the pool's slots.
    calls: BTreeMap<u64, RunningRequest>,
    /// Unanswered requests of the server.
    server_requests: ServerRequests,
    pings: BTreeMap<u64, String>,
    ignored: BTreeSet<u64>,
    lists: NamedLists,
    /// Whether a list has changed and no call has been notified.
    lists_changed: bool,
    out: mpsc::Sender<Result<ServerMessage, Cause>>,
}

/// A call that the server works on.
struct RunningRequest {
    request_id: String,
    /// Whether its gateway wants to be notified when lists change.
    wants_list_changes: bool,
    /// A read or a prompt with the channel that waits for its parts. If absent, the call ends in the session stream.
    reading: Option<(Work, mpsc::Sender<ReadPart>)>,
}

impl Bridge {
    /// Translates both ways until either side ends; sends a fault of the server last.
    pub async fn run(mut self, mut messages: mpsc::Receiver<ClientMessage>) {
        let fault = loop {
            let step = tokio::select! {
                message = messages.recv() => match message.and_then(|message| message.payload) {
                    Some(payload) => self.send(payload).await,
                    None => return,
                },
                Some(reading) = self.readings.recv() => self.read(reading).await,
                line = self.lines.recv() => match line {
                    Some(ServerLine::Message(message)) => self.receive(message).await,
                    Some(ServerLine::TooLarge { id }) => self.fail_unusable(id, &TOO_LARGE).await,
                    Some(ServerLine::Malformed { id }) => self.fail_unusable(id, &MALFORMED).await,
                    // The process is ending, and its exit says why.
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
            In::McpAnswer(answer) => match self.server_requests.answer(answer) {
                Some(line) => self.write(&line).await,
                None => Ok(()),
            },
            In::Ping(ping) => {
                let id = self.request("ping", &Json::part("{}")).await?;
                self.pings.insert(id, ping.nonce);
                // A server that answers no pings is killed after a few.
                while self.pings.len() > 16 {
                    self.pings.pop_first();
                }
                Ok(())
            }
            // A server asks nothing in these ways, so no answer is for it.
            In::Init(_) | In::UserInput(_) | In::DelegationResult(_) | In::CheckpointAck(_) => Ok(()),
        }
    }

    async fn call(&mut self, invoke: InvokeRequest) -> Result<(), Cause> {
        let bytes = invoke.arguments.map(|arguments| arguments.value).unwrap_or_default();
        let arguments = Json::parse(&bytes).unwrap_or_else(|_| json!({}).into());
        let meta = reading::meta(&invoke.request_id, &invoke.attrs);
        let params = Members::from_iter([
            ("name", Json::from(invoke.primitive)),
            ("arguments", arguments),
            ("_meta", meta),
        ]);
        let id = self.request("tools/call", &params.to_json()).await?;
        let wants_list_changes = invoke.attrs.contains_key(MCP_LISTS);
        self.calls
            .insert(id, RunningRequest { request_id: invoke.request_id, wants_list_changes, reading: None });
        self.report_list_changes().await;
        Ok(())
    }

    async fn read(&mut self, reading: Reading) -> Result<(), Cause> {
        let Reading { work, parts } = reading;
        // Given up before it was sent to the server; its cancel may have arrived earlier.
        if parts.is_closed() {
            return Ok(());
        }
        let lists = work.lists();
        self.ask_for(work, parts).await?;
        if lists {
            // This listing reports the change.
            self.lists_changed = false;
        } else {
            self.report_list_changes().await;
        }
        Ok(())
    }

    async fn ask_for(&mut self, work: Work, parts: mpsc::Sender<ReadPart>) -> Result<(), Cause> {
        let Some((method, params)) = work.request() else { return Ok(()) };
        let id = self.request(method, &params).await?;
        let request_id = work.request_id().to_owned();
        let wants_list_changes = work.wants_list_changes();
        self.calls
            .insert(id, RunningRequest { request_id, wants_list_changes, reading: Some((work, parts)) });
        Ok(())
    }

    async fn cancel(&mut self, request_id: &str, reason: &str) -> Result<(), Cause> {
        let found = self.calls.iter().find(|(_, call)| call.request_id == request_id).map(|(id, _)| *id);
        let Some((id, call)) = found.and_then(|id| Some((id, self.calls.remove(&id)?))) else {
            return Ok(());
        };
        self.ignore(id);
        let params = json!({"requestId": id, "reason": reason});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await?;
        self.close_requests(id).await?;
        // The sender of a read's cancel does not wait for the read.
        if call.reading.is_none() {
            self.emit(failed(request_id, "CANCELLED", reason)).await;
        }
        Ok(())
    }

    /// Ignores the answer to this request.
    fn ignore(&mut self, id: u64) {
        self.ignored.insert(id);
        if self.ignored.len() > MAX_IGNORED {
            self.ignored.pop_first();
        }
    }

    async fn receive(&mut self, message: RpcMessage) -> Result<(), Cause> {
        match message {
            RpcMessage::Response { id, answer } => self.handle_answer(id, answer).await,
            RpcMessage::Request { id, method, .. } if method == "ping" => {
                self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await
            }
            RpcMessage::Request { id, method, params } => {
                // A listing has no client that could be asked.
                let only = self.only_call().filter(|(call, _)| !self.lists(*call));
                match self.server_requests.begin(only, id, method, &params) {
                    Ok((call, asked)) => self.emit_for(call, Out::McpRequested(asked)).await,
                    Err(refusal) => self.write(&refusal).await?,
                }
                Ok(())
            }
            RpcMessage::Notification { method, params } => {
                self.handle_notification(&method, &params).await;
                Ok(())
            }
        }
    }

    async fn handle_notification(&mut self, method: &str, params: &Json) {
        if method == "notifications/cancelled" {
            if let Some((call, taken_back)) = self.server_requests.withdraw(params) {
                self.emit_for(call, Out::McpRequested(taken_back)).await;
            }
            return;
        }
        if METHODS_OF_LISTS.contains(&method) {
            self.lists_changed = true;
            self.report_list_changes().await;
        }
        // Logs and updates name no call; if a single one runs, they belong to it.
        let only =
            self.only_call().and_then(|(id, _)| self.calls.get(&id)).filter(|call| call.reading.is_none());
        let only = only.map(|call| call.request_id.clone()).unwrap_or_default();
        match translate_notification(method, params, only) {
            // Progress of a call that has ended is dropped.
            Some(Out::Progress(progress)) if !self.runs(&progress.request_id) => {}
            Some(payload) => self.emit(payload).await,
            None => {}
        }
    }

    async fn handle_answer(&mut self, id: u64, answer: RpcAnswer) -> Result<(), Cause> {
        if let Some(nonce) = self.pings.remove(&id) {
            // Any answer to the ping shows that the server is alive.
            self.emit(Out::Pong(Pong { nonce })).await;
            return Ok(());
        }
        if self.ignored.remove(&id) {
            return Ok(());
        }
        let Some(call) = self.calls.remove(&id) else {
            tracing::debug!(id, "a stdio server answered a request that is not open");
            return Ok(());
        };
        self.close_requests(id).await?;
        if let Some((work, parts)) = call.reading {
            let part = match work.translate_answer(answer, self.lists) {
                ReadOutcome::Part(part) => part,
                ReadOutcome::Rest(_) if parts.is_closed() => return Ok(()),
                ReadOutcome::Rest(rest) => return self.ask_for(*rest, parts).await,
            };
            // Err: nothing waits for it any more.
            let _ = parts.send(part).await;
            return Ok(());
        }
        let request_id = call.request_id;
        let payload = match answer {
            RpcAnswer::Result(result) => translate_result(&request_id, &result),
            RpcAnswer::Error { code, message, data } => translate_error(&request_id, (code, &message), data),
        };
        self.emit(payload).await;
        Ok(())
    }

    /// Ends a call whose answer cannot be used; the process and its other calls continue.
    async fn fail_unusable(&mut self, id: u64, fault: &Unusable) -> Result<(), Cause> {
        if let Some(nonce) = self.pings.remove(&id) {
            self.emit(Out::Pong(Pong { nonce })).await;
            return Ok(());
        }
        self.ignored.remove(&id);
        let Some(call) = self.calls.remove(&id) else { return Ok(()) };
        self.close_requests(id).await?;
        match call.reading {
            // Err: nothing waits for it any more.
            Some((_, parts)) => {
                drop(parts.send(ReadPart::Failed(Status::new(fault.status, fault.message))).await);
            }
            None => self.emit(failed(&call.request_id, fault.code, fault.message)).await,
        }
        Ok(())
    }

    /// Returns the only call, with the id of its request to the server.
    fn only_call(&self) -> Option<(u64, String)> {
        let mut calls = self.calls.iter();
        let (id, call) = calls.next()?;
        calls.next().is_none().then(|| (*id, call.request_id.clone()))
    }

    /// Whether the request is not a client's call but a listing.
    fn lists(&self, call: u64) -> bool {
        let reading = self.calls.get(&call).and_then(|call| call.reading.as_ref());
        reading.is_some_and(|(work, _)| work.lists())
    }

    /// Notifies the running calls whose gateways want it that the lists have changed, if they have.
    async fn report_list_changes(&mut self) {
        if !self.lists_changed {
            return;
        }
        let running = self.calls.iter().filter(|(_, call)| call.wants_list_changes);
        let running: Vec<(u64, String)> = running.map(|(id, call)| (*id, call.request_id.clone())).collect();
        for (call, request_id) in running {
            self.lists_changed = false;
            self.emit_for(call, Out::McpListsChanged(McpListsChanged { request_id })).await;
        }
    }

    fn runs(&self, request_id: &str) -> bool {
        self.calls.values().any(|call| call.request_id == request_id && call.reading.is_none())
    }

    /// Answers the server's requests within a call that has ended.
    async fn close_requests(&mut self, call: u64) -> Result<(), Cause> {
        for line in self.server_requests.close(call) {
            self.write(&line).await?;
        }
        Ok(())
    }

    /// Sends a payload of a call to its receiver.
    async fn emit_for(&self, call: u64, payload: Out) {
        match self.calls.get(&call).map(|call| &call.reading) {
            // Err: nothing waits for it any more.
            Some(Some((_, parts))) => drop(parts.send(ReadPart::Event(Box::new(payload))).await),
            Some(None) => self.emit(payload).await,
            None => {}
        }
    }

    async fn emit(&self, payload: Out) {
        // Err: the worker is being ended.
        let _ = self.out.send(Ok(ServerMessage { payload: Some(payload) })).await;
    }

    async fn request(&mut self, method: &str, params: &Json) -> Result<u64, Cause> {
        let id = self.next_id;
        self.next_id += 1;
        let method = Value::from(method);
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)).await?;
        Ok(id)
    }

    async fn write(&mut self, message: &impl Display) -> Result<(), Cause> {
        let line = format!("{message}\n");
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.map_err(|_| Cause::Protocol("standard input was closed"))
    }
}
