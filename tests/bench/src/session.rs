//! Legacy sessions, of the gateway and of the peer alike.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use asp_e2e::http1;
use serde_json::{Value, json};

const VERSION: &str = "2025-11-25";

/// Where an MCP server is, and what its clients call it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub address: SocketAddr,
    pub target: String,
    /// The value of `host`.
    pub authority: String,
}

impl Endpoint {
    /// Opens a session as a client does; returns its id.
    pub(crate) async fn open_session(&self, token: &str) -> Result<String> {
        let params = json!({
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
        });
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let opened = self.post(token, None, &initialize).await?;
        let session =
            opened.header("mcp-session-id").context("initialize answers with a session")?.to_string();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(token, Some(&session), &ready).await?;
        Ok(session)
    }

    async fn post(&self, token: &str, session: Option<&str>, message: &Value) -> Result<http1::Response> {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![
            ("host", self.authority.as_str()),
            ("authorization", &bearer),
            ("accept", "application/json, text/event-stream"),
        ];
        if let Some(session) = session {
            headers.push(("mcp-session-id", session));
            headers.push(("mcp-protocol-version", VERSION));
        }
        let answer = http1::post(self.address, &self.target, &headers, &message.to_string()).await?;
        anyhow::ensure!((200..300).contains(&answer.status), "{}: {}", answer.status, answer.text());
        Ok(answer)
    }
}
