//! All that an upstream lists: tools, prompts, resources and templates, page by page.
//!
//! Keeps true: pages and items are bounded; a server without a method lists nothing by it.

use std::sync::Arc;

use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::client::session::Session;
use super::client::{Client, ClientParams, Exchange, Fault};
use super::downstream::Nobody;
use crate::call::held;

/// Most pages of one list that are followed.
const MAX_PAGES: u64 = 100;
/// Most items of one list, and the most that all lists of a server take in memory.
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;
/// JSON-RPC 2.0: the server does not have the method.
const METHOD_NOT_FOUND: i64 = -32601;

/// What one server lists.
#[derive(Default)]
pub struct Lists {
    pub tools: Vec<Value>,
    pub prompts: Vec<Value>,
    pub resources: Vec<Value>,
    pub templates: Vec<Value>,
    /// Whether it offers values for arguments of prompts and templates.
    pub completions: bool,
    /// The server's text for models: what to know before using it.
    pub instructions: Option<String>,
}

/// Lists everything; `next_id` numbers the requests of the session.
pub async fn list(
    client: &Client,
    session: &Session,
    mut next_id: impl FnMut() -> u64,
) -> Result<Lists, Fault> {
    let mut left = MAX_BYTES;
    let mut pages =
        async |method, member| pages(client, session, (method, member), (&mut next_id, &mut left)).await;
    Ok(Lists {
        tools: pages("tools/list", "tools").await?,
        prompts: pages("prompts/list", "prompts").await?,
        resources: pages("resources/list", "resources").await?,
        templates: pages("resources/templates/list", "resourceTemplates").await?,
        completions: session.offers.completions,
        instructions: session.instructions.clone(),
    })
}

async fn pages(
    client: &Client,
    session: &Session,
    (method, member): (&str, &str),
    (next_id, left): (&mut impl FnMut() -> u64, &mut usize),
) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    let mut cursor = None;
    for page in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = cursor.take() {
            params.insert("cursor".into(), cursor);
        }
        let exchange = Exchange {
            id: next_id(),
            method,
            params: Value::Object(params),
            sent: ClientParams::default(),
            headers: HeaderMap::new(),
            downstream: Arc::new(Nobody),
            cancelled: &CancellationToken::new(),
        };
        let mut result = match client.request(session, exchange).await {
            Err(Fault::Error { code: METHOD_NOT_FOUND, .. }) if page == 0 => return Ok(found),
            answered => answered?,
        };
        if let Some(Value::Array(items)) = result.remove(member) {
            let too_much = || Fault::Lost(format!("{method}: all lists take more than {MAX_BYTES} bytes"));
            *left = left.checked_sub(held::of_all(&items)).ok_or_else(too_much)?;
            found.extend(items);
        }
        cursor = result.remove("nextCursor").filter(Value::is_string);
        if found.len() > MAX_ITEMS {
            return Err(Fault::Lost(format!("{method}: more than {MAX_ITEMS} items")));
        }
        if cursor.is_none() {
            return Ok(found);
        }
    }
    Err(Fault::Lost(format!("{method}: more than {MAX_PAGES} pages")))
}
