//! Resources of an upstream MCP server that clients here subscribe to: who is told when one has changed, and what the
//! upstream hears of it.

use super::asking::{PATIENCE, Server, connect, server};
use super::relayed::heard_of;
use super::*;
use crate::subscriptions::{Stream, UPDATED};

const ABOUT: &str = "demo://about";

/// An upstream that can do this, and a gateway whose resource is its.
async fn subscribable(can: Value) -> (Fixture, Arc<Server>) {
    let (address, server) = server(|talk| Box::pin(async move { talk.done(&json!("m")) })).await;
    *server.can.lock() = can;
    (Fixture::of(via_mcp(&["about"], address)), server)
}

/// Returns the number of messages of a method that the upstream received.
fn count(server: &Server, method: &str) -> usize {
    server.heard.borrow().iter().filter(|message| message["method"] == method).count()
}

/// The upstream says in a session that a resource has changed.
fn update(server: &Server, session: &str, uri: &str) {
    let updated = json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}});
    server.streams.lock()[session].send(format!("data: {updated}\n\n")).unwrap();
}

async fn is_told(stream: &mut Stream) {
    let told = stream.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!(ABOUT)), "{told}");
}

async fn modern(fixture: &Fixture) -> Stream {
    let asked = json!({"notifications": {"resourceSubscriptions": [ABOUT]}});
    let listen = Modern::new("demo", &token("alice"), "subscriptions/listen", asked);
    let mut stream = Stream::of(listen.open(fixture).await.into_body());
    assert_eq!(stream.method().await, "notifications/subscriptions/acknowledged");
    stream
}

#[tokio::test]
async fn clients_of_both_eras_are_told_what_an_upstream_says_and_it_is_subscribed_to_once() {
    let (fixture, server) = subscribable(json!({"resources": {"subscribe": true}})).await;
    let client = connect(&fixture, json!({})).await;
    let mut legacy = Stream::open(&client).await;
    client.request(2, "resources/subscribe", json!({"uri": ABOUT})).await;
    let mut modern = modern(&fixture).await;
    let mut heard = server.heard.subscribe();
    let is_it = |m: &Value| m["method"] == "resources/subscribe" && m["params"]["uri"] == ABOUT;
    heard_of(&mut heard, is_it).await;
    update(&server, "s0", "demo://other");
    update(&server, "s0", "demo://aboutness");
    update(&server, "s0", ABOUT);
    is_told(&mut legacy).await;
    is_told(&mut modern).await;
    // A part of it.
    update(&server, "s0", "demo://about/1");
    is_told(&mut legacy).await;
    is_told(&mut modern).await;
    assert_eq!((count(&server, "initialize"), count(&server, "resources/subscribe")), (1, 1));

    // It loses the session: what was missed meanwhile may be anything.
    server.lost.lock().push("s0".into());
    server.streams.lock().clear();
    is_told(&mut legacy).await;
    is_told(&mut modern).await;
    assert_eq!((count(&server, "initialize"), count(&server, "resources/subscribe")), (2, 2));
    update(&server, "s1", ABOUT);
    is_told(&mut legacy).await;
    is_told(&mut modern).await;

    // The last who leaves is who unsubscribes.
    client.request(3, "resources/unsubscribe", json!({"uri": ABOUT})).await;
    update(&server, "s1", ABOUT);
    is_told(&mut modern).await;
    assert_eq!(count(&server, "resources/unsubscribe"), 0);
    drop(modern);
    heard_of(&mut heard, |m| m["method"] == "resources/unsubscribe" && m["params"]["uri"] == ABOUT).await;
}

#[tokio::test]
async fn the_end_of_a_clients_session_ends_its_subscription_upstream() {
    let (fixture, server) = subscribable(json!({"resources": {"subscribe": true}})).await;
    let client = connect(&fixture, json!({})).await;
    client.request(2, "resources/subscribe", json!({"uri": ABOUT})).await;
    let mut heard = server.heard.subscribe();
    heard_of(&mut heard, |m| m["method"] == "resources/subscribe").await;
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = fixture.send(http::Method::DELETE, "/demo/mcp", &headers, "").await;
    assert_eq!(ended.status, StatusCode::OK);
    heard_of(&mut heard, |m| m["method"] == "resources/unsubscribe").await;
}

#[tokio::test]
async fn an_upstream_without_subscriptions_is_asked_for_none() {
    let (fixture, server) = subscribable(json!({"resources": {}})).await;
    let client = connect(&fixture, json!({})).await;
    client.request(2, "resources/subscribe", json!({"uri": ABOUT})).await;
    let ended = |heard: &Vec<Value>| heard.iter().any(|message| message["ended"] == "s0");
    let mut heard = server.heard.subscribe();
    tokio::time::timeout(PATIENCE, heard.wait_for(ended)).await.unwrap().unwrap();
    assert_eq!(count(&server, "resources/subscribe"), 0);
}

#[tokio::test]
async fn a_resource_that_comes_to_be_another_upstreams_is_followed_there() {
    let (address, server) = server(|talk| Box::pin(async move { talk.done(&json!("m")) })).await;
    *server.can.lock() = json!({"resources": {"subscribe": true}});
    let snapshot = via_mcp(&["about"], address);
    let mut moved = snapshot.clone();
    moved.revision += 1;
    for primitive in moved.primitives.iter_mut().filter(|primitive| primitive.id == "about") {
        if let Some(Mode::ProxyMcp(target)) = primitive.runtime.as_mut().and_then(|r| r.mode.as_mut()) {
            target.url = "http://service.internal/elsewhere/mcp".into();
        }
    }
    let fixture = Fixture::of(snapshot);
    let client = connect(&fixture, json!({})).await;
    let mut stream = Stream::open(&client).await;
    client.request(2, "resources/subscribe", json!({"uri": ABOUT})).await;
    let mut heard = server.heard.subscribe();
    heard_of(&mut heard, |m| m["method"] == "resources/subscribe").await;
    fixture.gateway.apply(moved).unwrap();
    // It may read otherwise there.
    is_told(&mut stream).await;
    heard_of(&mut heard, |m| m["method"] == "resources/unsubscribe").await;
    let both =
        |heard: &Vec<Value>| heard.iter().filter(|m| m["method"] == "resources/subscribe").count() == 2;
    tokio::time::timeout(PATIENCE, heard.wait_for(both)).await.unwrap().unwrap();
    update(&server, "s1", ABOUT);
    is_told(&mut stream).await;
}
