//! Questions of a stdio MCP server in its own protocol, and their answers.

use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{
    Completed, DeliverMcpAnswer, Failed, InvokeRequest, McpRequested, Progress, client_message,
};
use asp_proto::snapshot::{McpStdio, runtime::Mode};
use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};
use serde_json::{Value, json};

use super::{call, next_message};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, Legacy, snapshot};

/// The tools of the fixture, run by a stdio server.
fn fixture(runtime: &Runtime) -> Fixture {
    let mut snapshot = snapshot();
    for primitive in &mut snapshot.primitives {
        let mode = primitive.runtime.as_mut().and_then(|runtime| runtime.mode.as_mut());
        if let Some(mode @ Mode::Plugin(_)) = mode {
            let tool = primitive.id.clone();
            *mode = Mode::McpStdio(McpStdio { package: "own@1.0.0".into(), tool, ..McpStdio::default() });
        }
    }
    let url = format!("unix:{}", runtime.socket.display());
    let target = RuntimeTarget { languages: vec!["mcp-stdio".into()], url, peer: None };
    Fixture::with(snapshot, 7, Runtimes::new(vec![target]).unwrap())
}

async fn ask(worker: &mut Worker, invoke: &InvokeRequest, method: &str, params: &Value) -> DeliverMcpAnswer {
    let asked = McpRequested {
        request_id: invoke.request_id.clone(),
        correlation_id: method.into(),
        method: method.into(),
        params: json_of(params),
        withdrawn: false,
    };
    worker.say(Payload::McpRequested(asked)).await;
    let Some(client_message::Payload::McpAnswer(answer)) = worker.next().await else { panic!("no answer") };
    assert_eq!((answer.request_id.as_str(), answer.correlation_id.as_str()), (&*invoke.request_id, method));
    answer
}

fn form() -> Value {
    json!({"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}})
}

#[tokio::test]
async fn what_a_stdio_server_asks_is_put_to_the_client_as_it_is() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let request_id = invoke.request_id.clone();
        let answer = ask(&mut worker, &invoke, "elicitation/create", &form()).await;
        let name: Value = serde_json::from_slice(&answer.result.unwrap().value).unwrap();
        let refused = ask(&mut worker, &invoke, "roots/list", &json!({})).await;
        assert_eq!((refused.error_code, refused.result), (-32601, None), "the client has no roots");
        let progress = Progress { request_id: request_id.clone(), amount: Some(3.0), ..Progress::default() };
        worker.say(Payload::Progress(progress)).await;
        let end = Completed {
            request_id,
            output: json_of(&json!({"ok": true})),
            meta: json_of(&json!({"own": name, "asp/own": "forged"})),
            ..Completed::default()
        };
        worker.say(Payload::Completed(end)).await;
    }));
    let can = json!({"elicitation": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                         "params": {"name": "sweep", "arguments": {}, "_meta": {"progressToken": 1}}});
    let mut body = client.open(&request).await.into_body();
    let mut told = Vec::new();
    let result = loop {
        let message = next_message(&mut body).await;
        match message["method"].as_str() {
            Some("elicitation/create") => {
                assert_eq!(message["params"]["message"], "Your name?");
                let content = json!({"action": "accept", "content": {"name": "Ada"}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": content});
                assert_eq!(client.post(&answer).await.status.as_u16(), 202);
            }
            Some(_) => told.push(message["params"].clone()),
            None => break message["result"].clone(),
        }
    };
    assert_eq!(result["_meta"]["own"], json!({"action": "accept", "content": {"name": "Ada"}}), "{result}");
    assert_eq!(result["_meta"].get("asp/own"), None, "only the platform says that");
    let as_counted = |params: &Value| params["progress"] == 3.0 && params.get("total").is_none();
    assert!(told.iter().any(as_counted), "{told:?}");
}

/// Invariant I-14.
#[tokio::test]
async fn a_stdio_servers_own_error_keeps_its_code_and_data() {
    for (word, code, shown, reason) in [
        ("INVALID_ARGUMENT", -32602, -32602, "invalid_params"),
        ("INTERNAL", -32601, -32601, "unknown_method"),
        ("INTERNAL", 1001, 1001, "upstream_unavailable"),
    ] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let request_id = worker.begin(&[]).await.request_id;
            let details = json_of(&json!({"code": code, "data": {"issues": [1]}}));
            let failed =
                Failed { request_id, code: word.into(), message: "no".into(), details, ..Failed::default() };
            worker.say(Payload::Failed(failed)).await;
        }));
        let answer = call(&fixture(&runtime), "sweep", json!({})).await.json();
        let error = &answer["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(shown), &json!("no")), "{answer}");
        assert_eq!(error["data"]["reason"], reason, "{answer}");
        assert_eq!(error["data"]["upstream"], json!({"code": code, "data": {"issues": [1]}}), "{answer}");
    }
}

/// I-7: it would get around what its spec declares.
#[tokio::test]
async fn a_plugin_that_asks_as_an_mcp_server_is_as_good_as_dead() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let asked = McpRequested {
            request_id: invoke.request_id,
            method: "roots/list".into(),
            ..McpRequested::default()
        };
        worker.say(Payload::McpRequested(asked)).await;
        while worker.next().await.is_some() {}
    }));
    let result = call(&super::fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
}
