//! An upstream MCP server, scripted, that asks in the midst of a call: of whom, what it is told, and what it says besides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use tokio::sync::{mpsc, watch};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

/// Hang guard.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Sender of the server's events in one stream.
pub(super) type Said = mpsc::UnboundedSender<String>;
/// All that it was sent, in order.
pub(super) type Heard = watch::Receiver<Vec<Value>>;
/// Behaviour of the server for one call: it sends in the call's stream and in the session's, which another call may have.
type Script = Arc<dyn Fn(Talk) -> BoxFuture<'static, ()> + Send + Sync>;

/// One call at the server.
pub(super) struct Talk {
    /// The id of the call's request.
    id: Value,
    params: Value,
    stream: Said,
    pub(super) heard: Heard,
    server: Arc<Server>,
    session: String,
}

impl Talk {
    pub(super) fn say(&self, message: Value) {
        let _ = self.stream.send(format!("data: {message}\n\n"));
    }

    /// Says it in the stream of the session, which no request belongs to.
    fn say_apart(&self, message: &Value) {
        let streams = self.server.streams.lock();
        streams[&self.session].send(format!("data: {message}\n\n")).unwrap();
    }

    pub(super) fn ask(&self, id: &str, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// The answer to its request.
    pub(super) async fn told(&mut self, id: &str) -> Value {
        let is_it = |message: &&Value| message["id"] == id && message.get("method").is_none();
        let found = self.heard.wait_for(|heard| heard.iter().any(|message| is_it(&message)));
        let heard =
            tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no answer to {id}"));
        heard.unwrap().iter().find(is_it).unwrap().clone()
    }

    pub(super) fn done(&self, said: &Value) {
        let result =
            json!({"content": [], "structuredContent": {"told": said}, "_meta": {"a": 1, "asp/reason": "x"}});
        self.say(json!({"jsonrpc": "2.0", "id": self.id, "result": result}));
    }
}

impl Talk {
    pub(super) fn fail(&self, error: &Value) {
        self.say(json!({"jsonrpc": "2.0", "id": self.id, "error": error}));
    }
}

pub(super) struct Server {
    script: Script,
    pub(super) heard: watch::Sender<Vec<Value>>,
    pub(super) streams: Mutex<HashMap<String, Said>>,
    sessions: AtomicUsize,
    /// Its tools.
    pub(super) lists: Mutex<Value>,
    pub(super) can: Mutex<Value>,
    /// It does not answer what its tools are.
    pub(super) hangs: watch::Sender<bool>,
    /// The sessions that it knows no more.
    pub(super) lost: Mutex<Vec<String>>,
    /// Session of each request (empty before there is one) and its authentication.
    pub(super) proofs: Mutex<Vec<(String, Option<String>)>>,
}

pub(super) async fn upstream(
    script: impl Fn(Talk) -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> (SocketAddr, Heard) {
    let (address, server) = server(script).await;
    (address, server.heard.subscribe())
}

pub(super) async fn server(
    script: impl Fn(Talk) -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<Server>) {
    let server = Arc::new(Server {
        script: Arc::new(script),
        heard: watch::Sender::new(Vec::new()),
        streams: Mutex::default(),
        sessions: AtomicUsize::new(0),
        lists: Mutex::new(json!([])),
        can: Mutex::new(json!({"logging": {}})),
        hangs: watch::Sender::new(false),
        lost: Mutex::default(),
        proofs: Mutex::default(),
    });
    let serving = server.clone();
    let router = axum::Router::new().fallback(async move |request: Request| serving.answer(request).await);
    (serve(router).await, server)
}

fn stream(receiver: mpsc::UnboundedReceiver<String>) -> Response {
    let events =
        futures::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    // A comment, so that the client sees the head.
    let first = futures::stream::once(async { ":\n\n".to_owned() });
    let body = Body::from_stream(first.chain(events).map(|text| Ok::<_, std::io::Error>(Bytes::from(text))));
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Returns the authentication of a request: never a user's own token (I-8).
fn proof(request: &Request) -> Option<String> {
    let proof = request.headers().get("authorization").map(|proof| proof.to_str().unwrap().to_owned());
    let claims = proof.as_deref().and_then(|proof| proof.split('.').nth(1));
    let claims = claims.map(|claims| URL_SAFE_NO_PAD.decode(claims).unwrap());
    assert!(
        !claims.is_some_and(|claims| String::from_utf8_lossy(&claims).contains("\"asp-dev\"")),
        "{proof:?}"
    );
    proof
}

/// One value, made of the argument and what was typed of it.
fn completed(message: &Value) -> Value {
    let argument = &message["params"]["argument"];
    let value = format!("{}-{}", argument["name"].as_str().unwrap(), argument["value"].as_str().unwrap());
    json!({"completion": {"values": [value], "total": 3, "hasMore": true}})
}

impl Server {
    async fn answer(self: &Arc<Self>, request: Request) -> Response {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let session = session.unwrap_or_default();
        self.proofs.lock().push((session.clone(), proof(&request)));
        if self.lost.lock().contains(&session) {
            return StatusCode::NOT_FOUND.into_response();
        }
        if request.method() == "GET" {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.streams.lock().insert(session, sender);
            return stream(receiver);
        }
        if request.method() == "DELETE" {
            self.heard.send_modify(|heard| heard.push(json!({"ended": session})));
            return StatusCode::OK.into_response();
        }
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.heard.send_modify(|heard| heard.push(message.clone()));
        match message["method"].as_str() {
            Some("initialize") => {
                let number = self.sessions.fetch_add(1, Ordering::Relaxed);
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": *self.can.lock(), "serverInfo": {}});
                let body = axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
                ([("mcp-session-id", format!("s{number}"))], body).into_response()
            }
            Some("completion/complete") => {
                axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": completed(&message)}))
                    .into_response()
            }
            Some("resources/subscribe" | "resources/unsubscribe") => {
                axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": {}})).into_response()
            }
            Some("tools/list") => {
                // Err: the test is over.
                let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
                let result = json!({"tools": *self.lists.lock()});
                axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
            }
            Some("tools/call") => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let id = message["id"].clone();
                let params = message["params"].clone();
                let heard = self.heard.subscribe();
                tokio::spawn((self.script)(Talk {
                    id,
                    params,
                    stream: sender,
                    heard,
                    server: self.clone(),
                    session,
                }));
                stream(receiver)
            }
            Some(_) if !message["id"].is_null() => {
                let error = json!({"code": -32601, "message": "unknown method"});
                axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "error": error})).into_response()
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    }
}

pub(super) fn fixture(address: SocketAddr) -> Fixture {
    fixture_with_pages(address, &[])
}

pub(super) fn fixture_with_pages(address: SocketAddr, pages: &[&str]) -> Fixture {
    Fixture::of(snapshot_with_pages(address, pages))
}

pub(super) fn snapshot_with_pages(address: SocketAddr, pages: &[&str]) -> GatewaySnapshot {
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema.clear();
        primitive.max_runtime_seconds = 15;
        if let Some(Mode::ProxyMcp(target)) = primitive.runtime.as_mut().and_then(|r| r.mode.as_mut()) {
            target.pages = pages.iter().map(|page| (*page).to_owned()).collect();
        }
    }
    snapshot
}

fn form() -> Value {
    json!({"message": "Who?", "requestedSchema": {
        "type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"]}})
}

pub(super) fn call(id: u64) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": "m"}, "_meta": {"progressToken": "p"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// The next message of a client's stream.
pub(super) async fn next(body: &mut Body) -> Value {
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a message").unwrap().unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: "))
            && !data.is_empty()
        {
            return serde_json::from_str(data).unwrap();
        }
    }
}

pub(super) async fn connect(fixture: &Fixture, can: Value) -> Legacy {
    Legacy::connect(fixture, "demo", "alice", "2025-11-25", can).await
}

#[tokio::test]
async fn what_an_upstream_asks_is_asked_of_the_calls_client_and_the_answer_brought_back() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            talk.say(json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
            talk.ask("f", "elicitation/create", form());
            talk.ask("r", "roots/list", json!({}));
            let token = talk.params["_meta"]["progressToken"].clone();
            // Beside the open questions.
            talk.say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}));
            let message = json!({"role": "user", "content": {"type": "text", "text": "x"}});
            talk.ask("s", "sampling/createMessage", json!({"messages": [message], "maxTokens": 9}));
            let mut said = Vec::new();
            for id in ["p", "f", "r", "s"] {
                said.push(talk.told(id).await["result"].clone());
            }
            talk.done(&json!(said));
        })
    })
    .await;
    let client = connect(&fixture(address), json!({"elicitation": {}, "roots": {}, "sampling": {}})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let sampled = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "y"}});
    let roots = json!({"roots": [{"uri": "file:///src"}]});
    let mut progressed = 0;
    let result = loop {
        let message = next(&mut body).await;
        let answer = match message["method"].as_str() {
            Some("elicitation/create") => json!({"action": "accept", "content": {"name": "Ada", "more": 1}}),
            Some("roots/list") => roots.clone(),
            Some("sampling/createMessage") => sampled.clone(),
            Some("notifications/progress") => {
                progressed += 1;
                continue;
            }
            _ => break message,
        };
        client.post(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer})).await;
    };
    // The upstream judges what its form does not name.
    let form = json!({"action": "accept", "content": {"name": "Ada", "more": 1}});
    assert_eq!(result["result"]["structuredContent"]["told"], json!([{}, form, roots, sampled]), "{result}");
    assert_eq!((progressed, &result["result"]["_meta"]["a"]), (1, &json!(1)));
    assert!(result["result"]["_meta"].get("asp/reason").is_none(), "{result}");
    let heard = heard.borrow();
    let declared =
        &heard.iter().find(|message| message["method"] == "initialize").unwrap()["params"]["capabilities"];
    assert_eq!(*declared, json!({"elicitation": {}, "roots": {}, "sampling": {}}));
}

#[tokio::test]
async fn what_a_client_cannot_do_is_not_declared_and_refused() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            talk.ask("f", "elicitation/create", form());
            talk.ask(
                "u",
                "elicitation/create",
                json!({"mode": "url", "url": "https://a.example", "message": "m"}),
            );
            talk.ask("r", "roots/list", json!({}));
            talk.ask("x", "tools/list", json!({}));
            let mut said = Vec::new();
            for id in ["f", "u", "r", "x"] {
                said.push(talk.told(id).await["error"]["code"].clone());
            }
            talk.done(&json!(said));
        })
    })
    .await;
    let client = connect(&fixture(address), json!({"sampling": {}})).await;
    let answer = client.post(&call(2)).await;
    let result = answer.json();
    assert_eq!(
        result["result"]["structuredContent"]["told"],
        json!([-32601, -32602, -32601, -32601]),
        "{result}"
    );
    let heard = heard.borrow();
    let declared =
        &heard.iter().find(|message| message["method"] == "initialize").unwrap()["params"]["capabilities"];
    assert_eq!(*declared, json!({"sampling": {}}));
}

#[tokio::test]
async fn a_modern_client_answers_by_calling_again_and_the_upstream_is_called_once() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            talk.ask("f", "elicitation/create", form());
            let said = talk.told("f").await["result"].clone();
            talk.done(&said);
        })
    })
    .await;
    let fixture = fixture(address);
    let request = |extra: Value| {
        let mut params = json!({"name": "echo", "arguments": {"message": "m"}});
        for (name, value) in extra.as_object().unwrap() {
            params[name] = value.clone();
        }
        Modern::new("demo", &token("alice"), "tools/call", params).capabilities(json!({"elicitation": {}}))
    };
    let asked = request(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    let again = json!({"requestState": asked["requestState"], "inputResponses": answers});
    let result = request(again).send(&fixture).await.json();
    let told = &result["result"]["structuredContent"]["told"];
    assert_eq!(*told, json!({"action": "accept", "content": {"name": "Ada"}}), "{result}");
    let calls = heard.borrow().iter().filter(|message| message["method"] == "tools/call").count();
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn a_question_that_the_upstream_takes_back_is_open_no_longer() {
    let (address, _heard) = upstream(|talk| {
        Box::pin(async move {
            talk.ask("f", "elicitation/create", form());
            // What was asked is at the client before it is taken back.
            talk.heard.clone().wait_for(|heard| heard.iter().any(|m| m["method"] == "seen")).await.ok();
            talk.say(
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "f"}}),
            );
            talk.say(json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
            let mut talk = talk;
            talk.told("p").await;
            talk.done(&json!("taken back"));
        })
    })
    .await;
    let fixture = fixture(address);
    let client = connect(&fixture, json!({"elicitation": {}})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let asked = next(&mut body).await;
    assert_eq!(asked["method"], "elicitation/create");
    let url = format!("http://{address}/");
    reqwest::Client::new().post(url).body(json!({"method": "seen"}).to_string()).send().await.unwrap();
    let taken_back = next(&mut body).await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    let result = next(&mut body).await;
    assert_eq!(result["result"]["structuredContent"]["told"], "taken back", "{result}");
}

#[tokio::test]
async fn what_is_asked_outside_of_a_request_is_of_the_sessions_only_call_or_of_nobody() {
    let (address, _heard) = upstream(|mut talk| {
        Box::pin(async move {
            let id = format!("r{}", talk.id);
            talk.say_apart(&json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}));
            let told = talk.told(&id).await;
            talk.done(told.get("result").unwrap_or(&told["error"]["code"]));
        })
    })
    .await;
    let fixture = fixture(address);
    let can = json!({"roots": {}});
    let client = connect(&fixture, can.clone()).await;
    let mut body = client.open(&call(2)).await.into_body();
    let asked = next(&mut body).await;
    assert_eq!(asked["method"], "roots/list", "{asked}");
    // Another client's call is in a session of its own.
    let other = connect(&fixture, can).await;
    let mut others = other.open(&call(2)).await.into_body();
    let asked_too = next(&mut others).await;
    for (client, body, asked, uri) in
        [(&client, &mut body, asked, "file:///a"), (&other, &mut others, asked_too, "file:///b")]
    {
        let roots = json!({"roots": [{"uri": uri}]});
        client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots})).await;
        assert_eq!(next(body).await["result"]["structuredContent"]["told"], roots);
    }
}

#[tokio::test]
async fn with_two_calls_in_a_session_nobody_is_asked_outside_of_them() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            let two = |heard: &Vec<Value>| heard.iter().filter(|m| m["method"] == "tools/call").count() == 2;
            talk.heard.wait_for(two).await.ok();
            let id = format!("r{}", talk.id);
            talk.say_apart(&json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}));
            let code = talk.told(&id).await["error"]["code"].clone();
            // Both have heard before either ends.
            let both =
                |heard: &Vec<Value>| heard.iter().filter(|m| m["error"]["code"] == -32000).count() == 2;
            talk.heard.wait_for(both).await.ok();
            talk.done(&code);
        })
    })
    .await;
    let client = connect(&fixture(address), json!({"roots": {}})).await;
    let first = call(2);
    let second = call(3);
    let (one, two) = futures::join!(client.post(&first), client.post(&second));
    for answer in [one, two] {
        let result =
            answer.text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer.text);
        let result: Value = serde_json::from_str(result).unwrap();
        assert_eq!(result["result"]["structuredContent"]["told"], -32000, "{result}");
    }
    assert_eq!(heard.borrow().iter().filter(|message| message["method"] == "initialize").count(), 1);
}

#[tokio::test]
async fn calls_without_a_session_have_one_upstream_each_while_they_run() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            let two = |heard: &Vec<Value>| heard.iter().filter(|m| m["method"] == "tools/call").count() >= 2;
            talk.heard.wait_for(two).await.ok();
            talk.done(&json!(talk.session));
        })
    })
    .await;
    let fixture = fixture(address);
    let (one, two) = futures::join!(echo(&fixture, "a"), echo(&fixture, "b"));
    let told = |answer: &Value| answer["result"]["structuredContent"]["told"].clone();
    assert_ne!(told(&one), told(&two), "{one} {two}");
    let third = echo(&fixture, "c").await;
    assert!([told(&one), told(&two)].contains(&told(&third)), "{third}");
    assert_eq!(heard.borrow().iter().filter(|message| message["method"] == "initialize").count(), 2);
}
