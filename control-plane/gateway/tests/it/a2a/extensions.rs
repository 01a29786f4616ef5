//! Extensions: activated by a header and echoed over every binding, required by a card, and their values in tasks and streams of
//! both versions.

use std::time::Duration;

use asp_backends::delegate::endpoint::Endpoints;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{Completed, DelegationRequested};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{GatewaySnapshot, OtherPrimitive, Runtime as Runs};
use asp_registry::assemble;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Client, fixture, message, message_id, snapshot, speaking, with_plugins};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::Fixture;

const COST: &str = "https://proto-labs.ai/a2a/ext/cost-v1";
const WORLDSTATE: &str = "https://proto-labs.ai/a2a/ext/worldstate-delta-v1";
const TOOL_CALL: &str = "https://proto-labs.ai/a2a/ext/tool-call-v1";
const SKILL: &str = "application/vnd.protolabs.skill-v1+json";

/// A message of 0.3 to a skill.
fn old_message(skill: &str) -> Value {
    json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": skill, "arguments": {}}}]}})
}

fn deltas() -> Value {
    json!({"deltas": [{"domain": "board", "path": "open", "op": "inc", "value": 1}]})
}

fn learned() -> Value {
    json!({"name": "n", "description": "d", "prompt_template": "p", "tools_used": ["order"],
        "created_at": "2026-06-01T10:00:00Z", "source_session_id": "s"})
}

/// A plugin whose result has values of extensions.
fn reporting(is_error: bool) -> Runtime {
    Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let usage = json!({"input_tokens": 1200, "output_tokens": 80});
        let cost = json!({"usage": usage, "costUsd": 0.01});
        let meta = json!({COST: cost, WORLDSTATE: deltas(), SKILL: learned(), "own": 1});
        let said = json!([{"type": "text", "text": "out of luck"}]);
        let completed = Completed {
            request_id: invoke.request_id.clone(),
            output: if is_error { None } else { json_of(&json!({"ok": true})) },
            content: if is_error { json_of(&said) } else { None },
            is_error,
            meta: json_of(&meta),
            ..Completed::default()
        };
        worker.say(Payload::Completed(completed)).await;
    }))
}

/// Checks a cost, whose duration is measured.
fn assert_cost(cost: &Value, success: bool) {
    assert!(cost["durationMs"].is_u64(), "{cost}");
    let mut rest = cost.clone();
    rest.as_object_mut().unwrap().remove("durationMs");
    let usage = json!({"input_tokens": 1200, "output_tokens": 80});
    assert_eq!(rest, json!({"usage": usage, "costUsd": 0.01, "success": success}));
}

fn artifact<'t>(task: &'t Value, id: &str) -> Option<&'t Value> {
    task["artifacts"].as_array()?.iter().find(|artifact| artifact["artifactId"] == id)
}

/// The data parts of an artifact of 0.3 by their media types.
fn typed<'a>(artifact: &'a Value, media_type: &str) -> Vec<&'a Value> {
    let parts = artifact["parts"].as_array().unwrap().iter();
    parts.filter(|part| part["metadata"]["mimeType"] == media_type).map(|part| &part["data"]).collect()
}

#[tokio::test]
async fn values_of_a_result_are_metadata_in_the_newer_version_and_parts_in_the_earlier_one() {
    let runtime = reporting(false);
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let both = format!("{WORLDSTATE}, urn:unknown, {COST}");
    let answer = client.with("a2a-extensions", &both).call("SendMessage", message("sweep", json!({}))).await;
    assert_eq!(answer.headers["a2a-extensions"], format!("{WORLDSTATE}, {COST}"));
    let task = answer.json()["result"]["task"].clone();
    let result = artifact(&task, "result").unwrap();
    assert_cost(&result["metadata"][COST], true);
    assert_eq!((&result["metadata"][WORLDSTATE], &result["metadata"]["own"]), (&deltas(), &json!(1)));
    assert_eq!(result["extensions"], json!([COST, WORLDSTATE]));
    let parts = result["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["data"] == learned() && part["mediaType"] == SKILL), "{result}");

    let silent = client.call("GetTask", json!({"id": task["id"]})).await;
    assert!(!silent.headers.contains_key("a2a-extensions"));
    let silent = silent.json()["result"].clone();
    let result = artifact(&silent, "result").unwrap();
    assert_eq!((&result["metadata"], result.get("extensions")), (&json!({"own": 1}), None));

    let answer = client.with("x-a2a-extensions", COST).call("message/send", old_message("sweep")).await;
    assert_eq!(answer.headers["x-a2a-extensions"], COST);
    let task = answer.json()["result"].clone();
    let result = artifact(&task, "result").unwrap();
    let [cost] = typed(result, "application/vnd.protolabs.cost-v1+json")[..] else { panic!("{result}") };
    assert_cost(cost, true);
    assert_eq!(typed(result, "application/vnd.protolabs.worldstate-delta-v1+json"), Vec::<&Value>::new());
    assert_eq!(typed(result, SKILL), [&learned()]);
    assert_eq!((&result["metadata"], &result["extensions"]), (&json!({"own": 1}), &json!([COST])));
}

#[tokio::test]
async fn a_failed_task_has_its_cost_as_well() {
    let runtime = reporting(true);
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let plain = client.result("SendMessage", message("sweep", json!({}))).await;
    assert_eq!(plain["task"]["status"]["state"], "TASK_STATE_FAILED", "{plain}");
    assert_eq!(plain["task"].get("artifacts"), None, "{plain}");

    let asking = client.with("a2a-extensions", COST);
    let events = asking.call("SendStreamingMessage", message("sweep", json!({}))).await.events();
    let [.., failure, status, task] = events.as_slice() else { panic!("{events:?}") };
    let failure = &failure["result"]["artifactUpdate"]["artifact"];
    assert_cost(&failure["metadata"][COST], false);
    assert_eq!(failure["parts"][0]["text"], "out of luck", "{failure}");
    assert_eq!(status["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(artifact(&task["result"]["task"], "failure"), Some(failure));

    let old = client.with("x-a2a-extensions", COST).result("message/send", old_message("sweep")).await;
    let failure = artifact(&old, "failure").unwrap();
    assert_cost(typed(failure, "application/vnd.protolabs.cost-v1+json")[0], false);
}

/// A plugin that uses another primitive, through a delegate.
fn using_a_tool() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        if invoke.primitive == "sweep" {
            let asks = DelegationRequested {
                request_id: invoke.request_id.clone(),
                correlation_id: "d-1".into(),
                delegate_id: "plugins.label".into(),
                input: json_of(&json!({"n": 3})),
                timeout: prost_types::Duration::try_from(Duration::from_secs(5)).ok(),
                ..DelegationRequested::default()
            };
            worker.say(Payload::Delegation(asks)).await;
            worker.next().await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

/// The snapshot whose delegate is another primitive.
fn delegating() -> GatewaySnapshot {
    let mut snapshot = snapshot();
    let delegates = &mut snapshot.primitives;
    let delegate = delegates.iter_mut().find(|primitive| primitive.id == "plugins.label").unwrap();
    delegate.question.clear();
    let other = OtherPrimitive { id: "order".into(), major: None };
    delegate.runtime = Some(Runs { mode: Some(Mode::Primitive(other)) });
    snapshot
}

#[tokio::test]
async fn a_client_that_wants_to_know_sees_the_tools_that_a_task_uses() {
    let runtime = using_a_tool();
    let fixture = Fixture::with_models(delegating(), 7, runtime.runtimes(), Endpoints::default());
    let client = Client::of(&fixture, "plugins");
    let used = [
        json!({"toolCallId": "d-1", "name": "order", "phase": "started", "args": r#"{"n":3}"#}),
        json!({"toolCallId": "d-1", "name": "order", "phase": "completed", "result": r#"{"ok":true}"#}),
    ];
    let told = client.with("a2a-extensions", TOOL_CALL);
    let answer = told.call("SendStreamingMessage", message("sweep", json!({}))).await;
    assert_eq!(answer.headers["a2a-extensions"], TOOL_CALL);
    let events = answer.events();
    let updates = events.iter().map(|event| &event["result"]["statusUpdate"]["status"]);
    let shown: Vec<&Value> = updates.filter(|status| status["message"]["metadata"].is_object()).collect();
    let values: Vec<&Value> = shown.iter().map(|status| &status["message"]["metadata"][TOOL_CALL]).collect();
    assert_eq!(values, used.iter().collect::<Vec<_>>(), "{events:?}");
    for status in shown {
        assert_eq!(status["state"], "TASK_STATE_WORKING");
        assert_eq!(
            (status["message"].get("parts"), &status["message"]["extensions"]),
            (None, &json!([TOOL_CALL]))
        );
    }

    let told = client.with("x-a2a-extensions", TOOL_CALL);
    let events = told.call("message/stream", old_message("sweep")).await.events();
    let parts = events.iter().map(|event| &event["result"]["status"]["message"]["parts"][0]);
    let media_type = "application/vnd.protolabs.tool-call-v1+json";
    let tools = parts.filter(|part| part["metadata"]["mimeType"] == media_type);
    assert_eq!(tools.map(|part| &part["data"]).collect::<Vec<_>>(), used.iter().collect::<Vec<_>>());

    let silent = client.call("SendStreamingMessage", message("sweep", json!({}))).await;
    assert!(!silent.text.contains("toolCallId") && !silent.headers.contains_key("a2a-extensions"));
}

/// A gateway whose agents require an extension.
fn requiring() -> Fixture {
    let mut inputs = speaking();
    for server in &mut inputs.servers {
        let extensions = json!([{"uri": "urn:must", "required": true}, {"uri": "urn:may"}]);
        let card = json!({"name": "x", "capabilities": {"streaming": true, "extensions": extensions}});
        server.server.a2a_card = card.to_string();
    }
    Fixture::of(assemble(inputs))
}

#[tokio::test]
async fn a_required_extension_that_a_message_does_not_activate_is_an_error_on_every_binding() {
    let fixture = requiring();
    let client = Client::of(&fixture, "demo");
    let hi = || message("echo", json!({"message": "hi"}));
    for method in ["SendMessage", "SendStreamingMessage"] {
        assert_eq!(client.refused(method, hi()).await, (200, -32008));
    }
    let answer =
        client.with("a2a-extensions", "urn:may").send(Method::POST, "/message:send", &hi().to_string()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
    assert!(
        answer.text.contains("EXTENSION_SUPPORT_REQUIRED") && answer.text.contains("urn:must"),
        "{}",
        answer.text
    );
    assert!(!answer.headers.contains_key("a2a-extensions"));

    let active = client.with("a2a-extensions", "urn:must, urn:may");
    let answer = active.send(Method::POST, "/message:send", &hi().to_string()).await;
    assert_eq!(
        (answer.status, &answer.headers["a2a-extensions"]),
        (StatusCode::OK, &"urn:must, urn:may".parse().unwrap())
    );
    let id = answer.json()["task"]["id"].clone();
    assert_eq!(client.result("GetTask", json!({"id": id})).await["id"], id, "only messages need it");
}

#[tokio::test]
async fn what_is_unknown_is_not_echoed() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo").with("a2a-extensions", "https://example.com/ext/v1");
    let answer = client.call("SendMessage", message("echo", json!({"message": "hi"}))).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(!answer.headers.contains_key("a2a-extensions"), "{}", answer.text);
}
