//! MCP Apps: what a tool says of its user interface, and the page itself, reach clients as they were written.

use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, snapshot, token};

const PAGE: &str = "ui://clock/view.html";

/// Returns the tool, the resource and its content as a client of `revision` sees them.
async fn seen(fixture: &Fixture, revision: &str) -> [Value; 3] {
    let rows = [
        ("tools/list", json!({}), "/result/tools/0"),
        ("resources/list", json!({}), "/result/resources/0"),
        ("resources/read", json!({"uri": PAGE}), "/result/contents/0"),
    ];
    let mut found = Vec::new();
    for (method, params, place) in rows {
        let answer = if revision == "2026-07-28" {
            Modern::new("apps", &token("alice"), method, params).send(fixture).await
        } else {
            let client = Legacy::connect(fixture, "apps", "alice", revision, json!({})).await;
            client.request(2, method, params).await
        };
        found.push(answer.json().pointer(place).cloned().unwrap_or_else(|| panic!("{}", answer.text)));
    }
    found.try_into().unwrap()
}

#[tokio::test]
async fn a_user_interface_is_listed_and_read_as_it_was_written() {
    let fixture = Fixture::of(snapshot());
    for revision in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        let [tool, resource, content] = seen(&fixture, revision).await;
        assert_eq!(tool["_meta"], json!({"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE}), "{revision}");
        assert_eq!(resource["uri"], PAGE);
        assert_eq!(resource["mimeType"], "text/html;profile=mcp-app");
        assert_eq!(resource["_meta"], json!({"ui": {"prefersBorder": true}}));
        let csp = json!({"ui": {"csp": {"connectDomains": ["https://time.example.com"]}}});
        assert_eq!(
            content,
            json!({"uri": PAGE, "mimeType": "text/html;profile=mcp-app", "text": "<p>12:00</p>", "_meta": csp})
        );
    }
    // Neither a definition of that revision nor a content has such a member.
    for seen in seen(&fixture, "2025-03-26").await {
        assert_eq!(seen.get("_meta"), None, "{seen}");
    }
}
