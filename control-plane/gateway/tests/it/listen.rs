//! `subscriptions/listen` of MCP 2026-07-28.

use asp_pipeline::subscriptions::subscriber::MAX_RESOURCES;
use asp_proto::snapshot::RevokedBefore;
use asp_registry::assemble;
use http::StatusCode;
use serde_json::{Value, json};

use crate::subscriptions::{BOUND, PROMPTS, RESOURCES, Stream, TOOLS, UPDATED, at, deny, rewrite};
use crate::support::{Fixture, Modern, inputs, now, token};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn request(user: &str, filter: Value) -> Modern {
    Modern::new("demo", &token(user), "subscriptions/listen", json!({"notifications": filter}))
}

/// An open stream, and what it said that it tells of.
async fn listen(fixture: &Fixture, request: &Modern) -> (Stream, Value) {
    let response = request.open(fixture).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut stream = Stream::of(response.into_body());
    let first = stream.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["_meta"][ID], request.body["id"]);
    (stream, first["params"]["notifications"].clone())
}

#[tokio::test]
async fn a_stream_says_first_what_it_tells_of_and_tells_of_nothing_else() {
    let mut hidden = inputs();
    deny(&mut hidden, "about", &["bob"]);
    let fixture = Fixture::of(assemble(hidden));
    let uris = json!(["demo://items/1", "demo://about", "demo://nope", "asp-artifact://x/y"]);
    let filter = json!({"promptsListChanged": true, "toolsListChanged": false,
                        "resourceSubscriptions": uris});
    let (mut bobs, told) = listen(&fixture, &request("bob", filter.clone())).await;
    assert_eq!(told, json!({"promptsListChanged": true, "resourceSubscriptions": ["demo://items/1"]}));
    let (mut alices, told) = listen(&fixture, &request("alice", filter)).await;
    assert_eq!(told["resourceSubscriptions"], json!(["demo://items/1", "demo://about"]));
    let change = |i: &mut asp_registry::Inputs| {
        rewrite(i);
        deny(i, "about", &["bob"]);
        deny(i, "clock", &["alice", "bob"]);
        deny(i, "item", &["alice", "bob"]);
    };
    fixture.gateway.apply(at(2, change)).unwrap();
    let updated = alices.next().await.unwrap();
    assert_eq!(
        updated,
        json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "demo://about", "_meta": {ID: 7}}})
    );
    fixture
        .gateway
        .apply(at(3, |i| {
            change(i);
            deny(i, "greeting", &["alice", "bob"]);
        }))
        .unwrap();
    for stream in [&mut alices, &mut bobs] {
        let next = stream.next().await.unwrap();
        assert_eq!(next, json!({"jsonrpc": "2.0", "method": PROMPTS, "params": {"_meta": {ID: 7}}}));
    }
}

#[tokio::test]
async fn the_subscription_is_named_as_the_request_was_and_the_stream_ends_with_a_result() {
    let fixture = Fixture::new();
    for id in [json!("listen-1"), json!(1), json!("1")] {
        let mut request = request("alice", json!({"toolsListChanged": true, "resourcesListChanged": true}));
        request.body["id"] = id.clone();
        let (mut stream, _) = listen(&fixture, &request).await;
        fixture.gateway.apply(at(1, |i| deny(i, "clock", &["alice"]))).unwrap();
        assert_eq!(stream.next().await.unwrap()["params"]["_meta"][ID], id);
        fixture.gateway.apply(at(1, |_| {})).unwrap();
        assert_eq!(stream.method().await, TOOLS);
        fixture.gateway.subscriptions.sweep();
        assert_eq!(fixture.gateway.subscriptions.len(), 1);
        drop(stream);
        assert!(fixture.gateway.subscriptions.is_empty(), "closing it is enough");
    }
    let (mut stream, _) = listen(&fixture, &request("alice", json!({"resourcesListChanged": true}))).await;
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now(),
        ..Default::default()
    };
    fixture.gateway.apply(at(2, |i| i.revoked_before = vec![revoked])).unwrap();
    let last = stream.next().await.unwrap();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(7), &json!("complete")));
    assert_eq!(last["result"]["_meta"][ID], 7);
    assert_eq!(stream.next().await, None);
    let (mut stream, _) = listen(&fixture, &request("bob", json!({"resourcesListChanged": true}))).await;
    fixture.gateway.apply(at(3, |i| deny(i, "item", &["bob"]))).unwrap();
    assert_eq!(stream.method().await, RESOURCES);
    fixture.gateway.subscriptions.end_all();
    assert_eq!(stream.next().await.unwrap()["result"]["resultType"], "complete", "the gateway leaves");
    assert_eq!(stream.next().await, None);
    let late = request("bob", json!({})).send(&fixture).await;
    assert_eq!((late.status, late.reason().as_str()), (StatusCode::TOO_MANY_REQUESTS, "rate_limited"));
}

#[tokio::test]
async fn a_filter_of_another_form_is_refused() {
    let fixture = Fixture::new();
    let many: Vec<String> = (0..=MAX_RESOURCES).map(|number| format!("demo://items/{number}")).collect();
    let long: Vec<String> =
        (0..60).map(|number| format!("demo://items/{number}{}", "x".repeat(1000))).collect();
    let rows = [
        (json!(null), "invalid_params"),
        (json!([]), "invalid_params"),
        (json!({"toolsListChanged": "yes"}), "invalid_params"),
        (json!({"resourceSubscriptions": "demo://about"}), "invalid_params"),
        (json!({"resourceSubscriptions": [1]}), "invalid_params"),
        (json!({"resourceSubscriptions": many}), "rate_limited"),
        (json!({"resourceSubscriptions": long}), "rate_limited"),
        (json!({"taskIds": "t"}), "invalid_params"),
        // The request declares no tasks.
        (json!({"taskIds": ["t"]}), "missing_capability"),
    ];
    for (filter, reason) in rows {
        let request = request("alice", filter.clone());
        let answer = tokio::time::timeout(BOUND, request.send(&fixture)).await.expect("no stream");
        assert_eq!(answer.reason(), reason, "{}", answer.text);
    }
    assert!(fixture.gateway.subscriptions.is_empty());
    let discovered = Modern::new("demo", &token("alice"), "server/discover", json!({})).send(&fixture).await;
    let capabilities = &discovered.json()["result"]["capabilities"];
    assert_eq!(capabilities["resources"], json!({"listChanged": true, "subscribe": true}));
    assert_eq!(capabilities["prompts"], json!({"listChanged": true}));
}
