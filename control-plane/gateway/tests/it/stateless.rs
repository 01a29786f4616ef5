//! Servers with `sessions: stateless`: revisions with a handshake without a session.

use asp_proto::snapshot::Sessions;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, Legacy, Modern, snapshot, token};

const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// `demo` without sessions.
fn fixture() -> Fixture {
    let mut snapshot = snapshot();
    let servers = &mut snapshot.edge.as_mut().unwrap().servers;
    servers.iter_mut().find(|server| server.name == "demo").unwrap().sessions = Sessions::Stateless.into();
    Fixture::of(snapshot)
}

/// A client that has no session to send.
fn client(fixture: &Fixture, revision: &str) -> Legacy {
    Legacy {
        fixture: fixture.clone(),
        server: "demo".into(),
        token: token("alice"),
        session: String::new(),
        revision: revision.into(),
    }
}

/// A request as such a client sends it after its handshake.
async fn send(client: &Legacy, method: Method, session: Option<&str>, body: &str) -> Answer {
    let mut headers = client.headers();
    headers.push(("mcp-protocol-version", client.revision.clone()));
    if let Some(session) = session {
        headers.push(("mcp-session-id", session.to_owned()));
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    client.fixture.send(method, "/demo/mcp", &headers, body).await
}

async fn call(client: &Legacy, session: Option<&str>, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}).to_string();
    send(client, Method::POST, session, &message).await.json()
}

#[tokio::test]
async fn a_stateless_server_shakes_hands_without_a_session() {
    let fixture = fixture();
    for revision in REVISIONS {
        let client = client(&fixture, revision);
        let hello = json!({"protocolVersion": revision, "capabilities": {},
                           "clientInfo": {"name": "test", "version": "1"}});
        let answer = client.request(1, "initialize", hello).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert!(!answer.headers.contains_key("mcp-session-id"));
        assert!(!answer.headers.contains_key("set-cookie"));
        let result = &answer.json()["result"];
        assert_eq!(result["protocolVersion"], revision);
        // Nobody could be told of a change.
        for kind in ["tools", "prompts", "resources"] {
            assert_eq!(result["capabilities"][kind], json!({}), "{kind}");
        }
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        assert_eq!(send(&client, Method::POST, None, &note).await.status, StatusCode::ACCEPTED);
    }
}

#[tokio::test]
async fn a_stateless_server_has_neither_streams_nor_an_end_of_sessions() {
    let fixture = fixture();
    let client = client(&fixture, "2025-11-25");
    for method in [Method::GET, Method::DELETE] {
        for session in [None, Some("made-up")] {
            let answer = send(&client, method.clone(), session, "").await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
            assert_eq!(answer.headers["allow"], "POST");
        }
    }
}

#[tokio::test]
async fn calls_of_a_stateless_server_work_in_every_revision() {
    let fixture = fixture();
    for revision in REVISIONS {
        let client = client(&fixture, revision);
        // One that a client kept from before is as good as none.
        for session in [None, Some("made-up")] {
            let tools = call(&client, session, "tools/list", json!({})).await;
            assert_eq!(tools["result"]["tools"][0]["name"], "echo", "{tools}");
            let echo = json!({"name": "echo", "arguments": {"message": "hi"}});
            let echoed = call(&client, session, "tools/call", echo).await;
            assert_eq!(echoed["result"]["content"], json!([{"type": "text", "text": "hi"}]), "{echoed}");
            let structured = echoed["result"].get("structuredContent").is_some();
            assert_eq!(structured, revision != "2025-03-26", "{echoed}");
            let read = call(&client, session, "resources/read", json!({"uri": "demo://about"})).await;
            assert_eq!(read["result"]["contents"][0]["uri"], "demo://about", "{read}");
            let watched = call(&client, session, "resources/subscribe", json!({"uri": "demo://about"})).await;
            assert!(watched.get("error").is_some(), "there is no session to be told: {watched}");
        }
    }
    let echo = json!({"name": "echo", "arguments": {"message": "hi"}});
    let modern = Modern::new("demo", &token("alice"), "tools/call", echo).send(&fixture).await;
    assert_eq!(modern.json()["result"]["structuredContent"], json!({"message": "hi"}));
}

#[tokio::test]
async fn progress_of_a_stateless_server_comes_on_the_stream_of_its_call() {
    let client = client(&fixture(), "2025-11-25");
    let count = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params":
        {"name": "count", "arguments": {"to": 3, "delayMs": 1}, "_meta": {"progressToken": "p"}}});
    let events = send(&client, Method::POST, None, &count.to_string()).await.events();
    let steps: Vec<&Value> = events
        .iter()
        .filter(|event| event["method"] == "notifications/progress")
        .map(|event| &event["params"]["progress"])
        .collect();
    assert!(!steps.is_empty(), "{events:?}");
    assert_eq!(events.last().unwrap()["result"]["structuredContent"], json!({"counted": 3}));
}
