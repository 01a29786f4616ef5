//! Questions of a stdio MCP server in its own protocol, and their answers.

use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{
    DeliverMcpAnswer, LineAnswer, LineNotification, LineRequest, McpRequested, client_message,
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

async fn ask(worker: &mut Worker, line: &LineRequest, method: &str, params: &Value) -> DeliverMcpAnswer {
    let asked = McpRequested {
        request_id: line.request_id.clone(),
        correlation_id: method.into(),
        method: method.into(),
        params: json_of(params),
        withdrawn: false,
    };
    worker.say(Payload::McpRequested(asked)).await;
    let Some(client_message::Payload::McpAnswer(answer)) = worker.next().await else { panic!("no answer") };
    assert_eq!((answer.request_id.as_str(), answer.correlation_id.as_str()), (&*line.request_id, method));
    answer
}

fn form() -> Value {
    json!({"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}})
}

#[tokio::test]
async fn what_a_stdio_server_asks_is_put_to_the_client_as_it_is() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let line = worker.begin_line().await;
        let request_id = line.request_id.clone();
        let params: Value = serde_json::from_slice(&line.params.as_ref().unwrap().value).unwrap();
        assert_eq!((line.method.as_str(), &params["name"]), ("tools/call", &json!("sweep")));
        assert_eq!(params["_meta"]["progressToken"], request_id, "by which the runtime finds the call");
        assert_eq!(params["arguments"], json!({}), "as the client wrote them");
        let lines = worker.told.allocations.lock()[0].lines.clone().unwrap();
        assert_eq!(
            (lines.first.unwrap().method.as_str(), lines.token.as_str()),
            ("initialize", "progressToken")
        );
        let answer = ask(&mut worker, &line, "elicitation/create", &form()).await;
        let name: Value = serde_json::from_slice(&answer.result.unwrap().value).unwrap();
        let refused = ask(&mut worker, &line, "roots/list", &json!({})).await;
        assert_eq!((refused.error_code, refused.result), (-32601, None), "the client has no roots");
        let unknown = ask(&mut worker, &line, "tools/call", &json!({})).await;
        assert_eq!((unknown.error_code, unknown.result), (-32601, None), "nobody answers that");
        let params = json_of(&json!({"progressToken": request_id, "progress": 3}));
        let method = "notifications/progress".to_owned();
        let progress = LineNotification { request_id: request_id.clone(), method, params };
        worker.say(Payload::LineNotification(progress)).await;
        let result = json!({
            "content": [], "structuredContent": {"ok": true}, "_meta": {"own": name, "asp/own": "forged"},
        });
        worker.answer_line(&request_id, Ok(result)).await;
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
    for (code, shown, reason) in [
        (-32602, -32602, "invalid_params"),
        (-32601, -32601, "unknown_method"),
        (1001, 1001, "upstream_unavailable"),
    ] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let request_id = worker.begin_line().await.request_id;
            let error = json!({"code": code, "message": "no", "data": {"issues": [1]}});
            worker.answer_line(&request_id, Err(error)).await;
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
async fn a_plugin_that_asks_or_answers_as_an_mcp_server_is_as_good_as_dead() {
    for answers in [false, true] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let request_id = worker.begin(&[]).await.request_id;
            let method = "roots/list".to_owned();
            worker
                .say(match answers {
                    true => Payload::LineAnswer(LineAnswer { request_id, ..LineAnswer::default() }),
                    false => {
                        Payload::McpRequested(McpRequested { request_id, method, ..McpRequested::default() })
                    }
                })
                .await;
            while worker.next().await.is_some() {}
        }));
        let result = call(&super::fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
    }
}
