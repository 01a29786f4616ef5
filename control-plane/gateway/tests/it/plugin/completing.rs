//! Completions by plugins for an argument of a prompt or a template.

use asp_proto::envelope::packed;
use asp_proto::plugin::{
    Completion, ContentChunk, Failed, GetPromptRequest, GetPromptResponse, PromptMessage,
    ReadResourceRequest, server_message::Payload,
};
use asp_proto::snapshot::{self, Binding, GatewaySnapshot, Protocol, TargetKind};
use asp_registry::assemble;
use prost::Message;
use serde_json::{Value, json};

use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Answer, Fixture, Legacy, Modern, inputs, token};

/// The template's and the prompt's arguments are completed by their plugins; bob may not see the prompt.
fn completed_by_plugins() -> GatewaySnapshot {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "advice".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let mut snapshot = assemble(inputs);
    for (id, argument) in [("advice", "topic"), ("page", "id")] {
        let primitive = snapshot.primitives.iter_mut().find(|primitive| primitive.id == id).unwrap();
        let argument = argument.to_owned();
        primitive.completions.push(snapshot::Completion { argument, by_runtime: true, ..Default::default() });
    }
    snapshot
}

fn fixture(runtime: &Runtime) -> Fixture {
    Fixture::with(completed_by_plugins(), 7, runtime.runtimes())
}

/// A plugin that offers what it was told: the arguments, and which one is typed.
fn telling() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.any().await.unwrap();
        let work = worker.any().await.unwrap();
        let value = work.value.as_slice();
        let of = |completing: &str, arguments: &[u8]| {
            let values = vec![completing.to_owned(), String::from_utf8_lossy(arguments).into_owned()];
            Some(Completion { values, total: Some(7), has_more: true })
        };
        if work.type_url.ends_with("ReadResourceRequest") {
            let asked = ReadResourceRequest::decode(value).unwrap();
            assert!(asked.uri.is_empty());
            let completion = of(&asked.completing, &asked.arguments.unwrap().value);
            worker.say_packed(packed(&ContentChunk { completion, ..Default::default() })).await;
        } else {
            let asked = GetPromptRequest::decode(value).unwrap();
            let left = asked.deadline.unwrap().seconds - i64::try_from(unix_seconds()).unwrap();
            assert!((0..=11).contains(&left), "{left} s");
            let completion = of(&asked.completing, &asked.arguments.unwrap().value);
            worker.say_packed(packed(&GetPromptResponse { completion, ..Default::default() })).await;
        }
    }))
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

fn prompt(context: Value) -> Value {
    let reference = json!({"type": "ref/prompt", "name": "advice"});
    json!({"ref": reference, "argument": {"name": "topic", "value": "ti"}, "context": context})
}

/// With what the template does not declare, `uri` among it.
fn template() -> Value {
    let reference = json!({"type": "ref/resource", "uri": "page://{id}"});
    let known = json!({"arguments": {"uri": "page://secret", "other": "x"}});
    json!({"ref": reference, "argument": {"name": "id", "value": "1"}, "context": known})
}

async fn complete(fixture: &Fixture, user: &str, params: Value) -> Answer {
    Modern::new("plugins", &token(user), "completion/complete", params).send(fixture).await
}

#[tokio::test]
async fn a_plugin_is_asked_with_what_was_typed_in_both_eras() {
    let runtime = telling();
    let fixture = fixture(&runtime);
    let known = json!({"arguments": {"tone": "dry", "user": "root"}});
    for (params, offered) in [
        (prompt(known), json!(["topic", r#"{"tone":"dry","topic":"ti"}"#])),
        (template(), json!(["id", r#"{"id":"1"}"#])),
    ] {
        let wanted = json!({"values": offered, "total": 7, "hasMore": true});
        let answer = complete(&fixture, "alice", params.clone()).await.json();
        assert_eq!(answer["result"]["completion"], wanted, "{answer}");
        assert_eq!(answer["result"]["resultType"], "complete");
        let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
        let answer = client.request(2, "completion/complete", params).await.json();
        assert_eq!(answer["result"], json!({"completion": wanted}));
    }
}

#[tokio::test]
async fn a_hidden_prompt_completes_as_an_unknown_one_and_no_plugin_hears_of_it() {
    let runtime = telling();
    let fixture = fixture(&runtime);
    let mut hidden = complete(&fixture, "bob", prompt(json!(null))).await.json()["error"].clone();
    let mut other = prompt(json!(null));
    other["ref"]["name"] = "nothing".into();
    let mut unknown = complete(&fixture, "bob", other).await.json()["error"].clone();
    for error in [&mut hidden, &mut unknown] {
        error["data"].as_object_mut().unwrap().remove("traceId");
    }
    assert_eq!(hidden, unknown);
    assert!(runtime.told.allocations.lock().is_empty());
}

#[tokio::test]
async fn a_plugin_without_the_hook_offers_nothing() {
    for (code, offers) in [("UNSUPPORTED", true), ("INTERNAL", false)] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            worker.any().await.unwrap();
            let asked = GetPromptRequest::decode(worker.any().await.unwrap().value.as_slice()).unwrap();
            let code = code.to_owned();
            let failed = Failed { request_id: asked.request_id, code, ..Failed::default() };
            worker.say(Payload::Failed(failed)).await;
        }));
        let answer = complete(&fixture(&runtime), "alice", prompt(json!(null))).await;
        if offers {
            let wanted = json!({"values": [], "total": 0, "hasMore": false});
            assert_eq!(answer.json()["result"]["completion"], wanted, "{}", answer.text);
        } else {
            assert_eq!(answer.reason(), "upstream_unavailable", "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn what_is_no_offer_is_refused() {
    let long = json!({"arguments": {"tone": "x".repeat(4097)}});
    for context in [json!({"arguments": {"tone": 1}}), json!({"arguments": []}), long] {
        let runtime = telling();
        let answer = complete(&fixture(&runtime), "alice", prompt(context)).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{}", answer.text);
    }
    let message =
        PromptMessage { role: "user".into(), content: json_of(&json!({"type": "text", "text": "t"})) };
    let messages = GetPromptResponse { messages: vec![message], ..Default::default() };
    let many = Completion { values: vec!["x".into(); 101], ..Default::default() };
    let many = GetPromptResponse { completion: Some(many), ..Default::default() };
    for response in [messages, many] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let response = response.clone();
            async move {
                worker.any().await.unwrap();
                worker.any().await.unwrap();
                worker.say_packed(packed(&response)).await;
            }
        }));
        let answer = complete(&fixture(&runtime), "alice", prompt(json!(null))).await;
        assert_eq!(answer.reason(), "upstream_unavailable", "{}", answer.text);
    }
}
