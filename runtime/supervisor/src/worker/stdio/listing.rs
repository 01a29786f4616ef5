//! What an MCP server lists, list by list and page by page.
//!
//! Keeps true: pages, items and text are bounded; a server without a method lists nothing by it; what it lists is passed on
//! as it wrote it.
//! Source: Model Context Protocol 2025-11-25, server/utilities/pagination.

use asp_json::{Json, Members, first_elements, named};
use asp_proto::plugin::{ListResourcesRequest, ListResourcesResponse, McpLists};
use tonic::Status;

use super::said;
use super::wire::Answer;

/// The methods, each with the member of its result, in the order of `McpLists`.
const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];
/// Most pages, and most items and bytes of their text (plugin.proto), of all lists together.
const MAX_PAGES: usize = 400;
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 3 << 20;
/// JSON-RPC 2.0: the server does not have the method.
const METHOD_NOT_FOUND: i64 = -32601;

/// A listing under way.
pub struct Listing {
    pub(super) request: ListResourcesRequest,
    /// The texts of the items.
    found: [Vec<String>; LISTS.len()],
    /// The list that is being read, and where in it.
    list: usize,
    cursor: Option<Json>,
    pages: usize,
    items: usize,
    bytes: usize,
}

impl Listing {
    pub fn of(request: ListResourcesRequest) -> Listing {
        let found = std::array::from_fn(|_| Vec::new());
        Listing { request, found, list: 0, cursor: None, pages: 0, items: 0, bytes: 0 }
    }

    /// The next request to the server; `None` when all is read.
    pub(super) fn next(&self) -> Option<(&'static str, Json)> {
        let (method, _) = LISTS.get(self.list)?;
        let cursor = self.cursor.iter().map(|cursor| ("cursor", cursor.clone()));
        Some((method, Members::from_iter(cursor).to_json()))
    }

    /// Takes the answer to it.
    pub(super) fn take(&mut self, answer: Answer) -> Result<(), Status> {
        let (Some((method, member)), Some(found)) = (LISTS.get(self.list), self.found.get_mut(self.list))
        else {
            return Err(Status::internal("an answer that was not asked for"));
        };
        let is_first = self.cursor.is_none();
        let result = match answer {
            Answer::Error { code: METHOD_NOT_FOUND, .. } if is_first => {
                self.list += 1;
                return Ok(());
            }
            Answer::Error { code, message } => {
                return Err(Status::internal(format!("{method}: {code}: {message}")));
            }
            Answer::Result(result) => result,
        };
        let [given, cursor] = named(result.text(), [*member, "nextCursor"]).unwrap_or_default();
        // One more than there may be.
        let items = given.and_then(|given| first_elements(given, MAX_ITEMS + 1)).unwrap_or_default();
        self.items += items.len();
        self.bytes += items.iter().map(|item| item.len()).sum::<usize>();
        self.pages += 1;
        if self.items > MAX_ITEMS || self.bytes > MAX_BYTES || self.pages > MAX_PAGES {
            let why = format!("the server lists more than {MAX_ITEMS} items, {MAX_PAGES} pages or 3 MiB");
            return Err(Status::internal(why));
        }
        found.extend(items.into_iter().map(str::to_owned));
        self.cursor = cursor.filter(|cursor| cursor.starts_with('"')).map(Json::part);
        if self.cursor.is_none() {
            self.list += 1;
        }
        Ok(())
    }

    pub(super) fn finish(self, tells_of_changes: bool) -> ListResourcesResponse {
        let [tools, prompts, resources, templates] =
            self.found.map(|items| Some(said::json(&format!("[{}]", items.join(",")))));
        let mcp = McpLists { tools, prompts, resources, templates, tells_of_changes };
        ListResourcesResponse { mcp: Some(mcp), ..ListResourcesResponse::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listing() -> Listing {
        Listing::of(ListResourcesRequest::default())
    }

    #[test]
    fn every_page_of_every_list_is_read_and_what_a_server_has_not_is_empty() {
        let mut listing = listing();
        let mut asked = Vec::new();
        for answer in [
            Answer::Result(json!({"tools": [{"name": "a"}], "nextCursor": "2"}).into()),
            Answer::Result(json!({"tools": [{"name": "b"}]}).into()),
            Answer::Error { code: METHOD_NOT_FOUND, message: "no".into() },
            Answer::Result(json!({"resources": "none"}).into()),
            Answer::Result(json!({"resourceTemplates": [{"uriTemplate": "a:{b}"}], "nextCursor": 7}).into()),
        ] {
            asked.push(listing.next().unwrap());
            listing.take(answer).unwrap();
        }
        assert!(listing.next().is_none());
        assert_eq!(asked[1], ("tools/list", json!({"cursor": "2"}).into()));
        assert_eq!(asked[4], ("resources/templates/list", json!({}).into()));
        let mcp = listing.finish(true).mcp.unwrap();
        let text = |json: Option<asp_proto::plugin::Json>| String::from_utf8(json.unwrap().value).unwrap();
        assert_eq!(text(mcp.tools), r#"[{"name":"a"},{"name":"b"}]"#);
        assert_eq!((text(mcp.prompts), text(mcp.resources)), ("[]".into(), "[]".into()));
        assert_eq!(text(mcp.templates), r#"[{"uriTemplate":"a:{b}"}]"#);
        assert!(mcp.tells_of_changes);
    }

    #[test]
    fn a_listing_ends_at_its_bounds_and_at_an_error() {
        let endless = || Answer::Result(json!({"tools": [], "nextCursor": "again"}).into());
        let mut pages = listing();
        assert!((0..MAX_PAGES).all(|_| pages.take(endless()).is_ok()));
        assert!(pages.take(endless()).is_err());
        for answer in [
            Answer::Result(json!({"tools": vec![json!({}); MAX_ITEMS + 1]}).into()),
            Answer::Result(json!({"tools": [{"name": "x".repeat(MAX_BYTES)}]}).into()),
            Answer::Error { code: -32603, message: "broken".into() },
        ] {
            assert!(listing().take(answer).is_err());
        }
        // A method that is gone in the middle is no empty list.
        let mut gone = listing();
        gone.take(endless()).unwrap();
        assert!(gone.take(Answer::Error { code: METHOD_NOT_FOUND, message: String::new() }).is_err());
    }
}
