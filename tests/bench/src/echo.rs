//! A small MCP server with one tool, for the peer to stand before: the same echo as the gateway's builtin one.
//! `asp-bench --serve-echo` is that server alone, a process of its own, so that its CPU is told apart.
//!
//! Owns: streamable HTTP of 2025-11-25 with answers in JSON, one session id for all of its clients.
//! Refuses: a stream of its own (GET), requests outside the session.

use anyhow::Result;
use asp_e2e::process::Process;
use serde_json::{Value, json};
use std::net::SocketAddr;

use crate::backend;
use crate::chain::TOOL;
use crate::framing::Message;

const SESSION: &str = "echo-session";
const LISTENS: &str = "echo server at ";
const PROTOCOL: &str = "2025-11-25";
const METHOD_NOT_FOUND: i64 = -32601;

/// Serves until the process is ended.
pub(crate) async fn serve() -> Result<()> {
    println!("{LISTENS}{}", backend::start_with(answer)?);
    std::future::pending().await
}

/// Starts this program as that server.
pub(crate) async fn start() -> Result<(Process, SocketAddr)> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("--serve-echo");
    let process = Process::start("echo server", command)?;
    process.logged(LISTENS).await?;
    let lines = process.log().lines();
    let address = lines.iter().find_map(|line| line.strip_prefix(LISTENS));
    let address = address.unwrap_or_default().parse()?;
    Ok((process, address))
}

pub(crate) fn answer(request: &Message<'_>, out: &mut Vec<u8>) {
    if !request.head.starts_with(b"POST ") {
        return respond(out, "405 Method Not Allowed", "allow: POST\r\n", "");
    }
    let Ok(message) = serde_json::from_slice::<Value>(request.body) else {
        return respond(out, "400 Bad Request", "", "");
    };
    let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
    let new = format!("mcp-session-id: {SESSION}\r\n");
    let (status, head) = match method {
        "initialize" => ("200 OK", new.as_str()),
        _ if !in_session(request.head) => ("400 Bad Request", ""),
        _ => ("200 OK", ""),
    };
    match message.get("id") {
        _ if status != "200 OK" => respond(out, status, head, ""),
        None => respond(out, "202 Accepted", head, ""),
        Some(id) => respond(out, status, head, &reply(id, method, &message)),
    }
}

fn in_session(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(|line| {
        let line = String::from_utf8_lossy(line);
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("mcp-session-id") && value.trim() == SESSION
        })
    })
}

fn reply(id: &Value, method: &str, message: &Value) -> String {
    let result = match method {
        "initialize" => json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bench-echo", "version": "1"},
        }),
        "ping" => json!({}),
        "tools/list" => {
            let schema = json!({
                "type": "object",
                "required": ["message"],
                "properties": {"message": {"type": "string"}},
            });
            json!({"tools": [{"name": TOOL, "inputSchema": schema, "outputSchema": schema}]})
        }
        "tools/call" => {
            let text = message.pointer("/params/arguments/message").unwrap_or(&Value::Null);
            json!({
                "content": [{"type": "text", "text": text}],
                "structuredContent": {"message": text},
                "isError": false,
            })
        }
        _ => {
            let error = json!({"code": METHOD_NOT_FOUND, "message": "no such method"});
            return json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
        }
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn respond(out: &mut Vec<u8>, status: &str, headers: &str, body: &str) {
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}{kind}content-length: {length}\r\n\r\n");
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Pace};
    use crate::session::Endpoint;
    use crate::traffic::{Caller, Shape, Traffic};

    #[tokio::test]
    async fn a_client_opens_a_session_and_every_call_is_echoed() {
        let address = backend::start_with(answer).unwrap();
        let endpoint = Endpoint { address, target: "/mcp".into(), authority: address.to_string() };
        let session = endpoint.open_session("t").await.unwrap();
        let with = |session: String| Traffic {
            shape: Shape::Legacy,
            target: "/mcp".into(),
            tool: TOOL,
            authority: address.to_string(),
            callers: vec![Caller { token: "t".into(), session }],
        };
        let pace = Pace::Open { rate: 1000.0, requests: 20 };
        let done = load::run(address, with(session), pace, 2).unwrap();
        assert_eq!((done.requests, done.errors), (20, 0), "{:?}", done.first_error);
        let strange = load::run(address, with("other".into()), pace, 2).unwrap();
        assert_eq!(strange.errors, 20);
    }

    #[test]
    fn an_answer_holds_the_message_of_its_call() {
        let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}}"#;
        let head = format!("POST / HTTP/1.1\r\nMcp-Session-Id: {SESSION}\r\n\r\n");
        let mut out = Vec::new();
        answer(&Message { head: head.as_bytes(), body }, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["content"][0]["text"], "hi");
        assert_eq!(answer["result"]["structuredContent"]["message"], "hi");
    }
}
