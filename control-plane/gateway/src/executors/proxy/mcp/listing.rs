//! All that an upstream lists: tools, prompts, resources and templates, page by page.
//!
//! Keeps true: pages and items are bounded; a server without a method lists nothing by it, in whatever words it refuses a
//! list that it does not say it has.

use std::sync::Arc;

use asp_json::{Json, losses};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
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
/// Maximum number of parts that are named in [`Lists::losses`], and the characters of each.
const MAX_LOSSES: usize = 100;
const MAX_PART: usize = 100;
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
    /// The first parts of items that are decoded otherwise than they were written, such as numbers that are rounded.
    pub losses: Vec<String>,
}

/// Lists everything; `next_id` numbers the requests of the session.
pub async fn list(
    client: &Client,
    session: &Session,
    mut next_id: impl FnMut() -> u64,
) -> Result<Lists, Fault> {
    let mut left = MAX_BYTES;
    let mut losses = Vec::new();
    let mut pages = async |method, member| {
        pages(client, session, (method, member), (&mut next_id, &mut left, &mut losses)).await
    };
    Ok(Lists {
        tools: pages("tools/list", "tools").await?,
        prompts: pages("prompts/list", "prompts").await?,
        resources: pages("resources/list", "resources").await?,
        templates: pages("resources/templates/list", "resourceTemplates").await?,
        completions: session.offers.completions,
        instructions: session.instructions.clone(),
        losses,
    })
}

async fn pages(
    client: &Client,
    session: &Session,
    (method, member): (&str, &str),
    (next_id, left, losses): (&mut impl FnMut() -> u64, &mut usize, &mut Vec<String>),
) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    let mut cursor: Option<Value> = None;
    for page in 0..MAX_PAGES {
        let params = cursor.iter().map(|cursor| ("cursor".to_owned(), cursor.clone())).collect();
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
            Err(fault) if page == 0 && session.offers.lacks(member) && is_refusal(&fault) => {
                return Ok(found);
            }
            answered => answered?,
        };
        if let Some(Value::Array(items)) = result.remove(member) {
            let too_much = || Fault::Lost(format!("{method}: all lists take more than {MAX_BYTES} bytes"));
            *left = left.checked_sub(held::of_all(&items)).ok_or_else(too_much)?;
            if let Some(list) = result.sent.member(member) {
                note_losses(losses, member, &list);
            }
            found.extend(items);
        }
        if found.len() > MAX_ITEMS {
            return Err(Fault::Lost(format!("{method}: more than {MAX_ITEMS} items")));
        }
        // The same cursor again would give the same page again.
        let next =
            result.remove("nextCursor").filter(|next| is_cursor(next) && cursor.as_ref() != Some(next));
        if next.is_none() {
            return Ok(found);
        }
        cursor = next;
    }
    Err(Fault::Lost(format!("{method}: more than {MAX_PAGES} pages")))
}

/// Whether more of a list can be asked for: some servers write an empty text where there is no more.
fn is_cursor(next: &Value) -> bool {
    next.as_str().is_some_and(|next| !next.is_empty())
}

/// Whether a server refuses a method, in whatever words.
fn is_refusal(fault: &Fault) -> bool {
    match fault {
        Fault::Error { .. } => true,
        Fault::Refused { status, .. } => matches!(
            *status,
            StatusCode::BAD_REQUEST
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_IMPLEMENTED
        ),
        Fault::SessionRefused { fault, is_named: false, .. } => is_refusal(fault),
        _ => false,
    }
}

/// Adds the parts of a list that are decoded otherwise than they were written, with the items that they are in.
pub fn note_losses(noted: &mut Vec<String>, member: &str, list: &Json) {
    if losses(list.text()).is_empty() {
        return;
    }
    for item in list.elements().unwrap_or_default() {
        let names = ["name", "uri", "uriTemplate"];
        let name = names.iter().find_map(|name| item.get(*name)?.as_str()).unwrap_or_default();
        let left = MAX_LOSSES.saturating_sub(noted.len());
        noted.extend(losses(item.text()).into_iter().take(left).map(|part| {
            let part: String = part.chars().take(MAX_PART).collect();
            format!("{part} in {name:?} of {member}")
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_decoded_otherwise_are_named_with_their_items() {
        let list = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let mut noted = Vec::new();
        note_losses(
            &mut noted,
            "tools",
            &list(r#"[{"name":"a","inputSchema":{"maximum":18446744073709551615}}]"#),
        );
        assert!(noted.is_empty(), "{noted:?}");
        let tools = r#"[{"name":"a"},{"name":"b","inputSchema":{"maximum":18446744073709551616}}]"#;
        note_losses(&mut noted, "tools", &list(tools));
        assert_eq!(noted, [r#"18446744073709551616 in "b" of tools"#]);
        let many = format!(r#"[{{"uri":"a://b","size":[{}1e400]}}]"#, "1e400,".repeat(MAX_LOSSES));
        note_losses(&mut noted, "resources", &list(&many));
        assert_eq!(noted.len(), MAX_LOSSES);
        assert_eq!(noted.last().unwrap(), r#"1e400 in "a://b" of resources"#);
    }
}
