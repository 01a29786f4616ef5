//! Forms of an upstream: shown in words that clients know, and answered with what the user decided.

use super::asking::{call, connect, fixture, next, upstream};
use super::*;

/// The form that a client is shown, and what the upstream is told when the client answers so.
async fn told(schema: Value, answer: Value) -> (Value, Value) {
    let (address, _) = upstream(move |mut talk| {
        let params = json!({"message": "Who?", "requestedSchema": schema});
        Box::pin(async move {
            talk.ask("f", "elicitation/create", params);
            let mut told = talk.told("f").await;
            told.as_object_mut().unwrap().remove("id");
            talk.done(&told);
        })
    })
    .await;
    let client = connect(&fixture(address), json!({"elicitation": {}})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let asked = next(&mut body).await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let mut answer = answer;
    answer["jsonrpc"] = "2.0".into();
    answer["id"] = asked["id"].clone();
    assert_eq!(client.post(&answer).await.status, StatusCode::ACCEPTED);
    let result = next(&mut body).await;
    let told = result["result"]["structuredContent"]["told"].clone();
    (asked["params"]["requestedSchema"].clone(), told)
}

#[tokio::test]
async fn an_accept_reaches_an_upstream_as_one_whatever_was_filled_in() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "maxLength": 3}, "b": {"type": "string"}, "n": {"type": "integer"}}});
    for (content, expected) in [
        (json!({"a": "x", "b": null}), json!({"a": "x"})),
        (json!({"a": "x", "n": "7"}), json!({"a": "x", "n": "7"})),
        (json!({"a": "x", "b": ""}), json!({"a": "x", "b": ""})),
        (json!({"a": "too long"}), json!({"a": "too long"})),
        (json!({"a": "x", "unasked": 1}), json!({"a": "x", "unasked": 1})),
        (json!({"a": null}), json!({"a": null})),
        (json!({}), json!({})),
    ] {
        let answer = json!({"result": {"action": "accept", "content": content}});
        let (_, told) = told(schema.clone(), answer).await;
        assert_eq!(told["result"], json!({"action": "accept", "content": expected}), "{content}: {told}");
    }
}

#[tokio::test]
async fn an_upstream_is_told_no_decision_that_no_user_made() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    for answer in [
        json!({"error": {"code": -32603, "message": "the window is gone"}}),
        json!({"result": {"action": "perhaps"}}),
        json!({"result": {}}),
    ] {
        let (_, told) = told(schema.clone(), answer.clone()).await;
        assert!(told.get("result").is_none() && told["error"]["code"].is_i64(), "{answer}: {told}");
    }
    for action in ["decline", "cancel"] {
        let (_, told) = told(schema.clone(), json!({"result": {"action": action}})).await;
        assert_eq!(told["result"], json!({"action": action}));
    }
}

#[tokio::test]
async fn a_form_with_optional_fields_is_shown_in_plain_types() {
    let note = json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Note"});
    let (shown, told) = told(
        json!({"title": "Form", "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "note": note}}),
        json!({"result": {"action": "accept", "content": {"name": "Ada"}}}),
    )
    .await;
    assert_eq!(shown["properties"]["note"], json!({"title": "Note", "type": "string"}));
    assert_eq!(shown["title"], "Form");
    assert_eq!(told["result"], json!({"action": "accept", "content": {"name": "Ada"}}));
}

#[tokio::test]
async fn a_form_without_fields_asks_for_a_yes() {
    let (shown, told) = told(json!({}), json!({"result": {"action": "accept"}})).await;
    assert_eq!(shown, json!({"type": "object", "properties": {}}));
    assert_eq!(told["result"], json!({"action": "accept", "content": {}}));
}
