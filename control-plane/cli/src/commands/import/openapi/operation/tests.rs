//! Operations of documents, and the requests that they become.

use serde_json::{Value, json};

use super::super::tests::{id, only};

/// ASP.NET and Kubernetes list the types in this order.
#[test]
fn a_body_is_a_list_of_changes_only_if_nothing_else_is_taken() {
    for (kinds, expected) in [
        (&["application/json-patch+json", "application/json", "text/json"][..], None),
        (
            &["application/json-patch+json", "application/merge-patch+json"],
            Some("application/merge-patch+json"),
        ),
        (&["application/json-patch+json"], Some("application/json-patch+json")),
        (&["application/vnd.api+json", "application/json"], Some("application/vnd.api+json")),
    ] {
        let content: serde_json::Map<String, Value> =
            kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "object"}}))).collect();
        let tool = only(json!({"parameters": [id()], "requestBody": {"content": content}})).unwrap();
        assert_eq!(tool.headers.get("content-type").and_then(Value::as_str), expected, "{kinds:?}");
    }
}

#[test]
fn an_operation_without_an_id_for_clients_is_named_by_its_request() {
    for (named, expected) in [
        (json!("listThings"), "listThings"),
        (json!(""), "post-/things/id"),
        (json!("获取用户"), "post-/things/id"),
        (json!(null), "post-/things/id"),
    ] {
        let tool = only(json!({"operationId": named, "parameters": [id()]})).unwrap();
        assert_eq!(tool.name, expected);
    }
}
