//! What an upstream MCP server lists, to a client that can do everything: some list less to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use asp_gateway::executors::proxy::mcp::client::Client;
use asp_gateway::executors::proxy::mcp::client::modern::Eras;
use asp_gateway::executors::proxy::mcp::listing::{self, Lists};
use serde_json::json;

use crate::failure::Failure;

/// The operator names the address, so it may be private.
pub(super) async fn list(url: &str) -> Result<Lists, Failure> {
    let http = super::openapi::http()?;
    let parsed = reqwest::Url::parse(url).map_err(|error| Failure::bad("--mcp", error.to_string()))?;
    let client =
        Client { http, url: parsed, tasks: Arc::default(), eras: Eras::default(), proof: Arc::default() };
    let everything =
        json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}, "sampling": {}});
    let session = client.initialize(1, everything).await.with_context(|| format!("greet {url}"))?;
    let number = AtomicU64::new(2);
    let lists = listing::list(&client, &session, || number.fetch_add(1, Ordering::Relaxed)).await;
    // The session is ended at its server before this process is gone.
    drop(session);
    client.tasks.drained().await;
    Ok(lists.with_context(|| format!("list what {url} has"))?)
}
