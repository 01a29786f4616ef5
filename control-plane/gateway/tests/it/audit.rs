//! Every call has a start and a finish event, on every exit, without its arguments (ADR 1).

use std::sync::{Arc, Mutex};

use asp_call::call::Call;
use asp_call::call::outcome::Outcome;
use serde_json::{Value, json};

use crate::support::{Fixture, Modern, token};

async fn events(fixture: &Fixture) -> Vec<Value> {
    fixture.gateway.flush().await;
    fixture.audit.events().iter().map(|event| serde_json::from_str(&event.event).unwrap()).collect()
}

#[tokio::test]
async fn every_exit_leaves_a_start_and_a_finish_with_its_reason() {
    let rows = [
        ("demo", json!({"name": "echo", "arguments": {"message": "s3cret"}}), "completed", "ok"),
        ("demo", json!({"name": "echo", "arguments": {"message": 7}}), "rejected", "invalid_params"),
        ("policy", json!({"name": "policy.scoped"}), "rejected", "insufficient_scope"),
        ("policy", json!({"name": "policy.wipe"}), "rejected", "insufficient_scope"),
    ];
    for (server, params, outcome, reason) in rows {
        let fixture = Fixture::new();
        Modern::new(server, &token("alice"), "tools/call", params.clone()).send(&fixture).await;
        let events = events(&fixture).await;
        assert_eq!(events.len(), 2, "{params}");
        assert_eq!(events[0]["event"], "call.start");
        assert_eq!(events[1]["event"], "call.finish");
        assert_eq!(
            (&events[1]["outcome"], &events[1]["reason"]),
            (&json!(outcome), &json!(reason)),
            "{params}"
        );
        for event in &events {
            assert_eq!(event["call"], events[0]["call"]);
            assert_eq!(event["user"], "alice");
            assert_eq!(event["wcit"], "t-alice");
            assert_eq!(event["server"], server);
            assert_eq!(event["protocol"], "mcp");
            assert_eq!(event["request"], "7");
            assert!(event["primitive"].as_str().unwrap().ends_with("@1.0.0"));
            assert!(!event.to_string().contains("s3cret"));
        }
        assert!(events[1]["latencyUs"].is_u64());
    }
}

#[tokio::test]
async fn a_call_that_waits_for_an_answer_ends_with_the_gateway_and_is_recorded() {
    let fixture = Fixture::new();
    let asking = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.wipe"}));
    let answer = asking.capabilities(json!({"elicitation": {"form": {}}})).send(&fixture).await.json();
    assert_eq!(answer["result"]["resultType"], "input_required");
    fixture.gateway.stop().await;
    let events = events(&fixture).await;
    assert_eq!(events.len(), 2);
    assert_eq!(
        (&events[1]["event"], &events[1]["outcome"], &events[1]["reason"]),
        (&json!("call.finish"), &json!("failed"), &json!("upstream_unavailable")),
        "nobody cancelled it"
    );
}

#[tokio::test]
async fn a_listener_gets_the_end_of_every_call() {
    let fixture = Fixture::new();
    let ends: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&ends);
    fixture.gateway.pipeline.listen_to_ends(Arc::new(move |call: &Call, outcome: &Outcome| {
        let end = format!("{} {} {}", call.caller.user, call.entry.primitive.id, outcome.state().as_str());
        seen.lock().unwrap().push(end);
    }));
    for message in [json!("hello"), json!(7)] {
        let params = json!({"name": "echo", "arguments": {"message": message}});
        Modern::new("demo", &token("alice"), "tools/call", params).send(&fixture).await;
    }
    assert_eq!(*ends.lock().unwrap(), ["alice echo completed", "alice echo rejected"]);
}
