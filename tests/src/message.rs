//! Requests of either era of MCP, of REST and of the admin API, written by hand.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http1::{self, Request, Response};

/// Sent with every request, so that answers of two replicas differ by what they say alone.
pub const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Opens a legacy session on `demo`; the answer and the session's id.
pub async fn open_session(edge: SocketAddr, token: &str) -> Result<(Response, String)> {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}});
    let answer = http1::send(edge, &legacy(token, "initialize", params, &[])).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let session = answer.header("mcp-session-id").context("initialize answers with a session")?.to_string();
    Ok((answer, session))
}

/// Opens a legacy session on `demo`; its id.
pub async fn initialize(edge: SocketAddr, token: &str) -> Result<String> {
    Ok(open_session(edge, token).await?.1)
}

/// A request of the handshake era.
pub fn legacy(token: &str, method: &str, params: Value, headers: &[(&str, &str)]) -> Request {
    request(token, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), headers)
}

/// A request of 2026-07-28 with the headers that mirror its body; `Mcp-Name` is the caller's to add.
pub fn modern(token: &str, method: &str, params: Value, headers: &[(&str, &str)]) -> Request {
    modern_of(token, (method, params), &json!({}), headers)
}

/// The same, of a client that can do this; what `params` has as `_meta` goes along.
pub fn modern_of(
    token: &str,
    (method, mut params): (&str, Value),
    abilities: &Value,
    headers: &[(&str, &str)],
) -> Request {
    let mut meta = params.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default();
    meta.insert("io.modelcontextprotocol/protocolVersion".into(), "2026-07-28".into());
    meta.insert("io.modelcontextprotocol/clientCapabilities".into(), abilities.clone());
    if let Some(params) = params.as_object_mut() {
        params.insert("_meta".into(), meta.into());
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut request =
        request(token, message, &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)]);
    request.headers.extend(headers.iter().map(|(name, value)| ((*name).into(), value.as_bytes().to_vec())));
    request
}

/// A request of REST or the admin API; without a body where it is null.
pub fn rest(method: &str, path: &str, token: &str, body: &Value) -> Request {
    let mut request = Request {
        method: method.into(),
        target: path.into(),
        headers: vec![("authorization".into(), format!("Bearer {token}").into_bytes())],
        ..Request::default()
    };
    if !body.is_null() {
        request.headers.push(("content-type".into(), b"application/json".to_vec()));
        request.body = body.to_string().into_bytes();
    }
    request
}

/// A request of the admin API that revokes one token.
pub fn revocation(admin: &str, token: &str) -> Request {
    rest("POST", "/api/revocations", admin, &json!({"type": "token_hash", "id": token_hash(token)}))
}

/// The name of a token in revocations: its SHA-256 in lower-case hex.
pub fn token_hash(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn request(token: &str, message: Value, headers: &[(&str, &str)]) -> Request {
    let bearer = format!("Bearer {token}");
    let usual = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("traceparent", TRACEPARENT),
    ];
    let headers = usual
        .iter()
        .chain(headers)
        .map(|(name, value)| ((*name).into(), value.as_bytes().to_vec()))
        .collect();
    Request {
        method: "POST".into(),
        target: "/demo/mcp".into(),
        headers,
        body: message.to_string().into_bytes(),
    }
}
