//! Conversations with the client's model in which it uses tools that a plugin offers (sampling with tools).

use asp_proto::plugin::{
    DelegationRequested, DeliverDelegationResult, client_message, server_message::Payload,
};
use asp_proto::snapshot::GatewaySnapshot;
use serde_json::{Value, json};

use super::{last_result, modern, next_message};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, Legacy, snapshot};

/// The snapshot where a plugin may offer tools to the model behind `plugins.label`, which sees this server.
fn offering() -> GatewaySnapshot {
    let mut snapshot = snapshot();
    let label = snapshot.primitives.iter_mut().find(|one| one.id == "plugins.label").unwrap();
    label.sampling_tools = true;
    label.question =
        r#"{"maxTokens": 64, "systemPrompt": "Be brief.", "includeContext": "thisServer"}"#.into();
    snapshot
}

fn conversation() -> Value {
    let tool = json!({"name": "add", "inputSchema": {"type": "object"}});
    let message = json!({"role": "user", "content": {"type": "text", "text": "1 + 1?"}});
    json!({"messages": [message], "tools": [tool], "toolChoice": {"mode": "required"}})
}

async fn told(worker: &mut Worker, request_id: &str, conversation: &Value) -> DeliverDelegationResult {
    worker
        .say(Payload::Delegation(DelegationRequested {
            request_id: request_id.into(),
            correlation_id: "c".into(),
            delegate_id: "plugins.label".into(),
            conversation: json_of(conversation),
            ..DelegationRequested::default()
        }))
        .await;
    match worker.next().await {
        Some(client_message::Payload::DelegationResult(result)) => result,
        other => panic!("{other:?}"),
    }
}

/// A plugin that answers with what it was told of its conversation: the result, or the word why there is none.
fn runtime(conversation: Value) -> Runtime {
    Runtime::start(Script::of(move |_, mut worker: Worker| {
        let conversation = conversation.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            let told = told(&mut worker, &invoke.request_id, &conversation).await;
            if told.error.is_empty() {
                let result: Value = serde_json::from_slice(&told.result.unwrap().value).unwrap();
                assert_eq!(result["stopReason"], "toolUse");
                assert_eq!(result["content"][0]["name"], "add");
            }
            worker.complete(&invoke, &json!({"ok": told.error.is_empty()})).await;
        }
    }))
}

fn used() -> Value {
    let block = json!({"type": "tool_use", "id": "a", "name": "add", "input": {"a": 1, "b": 1}});
    json!({"role": "assistant", "model": "m", "stopReason": "toolUse", "content": block})
}

fn told_by_model() -> Value {
    json!({"role": "assistant", "content": used()["content"]})
}

fn came_of_it() -> Value {
    let sum = json!({"type": "text", "text": "2"});
    json!({"role": "user", "content": {"type": "tool_result", "toolUseId": "a", "content": [sum]}})
}

fn call() -> Value {
    json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}})
}

#[tokio::test]
async fn a_clients_model_uses_the_tools_of_a_plugin_in_both_eras() {
    let runtime = runtime(conversation());
    let fixture = Fixture::with(offering(), 7, runtime.runtimes());
    let can = json!({"sampling": {"tools": {}, "context": {}}});
    let mut wanted = conversation();
    let fixed = json!({"maxTokens": 64, "systemPrompt": "Be brief.", "includeContext": "thisServer"});
    wanted.as_object_mut().unwrap().extend(fixed.as_object().unwrap().clone());
    let asked = last_result(&modern("sweep", json!({})).capabilities(can.clone()).send(&fixture).await);
    let requests = asked["inputRequests"].as_object().unwrap();
    let (id, request) = requests.iter().next().unwrap();
    assert_eq!((&request["method"], &request["params"]), (&json!("sampling/createMessage"), &wanted));
    let answers = json!({id.as_str(): used()});
    let extra = json!({"requestState": asked["requestState"], "inputResponses": answers});
    let result = last_result(&modern("sweep", extra).capabilities(can.clone()).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");

    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", can).await;
    let mut body = client.open(&call()).await.into_body();
    let asked = next_message(&mut body).await;
    assert_eq!(asked["params"], wanted);
    client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": used()})).await;
    assert_eq!(next_message(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_conversation_without_tools_is_answered_with_blocks_too() {
    let mut plain = conversation();
    plain.as_object_mut().unwrap().retain(|name, _| name == "messages");
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let plain = plain.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            let told = told(&mut worker, &invoke.request_id, &plain).await;
            let result: Value = serde_json::from_slice(&told.result.unwrap().value).unwrap();
            let ok = result["content"] == json!([{"type": "text", "text": "2"}]);
            worker.complete(&invoke, &json!({"ok": ok})).await;
        }
    }));
    let fixture = Fixture::with(offering(), 7, runtime.runtimes());
    let can = json!({"sampling": {}});
    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-06-18", can).await;
    let mut body = client.open(&call()).await.into_body();
    let asked = next_message(&mut body).await;
    let said = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "2"}});
    client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": said})).await;
    assert_eq!(next_message(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_model_without_tools_is_never_offered_any_nor_told_of_them() {
    let mut history = conversation();
    history["messages"].as_array_mut().unwrap().extend([told_by_model(), came_of_it()]);
    let mut several = conversation();
    several["messages"][0]["content"] = json!([several["messages"][0]["content"]]);
    for given in [&mut history, &mut several] {
        given.as_object_mut().unwrap().retain(|name, _| name == "messages");
    }
    let tools = json!({"sampling": {"tools": {}, "context": {}}});
    for given in [conversation(), history, several] {
        for (revision, can) in [
            ("2025-11-25", json!({"sampling": {"context": {}}})),
            ("2025-06-18", tools.clone()),
            ("2025-03-26", tools.clone()),
        ] {
            let runtime = runtime(given.clone());
            let fixture = Fixture::with(offering(), 7, runtime.runtimes());
            let client = Legacy::connect(&fixture, "plugins", "alice", revision, can).await;
            let result = last_result(&client.post(&call()).await);
            // The oldest has the value as a text.
            let value: Value = match revision {
                "2025-03-26" => serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap(),
                _ => result["structuredContent"].clone(),
            };
            assert_eq!(value, json!({"ok": false}), "{revision} {given}: {result}");
        }
    }
}

#[tokio::test]
async fn a_call_that_needs_a_model_with_tools_is_refused_before_anything_runs() {
    let mut snapshot = offering();
    let label = snapshot.primitives.iter_mut().find(|one| one.id == "plugins.label").unwrap();
    label.client_only = true;
    let runtime = runtime(conversation());
    let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
    for can in [json!({}), json!({"sampling": {}})] {
        let answer = modern("sweep", json!({})).capabilities(can).send(&fixture).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(-32021)), "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], json!({"sampling": {"tools": {}}}));
    }
    assert!(runtime.told.allocations.lock().is_empty(), "nothing ran");
}

#[tokio::test]
async fn what_is_no_conversation_or_not_declared_reaches_no_model() {
    let mut unanswered = conversation();
    unanswered["messages"].as_array_mut().unwrap().push(used());
    let mut more = conversation();
    more["systemPrompt"] = "Obey.".into();
    let rows = [(offering(), unanswered), (offering(), more), (snapshot(), conversation())];
    for (snapshot, given) in rows {
        let runtime = runtime(given);
        let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
        let can = json!({"sampling": {"tools": {}, "context": {}}});
        let result = last_result(&modern("sweep", json!({})).capabilities(can).send(&fixture).await);
        assert_eq!(result["structuredContent"], json!({"ok": false}), "{result}");
    }
}

#[tokio::test]
async fn the_context_of_servers_is_asked_of_clients_that_have_it() {
    // Before 2025-11-25 it was nothing that a client declared.
    for (revision, can, context) in [
        ("2025-06-18", json!({"sampling": {}}), true),
        ("2025-11-25", json!({"sampling": {"tools": {}}}), false),
        ("2025-11-25", json!({"sampling": {"context": {}}}), true),
    ] {
        let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            worker.say(super::asks_model(&invoke.request_id)).await;
            worker.next().await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let fixture = Fixture::with(offering(), 7, runtime.runtimes());
        let client = Legacy::connect(&fixture, "plugins", "alice", revision, can).await;
        let mut body = client.open(&call()).await.into_body();
        let asked = next_message(&mut body).await;
        let shown = asked["params"].get("includeContext");
        assert_eq!(shown.is_some(), context, "{revision}: {asked}");
        client
            .post(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}}))
            .await;
        assert_eq!(next_message(&mut body).await["id"], 9);
    }
}
