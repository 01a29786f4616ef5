//! Recipients of change notifications and their streams: legacy sessions, within their bounds (I-4).

use std::time::Duration;

use asp_pipeline::subscriptions::subscriber::MAX_RESOURCES;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Binding, ExposureException, GatewaySnapshot, Protocol, RevokedBefore, TargetKind};
use asp_registry::{Inputs, assemble};
use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, claims, inputs, now, sign, token};

#[path = "subscriptions/bounds.rs"]
mod bounds;
#[path = "subscriptions/ends.rs"]
mod ends;

/// Hang guard of one message.
pub(crate) const BOUND: Duration = Duration::from_secs(10);
pub(crate) const TOOLS: &str = "notifications/tools/list_changed";
pub(crate) const PROMPTS: &str = "notifications/prompts/list_changed";
pub(crate) const RESOURCES: &str = "notifications/resources/list_changed";
pub(crate) const UPDATED: &str = "notifications/resources/updated";

/// A snapshot after the first one.
pub(crate) fn at(revision: u64, change: impl FnOnce(&mut Inputs)) -> GatewaySnapshot {
    let mut inputs = inputs();
    inputs.revision = revision;
    change(&mut inputs);
    assemble(inputs)
}

/// Takes a primitive away from some users of acme.
pub(crate) fn deny(inputs: &mut Inputs, primitive: &str, users: &[&str]) {
    inputs.bindings.extend(users.iter().map(|user| Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: (*user).into(),
        primitive: primitive.into(),
        protocol: Protocol::Mcp.into(),
        allowed: false,
        ..Binding::default()
    }));
}

/// Gives demo://about another text, on every server that lists it.
pub(crate) fn rewrite(inputs: &mut Inputs) {
    let primitives = inputs.servers.iter_mut().flat_map(|server| &mut server.primitives);
    for about in primitives.filter(|primitive| primitive.id == "about") {
        let mode = about.runtime.as_mut().and_then(|runtime| runtime.mode.as_mut());
        let Some(Mode::Static(content)) = mode else { panic!("demo://about is static") };
        content.json = content.json.replace("demo server", "changed server");
    }
}

/// An open stream, of either era.
pub(crate) struct Stream {
    body: Body,
    held: String,
}

impl Stream {
    pub(crate) fn of(body: Body) -> Stream {
        Stream { body, held: String::new() }
    }

    pub(crate) async fn open(client: &Legacy) -> Stream {
        let response = get(client).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream::of(response.into_body())
    }

    /// The next message that is no ping; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let message = self.message(BOUND).await?;
            if message["method"] != "ping" {
                return Some(message);
            }
        }
    }

    /// The next one of all; `bound` is that of what comes, comments included.
    async fn message(&mut self, bound: Duration) -> Option<Value> {
        loop {
            if let Some(end) = self.held.find("\n\n") {
                let event: String = self.held.drain(..end + 2).collect();
                if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(serde_json::from_str(data).unwrap());
                }
                continue;
            }
            let frame =
                tokio::time::timeout(bound, self.body.frame()).await.expect("a message or the end")?;
            let text = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
            self.held.push_str(&text.replace("\r\n", "\n"));
        }
    }

    pub(crate) async fn method(&mut self) -> String {
        self.next().await.expect("the stream is open")["method"].as_str().unwrap().to_owned()
    }
}

async fn get(client: &Legacy) -> axum::response::Response {
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    client.fixture.open(Method::GET, &format!("/{}/mcp", client.server), &headers, "").await
}

async fn connect(fixture: &Fixture, user: &str) -> Legacy {
    Legacy::connect(fixture, "demo", user, "2025-11-25", json!({})).await
}

async fn subscribe(client: &Legacy, uri: &str) -> Value {
    client.request(20, "resources/subscribe", json!({"uri": uri})).await.json()
}

#[tokio::test]
async fn a_list_change_is_told_to_those_alone_whose_own_list_changed() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let bob = connect(&fixture, "bob").await;
    let mut alices = Stream::open(&alice).await;
    let mut bobs = Stream::open(&bob).await;
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["bob"]))).unwrap();
    assert_eq!(bobs.next().await.unwrap(), json!({"jsonrpc": "2.0", "method": TOOLS, "params": {}}));
    let change = |i: &mut Inputs| {
        deny(i, "clock", &["bob"]);
        deny(i, "greeting", &["alice", "bob"]);
        deny(i, "item", &["alice"]);
    };
    fixture.gateway.apply(at(3, change)).unwrap();
    assert_eq!(alices.method().await, PROMPTS, "nothing of bob's tools");
    assert_eq!(alices.method().await, RESOURCES, "a template is of the resources");
    assert_eq!(bobs.method().await, PROMPTS);
    // The same once more, then bob's tools are back.
    fixture.gateway.apply(at(4, change)).unwrap();
    fixture.gateway.apply(at(5, |_| {})).unwrap();
    assert_eq!(bobs.method().await, TOOLS);
    assert_eq!(bobs.method().await, PROMPTS);
    assert_eq!(alices.method().await, PROMPTS);
}

#[tokio::test]
async fn a_resource_whose_content_changed_is_told_to_who_subscribed_and_to_nobody_else() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let bob = connect(&fixture, "bob").await;
    assert_eq!(subscribe(&alice, "demo://about").await["result"], json!({}));
    assert_eq!(subscribe(&bob, "demo://about").await["result"], json!({}));
    let gone = bob.request(21, "resources/unsubscribe", json!({"uri": "demo://about"})).await.json();
    assert_eq!(gone["result"], json!({}));
    let mut alices = Stream::open(&alice).await;
    let mut bobs = Stream::open(&bob).await;
    fixture.gateway.apply(at(2, rewrite)).unwrap();
    assert_eq!(
        alices.next().await.unwrap(),
        json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "demo://about"}})
    );
    fixture.gateway.apply(at(3, |i| deny(i, "clock", &["alice", "bob"]))).unwrap();
    assert_eq!(bobs.method().await, TOOLS, "no update to who unsubscribed");
    assert_eq!(alices.method().await, TOOLS);
    assert_eq!(alices.method().await, UPDATED, "the text is the former one again");
}

#[tokio::test]
async fn what_its_caller_can_no_longer_see_is_told_to_nobody() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    assert_eq!(subscribe(&alice, "demo://about").await["result"], json!({}));
    let mut stream = Stream::open(&alice).await;
    let change = |i: &mut Inputs| {
        rewrite(i);
        deny(i, "about", &["alice"]);
    };
    fixture.gateway.apply(at(2, change)).unwrap();
    assert_eq!(stream.method().await, RESOURCES);
    fixture
        .gateway
        .apply(at(3, |i| {
            change(i);
            deny(i, "clock", &["alice"]);
        }))
        .unwrap();
    assert_eq!(stream.method().await, TOOLS, "no update of what is hidden");
}

#[tokio::test]
async fn a_subscription_is_refused_like_a_read() {
    let mut inputs = inputs();
    deny(&mut inputs, "about", &["bob"]);
    let fixture = Fixture::of(assemble(inputs));
    let bob = connect(&fixture, "bob").await;
    for uri in ["demo://about", "demo://nope"] {
        let read = bob.request(20, "resources/read", json!({"uri": uri})).await.json();
        assert_eq!(subscribe(&bob, uri).await, read, "{uri}");
        assert_eq!(read["error"]["code"], -32002);
    }
    assert_eq!(subscribe(&bob, "demo://items/7").await["result"], json!({}));
    let artifact = subscribe(&bob, "asp-artifact://x/y").await;
    assert_eq!(artifact["error"]["code"], -32602);
    let nothing = bob.request(22, "resources/subscribe", json!({})).await;
    assert_eq!(nothing.reason(), "invalid_params");
}

#[tokio::test]
async fn a_session_subscribes_to_a_bounded_number_of_resources() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    for number in 0..MAX_RESOURCES {
        assert_eq!(subscribe(&alice, &format!("demo://items/{number}")).await["result"], json!({}));
    }
    let full = subscribe(&alice, "demo://about").await;
    assert_eq!(full["error"]["data"]["reason"], "rate_limited", "{full}");
    assert_eq!(subscribe(&alice, "demo://items/0").await["result"], json!({}), "it has this one");
    alice.request(21, "resources/unsubscribe", json!({"uri": "demo://items/0"})).await;
    assert_eq!(subscribe(&alice, "demo://about").await["result"], json!({}));
    let bob = connect(&fixture, "bob").await;
    for number in 0..100 {
        let answer = subscribe(&bob, &format!("demo://items/{number}{}", "x".repeat(1000))).await;
        if answer["error"]["data"]["reason"] == "rate_limited" {
            assert!((40..60).contains(&number), "{number}");
            return;
        }
    }
    panic!("long URIs have no bound");
}

#[tokio::test]
async fn what_changed_while_no_stream_was_open_is_told_by_the_next_one() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    subscribe(&alice, "demo://about").await;
    drop(Stream::open(&alice).await);
    fixture.gateway.apply(at(2, rewrite)).unwrap();
    let mut stream = Stream::open(&alice).await;
    assert_eq!(stream.method().await, UPDATED);
}

#[tokio::test]
async fn of_the_streams_of_a_session_one_tells_each_message_and_a_fifth_ends_the_first() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let mut first = Stream::open(&alice).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(Stream::open(&alice).await);
    }
    assert_eq!(first.next().await, None);
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["alice"]))).unwrap();
    let told = others.iter_mut().map(|stream| Box::pin(stream.method()));
    let (told, _, rest) = futures::future::select_all(told).await;
    assert_eq!(told, TOOLS);
    fixture.gateway.apply(at(3, |i| deny(i, "greeting", &["alice"]))).unwrap();
    let (second, _, rest) = futures::future::select_all(rest).await;
    let (third, _, _) = futures::future::select_all(rest).await;
    assert_eq!([second.as_str(), third.as_str()], [TOOLS, PROMPTS], "neither is told twice");
}

#[tokio::test]
async fn a_stream_ends_with_its_session_its_token_and_its_server() {
    let off = ExposureException {
        org: "acme".into(),
        server: "demo".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    };
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now(),
        ..Default::default()
    };
    let rows = [
        ("revoked", at(2, |i| i.revoked_before = vec![revoked])),
        ("switched off", at(2, |i| i.exposure = vec![off])),
        ("gone", at(2, |i| i.servers.retain(|server| server.server.name != "demo"))),
    ];
    for (what, next) in rows {
        let fixture = Fixture::new();
        let alice = connect(&fixture, "alice").await;
        let mut stream = Stream::open(&alice).await;
        fixture.gateway.apply(next).unwrap();
        assert_eq!(stream.next().await, None, "{what}");
    }
    let fixture = Fixture::new();
    let mut dying = claims("alice");
    dying["exp"] = json!(now() - 8);
    dying["iat"] = json!(now() - 600);
    let alice = Legacy::connect_as(&fixture, "demo", sign(&dying), "2025-11-25", json!({})).await;
    assert_eq!(Stream::open(&alice).await.next().await, None, "expired");
    let alice = connect(&fixture, "alice").await;
    let mut stream = Stream::open(&alice).await;
    let headers = alice.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(fixture.send(Method::DELETE, "/demo/mcp", &headers, "").await.status, StatusCode::OK);
    assert_eq!(stream.next().await, None, "deleted");
    assert_eq!(get(&alice).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stream_needs_a_session_of_the_callers_own_and_a_client_that_takes_one() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let bearer = format!("Bearer {}", token("alice"));
    let bobs = format!("Bearer {}", token("bob"));
    let bearer = bearer.as_str();
    let bobs = bobs.as_str();
    let session = alice.session.as_str();
    type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, u16);
    let rows: [Row<'_>; 5] = [
        ("no session", vec![("authorization", bearer), ("accept", "text/event-stream")], 400),
        (
            "another user's",
            vec![("authorization", bobs), ("accept", "text/event-stream"), ("mcp-session-id", session)],
            404,
        ),
        (
            "JSON alone",
            vec![("authorization", bearer), ("accept", "application/json"), ("mcp-session-id", session)],
            406,
        ),
        (
            "the modern era",
            vec![
                ("authorization", bearer),
                ("accept", "text/event-stream"),
                ("mcp-session-id", session),
                ("mcp-protocol-version", "2026-07-28"),
            ],
            405,
        ),
        (
            "an unknown version",
            vec![
                ("authorization", bearer),
                ("accept", "text/event-stream"),
                ("mcp-session-id", session),
                ("mcp-protocol-version", "1999-01-01"),
            ],
            400,
        ),
    ];
    for (what, headers, status) in rows {
        let answer = fixture.send(Method::GET, "/demo/mcp", &headers, "").await;
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_capabilities_say_what_clients_are_told_of() {
    let fixture = Fixture::new();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}}});
    for (server, listens) in [("demo", true), ("everything", true), ("policy", false)] {
        let client = Legacy {
            fixture: fixture.clone(),
            server: server.into(),
            token: token("alice"),
            session: String::new(),
            revision: "2025-06-18".into(),
        };
        let answer = client.post(&initialize).await.json();
        let capabilities = &answer["result"]["capabilities"];
        assert_eq!(capabilities["tools"], json!({"listChanged": true}), "{server}");
        let resources = json!({"listChanged": true, "subscribe": true});
        assert_eq!(capabilities.get("resources"), listens.then_some(&resources), "{server}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_listens_is_asked_whether_it_is_there_and_its_answer_is_use_of_the_session() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    alice.request(1, "logging/setLevel", json!({"level": "error"})).await;
    let mut stream = Stream::open(&alice).await;
    // A comment comes every 15 s.
    let ping = stream.message(Duration::from_secs(20)).await.unwrap();
    assert_eq!((&ping["method"], &ping["params"]), (&json!("ping"), &json!({})));
    // Without the answer the session would be idle for an hour by then.
    tokio::time::advance(Duration::from_secs(3590)).await;
    let pong = json!({"jsonrpc": "2.0", "id": ping["id"], "result": {}});
    assert_eq!(alice.post(&pong).await.status, StatusCode::ACCEPTED);
    tokio::time::advance(Duration::from_secs(30)).await;
    fixture.gateway.sessions.sweep();
    assert_eq!(fixture.gateway.sessions.len(), 1);
}

/// The client of a stream waits for what comes next, and nothing does.
async fn reads_on(stream: &mut Stream) {
    assert!(futures::poll!(std::pin::pin!(stream.next())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_does_not_read_is_closed_and_others_are_told() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let bob = connect(&fixture, "bob").await;
    let mut stalled = Stream::open(&alice).await;
    let mut reading = Stream::open(&bob).await;
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["alice", "bob"]))).unwrap();
    assert_eq!(reading.method().await, TOOLS);
    reads_on(&mut reading).await;
    tokio::time::advance(Duration::from_secs(59)).await;
    fixture.gateway.subscriptions.sweep();
    let mut slow = Stream::open(&alice).await;
    assert_eq!(slow.method().await, TOOLS, "nobody was closed yet, and the message is told once");
    fixture.gateway.apply(at(3, |i| deny(i, "greeting", &["alice", "bob"]))).unwrap();
    assert_eq!(reading.method().await, TOOLS);
    assert_eq!(reading.method().await, PROMPTS);
    reads_on(&mut reading).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    fixture.gateway.subscriptions.sweep();
    assert_eq!(stalled.next().await, None);
    assert_eq!(slow.next().await, None);
    reads_on(&mut reading).await;
    let mut again = Stream::open(&alice).await;
    assert_eq!(again.method().await, TOOLS, "what waited is told to who comes back");
}
