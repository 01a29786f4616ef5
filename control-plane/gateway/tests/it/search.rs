//! A tool that finds tools by words: it finds what its caller's own list shows.

use asp_proto::snapshot::Protocol;
use asp_registry::{Inputs, assemble};
use serde_json::{Value, json};

use crate::support::{Fixture, Modern, denied_to_alice, inputs, token};

async fn found(fixture: &Fixture, user: &str, arguments: Value) -> (Vec<String>, Value) {
    let params = json!({"name": "find", "arguments": arguments});
    let answer = Modern::new("shop", &token(user), "tools/call", params).send(fixture).await.json();
    let found = answer["result"]["structuredContent"].clone();
    let tools = found["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    (tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect(), found)
}

#[tokio::test]
async fn the_best_tools_are_found_with_their_schemas() {
    let fixture = Fixture::new();
    let (names, answer) = found(&fixture, "alice", json!({"query": "create invoices"})).await;
    assert_eq!(names, ["create_invoice", "list_invoices"], "and not the tool itself");
    assert_eq!(answer["tools"][0]["inputSchema"]["properties"]["delayMs"]["type"], "integer", "{answer}");
    assert_eq!(answer["more"], 0);
    let (names, answer) = found(&fixture, "alice", json!({"query": "invoice", "limit": 1})).await;
    assert_eq!((names.len(), &answer["more"]), (1, &json!(1)));
    let (as_float, _) = found(&fixture, "alice", json!({"query": "invoice", "limit": 1.0})).await;
    assert_eq!(as_float, names, "1.0 is an integer (JSON Schema 2020-12, section 4.2.3)");
    let (names, _) = found(&fixture, "alice", json!({"query": "delay", "tokenBudget": 1})).await;
    assert!(names.is_empty());
    let budget = json!({"query": "delay message", "tokenBudget": 60, "limit": 50});
    let (names, answer) = found(&fixture, "alice", budget).await;
    assert!(!names.is_empty() && answer.to_string().len() <= 60 * 4, "{answer}");
}

/// I-10
#[tokio::test]
async fn what_is_hidden_is_not_found_and_changes_nothing() {
    let deny = |primitive: &str| denied_to_alice(primitive, Protocol::Mcp);
    let fixture = Fixture::of(assemble(Inputs { bindings: vec![deny("create_invoice")], ..inputs() }));
    let (names, answer) = found(&fixture, "alice", json!({"query": "create invoices"})).await;
    assert_eq!((names, &answer["more"]), (vec!["list_invoices".to_owned()], &json!(0)), "{answer}");
    let (names, _) = found(&fixture, "bob", json!({"query": "create invoices"})).await;
    assert_eq!(names, ["create_invoice", "list_invoices"]);
}

#[tokio::test]
async fn over_rest_tools_have_their_names_there() {
    let fixture = Fixture::new();
    let call = crate::rest::Rest::at(&fixture, "/shop/rest/tools/find/calls/1");
    let answer = call.put(&json!({"query": "mail"})).await.json();
    assert_eq!(answer["result"]["structuredContent"]["tools"][0]["name"], "send_mail", "{answer}");
}
