//! I-10: list and call agree; hidden and unknown are the same; a missing scope is a challenge.

use asp_proto::snapshot::{Binding, ExposureException, Protocol, TargetKind};
use asp_registry::assemble;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, inputs, token, token_with_scopes};

fn names(list: &Value) -> Vec<String> {
    list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_a_binding_denies_is_neither_listed_nor_known() {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "clock".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let fixture = Fixture::of(assemble(inputs));
    for (user, sees) in [("alice", true), ("bob", false)] {
        let client = Legacy::connect(&fixture, "demo", user, "2025-11-25", json!({})).await;
        let listed = names(&client.request(2, "tools/list", json!({})).await.json());
        assert_eq!(listed.contains(&"clock".to_owned()), sees, "{user}");
        let called = client.request(3, "tools/call", json!({"name": "clock"})).await.json();
        assert_eq!(called.get("result").is_some(), sees, "{user}");
        if !sees {
            let unknown = client.request(3, "tools/call", json!({"name": "clocc"})).await.text;
            assert_eq!(
                called.to_string(),
                serde_json::from_str::<Value>(&unknown.replace("clocc", "clock")).unwrap().to_string()
            );
        }
    }
}

#[tokio::test]
async fn a_server_switched_off_for_an_org_is_unknown_to_it() {
    let mut inputs = inputs();
    inputs.exposure.push(ExposureException {
        org: "acme".into(),
        server: "demo".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    });
    let fixture = Fixture::of(assemble(inputs));
    let answer = Modern::new("demo", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::NOT_FOUND, "unknown_server"));
    let nobody = Modern::new("nope", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!(answer.text, nobody.text);
}

#[tokio::test]
async fn a_missing_scope_is_listed_and_answered_with_a_challenge() {
    let fixture = Fixture::new();
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({})).send(&fixture).await.json();
    assert!(names(&list).contains(&"policy.scoped".to_owned()));
    let call = |token: &str| Modern::new("policy", token, "tools/call", json!({"name": "policy.scoped"}));
    let answer = call(&token_with_scopes("alice", "x:read")).send(&fixture).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::FORBIDDEN, "insufficient_scope"));
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert_eq!(
        challenge,
        "Bearer error=\"insufficient_scope\", scope=\"x:read x:write\", \
         resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/policy/mcp\""
    );
    let answer = call(&token_with_scopes("alice", "x:read x:write other")).send(&fixture).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["result"]["isError"], false);
}
