//! An upstream MCP server of 2026-07-28 alone, scripted, that says what changes: to whom that comes.

use axum::body::{Body, Bytes, to_bytes};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::sync::{mpsc, watch};

use super::asking::PATIENCE;
use super::modern::{Heard, answer, reply};
use super::*;
use crate::plugin::until_async;
use crate::subscriptions::{Stream, UPDATED};

const LISTEN: &str = "subscriptions/listen";

/// The server: its tools, and the streams of changes that are open, with what each tells of.
#[derive(Default)]
struct Teller {
    tools: Mutex<Value>,
    streams: Mutex<Vec<(Value, mpsc::UnboundedSender<String>)>>,
    /// It tells nobody of changes: it says so, or knows nothing of such streams.
    refuses: Mutex<Option<StatusCode>>,
}

impl Teller {
    /// Says it in each stream whose filter has this member.
    fn say(&self, member: &str, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let streams = self.streams.lock();
        for (_, stream) in streams.iter().filter(|(filter, _)| filter.get(member).is_some()) {
            let _ = stream.send(format!("data: {message}\n\n"));
        }
    }

    async fn answer(&self, request: Request, heard: Heard) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let refuses = *self.refuses.lock();
        match (message["method"].as_str(), refuses) {
            (Some(LISTEN), Some(status)) => {
                heard.send_modify(|heard| heard.push((LISTEN.into(), message.clone())));
                let error = json!({"code": -32601, "message": "no such method"});
                reply(status, &message["id"], "error", error)
            }
            (Some(LISTEN), None) => {
                assert_eq!(parts.headers["mcp-method"], LISTEN);
                heard.send_modify(|heard| heard.push((LISTEN.into(), message.clone())));
                let filter = message["params"]["notifications"].clone();
                let (sender, receiver) = mpsc::unbounded_channel();
                let meta = json!({"io.modelcontextprotocol/subscriptionId": message["id"]});
                let params = json!({"notifications": filter, "_meta": meta});
                let first = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params});
                sender.send(format!("data: {first}\n\n")).unwrap();
                self.streams.lock().push((filter, sender));
                let events = futures::stream::unfold(receiver, async |mut receiver| {
                    Some((receiver.recv().await?, receiver))
                });
                let body = Body::from_stream(events.map(|text| Ok::<_, std::io::Error>(Bytes::from(text))));
                ([("content-type", "text/event-stream")], body).into_response()
            }
            (Some("tools/call"), _) => {
                let told = json!({"told": message["params"]["arguments"]["message"]});
                let result = json!({"resultType": "complete", "content": [], "structuredContent": told});
                reply(StatusCode::OK, &message["id"], "result", result)
            }
            (Some("tools/list"), _) => {
                heard.send_modify(|heard| heard.push(("tools/list".into(), message.clone())));
                let result = json!({"resultType": "complete", "tools": *self.tools.lock()});
                reply(StatusCode::OK, &message["id"], "result", result)
            }
            _ => answer(Request::from_parts(parts, Body::from(body)), heard).await,
        }
    }
}

async fn upstream() -> (SocketAddr, Heard, Arc<Teller>) {
    let heard: Heard = watch::Sender::new(Vec::new());
    let teller = Arc::<Teller>::default();
    let (hears, tells) = (heard.clone(), teller.clone());
    let router = axum::Router::new()
        .fallback(async move |request: Request| tells.answer(request, hears.clone()).await);
    (serve(router).await, heard, teller)
}

/// Waits until the server was asked to tell of exactly these resources.
async fn listened_to(heard: &Heard, uris: &Value) {
    let is_it = |(method, message): &(String, Value)| {
        method == LISTEN && message["params"]["notifications"] == json!({"resourceSubscriptions": uris})
    };
    let mut hears = heard.subscribe();
    let found = hears.wait_for(|heard| heard.iter().any(is_it));
    tokio::time::timeout(PATIENCE, found).await.expect("the subscription").unwrap();
}

#[tokio::test]
async fn a_modern_upstreams_updates_are_told_and_none_is_missed_while_more_is_subscribed_to() {
    let (address, heard, teller) = upstream().await;
    let fixture = Fixture::of(via_mcp(&["about", "item"], address));
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let mut stream = Stream::open(&client).await;
    client.request(2, "resources/subscribe", json!({"uri": "demo://about"})).await;
    listened_to(&heard, &json!(["demo://about"])).await;
    let update = |uri: &str| teller.say("resourceSubscriptions", UPDATED, json!({"uri": uri}));
    update("demo://about");
    assert_eq!(stream.next().await.unwrap()["params"]["uri"], "demo://about");
    client.request(3, "resources/subscribe", json!({"uri": "demo://items/1"})).await;
    listened_to(&heard, &json!(["demo://about", "demo://items/1"])).await;
    // The stream before is closed once this one is open.
    until_async("one stream is left", async || {
        teller.streams.lock().retain(|(_, stream)| !stream.is_closed());
        teller.streams.lock().len() == 1
    })
    .await;
    update("demo://items/1");
    assert_eq!(stream.next().await.unwrap()["params"]["uri"], "demo://items/1");
    // It breaks off: anything may have been missed.
    teller.streams.lock().clear();
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(stream.next().await.unwrap()["params"]["uri"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, ["demo://about", "demo://items/1"]);
}

/// Its tool, as it was accepted.
fn accepted() -> Value {
    json!({"name": "echo", "inputSchema": {"type": "object"}})
}

/// A gateway that accepted the tool.
fn accepting(address: SocketAddr) -> Fixture {
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema.clear();
        if let Some(Mode::ProxyMcp(target)) = primitive.runtime.as_mut().and_then(|r| r.mode.as_mut()) {
            target.pin = asp_registry::pin::pin(&accepted());
        }
    }
    Fixture::of(snapshot)
}

async fn is_shown(fixture: &Fixture) -> bool {
    let list = Modern::new("demo", &token("alice"), "tools/list", json!({})).send(fixture).await.json();
    list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo")
}

/// The clock of this process goes on by so many seconds.
pub(super) async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_modern_upstream_that_refuses_to_tell_of_changes_is_looked_at_with_calls() {
    for status in [StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE] {
        let (address, heard, teller) = upstream().await;
        *teller.refuses.lock() = Some(status);
        *teller.tools.lock() = json!([accepted()]);
        let fixture = accepting(address);
        assert_eq!(echo(&fixture, "m").await["result"]["structuredContent"]["told"], "m", "{status}");
        until_async("it was asked to tell", async || {
            heard.borrow().iter().any(|(method, _)| method == LISTEN)
        })
        .await;
        *teller.tools.lock() = json!([]);
        assert!(is_shown(&fixture).await, "{status}: nobody has looked");
        later(6).await;
        let answer = echo(&fixture, "m").await;
        assert_eq!(answer["error"]["data"]["reason"], "unknown_primitive", "{status}: {answer}");
    }
}

#[tokio::test]
async fn what_a_modern_upstream_changes_while_its_watch_is_dead_is_seen_without_any_call() {
    let (address, _heard, teller) = upstream().await;
    *teller.tools.lock() = json!([accepted()]);
    let fixture = accepting(address);
    echo(&fixture, "m").await;
    until_async("changes are listened to", async || !teller.streams.lock().is_empty()).await;
    // It breaks off, is refused from now on, and the tool goes without a word.
    *teller.refuses.lock() = Some(StatusCode::SERVICE_UNAVAILABLE);
    *teller.tools.lock() = json!([]);
    teller.streams.lock().clear();
    until_async("it is hidden", async || !is_shown(&fixture).await).await;
    // Nobody can call it, and nobody says that it is back: it is found at the next look.
    *teller.tools.lock() = json!([accepted()]);
    later(61).await;
    until_async("it is shown again", async || is_shown(&fixture).await).await;
    // The watch is alive again.
    *teller.refuses.lock() = None;
    later(61).await;
    until_async("changes are listened to", async || !teller.streams.lock().is_empty()).await;
    *teller.tools.lock() = json!([]);
    teller.say("toolsListChanged", "notifications/tools/list_changed", json!({}));
    until_async("it is hidden", async || !is_shown(&fixture).await).await;
}

#[tokio::test]
async fn a_modern_upstream_says_that_a_tool_is_gone_and_it_is_hidden_before_anybody_calls() {
    let (address, _heard, teller) = upstream().await;
    let accepted = accepted();
    *teller.tools.lock() = json!([accepted]);
    let fixture = accepting(address);
    let is_shown = async || is_shown(&fixture).await;
    echo(&fixture, "m").await;
    assert!(is_shown().await);
    until_async("changes are listened to", async || !teller.streams.lock().is_empty()).await;
    for tools in [json!([]), json!([accepted])] {
        *teller.tools.lock() = tools.clone();
        teller.say("toolsListChanged", "notifications/tools/list_changed", json!({}));
        let expected = tools != json!([]);
        until_async("the tool is hidden or shown", async || is_shown().await == expected).await;
    }
}
