//! Abilities of clients: roots and the other questions, and calls of clients that lack them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::plugin::{DelegationRequested, client_message, server_message::Payload};
use asp_proto::snapshot::{GatewaySnapshot, Primitive};
use serde_json::{Map, Value, json};

use super::{asks_model, asks_name, last_result, modern, next_request, with_token};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Legacy, snapshot};

fn asks_roots(request_id: &str) -> Payload {
    Payload::Delegation(DelegationRequested {
        request_id: request_id.into(),
        correlation_id: "d-2".into(),
        delegate_id: "plugins.roots".into(),
        ..DelegationRequested::default()
    })
}

/// The result of a delegation, or why there is none.
async fn told(worker: &mut Worker) -> Result<Value, String> {
    match worker.next().await {
        Some(client_message::Payload::DelegationResult(result)) => match result.error.is_empty() {
            true => Ok(serde_json::from_slice(&result.result.unwrap().value).unwrap()),
            false => Err(result.error),
        },
        other => panic!("no result of a delegation: {other:?}"),
    }
}

/// A snapshot where `sweep` may ask for roots, changed.
fn with_roots(change: impl Fn(&mut Primitive)) -> GatewaySnapshot {
    let mut snapshot = snapshot();
    for primitive in &mut snapshot.primitives {
        if primitive.id == "sweep" {
            primitive.delegations.push("plugins.roots".into());
        }
        change(primitive);
    }
    snapshot
}

fn fixture(runtime: &Runtime) -> Fixture {
    Fixture::with(with_roots(|_| {}), 7, runtime.runtimes())
}

/// A tool that asks for roots and says what it was told.
fn runtime_with_roots() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_roots(&invoke.request_id)).await;
        let expected = json!({"roots": [{"uri": "file:///src", "name": "Sources"}]});
        let ok = told(&mut worker).await.is_ok_and(|told| told["json"] == expected);
        worker.complete(&invoke, &json!({"ok": ok})).await;
    }))
}

fn roots() -> Value {
    json!({"roots": [{"uri": "file:///src", "name": "Sources"}]})
}

#[tokio::test]
async fn a_modern_client_is_asked_for_its_roots_by_the_result() {
    let runtime = runtime_with_roots();
    let fixture = fixture(&runtime);
    let can = json!({"roots": {}});
    let asked = last_result(&modern("sweep", json!({})).capabilities(can.clone()).send(&fixture).await);
    assert_eq!(asked["inputRequests"], json!({"plugins.roots": {"method": "roots/list", "params": {}}}));
    let extra = json!({"requestState": asked["requestState"], "inputResponses": {"plugins.roots": roots()}});
    let result = last_result(&modern("sweep", extra).capabilities(can).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn a_legacy_client_is_asked_for_its_roots_on_its_stream() {
    let runtime = runtime_with_roots();
    let can = json!({"roots": {"listChanged": true}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-06-18", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots()});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    assert_eq!(next_request(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn nobody_is_asked_in_a_batch_because_nothing_travels_there_but_the_answers() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_roots(&invoke.request_id)).await;
        let ok = told(&mut worker).await == Err("unsupported".into());
        worker.complete(&invoke, &json!({"ok": ok})).await;
    }));
    let can = json!({"roots": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-03-26", can).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let answer = client.post(&json!([call])).await.json();
    assert_eq!(answer[0]["result"]["content"][0]["text"], r#"{"ok":true}"#, "{answer}");
}

#[tokio::test]
async fn a_plugin_is_told_at_once_that_a_client_has_no_roots() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_roots(&invoke.request_id)).await;
        assert_eq!(told(&mut worker).await, Err("unsupported".into()));
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let request = modern("sweep", json!({})).capabilities(json!({"sampling": {}, "elicitation": {}}));
    let result = last_result(&request.send(&fixture(&runtime)).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn what_is_asked_together_is_one_result() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        worker.say(asks_model(&invoke.request_id)).await;
        worker.say(asks_roots(&invoke.request_id)).await;
        for _ in 0..3 {
            assert!(worker.next().await.is_some());
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let can = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    let asked = with_token(modern("sweep", json!({})).capabilities(can.clone())).send(&fixture).await;
    let asked = last_result(&asked);
    let requests = asked["inputRequests"].as_object().unwrap();
    let answers: Map<String, Value> = requests
        .iter()
        .map(|(key, request)| {
            let answer = match request["method"].as_str().unwrap() {
                "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
                "sampling/createMessage" => {
                    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "{}"}})
                }
                _ => roots(),
            };
            (key.clone(), answer)
        })
        .collect();
    assert_eq!(answers.len(), 3, "{asked}");
    let extra = json!({"requestState": asked["requestState"], "inputResponses": answers});
    let result = last_result(&with_token(modern("sweep", extra).capabilities(can)).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

/// The snapshot where nobody but the client answers for the delegates of `sweep`.
fn client_only() -> GatewaySnapshot {
    with_roots(|primitive| {
        primitive.client_only |= ["plugins.label", "plugins.roots"].contains(&primitive.id.as_str());
    })
}

#[tokio::test]
async fn a_call_that_needs_what_its_client_cannot_do_is_refused_before_anything_runs() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let invoke = worker.begin(&[]).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = Fixture::with(client_only(), 7, runtime.runtimes());
    let rows = [
        (json!({}), json!({"roots": {}, "sampling": {}})),
        (json!({"sampling": {}, "elicitation": {}}), json!({"roots": {}})),
    ];
    for (can, required) in rows {
        let answer = modern("sweep", json!({})).capabilities(can).send(&fixture).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(-32021)), "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], required);
        assert_eq!(answer.reason(), "missing_capability");
    }
    let legacy = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let answer = legacy.request(9, "tools/call", json!({"name": "sweep", "arguments": {}})).await;
    let error = &answer.json()["error"];
    assert_eq!((answer.status.as_u16(), &error["code"]), (200, &json!(-32600)), "{error}");
    assert_eq!(begun.load(Ordering::Relaxed), 0, "nothing ran");
    let can = json!({"sampling": {}, "roots": {}});
    let result = last_result(&modern("sweep", json!({})).capabilities(can).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}
