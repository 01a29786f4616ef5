//! Handshake with an MCP server on standard input and output.
//!
//! Keeps true: the server learns only of capabilities whose requests a call's client may answer; whether that client
//! can is known only at the time of the request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_proto::mcp_revision::Revision;
use serde_json::json;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::lines::read;
use super::listing::NamedLists;
use super::wire::{RpcAnswer, RpcMessage, ServerLine};
use super::{Bridge, FROM_SERVER, Inbox, READINGS, Readings, ServerRequests};
use crate::cause::Cause;
use crate::worker::logs::Meter;

const PROTOCOL_VERSION: &str = Revision::LATEST_LEGACY.as_str();
/// Log level requested from the server; the gateway drops what the client of a call did not ask for.
const LOG_LEVEL: &str = "debug";

/// Performs the handshake. Returns the bridge, which must be run, its messages, and the queue of reads and prompts.
pub async fn open(
    (stdin, stdout): (ChildStdin, ChildStdout),
    logs: Arc<Meter>,
) -> Result<(Bridge, Inbox, Readings), Cause> {
    let (sender, lines) = mpsc::channel(FROM_SERVER);
    tokio::spawn(read(stdout, logs, sender));
    let (out, inbox) = mpsc::channel(FROM_SERVER);
    let (readings, to_read) = mpsc::channel(READINGS);
    let mut bridge = Bridge {
        stdin,
        lines,
        readings: to_read,
        next_id: 1,
        calls: BTreeMap::new(),
        server_requests: ServerRequests::default(),
        pings: BTreeMap::new(),
        ignored: BTreeSet::new(),
        lists: NamedLists::default(),
        lists_changed: false,
        out,
    };
    let client = json!({"name": "asp-runtime", "version": env!("CARGO_PKG_VERSION")});
    // Elicitation without a mode means forms: a server cannot send a user to a page that no spec names. Roots belong to
    // a call's client and come and go with it, so no change of them is reported.
    let capabilities = json!({"elicitation": {}, "sampling": {"tools": {}}, "roots": {}});
    let params =
        json!({"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "clientInfo": client});
    let id = bridge.request("initialize", &params.into()).await?;
    let server = loop {
        let incoming = bridge.lines.recv().await.ok_or(Cause::Protocol("standard output was closed"))?;
        let ServerLine::Message(message) = incoming else {
            return Err(Cause::Protocol("the answer to initialize is not a result"));
        };
        match message {
            RpcMessage::Response { id: answered, answer: RpcAnswer::Result(result) } if answered == id => {
                break result;
            }
            RpcMessage::Response { .. } => return Err(Cause::Protocol("initialize was refused")),
            request @ RpcMessage::Request { .. } => bridge.receive(request).await?,
            RpcMessage::Notification { .. } => {}
        }
    };
    bridge.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
    bridge.lists = NamedLists::of(&server);
    let logs = server.pointed("/capabilities/logging");
    if logs.is_some_and(|logs| logs.text().starts_with('{')) {
        let id = bridge.request("logging/setLevel", &json!({"level": LOG_LEVEL}).into()).await?;
        bridge.ignore(id);
    }
    Ok((bridge, inbox, readings))
}
