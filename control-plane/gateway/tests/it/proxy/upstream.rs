//! An upstream MCP server, scripted: what it hears of cancels and ends, and what its refusals become.

use std::time::Duration;

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::*;

/// Hang guard.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cancelled backend has 100 ms.
const BEYOND_GRACE: Duration = Duration::from_millis(400);

/// Reaction to `tools/call`.
#[derive(Clone, Copy)]
enum Script {
    Hang,
    Refuse(u16),
    Done,
}

/// `METHOD method session` of every request that came, in order.
type Heard = watch::Receiver<Vec<String>>;

/// Starts the server. It takes a cancel after a while only, and not from somebody who has gone by then.
async fn upstream(script: Script, greets: u16) -> (SocketAddr, Heard) {
    let (sender, heard) = watch::channel(Vec::new());
    let sender = Arc::new(sender);
    let router = axum::Router::new().fallback(async move |request: Request| {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let verb = request.method().to_string();
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method == "notifications/cancelled" {
            tokio::time::sleep(BEYOND_GRACE).await;
        }
        sender.send_modify(|heard| heard.push(format!("{verb} {method} {}", session.unwrap_or_default())));
        let id = message["id"].clone();
        answer(script, greets, &method, id).await
    });
    (serve(router).await, heard)
}

async fn answer(script: Script, greets: u16, method: &str, id: Value) -> Response {
    let refuse = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap();
        (status, [("retry-after", "3")], "token=abc").into_response()
    };
    match (method, script) {
        ("initialize", _) if greets != 200 => refuse(greets),
        ("initialize", _) => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
            let body = axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result}));
            ([("mcp-session-id", "s1")], body).into_response()
        }
        ("tools/call", Script::Hang) => std::future::pending().await,
        ("tools/call", Script::Refuse(status)) => refuse(status),
        ("tools/call", Script::Done) => {
            let result = json!({"content": [], "structuredContent": {"ok": true}});
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

async fn hears(heard: &mut Heard, what: &str) {
    let found = heard.wait_for(|heard| heard.iter().any(|one| one == what));
    let found = tokio::time::timeout(PATIENCE, found).await.is_ok();
    assert!(found, "{what} never came");
}

fn fixture(address: SocketAddr, mutation: Mutation) -> Fixture {
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.set_mutation(mutation);
        primitive.output_schema.clear();
        // The connection and its initialize are a part of it.
        primitive.max_runtime_seconds = 2;
    }
    Fixture::of(snapshot)
}

/// The reason and the text of a call that failed.
async fn fails(fixture: &Fixture) -> (String, Value) {
    let answer = echo(fixture, "m").await;
    let reason = match answer.get("error") {
        Some(error) => error["data"]["reason"].clone(),
        None => answer["result"]["_meta"]["asp/reason"].clone(),
    };
    (reason.as_str().unwrap_or_default().to_owned(), answer)
}

#[tokio::test]
async fn a_cancel_reaches_an_upstream_although_the_call_has_ended() {
    let (address, mut heard) = upstream(Script::Hang, 200).await;
    let (reason, answer) = fails(&fixture(address, Mutation::ReadOnly)).await;
    assert_eq!(reason, "deadline", "{answer}");
    hears(&mut heard, "POST notifications/cancelled s1").await;
}

#[tokio::test]
async fn a_refusal_by_status_is_definite_and_says_which() {
    for (status, reason) in [
        (400, "upstream_unavailable"),
        (401, "upstream_unavailable"),
        (403, "upstream_unavailable"),
        (409, "upstream_unavailable"),
        (422, "upstream_unavailable"),
        (405, "upstream_unavailable"),
        (429, "rate_limited"),
        (302, "upstream_unavailable"),
    ] {
        for (script, greets) in [(Script::Refuse(status), 200), (Script::Done, status)] {
            let (address, _heard) = upstream(script, greets).await;
            let fixture = fixture(address, Mutation::NonIdempotent);
            // More than a breaker bears: who refuses is there.
            for _ in 0..12 {
                let (found, answer) = fails(&fixture).await;
                assert_eq!(found, reason, "{status}: {answer}");
                assert!(!answer.to_string().contains("gets no requests now"), "{status}: {answer}");
                assert!(!answer.to_string().contains("abc"), "{answer}");
                if status == 429 {
                    assert_eq!(answer["result"]["_meta"]["asp/retryAfterMs"], 3000, "{answer}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_may_have_been_work_stays_unknown() {
    for status in [408, 500, 502] {
        let (address, _heard) = upstream(Script::Refuse(status), 200).await;
        let (reason, answer) = fails(&fixture(address, Mutation::NonIdempotent)).await;
        assert_eq!(reason, "outcome_unknown", "{status}: {answer}");
        // A handshake is no work.
        let (address, _heard) = upstream(Script::Done, status).await;
        let (reason, answer) = fails(&fixture(address, Mutation::NonIdempotent)).await;
        assert_eq!(reason, "upstream_unavailable", "{status}: {answer}");
    }
}

#[tokio::test]
async fn upstream_sessions_are_ended_when_the_gateway_ends() {
    let (address, mut heard) = upstream(Script::Done, 200).await;
    let fixture = fixture(address, Mutation::ReadOnly);
    assert_eq!(echo(&fixture, "m").await["result"]["structuredContent"], json!({"ok": true}));
    fixture.gateway.pipeline.internals().backends.drained().await;
    assert!(heard.borrow_and_update().iter().any(|one| one == "DELETE  s1"), "{:?}", heard.borrow());
}

/// An upstream whose sessions are `s1`, `s2`, and so on, and that has lost the first: two calls learn so, the second one
/// when it is `told`.
async fn forgetful(told: watch::Receiver<bool>) -> (SocketAddr, Heard) {
    let (sender, heard) = watch::channel(Vec::new());
    let sender = Arc::new(sender);
    let greeted = Arc::new(Mutex::new(0));
    let late = Arc::new(tokio::sync::Barrier::new(2));
    let router = axum::Router::new().fallback(async move |request: Request| {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let session = session.unwrap_or_default();
        let verb = request.method().to_string();
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        sender.send_modify(|heard| heard.push(format!("{verb} {method} {session}")));
        let answer = |result: Value| {
            axum::Json(json!({"jsonrpc": "2.0", "id": message["id"].clone(), "result": result}))
                .into_response()
        };
        match (method.as_str(), session.as_str()) {
            ("initialize", _) => {
                let number = {
                    let mut greeted = greeted.lock();
                    *greeted += 1;
                    *greeted
                };
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
                ([("mcp-session-id", format!("s{number}"))], answer(result)).into_response()
            }
            ("tools/call", "s1") => {
                // Both calls are under way in it.
                if !late.wait().await.is_leader() {
                    told.clone().wait_for(|told| *told).await.unwrap();
                }
                StatusCode::NOT_FOUND.into_response()
            }
            ("tools/call", _) => answer(json!({"content": [], "structuredContent": {"ok": true}})),
            _ => StatusCode::ACCEPTED.into_response(),
        }
    });
    (serve(router).await, heard)
}

#[tokio::test]
async fn a_late_word_of_an_old_sessions_end_leaves_the_new_one() {
    let (tell, told) = watch::channel(false);
    let (address, heard) = forgetful(told).await;
    let fixture = fixture(address, Mutation::ReadOnly);
    let ok =
        |answer: Value| assert_eq!(answer["result"]["structuredContent"], json!({"ok": true}), "{answer}");
    // Calls of one session share the upstream's.
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let call = |id: u64| {
        let client = &client;
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        Box::pin(async move { client.request(id, "tools/call", params).await.json() })
    };
    let first = call(2);
    let second = call(3);
    let (answer, other) = futures::future::select(first, second).await.factor_first();
    ok(answer);
    tell.send(true).unwrap();
    ok(other.await);
    let heard = heard.borrow();
    let greetings = heard.iter().filter(|one| one.contains("initialize ")).count();
    assert_eq!(greetings, 2, "{heard:?}");
    assert!(!heard.iter().any(|one| one.starts_with("DELETE")), "{heard:?}");
}

/// Step of a handshake at which its call gives up.
#[derive(Clone, Copy)]
enum Stands {
    BeforeItsAnswer,
    InItsAnswer,
}

/// Greets `s1` when it is `told`, or begins to and never ends.
async fn slow_to_greet(stands: Stands, told: watch::Receiver<bool>) -> (SocketAddr, Heard) {
    let (sender, heard) = watch::channel(Vec::new());
    let sender = Arc::new(sender);
    let router = axum::Router::new().fallback(async move |request: Request| {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let verb = request.method().to_string();
        sender.send_modify(|heard| heard.push(format!("{verb} {}", session.unwrap_or_default())));
        if verb == "DELETE" {
            return StatusCode::OK.into_response();
        }
        let body = match stands {
            Stands::BeforeItsAnswer => {
                told.clone().wait_for(|told| *told).await.unwrap();
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
                axum::body::Body::from(json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
            }
            Stands::InItsAnswer => {
                axum::body::Body::from_stream(futures::stream::pending::<std::io::Result<String>>())
            }
        };
        ([("mcp-session-id", "s1"), ("content-type", "application/json")], body).into_response()
    });
    (serve(router).await, heard)
}

#[tokio::test]
async fn a_session_whose_handshake_is_given_up_is_ended_at_its_server() {
    for stands in [Stands::BeforeItsAnswer, Stands::InItsAnswer] {
        let (tell, told) = watch::channel(false);
        let (address, mut heard) = slow_to_greet(stands, told).await;
        let (reason, answer) = fails(&fixture(address, Mutation::ReadOnly)).await;
        assert_eq!(reason, "deadline", "{answer}");
        tell.send(true).unwrap();
        hears(&mut heard, "DELETE s1").await;
    }
}
