//! Mode `mcp-stdio`: a server that speaks JSON-RPC on a process's standard input and output, presented as a PPP worker.
//!
//! Owns the ids of requests and the call that each message belongs to. Refuses to interpret: methods, parameters and
//! results pass as text, and the words that the runtime needs come from the gateway (`LineProtocol`). A request of the
//! server to its client becomes a question of its only call; it is refused while no call or several run, because nothing
//! identifies its call. A notification that names no call belongs to the only one; one about the process goes to every
//! running call, or else to the next one.
//! Keeps true: nothing that a server writes ends the process, which other calls share (`lines`); nothing waits for a
//! cancelled call, since a server does not answer one; each request of the server is answered exactly once.
//! Source: JSON-RPC 2.0; Model Context Protocol 2025-11-25, basic/transports (stdio).

mod lines;
mod opening;
mod server_requests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use asp_json::{Json, Members};
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{
    ClientMessage, Json as JsonText, LineAnswer, LineNotification, LineRequest, LogLine, Pong, ServerMessage,
};
use asp_proto::supervisor::LineProtocol;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

use crate::cause::Cause;
use crate::ppp::failed;
use crate::worker::logs::Meter;
pub use opening::open;
use server_requests::ServerRequests;
use wire::{RpcAnswer, RpcMessage, ServerLine, string};

/// Capacity for messages from the server that the runtime has not taken. Each may be large, so there are few.
const FROM_SERVER: usize = 4;
/// Maximum number of requests whose late answers are dropped; a server has forgotten older ones.
const MAX_IGNORED: usize = 1024;
/// Maximum number of unanswered pings that are kept; a server that answers none is killed after a few.
const MAX_PINGS: usize = 16;

/// The reason why an answer cannot be used, as its call receives it: a code and a sentence.
type Unusable = (&'static str, &'static str);

const TOO_LARGE: Unusable = ("TOO_LARGE", "the server's answer has more than 16 MiB (16777216 bytes)");
const MALFORMED: Unusable = ("INTERNAL", "the server's answer is not a JSON-RPC result or error");

/// Messages of the server, which take the place of a session stream.
pub type Inbox = mpsc::Receiver<Result<ServerMessage, Cause>>;

/// A server that has answered its first request.
pub struct Bridge {
    stdin: ChildStdin,
    lines: mpsc::Receiver<ServerLine>,
    protocol: Arc<LineProtocol>,
    /// Result of the first request, for calls that ask for it.
    first_result: Json,
    next_id: u64,
    /// Calls by the id of their request to the server. Bounded by the pool's slots.
    calls: BTreeMap<u64, String>,
    /// Unanswered requests of the server.
    server_requests: ServerRequests,
    pings: BTreeMap<u64, String>,
    ignored: BTreeSet<u64>,
    /// Notifications about the process that no call has received, the last of each method: as many as the protocol names.
    shared: BTreeMap<String, Json>,
    logs: Arc<Meter>,
    out: mpsc::Sender<Result<ServerMessage, Cause>>,
}

impl Bridge {
    /// Passes messages both ways until either side ends; sends a fault of the server last.
    pub async fn run(mut self, mut messages: mpsc::Receiver<ClientMessage>) {
        let fault = loop {
            let step = tokio::select! {
                message = messages.recv() => match message.and_then(|message| message.payload) {
                    Some(payload) => self.send(payload).await,
                    None => return,
                },
                line = self.lines.recv() => match line {
                    Some(ServerLine::Message(message)) => self.receive(message).await,
                    Some(ServerLine::TooLarge { id }) => self.fail_unusable(id, TOO_LARGE).await,
                    Some(ServerLine::Malformed { id }) => self.fail_unusable(id, MALFORMED).await,
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
            In::LineRequest(request) => self.call(request).await,
            In::Cancel(cancel) => self.cancel(&cancel.request_id, &cancel.reason).await,
            In::McpAnswer(answer) => match self.server_requests.answer(answer) {
                Some(line) => self.write(&line).await,
                None => Ok(()),
            },
            In::Ping(ping) => {
                let protocol = Arc::clone(&self.protocol);
                let id = self.request(&protocol.ping, Some(&Json::part("{}"))).await?;
                self.pings.insert(id, ping.nonce);
                while self.pings.len() > MAX_PINGS {
                    self.pings.pop_first();
                }
                Ok(())
            }
            // A server is invoked by lines, and asks nothing in these ways, so no answer is for it.
            In::Init(_)
            | In::Invoke(_)
            | In::UserInput(_)
            | In::DelegationResult(_)
            | In::StorageAnswer(_)
            | In::CheckpointAck(_) => Ok(()),
        }
    }

    async fn call(&mut self, request: LineRequest) -> Result<(), Cause> {
        let LineRequest { request_id, method, params, .. } = request;
        if self.protocol.first.as_ref().is_some_and(|first| first.method == method) {
            let result = Some(json_text(&self.first_result));
            self.emit(Out::LineAnswer(LineAnswer { request_id, result, error: None })).await;
            return Ok(());
        }
        let params = params.and_then(|params| Json::parse(&params.value).ok());
        let id = self.request(&method, params.as_ref()).await?;
        self.calls.insert(id, request_id);
        self.report_shared().await;
        Ok(())
    }

    async fn cancel(&mut self, request_id: &str, reason: &str) -> Result<(), Cause> {
        let found = self.calls.iter().find(|(_, call)| *call == request_id).map(|(id, _)| *id);
        let Some(id) = found else { return Ok(()) };
        self.calls.remove(&id);
        self.ignore(id);
        let params = Members::from_iter([("requestId", Json::from(id)), ("reason", Json::from(reason))]);
        let protocol = Arc::clone(&self.protocol);
        self.notify(&protocol.cancelled, Some(&params.to_json())).await?;
        self.close_requests(id).await?;
        self.emit(failed(request_id, "CANCELLED", reason)).await;
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
            RpcMessage::Request { id, method, .. } if method == self.protocol.ping => {
                self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await
            }
            RpcMessage::Request { id, method, params } => {
                let only = self.only_call();
                match self.server_requests.begin(only, id, method, &params) {
                    Ok(asked) => self.emit(Out::McpRequested(asked)).await,
                    Err(refusal) => self.write(&refusal).await?,
                }
                Ok(())
            }
            RpcMessage::Notification { method, params } => {
                self.handle_notification(method, params).await;
                Ok(())
            }
        }
    }

    async fn handle_notification(&mut self, method: String, params: Json) {
        if method == self.protocol.cancelled {
            if let Some(withdrawn) = self.server_requests.withdraw(&params) {
                self.emit(Out::McpRequested(withdrawn)).await;
            }
            return;
        }
        if self.protocol.shared.contains(&method) {
            self.log(&method, &params).await;
            self.shared.insert(method, params);
            self.report_shared().await;
            return;
        }
        let token = params.member(&self.protocol.token);
        let call = match &token {
            Some(token) => string(token.text()).filter(|token| self.calls.values().any(|call| call == token)),
            None => self.only_call().map(|(_, only)| only),
        };
        let Some(request_id) = call else {
            // One that names a call that has ended is dropped.
            if token.is_none() {
                self.log(&method, &params).await;
            }
            return;
        };
        if method == self.protocol.log && !self.logs.take_line(params.text().len()) {
            return;
        }
        self.emit(notification(request_id, method, &params)).await;
    }

    async fn handle_answer(&mut self, id: u64, answer: RpcAnswer) -> Result<(), Cause> {
        let Some(request_id) = self.take_answered(id).await? else { return Ok(()) };
        let (result, error) = match answer {
            RpcAnswer::Result(result) => (Some(json_text(&result)), None),
            RpcAnswer::Error(error) => (None, Some(json_text(&error))),
        };
        self.emit(Out::LineAnswer(LineAnswer { request_id, result, error })).await;
        Ok(())
    }

    /// Ends a call whose answer cannot be used; the process and its other calls continue.
    async fn fail_unusable(&mut self, id: u64, fault: Unusable) -> Result<(), Cause> {
        if let Some(request_id) = self.take_answered(id).await? {
            self.emit(failed(&request_id, fault.0, fault.1)).await;
        }
        Ok(())
    }

    /// Removes the request that an answer belongs to, and returns its call; `None` if it has none.
    async fn take_answered(&mut self, id: u64) -> Result<Option<String>, Cause> {
        if let Some(nonce) = self.pings.remove(&id) {
            // Any answer to the ping shows that the server is alive.
            self.emit(Out::Pong(Pong { nonce })).await;
            return Ok(None);
        }
        if self.ignored.remove(&id) {
            return Ok(None);
        }
        let Some(request_id) = self.calls.remove(&id) else {
            tracing::debug!(id, "a stdio server answered a request that is not open");
            return Ok(None);
        };
        self.close_requests(id).await?;
        Ok(Some(request_id))
    }

    /// Returns the only call, with the id of its request to the server.
    fn only_call(&self) -> Option<(u64, String)> {
        let mut calls = self.calls.iter();
        let (id, call) = calls.next()?;
        calls.next().is_none().then(|| (*id, call.clone()))
    }

    /// Sends the notifications about the process to every running call, if there is one.
    async fn report_shared(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        for (method, params) in std::mem::take(&mut self.shared) {
            for request_id in self.calls.values() {
                self.emit(notification(request_id.clone(), method.clone(), &params)).await;
            }
        }
    }

    /// Answers the server's requests within a call that has ended.
    async fn close_requests(&mut self, call: u64) -> Result<(), Cause> {
        for line in self.server_requests.close(call) {
            self.write(&line).await?;
        }
        Ok(())
    }

    /// Logs a notification that belongs to no call, as the worker's own line.
    async fn log(&self, method: &str, params: &Json) {
        let message = format!("{method} {params}");
        self.emit(Out::Log(LogLine { message, ..LogLine::default() })).await;
    }

    async fn emit(&self, payload: Out) {
        // Err: the worker is being ended.
        let _ = self.out.send(Ok(ServerMessage { payload: Some(payload) })).await;
    }

    async fn request(&mut self, method: &str, params: Option<&Json>) -> Result<u64, Cause> {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&line(Some(id), method, params)).await?;
        Ok(id)
    }

    async fn notify(&mut self, method: &str, params: Option<&Json>) -> Result<(), Cause> {
        self.write(&line(None, method, params)).await
    }

    async fn write(&mut self, message: &impl Display) -> Result<(), Cause> {
        let line = format!("{message}\n");
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.map_err(|_| Cause::Protocol("standard input was closed"))
    }
}

/// Builds a request, or a notification if there is no id.
fn line(id: Option<u64>, method: &str, params: Option<&Json>) -> String {
    let mut line = String::from(r#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        line.push_str(&format!(r#","id":{id}"#));
    }
    line.push_str(&format!(r#","method":{}"#, Value::from(method)));
    if let Some(params) = params {
        line.push_str(&format!(r#","params":{params}"#));
    }
    line.push('}');
    line
}

/// Returns a value as PPP represents it.
fn json_text(json: &Json) -> JsonText {
    JsonText { value: json.text().as_bytes().to_vec() }
}

fn notification(request_id: String, method: String, params: &Json) -> Out {
    Out::LineNotification(LineNotification { request_id, method, params: Some(json_text(params)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_pass_as_they_are_and_are_left_out_where_there_are_none() {
        let params = Json::part(r#"{"n":1.50,"s":"\ud83d"}"#);
        let request = line(Some(7), "tools/\"x\"", Some(&params));
        assert_eq!(
            request,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/\"x\"","params":{"n":1.50,"s":"\ud83d"}}"#
        );
        assert_eq!(line(None, "done", None), r#"{"jsonrpc":"2.0","method":"done"}"#);
    }
}
