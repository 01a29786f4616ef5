//! Prompts and resources that ask: their call ends with what it asks, and begins again with the answers.

use asp_proto::envelope::packed;
use asp_proto::plugin::{
    Asked, ContentChunk, DelegationRequested, ElicitationRequested, GetPromptRequest, GetPromptResponse,
    PromptMessage, ReadResourceRequest, Resume, content_chunk,
};
use asp_proto::supervisor::tunnel_event;
use prost::Message;
use serde_json::{Value, json};

use super::{fixture, last_result, next_request};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Legacy, Modern, token};

fn asks(names: usize, roots: bool) -> Asked {
    let name =
        ElicitationRequested { elicitation_id: "plugins.name".into(), ..ElicitationRequested::default() };
    let roots = roots.then(|| DelegationRequested {
        correlation_id: "d".into(),
        delegate_id: "plugins.roots".into(),
        ..DelegationRequested::default()
    });
    Asked { elicitations: vec![name; names], delegations: roots.into_iter().collect() }
}

/// Returns whether the worker got a read, and the resumption that came with it.
async fn begun(worker: &mut Worker) -> (bool, Option<Resume>) {
    worker.any().await.unwrap();
    let work = worker.any().await.unwrap();
    if work.type_url.ends_with("ReadResourceRequest") {
        return (true, ReadResourceRequest::decode(work.value.as_slice()).unwrap().given);
    }
    (false, GetPromptRequest::decode(work.value.as_slice()).unwrap().given)
}

/// The answers as one text: what the user said, and how many roots there are.
fn said(given: &Resume) -> String {
    let name = given.user_inputs[0].fields.as_ref().map_or(&b"nobody"[..], |fields| fields.value.as_slice());
    let roots = match &given.delegation_results[0].result {
        Some(result) => serde_json::from_slice::<Value>(&result.value).unwrap()["json"]["roots"].to_string(),
        None => given.delegation_results[0].error.clone(),
    };
    format!("{} {roots}", String::from_utf8_lossy(name))
}

/// A plugin that asks once and tells what it was answered.
fn runtime() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        match begun(&mut worker).await {
            (true, None) => {
                // What came before the question is nobody's.
                let data = Some(content_chunk::Data::Text("lost".into()));
                worker.say_packed(packed(&ContentChunk { data, ..ContentChunk::default() })).await;
                let asked = Some(asks(1, true));
                worker.say_packed(packed(&ContentChunk { asked, ..ContentChunk::default() })).await;
            }
            (true, Some(given)) => {
                let data = Some(content_chunk::Data::Text(said(&given)));
                let uri = "page://7".to_owned();
                worker.say_packed(packed(&ContentChunk { uri, data, ..ContentChunk::default() })).await;
                worker.event(tunnel_event::Type::TunnelClosed, "", &[]).await;
            }
            (false, None) => {
                let asked = Some(asks(1, true));
                let response = GetPromptResponse { asked, ..GetPromptResponse::default() };
                worker.say_packed(packed(&response)).await;
            }
            (false, Some(given)) => {
                let content = json_of(&json!({"type": "text", "text": said(&given)}));
                let messages = vec![PromptMessage { role: "user".into(), content }];
                let response = GetPromptResponse { messages, ..GetPromptResponse::default() };
                worker.say_packed(packed(&response)).await;
            }
        }
    }))
}

fn request(method: &str, extra: &Value) -> Modern {
    let mut params = match method {
        "prompts/get" => json!({"name": "advice", "arguments": {"topic": "x"}}),
        _ => json!({"uri": "page://7"}),
    };
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let can = json!({"elicitation": {}, "roots": {}});
    Modern::new("plugins", &token("alice"), method, params).capabilities(can)
}

fn shown(result: &Value) -> &Value {
    match result.get("contents") {
        Some(contents) => &contents[0]["text"],
        None => &result["messages"][0]["content"]["text"],
    }
}

#[tokio::test]
async fn a_prompt_and_a_resource_ask_a_modern_client_by_their_result() {
    let runtime = runtime();
    let fixture = fixture(&runtime);
    for method in ["prompts/get", "resources/read"] {
        let asked = last_result(&request(method, &json!({})).send(&fixture).await);
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked.get("ttlMs").is_none(), "{asked}");
        let requests = asked["inputRequests"].as_object().unwrap();
        let methods: Vec<&Value> = requests.values().map(|request| &request["method"]).collect();
        assert_eq!(methods, ["elicitation/create", "roots/list"]);
        let answers = json!({"plugins.name": {"action": "accept", "content": {"name": "Ada"}},
            "plugins.roots.2": {"roots": []}});
        let retry = json!({"requestState": asked["requestState"], "inputResponses": answers});
        let result = last_result(&request(method, &retry).send(&fixture).await);
        assert_eq!(shown(&result), r#"{"name":"Ada"} []"#, "{result}");
        assert_eq!(result["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_prompt_asks_a_legacy_client_on_its_stream() {
    let runtime = runtime();
    let can = json!({"elicitation": {}, "roots": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
    let params = json!({"name": "advice", "arguments": {"topic": "x"}});
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "prompts/get", "params": params});
    let mut body = client.open(&request).await.into_body();
    for expected in ["elicitation/create", "roots/list"] {
        let asked = next_request(&mut body).await;
        assert_eq!(asked["method"], expected);
        let result = match expected {
            "roots/list" => json!({"roots": []}),
            _ => json!({"action": "decline"}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    }
    assert_eq!(shown(&next_request(&mut body).await["result"]), "nobody []");
}

#[tokio::test]
async fn a_prompt_is_told_that_nobody_can_be_asked_and_is_not_asked_for_ever() {
    let runtime = runtime();
    let answer = request("prompts/get", &json!({})).capabilities(json!({})).send(&fixture(&runtime)).await;
    assert_eq!(shown(&answer.json()["result"]), "nobody unsupported");
    for asked in [asks(0, true), asks(0, false), asks(2, false), asks(17, false)] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let asked = Some(asked.clone());
            async move {
                begun(&mut worker).await;
                worker.say_packed(packed(&GetPromptResponse { asked, ..GetPromptResponse::default() })).await;
            }
        }));
        let request = request("prompts/get", &json!({})).capabilities(json!({}));
        let answer = request.send(&fixture(&runtime)).await;
        assert_eq!(answer.reason(), "upstream_unavailable", "{}", answer.text);
    }
}
