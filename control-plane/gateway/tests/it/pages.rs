//! Lists that are longer than a page: a client that follows `nextCursor` gets each entry once, in list order.

use asp_proto::snapshot::Listing;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, snapshot, token};

/// Number of entries of each kind; the third page has one.
const ENTRIES: usize = 1001;
const PAGE: usize = 500;

/// Method, member, what names an entry, and the primitive of `demo` that the entries are.
const LISTS: [(&str, &str, &str, &str); 4] = [
    ("tools/list", "tools", "name", "echo"),
    ("prompts/list", "prompts", "name", "greeting"),
    ("resources/list", "resources", "uri", "about"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", "item"),
];

/// The exposed name of an entry.
fn name(primitive: &str, number: usize) -> String {
    match primitive {
        "about" => format!("demo://about/{number}"),
        "item" => format!("demo://items/{number}/{{id}}"),
        _ => format!("{primitive}-{number}"),
    }
}

/// `demo`, which lists its primitives very often.
fn fixture() -> Fixture {
    let mut snapshot = snapshot();
    let demo = snapshot.servers.iter_mut().find(|server| server.name == "demo").unwrap();
    let own = std::mem::take(&mut demo.listings);
    // The kinds take turns, so that a page of one is not a run of the server's list.
    for number in 0..ENTRIES {
        demo.listings.extend(
            own.iter()
                .filter(|listing| LISTS.iter().any(|list| list.3 == listing.id))
                .map(|listing| Listing { mcp_name: name(&listing.id, number), ..listing.clone() }),
        );
    }
    Fixture::of(snapshot)
}

/// A page's names, and where the next one begins.
fn page(result: &Value, member: &str, key: &str) -> (Vec<String>, Option<Value>) {
    let entries = result[member].as_array().unwrap_or_else(|| panic!("{member}: {result}"));
    let names = entries.iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect();
    (names, result.get("nextCursor").cloned())
}

#[tokio::test]
async fn the_pages_of_every_list_join_in_both_eras() {
    let fixture = fixture();
    let legacy = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    for is_modern in [false, true] {
        for (method, member, key, primitive) in LISTS {
            let mut joined = Vec::new();
            let mut sizes = Vec::new();
            let mut params = json!({});
            loop {
                let answer = match is_modern {
                    true => Modern::new("demo", &token("alice"), method, params).send(&fixture).await,
                    false => legacy.request(2, method, params).await,
                };
                let (names, next) = page(&answer.json()["result"], member, key);
                sizes.push(names.len());
                joined.extend(names);
                let Some(cursor) = next else { break };
                params = json!({"cursor": cursor});
            }
            assert_eq!(sizes, [PAGE, PAGE, 1], "{method}");
            let expected: Vec<String> = (0..ENTRIES).map(|number| name(primitive, number)).collect();
            assert_eq!(joined, expected, "{method}");
        }
    }
}

#[tokio::test]
async fn a_cursor_is_of_one_list_and_one_caller() {
    let fixture = fixture();
    let list = |user: &str, method: &str, params: Value| {
        let request = Modern::new("demo", &token(user), method, params);
        let fixture = fixture.clone();
        async move { request.send(&fixture).await }
    };
    let first = list("alice", "tools/list", json!({})).await.json();
    let cursor = json!({"cursor": first["result"]["nextCursor"]});
    assert_eq!(list("alice", "tools/list", cursor.clone()).await.status, StatusCode::OK);
    for (user, method, params) in [
        ("alice", "prompts/list", cursor.clone()),
        ("bob", "tools/list", cursor),
        ("alice", "tools/list", json!({"cursor": "AAAA"})),
        ("alice", "tools/list", json!({"cursor": 500})),
    ] {
        let answer = list(user, method, params).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{user} {method}: {}", answer.text);
    }
}
