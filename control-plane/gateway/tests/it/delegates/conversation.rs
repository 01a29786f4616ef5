//! A model of the platform's in a conversation: it uses tools, among them primitives of the caller's server.

use std::time::Duration;

use asp_proto::plugin::server_message::Payload;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{GatewaySnapshot, OtherPrimitive, Protocol, Runtime as Runs};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{DELEGATE, Model, asks, audited, read, said, sweep, told, with_delegate};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, denied_to_alice};

/// Delegate that `order` answers for.
const ORDERS: &str = "plugins.orders";

/// The snapshot in which the platform's model answers conversations of `sweep`, which may also delegate to `order`.
fn snapshot() -> GatewaySnapshot {
    let mut snapshot = with_delegate(|delegate| {
        delegate.sampling_tools = true;
        delegate.prefer_platform = true;
    });
    let found = snapshot.primitives.iter().find(|primitive| primitive.id == DELEGATE);
    let mut orders = found.unwrap().clone();
    orders.id = ORDERS.into();
    orders.question.clear();
    orders.sampling_tools = false;
    orders.prefer_platform = false;
    let other = OtherPrimitive { id: "order".into(), major: None };
    orders.runtime = Some(Runs { mode: Some(Mode::Primitive(other)) });
    snapshot.primitives.push(orders);
    let sweep = snapshot.primitives.iter_mut().find(|primitive| primitive.id == "sweep").unwrap();
    sweep.delegations.push(ORDERS.into());
    snapshot
}

fn own_tool() -> Value {
    json!({"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}})
}

/// The use of a tool, in the endpoint's form.
fn uses(name: &str) -> Response {
    let function = json!({"name": name, "arguments": "{\"n\":3}"});
    let call = json!({"id": "call-1", "type": "function", "function": function});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    axum::Json(json!({
        "model": "small-1", "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "choices": [{"finish_reason": "tool_calls", "message": message}]}))
    .into_response()
}

/// Asks the model once; returns its answer.
async fn converse(
    worker: &mut Worker,
    request_id: &str,
    id: &str,
    messages: &Value,
) -> Result<Value, String> {
    let mut asked = asks(request_id, id, &json!(null), Duration::ZERO);
    if let Payload::Delegation(asked) = &mut asked {
        let tools = json!([{"delegate": ORDERS}, own_tool()]);
        asked.conversation = json_of(&json!({"messages": messages, "tools": tools}));
    }
    worker.say(asked).await;
    read(&told(worker).await)
}

/// `sweep`: a conversation in which the model uses `order` and then answers.
fn runtime() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        if invoke.primitive == "order" {
            worker.complete(&invoke, &json!({"ok": true})).await;
            return;
        }
        let mut messages = json!([{"role": "user", "content": {"type": "text", "text": "Order three."}}]);
        let answer = converse(&mut worker, &invoke.request_id, "d-1", &messages).await.unwrap();
        let block = json!({"type": "tool_use", "id": "call-1", "name": ORDERS, "input": {"n": 3}});
        assert_eq!((&answer["content"], &answer["stopReason"]), (&json!([block]), &json!("toolUse")));
        let mut asked = asks(&invoke.request_id, "d-2", &block["input"], Duration::ZERO);
        if let Payload::Delegation(asked) = &mut asked {
            asked.delegate_id = ORDERS.into();
        }
        worker.say(asked).await;
        let ordered = read(&told(&mut worker).await).unwrap();
        let text = json!({"type": "text", "text": ordered["text"]});
        let result = json!({"type": "tool_result", "toolUseId": "call-1", "content": [text]});
        let more =
            [json!({"role": "assistant", "content": [block]}), json!({"role": "user", "content": result})];
        messages.as_array_mut().unwrap().extend(more);
        let answer = converse(&mut worker, &invoke.request_id, "d-3", &messages).await.unwrap();
        assert_eq!(answer["text"], "Done.");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

#[tokio::test]
async fn a_model_of_the_platforms_uses_a_primitive_of_the_callers_server() {
    let model = Model::start(|number| async move {
        match number {
            0 => uses(ORDERS),
            _ => said("Done."),
        }
    })
    .await;
    let runtime = runtime();
    let fixture = Fixture::with_models(snapshot(), 7, runtime.runtimes(), model.endpoints());
    let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");

    let asked = model.asked.lock().clone();
    let [(_, first), (_, second)] = asked.as_slice() else { panic!("{asked:?}") };
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 1}}});
    let function = |name: &str, description: &str, parameters: Value| {
        let function = json!({"name": name, "description": description, "parameters": parameters});
        json!({"type": "function", "function": function})
    };
    let tools = json!([
        function(ORDERS, "A plugin.", parameters),
        function("add", "Adds.", json!({"type": "object"}))
    ]);
    assert_eq!((&first["tools"], &second["tools"]), (&tools, &tools));
    let function = json!({"name": ORDERS, "arguments": "{\"n\":3}"});
    let call = json!({"id": "call-1", "type": "function", "function": function});
    let history = json!([
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": "Order three."},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "{\"ok\":true}"}]);
    assert_eq!(second["messages"], history);

    let delegated = audited(&fixture, "call.delegation").await;
    let by: Vec<&Value> = delegated.iter().map(|event| &event["by"]).collect();
    assert_eq!(by, [&json!("model"), &json!("primitive"), &json!("model")]);
    assert_eq!((&delegated[0]["tokensIn"], &delegated[2]["tokensIn"]), (&json!(5), &json!(11)));
}

/// Words that a worker heard which asks once.
async fn heard(snapshot: GatewaySnapshot, model: &Model) -> Value {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "Order three."}}]);
        let heard = converse(&mut worker, &invoke.request_id, "d-1", &messages).await;
        worker.complete(&invoke, &json!({"ok": heard.is_ok(), "error": heard.err()})).await;
    }));
    let fixture = Fixture::with_models(snapshot, 7, runtime.runtimes(), model.endpoints());
    sweep(json!({})).send(&fixture).await.json()["result"]["structuredContent"].clone()
}

/// Invariant I-10.
#[tokio::test]
async fn a_primitive_that_the_caller_does_not_see_is_not_offered() {
    let mut denied = snapshot();
    denied.bindings.push(denied_to_alice("order", Protocol::Mcp));
    let model = Model::saying("Done.").await;
    assert_eq!(heard(denied, &model).await["ok"], json!(true));
    let tools = model.asked.lock()[0].1["tools"].clone();
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    assert_eq!(tools[0]["function"]["name"], "add");
}

#[tokio::test]
async fn a_tool_of_a_delegate_that_is_not_declared_or_no_primitive_is_refused() {
    let mut undeclared = snapshot();
    for primitive in &mut undeclared.primitives {
        primitive.delegations.retain(|id| id != ORDERS);
    }
    let mut a_model = snapshot();
    for primitive in a_model.primitives.iter_mut().filter(|primitive| primitive.id == ORDERS) {
        primitive.runtime = None;
    }
    for snapshot in [undeclared, a_model] {
        let model = Model::saying("Done.").await;
        assert_eq!(heard(snapshot, &model).await["error"], "invalid_input");
        assert_eq!(model.requests(), 0);
    }
}

#[tokio::test]
async fn a_model_that_uses_a_tool_that_was_not_offered_has_not_answered() {
    let model = Model::start(|_| async move { uses("rm") }).await;
    assert_eq!(heard(snapshot(), &model).await["error"], "invalid_output");
}
