//! Start of the conversation with a process on its standard input and output.
//!
//! Keeps true: a process takes calls only once it has answered the first request with a result; its own requests until
//! then are refused, because they belong to no call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_json::Json;
use asp_proto::supervisor::{LineMessage, LineProtocol};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::lines::read;
use super::wire::{RpcAnswer, RpcMessage, ServerLine};
use super::{Bridge, FROM_SERVER, Inbox, ServerRequests};
use crate::cause::Cause;
use crate::worker::logs::Meter;

/// Opens the conversation. Returns the bridge, which must be run, and its messages.
pub async fn open(
    (stdin, stdout): (ChildStdin, ChildStdout),
    logs: Arc<Meter>,
    protocol: Arc<LineProtocol>,
) -> Result<(Bridge, Inbox), Cause> {
    let (sender, lines) = mpsc::channel(FROM_SERVER);
    tokio::spawn(read(stdout, Arc::clone(&logs), sender));
    let (out, inbox) = mpsc::channel(FROM_SERVER);
    let mut bridge = Bridge {
        stdin,
        lines,
        protocol: Arc::clone(&protocol),
        first_result: Json::part("{}"),
        next_id: 1,
        calls: BTreeMap::new(),
        server_requests: ServerRequests::default(),
        pings: BTreeMap::new(),
        ignored: BTreeSet::new(),
        shared: BTreeMap::new(),
        logs,
        out,
    };
    let first = protocol.first.as_ref().ok_or(Cause::Protocol("the gateway named no first request"))?;
    let id = bridge.request(&first.method, params(first).as_ref()).await?;
    bridge.first_result = loop {
        let incoming = bridge.lines.recv().await.ok_or(Cause::Protocol("standard output was closed"))?;
        let ServerLine::Message(message) = incoming else {
            return Err(Cause::Protocol("the answer to the first request is not a result"));
        };
        match message {
            RpcMessage::Response { id: answered, answer: RpcAnswer::Result(result) } if answered == id => {
                break result;
            }
            RpcMessage::Response { .. } => return Err(Cause::Protocol("the first request was refused")),
            request @ RpcMessage::Request { .. } => bridge.receive(request).await?,
            RpcMessage::Notification { .. } => {}
        }
    };
    for message in &protocol.after {
        bridge.follow_up(message).await?;
    }
    Ok((bridge, inbox))
}

impl Bridge {
    /// Sends a message after the first result, unless that result lacks what the message needs.
    async fn follow_up(&mut self, message: &LineMessage) -> Result<(), Cause> {
        let found = self.first_result.pointed(&message.if_object);
        if !message.if_object.is_empty() && !found.is_some_and(|found| found.text().starts_with('{')) {
            return Ok(());
        }
        let params = params(message);
        if message.is_request {
            let id = self.request(&message.method, params.as_ref()).await?;
            self.ignore(id);
            return Ok(());
        }
        self.notify(&message.method, params.as_ref()).await
    }
}

fn params(message: &LineMessage) -> Option<Json> {
    (!message.params.is_empty()).then(|| Json::part(message.params.as_str()))
}
