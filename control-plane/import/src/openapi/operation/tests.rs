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

/// PagerDuty describes its versions this way.
#[test]
fn an_accept_header_with_one_value_is_sent() {
    let version = "application/vnd.acme+json;version=2";
    for (schema, expected) in [
        (json!({"type": "string", "default": version}), Some(version)),
        (json!({"type": "string", "enum": [version]}), Some(version)),
        (json!({"const": version}), Some(version)),
        (json!({"type": "string", "enum": [version, "application/json"]}), None),
        (json!({"type": "string", "default": "application/json"}), None),
        (json!({"type": "string", "default": "{body}/x"}), None),
        (json!({"type": "string"}), None),
    ] {
        let accept = json!({"name": "Accept", "in": "header", "required": true, "schema": schema});
        let tool = only(json!({"parameters": [id(), accept]})).unwrap();
        assert_eq!(tool.headers.get("accept").and_then(Value::as_str), expected, "{schema}");
        assert_eq!(tool.notes.iter().any(|note| note.contains("Accept")), expected.is_none(), "{schema}");
    }
}
