//! The lists of an MCP server, read list by list and page by page.
//!
//! Keeps true: pages, items and text are bounded; a server without a method has an empty list, whichever error it
//! returns for a list that it does not declare; items are passed on as the server wrote them.
//! Source: Model Context Protocol 2025-11-25, server/utilities/pagination.

use asp_json::{Json, Members, first_elements, named};
use asp_proto::plugin::{ListResourcesRequest, ListResourcesResponse, McpLists};
use tonic::Status;

use super::translation;
use super::wire::RpcAnswer;

/// The methods, each with the member of its result, in the order of `McpLists`.
const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];
/// Maximum number of pages, and of items and bytes of their text (plugin.proto), of all lists together.
const MAX_PAGES: usize = 400;
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 3 << 20;
/// JSON-RPC 2.0: the server does not have the method.
const METHOD_NOT_FOUND: i64 = -32601;

/// The lists that a server declares in its handshake.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedLists {
    /// Whether it notifies its client of changes of any of them.
    pub(super) notify_of_changes: bool,
    /// The lists that it does not declare, if it declares others; in the order of [`LISTS`].
    lacks: [bool; LISTS.len()],
}

impl NamedLists {
    pub(super) fn of(greeting: &Json) -> NamedLists {
        // Templates are listed with resources.
        let capabilities = ["tools", "prompts", "resources", "resources"];
        let named = capabilities.map(|list| {
            let can = greeting.pointed(&format!("/capabilities/{list}"));
            can.filter(|can| can.text() != "null")
        });
        let notifies = |can: &Json| can.member("listChanged").is_some_and(|changes| changes.text() == "true");
        let names_any = named.iter().any(Option::is_some);
        NamedLists {
            notify_of_changes: named.iter().flatten().all(notifies),
            lacks: named.map(|can| names_any && can.is_none()),
        }
    }
}

/// A listing in progress.
pub struct Listing {
    pub(super) request: ListResourcesRequest,
    /// The texts of the items.
    found: [Vec<String>; LISTS.len()],
    /// The list that is being read, and the cursor in it.
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

    /// Returns the next request to the server; `None` when everything has been read.
    pub(super) fn next(&self) -> Option<(&'static str, Json)> {
        let (method, _) = LISTS.get(self.list)?;
        let cursor = self.cursor.iter().map(|cursor| ("cursor", cursor.clone()));
        Some((method, Members::from_iter(cursor).to_json()))
    }

    /// Handles the answer to it.
    pub(super) fn take(&mut self, answer: RpcAnswer, lists: NamedLists) -> Result<(), Status> {
        let (Some((method, member)), Some(found)) = (LISTS.get(self.list), self.found.get_mut(self.list))
        else {
            return Err(Status::internal("an answer without a request"));
        };
        let is_first = self.cursor.is_none();
        let is_lacking = lists.lacks.get(self.list) == Some(&true);
        let result = match answer {
            RpcAnswer::Error { code, .. } if is_first && (is_lacking || code == METHOD_NOT_FOUND) => {
                self.list += 1;
                return Ok(());
            }
            RpcAnswer::Error { code, message, .. } => {
                return Err(Status::internal(format!("{method}: {code}: {message}")));
            }
            RpcAnswer::Result(result) => result,
        };
        let [given, cursor] = named(result.text(), [*member, "nextCursor"]).unwrap_or_default();
        // One more than the maximum.
        let items = given.and_then(|given| first_elements(given, MAX_ITEMS + 1)).unwrap_or_default();
        self.items += items.len();
        self.bytes += items.iter().map(|item| item.len()).sum::<usize>();
        self.pages += 1;
        if self.items > MAX_ITEMS || self.bytes > MAX_BYTES || self.pages > MAX_PAGES {
            let why = format!("the server lists more than {MAX_ITEMS} items, {MAX_PAGES} pages or 3 MiB");
            return Err(Status::internal(why));
        }
        found.extend(items.into_iter().map(str::to_owned));
        // Some servers send an empty cursor at the end; the same cursor again would return the same page again.
        let next = cursor.filter(|next| next.starts_with('"') && *next != r#""""#).map(Json::part);
        self.cursor = next.filter(|next| self.cursor.as_ref() != Some(next));
        if self.cursor.is_none() {
            self.list += 1;
        }
        Ok(())
    }

    pub(super) fn finish(self, tells_of_changes: bool) -> ListResourcesResponse {
        let [tools, prompts, resources, templates] =
            self.found.map(|items| Some(translation::json(&format!("[{}]", items.join(",")))));
        let mcp = McpLists { tools, prompts, resources, templates, tells_of_changes };
        ListResourcesResponse { mcp: Some(mcp), ..ListResourcesResponse::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listing() -> Listing {
        Listing::of(ListResourcesRequest::default())
    }

    #[test]
    fn every_page_of_every_list_is_read_and_what_a_server_has_not_is_empty() {
        let mut listing = listing();
        let mut asked = Vec::new();
        for answer in [
            RpcAnswer::Result(json!({"tools": [{"name": "a"}], "nextCursor": "2"}).into()),
            RpcAnswer::Result(json!({"tools": [{"name": "b"}]}).into()),
            RpcAnswer::Error { code: METHOD_NOT_FOUND, message: "no".into(), data: None },
            RpcAnswer::Result(json!({"resources": "none"}).into()),
            RpcAnswer::Result(
                json!({"resourceTemplates": [{"uriTemplate": "a:{b}"}], "nextCursor": 7}).into(),
            ),
        ] {
            asked.push(listing.next().unwrap());
            listing.take(answer, NamedLists::default()).unwrap();
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
        let any = NamedLists::default();
        let page =
            |number: usize| RpcAnswer::Result(json!({"tools": [], "nextCursor": number.to_string()}).into());
        let mut pages = listing();
        assert!((0..MAX_PAGES).all(|number| pages.take(page(number), any).is_ok()));
        assert!(pages.take(page(MAX_PAGES), any).is_err());
        for answer in [
            RpcAnswer::Result(json!({"tools": vec![json!({}); MAX_ITEMS + 1]}).into()),
            RpcAnswer::Result(json!({"tools": [{"name": "x".repeat(MAX_BYTES)}]}).into()),
            RpcAnswer::Error { code: -32603, message: "broken".into(), data: None },
        ] {
            assert!(listing().take(answer, any).is_err());
        }
        // A method that disappears during a listing is not an empty list.
        let mut gone = listing();
        gone.take(page(1), any).unwrap();
        let unknown = RpcAnswer::Error { code: METHOD_NOT_FOUND, message: String::new(), data: None };
        assert!(gone.take(unknown, any).is_err());
    }

    #[test]
    fn a_list_ends_with_a_cursor_that_is_empty_null_or_the_one_before() {
        for (next, pages) in [(json!(""), 1), (json!(null), 1), (json!("again"), 2)] {
            let mut listing = listing();
            let mut asked = 0;
            while listing.next().is_some_and(|(method, _)| method == "tools/list") {
                let answer = RpcAnswer::Result(json!({"tools": [{}], "nextCursor": next}).into());
                listing.take(answer, NamedLists::default()).unwrap();
                asked += 1;
            }
            assert_eq!(asked, pages, "{next}");
        }
    }

    #[test]
    fn a_list_that_a_server_does_not_say_it_has_is_refused_in_any_words() {
        let named = |capabilities: Value| NamedLists::of(&json!({"capabilities": capabilities}).into());
        let refused = || RpcAnswer::Error { code: -32603, message: "Method not found".into(), data: None };
        let tools = named(json!({"tools": {}, "prompts": null}));
        let mut listing = listing();
        assert!(Listing::of(ListResourcesRequest::default()).take(refused(), tools).is_err(), "it has tools");
        listing.take(RpcAnswer::Result(json!({"tools": [{"name": "a"}]}).into()), tools).unwrap();
        while listing.next().is_some() {
            listing.take(refused(), tools).unwrap();
        }
        let silent = named(json!({}));
        let mut all = Listing::of(ListResourcesRequest::default());
        all.take(RpcAnswer::Result(json!({"tools": []}).into()), silent).unwrap();
        assert!(all.take(refused(), silent).is_err(), "it names no list that it has");
    }

    #[test]
    fn a_server_tells_of_changes_where_it_does_of_each_list_that_it_has() {
        for (capabilities, tells) in [
            (json!({}), true),
            (json!({"tools": {"listChanged": true}, "prompts": null}), true),
            (json!({"tools": {"listChanged": true}, "resources": {}}), false),
            (json!({"tools": {"listChanged": false}}), false),
        ] {
            let named = NamedLists::of(&json!({"capabilities": capabilities}).into());
            assert_eq!(named.notify_of_changes, tells, "{capabilities}");
        }
    }
}
