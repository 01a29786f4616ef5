//! Destructive calls ask a human first, in both eras (ADR 1).

use std::time::Duration;

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Binding, Builtin, Protocol, Runtime, TargetKind};
use asp_registry::assemble;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, inputs, token};

fn wipe(extra: Value) -> Modern {
    let mut params = json!({"name": "policy.wipe", "arguments": {"message": "gone"}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    Modern::new("policy", &token("alice"), "tools/call", params).capabilities(json!({"elicitation": {}}))
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_refused() {
    let answer = wipe(json!({})).capabilities(json!({})).send(&Fixture::new()).await.json();
    assert_eq!(answer["result"]["isError"], true);
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("approval"));
}

#[tokio::test]
async fn an_explicit_allow_needs_no_approval() {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "alice".into(),
        primitive: "policy.wipe".into(),
        protocol: Protocol::Mcp.into(),
        allowed: true,
        ..Binding::default()
    });
    let answer = wipe(json!({})).capabilities(json!({})).send(&Fixture::of(assemble(inputs))).await.json();
    assert_eq!(answer["result"]["structuredContent"], json!({"message": "gone"}));
}

#[tokio::test]
async fn the_modern_client_is_asked_and_asks_again_with_the_answer() {
    for (content, approved) in [
        (json!({"action": "accept", "content": {"approve": true}}), true),
        (json!({"action": "accept", "content": {"approve": false}}), false),
        (json!({"action": "decline"}), false),
        (json!({"action": "cancel"}), false),
    ] {
        let fixture = Fixture::new();
        let asked = wipe(json!({})).send(&fixture).await.json()["result"].clone();
        assert_eq!(asked["resultType"], "input_required");
        let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["method"], "elicitation/create");
        assert_eq!(request["params"]["requestedSchema"]["properties"]["approve"]["type"], "boolean");
        let state = &asked["requestState"];
        let retry = wipe(json!({"requestState": state, "inputResponses": {key: content}}));
        let result = retry.send(&fixture).await.json()["result"].clone();
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(result["isError"], !approved, "{result}");
    }
}

#[tokio::test]
async fn a_retry_without_the_answer_is_asked_again_and_a_foreign_or_altered_state_is_refused() {
    let fixture = Fixture::new();
    let asked = wipe(json!({})).send(&fixture).await.json()["result"].clone();
    let state = asked["requestState"].as_str().unwrap();
    let again = wipe(json!({"requestState": state, "inputResponses": {"other": {"action": "decline"}}}));
    let again = again.send(&fixture).await.json()["result"].clone();
    assert_eq!(again["resultType"], "input_required");
    let accept = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let altered = wipe(json!({"requestState": format!("{state}-TAMPERED"), "inputResponses": accept}));
    assert_eq!(altered.send(&fixture).await.json()["error"]["code"], -32602);
    let bob = token("bob");
    let params = json!({"name": "policy.wipe", "arguments": {"message": "gone"}, "requestState": state, "inputResponses": accept});
    let foreign = Modern::new("policy", &bob, "tools/call", params).capabilities(json!({"elicitation": {}}));
    assert_eq!(foreign.send(&fixture).await.json()["error"]["code"], -32602);
    let other_arguments = json!({"name": "policy.wipe", "arguments": {"message": "more"}, "requestState": state, "inputResponses": accept});
    let other = Modern::new("policy", &token("alice"), "tools/call", other_arguments)
        .capabilities(json!({"elicitation": {}}));
    assert_eq!(other.send(&fixture).await.json()["error"]["code"], -32602);
    let right = wipe(json!({"requestState": again["requestState"], "inputResponses": accept}));
    assert_eq!(right.send(&fixture).await.json()["result"]["isError"], false);
}

/// A call of `policy.wipe`, which may run for a second, approved after five.
async fn approved_late(entrypoint: &str, arguments: Value) -> String {
    let mut snapshot = assemble(inputs());
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "policy.wipe") {
        primitive.max_runtime_seconds = 1;
        primitive.input_timeout_seconds = 60;
        let mode = Mode::Builtin(Builtin { entrypoint: entrypoint.into() });
        primitive.runtime = Some(Runtime { mode: Some(mode) });
    }
    let fixture = Fixture::of(snapshot);
    let client = Legacy::connect(&fixture, "policy", "alice", "2025-06-18", json!({"elicitation": {}})).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                      "params": {"name": "policy.wipe", "arguments": arguments}});
    let mut body = client.open(&call).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    let asked: Value =
        serde_json::from_str(text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"approve": true}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    let rest = body.collect().await.unwrap().to_bytes();
    String::from_utf8(rest.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_time_for_an_approval_is_not_the_calls_own() {
    let said = approved_late("echo", json!({"message": "gone"})).await;
    assert!(said.contains(r#""message":"gone""#), "{said}");
    let said = approved_late("count", json!({"message": "", "to": 100, "delayMs": 100})).await;
    assert!(said.contains("outcome_unknown"), "a second is a second all the same: {said}");
}

#[tokio::test]
async fn the_legacy_client_is_asked_on_its_stream_and_answers_by_post() {
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "policy", "alice", "2025-06-18", json!({"elicitation": {}})).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                      "params": {"name": "policy.wipe", "arguments": {"message": "gone"}}});
    let mut body = client.open(&call).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    let asked: Value =
        serde_json::from_str(text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"approve": true}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains(r#""message":"gone""#));
}

#[tokio::test]
async fn a_session_before_2025_06_18_is_never_asked_whatever_its_client_declares() {
    let fixture = Fixture::new();
    for (revision, kind) in [("2025-03-26", "application/json"), ("2025-06-18", "text/event-stream")] {
        let client = Legacy::connect(&fixture, "policy", "alice", revision, json!({"elicitation": {}})).await;
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                          "params": {"name": "policy.wipe", "arguments": {"message": "gone"}}});
        let answer = client.open(&call).await;
        assert_eq!(answer.headers()["content-type"], kind, "{revision}");
    }
}
