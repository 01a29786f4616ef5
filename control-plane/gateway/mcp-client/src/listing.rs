//! All lists of an upstream: tools, prompts, resources and templates, page by page.
//!
//! Keeps true: pages and items are bounded; a server without a method has an empty list, however it refuses a list
//! that it does not declare; items that this gateway decodes differently from how they were written are reported, within
//! bounds.

use asp_json::{Json, held, losses};
use async_trait::async_trait;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::client::session::{Offers, Session};
use super::client::{Client, ClientFault};
use crate::message::{METHOD_NOT_FOUND, UpstreamObject};

/// Maximum number of pages of one list.
const MAX_PAGES: u64 = 100;
/// Maximum number of items in one list, and of bytes that all lists of a server take in memory.
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;

/// Returns the capabilities of a client that can do everything: some servers list less to others.
pub fn every_capability() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}, "sampling": {}})
}

/// A server that answers the requests of a listing, over whichever transport.
#[async_trait]
pub trait Lister: Send {
    async fn ask(&mut self, method: &str, params: Value) -> Result<UpstreamObject, ClientFault>;
}

/// A server over HTTP, in one session.
struct SessionLister<'a> {
    client: &'a Client,
    session: &'a Session,
}

#[async_trait]
impl Lister for SessionLister<'_> {
    async fn ask(&mut self, method: &str, params: Value) -> Result<UpstreamObject, ClientFault> {
        self.client.request(self.session, self.client.alone(method, params)).await
    }
}

/// Lists everything that a server over HTTP has.
pub async fn list(client: &Client, session: &Session) -> Result<Lists, ClientFault> {
    let mut server = SessionLister { client, session };
    list_all(&mut server, session.offers, session.instructions.clone()).await
}

/// Lists everything that a server with these capabilities has.
pub(super) async fn list_all(
    server: &mut dyn Lister,
    offers: Offers,
    instructions: Option<String>,
) -> Result<Lists, ClientFault> {
    let mut listing = Listing { server, offers, left: MAX_BYTES, losses: Vec::new() };
    Ok(Lists {
        tools: listing.pages("tools/list", "tools").await?,
        prompts: listing.pages("prompts/list", "prompts").await?,
        resources: listing.pages("resources/list", "resources").await?,
        templates: listing.pages("resources/templates/list", "resourceTemplates").await?,
        completions: offers.completions,
        instructions,
        losses: listing.losses,
    })
}

/// A listing in progress.
struct Listing<'a> {
    server: &'a mut dyn Lister,
    offers: Offers,
    /// Bytes that the remaining items may take in memory.
    left: usize,
    losses: Vec<String>,
}

impl Listing<'_> {
    async fn pages(&mut self, method: &str, member: &str) -> Result<Vec<Value>, ClientFault> {
        let mut found = Vec::new();
        let mut cursor: Option<Value> = None;
        for page in 0..MAX_PAGES {
            let params = cursor.iter().map(|cursor| ("cursor".to_owned(), cursor.clone())).collect();
            let mut result = match self.server.ask(method, Value::Object(params)).await {
                Err(ClientFault::Error { code: METHOD_NOT_FOUND, .. }) if page == 0 => return Ok(found),
                Err(fault) if page == 0 && self.offers.lacks(member) && is_refusal(&fault) => {
                    return Ok(found);
                }
                answered => answered?,
            };
            if let Some(Value::Array(items)) = result.remove(member) {
                let too_much =
                    || ClientFault::Lost(format!("{method}: all lists take more than {MAX_BYTES} bytes"));
                self.left = self.left.checked_sub(held::of_all(&items)).ok_or_else(too_much)?;
                if let Some(list) = result.sent.member(member) {
                    note_losses(&mut self.losses, member, &list);
                }
                found.extend(items);
            }
            if found.len() > MAX_ITEMS {
                return Err(ClientFault::Lost(format!("{method}: more than {MAX_ITEMS} items")));
            }
            let next = next_cursor(result.remove("nextCursor"))
                .map_err(|kind| ClientFault::Lost(format!("{method}: nextCursor is {kind}, not a string")))?;
            // The same cursor would return the same page again.
            if next.is_none() || next == cursor {
                return Ok(found);
            }
            cursor = next;
        }
        Err(ClientFault::Lost(format!("{method}: more than {MAX_PAGES} pages")))
    }
}

/// Returns the cursor of the next page, if there is one: some servers write null or an empty cursor after the last page. The
/// error is the kind of a value that cannot be sent back as a cursor.
fn next_cursor(next: Option<Value>) -> Result<Option<Value>, &'static str> {
    match next {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok((!text.is_empty()).then_some(Value::String(text))),
        Some(Value::Number(_)) => Err("a number"),
        Some(Value::Bool(_)) => Err("a boolean"),
        Some(Value::Array(_)) => Err("an array"),
        Some(Value::Object(_)) => Err("an object"),
    }
}

/// Whether a server refuses a method, in whatever form.
fn is_refusal(fault: &ClientFault) -> bool {
    match fault {
        ClientFault::Error { .. } => true,
        ClientFault::Refused { status, .. } => matches!(
            *status,
            StatusCode::BAD_REQUEST
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_IMPLEMENTED
        ),
        ClientFault::SessionRefused { fault, is_named: false, .. } => is_refusal(fault),
        _ => false,
    }
}

/// Maximum number of parts in [`Lists::losses`], and of the characters of each.
const MAX_LOSSES: usize = 100;
const MAX_PART: usize = 100;

/// Lists of one server.
#[derive(Default)]
pub struct Lists {
    pub tools: Vec<Value>,
    pub prompts: Vec<Value>,
    pub resources: Vec<Value>,
    pub templates: Vec<Value>,
    /// Whether the server offers values for arguments of prompts and templates.
    pub completions: bool,
    /// Instructions for models to read before they use the server.
    pub instructions: Option<String>,
    /// First parts of items that are decoded differently from how they were written, such as numbers that are
    /// rounded.
    pub losses: Vec<String>,
}

/// Adds the parts of a list that are decoded differently from how they were written, with the items that contain
/// them.
fn note_losses(noted: &mut Vec<String>, member: &str, list: &Json) {
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
