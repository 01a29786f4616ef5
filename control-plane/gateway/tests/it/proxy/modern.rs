//! An upstream MCP server of 2026-07-28 alone, scripted: what a call through us sends it, and what comes back of it.

use axum::body::{Body, Bytes, to_bytes};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::sync::watch;

use super::asking::{PATIENCE, next};
use super::*;

const META: &str = "/params/_meta/io.modelcontextprotocol~1";

/// Methods that the server received, in order; `dropped` stands for a response that was closed before its end.
pub(super) type Heard = watch::Sender<Vec<(String, Value)>>;

/// Says that a response that never ends has been closed.
struct Closed(Heard);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.send_modify(|heard| heard.push(("dropped".into(), Value::Null)));
    }
}

async fn upstream() -> (SocketAddr, Heard) {
    let heard: Heard = watch::Sender::new(Vec::new());
    let hears = heard.clone();
    let router = axum::Router::new().fallback(async move |request: Request| answer(request, hears).await);
    (serve(router).await, heard)
}

pub(super) fn reply(status: StatusCode, id: &Value, member: &str, what: Value) -> Response {
    (status, axum::Json(json!({"jsonrpc": "2.0", "id": id, member: what}))).into_response()
}

/// Refuses what is not of its revision, as the specification has it.
pub(super) async fn answer(request: Request, heard: Heard) -> Response {
    let headers = request.headers().clone();
    for absent in ["authorization", "mcp-session-id"] {
        assert!(!headers.contains_key(absent), "I-8, no sessions: {absent}");
    }
    assert_eq!(request.method(), "POST");
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let method = message["method"].as_str().unwrap().to_owned();
    let id = message["id"].clone();
    heard.send_modify(|heard| heard.push((method.clone(), message.clone())));
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let in_meta = |name: &str| message.pointer(&format!("{META}{name}"));
    if in_meta("protocolVersion") != Some(&json!("2026-07-28")) {
        let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
        let error = json!({"code": -32022, "message": "unsupported", "data": data});
        return reply(StatusCode::BAD_REQUEST, &id, "error", error);
    }
    let params = &message["params"];
    let name = params.get("name").or(params.get("uri")).and_then(Value::as_str);
    let agrees = header("mcp-protocol-version") == Some("2026-07-28")
        && header("mcp-method") == Some(&method)
        && header("mcp-name") == name
        && header("mcp-param-message") == params.pointer("/arguments/message").and_then(Value::as_str)
        && in_meta("clientCapabilities").is_some_and(Value::is_object)
        && in_meta("clientInfo").is_some_and(Value::is_object);
    if !agrees {
        let error = json!({"code": -32020, "message": "header mismatch"});
        return reply(StatusCode::BAD_REQUEST, &id, "error", error);
    }
    match method.as_str() {
        "server/discover" => {
            let result = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {}, "ttlMs": 1, "cacheScope": "public"});
            reply(StatusCode::OK, &id, "result", result)
        }
        "tools/call" => called(&message, heard),
        "prompts/get" => {
            let said = json!({"role": "user", "content": {"type": "text", "text": "from afar"}});
            reply(StatusCode::OK, &id, "result", json!({"resultType": "complete", "messages": [said]}))
        }
        "resources/read" => {
            let contents = json!([{"uri": params["uri"], "text": "from afar"}]);
            reply(StatusCode::OK, &id, "result", json!({"resultType": "complete", "contents": contents}))
        }
        _ => {
            let error = json!({"code": -32601, "message": "unknown method"});
            reply(StatusCode::NOT_FOUND, &id, "error", error)
        }
    }
}

/// Does what the argument `message` says.
fn called(message: &Value, heard: Heard) -> Response {
    let id = message["id"].clone();
    let params = &message["params"];
    let result = |told: &Value| {
        let result = json!({"resultType": "complete", "content": [], "structuredContent": {"told": told}});
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    };
    let stream = |messages: Vec<Value>| {
        let text: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
        ([("content-type", "text/event-stream")], text).into_response()
    };
    let token = params["_meta"]["progressToken"].clone();
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1}});
    match params["arguments"]["message"].as_str().unwrap() {
        "ask" if params["requestState"] == "s" => stream(vec![result(&params["inputResponses"]["who"])]),
        "ask" => {
            let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
            let asked = json!({"who": {"method": "elicitation/create",
                "params": {"mode": "form", "message": "Who?", "requestedSchema": form}}});
            let result = json!({"resultType": "input_required", "inputRequests": asked, "requestState": "s"});
            stream(vec![json!({"jsonrpc": "2.0", "id": id, "result": result})])
        }
        "fail" => {
            let error = json!({"code": -32099, "message": "not today"});
            reply(StatusCode::OK, &id, "error", error)
        }
        "hang" => {
            let closed = Closed(heard);
            let first = format!("data: {progress}\n\n");
            let body = futures::stream::once(async { first }).chain(futures::stream::once(async move {
                let _held = closed;
                std::future::pending().await
            }));
            let body = Body::from_stream(body.map(|text| Ok::<_, std::io::Error>(Bytes::from(text))));
            ([("content-type", "text/event-stream")], body).into_response()
        }
        said => stream(vec![progress, result(&json!(said))]),
    }
}

fn fixture(address: SocketAddr) -> Fixture {
    let mut snapshot = via_mcp(&["echo", "greeting", "about"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema.clear();
        primitive.max_runtime_seconds = 15;
        primitive.input_schema = json!({"type": "object", "properties": {
            "message": {"type": "string", "x-mcp-header": "Message"}}, "required": ["message"]})
        .to_string();
    }
    Fixture::of(snapshot)
}

pub(super) fn methods(heard: &Heard) -> Vec<String> {
    heard.borrow().iter().map(|(method, _)| method.clone()).collect()
}

/// A call of a client of 2026-07-28.
fn modern(message: &str) -> Modern {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    Modern::new("demo", &token("alice"), "tools/call", params).with("mcp-param-message", message)
}

async fn legacy(fixture: &Fixture, can: Value) -> Legacy {
    Legacy::connect(fixture, "demo", "alice", "2025-11-25", can).await
}

fn call(message: &str) -> Value {
    json!({"name": "echo", "arguments": {"message": message}, "_meta": {"progressToken": "p"}})
}

#[tokio::test]
async fn a_modern_upstream_serves_clients_of_both_eras_and_is_greeted_once() {
    let (address, heard) = upstream().await;
    let fixture = fixture(address);
    let client = legacy(&fixture, json!({})).await;
    let events = client.request(2, "tools/call", call("m")).await.events();
    let progress = events.iter().filter(|event| event["method"] == "notifications/progress").count();
    assert_eq!(progress, 1, "{events:?}");
    assert_eq!(events.last().unwrap()["result"]["structuredContent"]["told"], "m", "{events:?}");
    let answer = modern("m").send(&fixture).await.json();
    assert_eq!(answer["result"]["structuredContent"]["told"], "m", "{answer}");
    let error = modern("fail").send(&fixture).await.json();
    assert_eq!(error["error"]["message"], "not today", "{error}");
    let error = client.request(3, "tools/call", call("fail")).await;
    assert!(error.text.contains("not today"), "{}", error.text);
    let expected = ["initialize", "server/discover", "tools/call", "tools/call", "tools/call", "tools/call"];
    assert_eq!(methods(&heard), expected);
}

#[tokio::test]
async fn what_a_modern_upstream_asks_is_asked_of_the_calls_client_of_either_era() {
    let (address, heard) = upstream().await;
    let fixture = fixture(address);
    let can = json!({"elicitation": {}});
    let asked = modern("ask").capabilities(can.clone()).send(&fixture).await.json()["result"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let given = json!({"action": "accept", "content": {"name": "Ada"}});
    let mut again = modern("ask").capabilities(can.clone());
    again.body["params"]["requestState"] = asked["requestState"].clone();
    again.body["params"]["inputResponses"] = json!({key: given});
    let result = again.send(&fixture).await.json();
    assert_eq!(result["result"]["structuredContent"]["told"], given, "{result}");

    let client = legacy(&fixture, can.clone()).await;
    let request = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call("ask")});
    let mut body = client.open(&request).await.into_body();
    let asked = next(&mut body).await;
    client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": given})).await;
    let result = next(&mut body).await;
    assert_eq!(result["result"]["structuredContent"]["told"], given, "{result}");
    let calls: Vec<Value> =
        heard.borrow().iter().filter(|(method, _)| method == "tools/call").map(|(_, m)| m.clone()).collect();
    assert_eq!(calls.len(), 4);
    assert_ne!(calls[0]["id"], calls[1]["id"], "a request sent again has an id of its own");
    for call in &calls {
        assert_eq!(call.pointer(&format!("{META}clientCapabilities")), Some(&can));
    }
}

#[tokio::test]
async fn a_prompt_and_a_resource_of_a_modern_upstream_are_read() {
    let (address, _heard) = upstream().await;
    let fixture = fixture(address);
    let client = legacy(&fixture, json!({})).await;
    let prompt = client
        .request(2, "prompts/get", json!({"name": "greeting", "arguments": {"name": "Ada"}}))
        .await
        .json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "from afar", "{prompt}");
    let read = client.request(3, "resources/read", json!({"uri": "demo://about"})).await.json();
    assert_eq!(read["result"]["contents"][0]["text"], "from afar", "{read}");
}

#[tokio::test]
async fn a_cancelled_call_closes_its_response_at_a_modern_upstream() {
    let (address, heard) = upstream().await;
    let fixture = fixture(address);
    let client = legacy(&fixture, json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call("hang")});
    let mut body = client.open(&request).await.into_body();
    assert_eq!(next(&mut body).await["method"], "notifications/progress");
    client
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
        .await;
    let mut hears = heard.subscribe();
    let dropped = hears.wait_for(|heard| heard.iter().any(|(method, _)| method == "dropped"));
    tokio::time::timeout(PATIENCE, dropped).await.expect("the response is closed").unwrap();
    assert!(!methods(&heard).contains(&"notifications/cancelled".to_owned()));
}
