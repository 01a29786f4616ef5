//! Upstream sessions that end in unusual ways, and the upstream's own errors: what is sent again, and what a client reads.

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};

use super::*;
use crate::plugin::until;

/// Status and body of the answer to a call in the first session.
type Refusal = (u16, Value);

/// An upstream that refuses the calls of its first session, and the number of calls that it got.
async fn upstream(refusal: Refusal) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = calls.clone();
    let sessions = Arc::new(Mutex::new(0));
    let router = axum::Router::new().fallback(async move |request: Request| {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = |result: Value| {
            axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
        };
        match message["method"].as_str() {
            Some("initialize") => {
                *sessions.lock() += 1;
                let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
                ([("mcp-session-id", format!("s{}", sessions.lock()))], result(greeting)).into_response()
            }
            Some("tools/call") => {
                let session = session.unwrap_or_default();
                record.lock().push(session.clone());
                match session.as_str() {
                    "s1" => refuse(&refusal, &message["id"]),
                    _ => result(json!({"content": [{"type": "text", "text": "done"}]})),
                }
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    });
    (serve(router).await, calls)
}

/// `ours` in place of an id is the request's own.
fn refuse((status, body): &Refusal, id: &Value) -> Response {
    let status = StatusCode::from_u16(*status).unwrap();
    match body {
        Value::String(text) => (status, text.clone()).into_response(),
        body => {
            let mut body = body.clone();
            if body["id"] == "ours" {
                body["id"] = id.clone();
            }
            (status, axum::Json(body)).into_response()
        }
    }
}

fn error(id: Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": {"issues": [1]}}})
}

async fn call(refusal: Refusal, mutation: Mutation) -> (Value, usize) {
    let (address, calls) = upstream(refusal).await;
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.set_mutation(mutation);
        primitive.output_schema.clear();
    }
    let answer = echo(&Fixture::of(snapshot), "m").await;
    let sent = calls.lock().len();
    (answer, sent)
}

#[tokio::test]
async fn a_session_that_is_refused_in_any_words_is_opened_anew_once() {
    let lost = "Bad Request: No valid session ID provided";
    for refusal in [
        (404, json!("")),
        (410, json!("")),
        (400, json!("")),
        (400, json!("Invalid session ID")),
        (400, error(Value::Null, -32000, lost)),
        (400, error(json!("ours"), -32000, lost)),
        (400, error(json!("ours"), -32000, "Bad Request: Server not initialized")),
        (400, error(json!("server-error"), -32600, "Session not found")),
        (400, error(json!("ours"), -32603, "Session not found")),
        (401, json!("the session has expired")),
        (409, json!({"error": "unknown session"})),
        (404, error(json!("ours"), -32001, "Session not found")),
    ] {
        let (answer, sent) = call(refusal.clone(), Mutation::NonIdempotent).await;
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{refusal:?}: {answer}");
        assert_eq!(sent, 2, "{refusal:?}");
    }
}

#[tokio::test]
async fn what_is_no_word_of_a_session_or_may_have_had_an_effect_is_sent_once() {
    for refusal in [
        (400, error(json!("ours"), -32602, "the session argument is missing")),
        (422, json!("no")),
        (429, json!("no")),
        (500, json!("session store is down")),
        (200, error(json!("ours"), -32000, "Session not found")),
        (200, error(json!("ours"), -32603, "Session not found")),
        (200, error(json!("ours"), 1001, "Session not found")),
    ] {
        let (answer, sent) = call(refusal.clone(), Mutation::NonIdempotent).await;
        assert_eq!(sent, 1, "{refusal:?}: {answer}");
    }
    for code in [-32000, -32603] {
        let refusal = (200, error(json!("ours"), code, "Session not found"));
        let (answer, sent) = call(refusal, Mutation::ReadOnly).await;
        assert_eq!((sent, &answer["result"]["content"][0]["text"]), (2, &json!("done")), "{answer}");
    }
    let (_, sent) = call((200, error(json!("ours"), -32603, "no")), Mutation::ReadOnly).await;
    assert_eq!(sent, 1, "no word of a session");
}

/// Invariant I-14.
#[tokio::test]
async fn an_upstreams_own_error_keeps_its_code_and_data_and_has_the_right_advice() {
    for (code, shown, reason, hint) in [
        (-32602, -32602, "invalid_params", "FIX_REQUEST"),
        (-32601, -32601, "unknown_method", "USE_SUPPORTED_METHOD"),
        (-32600, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (-32700, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (-32603, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (-32000, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (-32001, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (1001, 1001, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (-1, -1, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
        (1 << 40, -32603, "upstream_unavailable", "CHECK_BEFORE_RETRY"),
    ] {
        let (answer, _) = call((200, error(json!("ours"), code, "no")), Mutation::NonIdempotent).await;
        let error = &answer["error"];
        assert_eq!(error["code"], shown, "{code}: {answer}");
        assert_eq!(error["message"], "no", "{code}");
        let data = &error["data"];
        assert_eq!((&data["reason"], &data["recoveryHint"]), (&json!(reason), &json!(hint)), "{code}");
        assert_eq!(data["recovery_hint"], json!(hint), "{code}");
        assert_eq!(data["upstream"], json!({"code": code, "data": {"issues": [1]}}), "{code}");
    }
}

#[tokio::test]
async fn an_answer_with_null_members_is_the_result_or_the_error_that_it_has() {
    let result = json!({"content": [{"type": "text", "text": "once"}]});
    let done = json!({"jsonrpc": "2.0", "id": "ours", "method": null, "result": result, "error": null});
    let (answer, sent) = call((200, done), Mutation::NonIdempotent).await;
    assert_eq!((sent, &answer["result"]["content"][0]["text"]), (1, &json!("once")), "{answer}");
    let mut failed = error(json!("ours"), 1001, "no");
    failed["result"] = Value::Null;
    // An error without an id answers the only request there is.
    for failed in [failed, error(Value::Null, 1001, "no")] {
        let (answer, _) = call((200, failed.clone()), Mutation::NonIdempotent).await;
        assert_eq!(answer["error"]["message"], "no", "{failed}: {answer}");
    }
    for status in [500, 503] {
        let failed = error(json!("ours"), 1001, "no");
        let (answer, _) = call((status, failed), Mutation::NonIdempotent).await;
        assert_eq!(answer["error"]["message"], "no", "the server has answered, with {status}: {answer}");
        let (answer, _) = call((status, error(Value::Null, 1001, "no")), Mutation::NonIdempotent).await;
        assert_eq!(answer["result"]["_meta"]["asp/reason"], "outcome_unknown", "{status}: {answer}");
    }
    let malformed = json!({"jsonrpc": "2.0", "id": "ours", "result": "done"});
    let (answer, _) = call((200, malformed), Mutation::NonIdempotent).await;
    assert!(answer.to_string().contains("malformed: result is not an object"), "{answer}");
}

#[tokio::test]
async fn a_refusal_by_status_has_the_words_of_its_json_rpc_error() {
    for id in [Value::Null, json!("server-error")] {
        let refusal = (400, error(id, -32000, "no such workspace"));
        let router = axum::Router::new().fallback(async move |request: Request| {
            let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
            match message["method"].as_str() {
                Some("initialize") => {
                    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": greeting});
                    axum::Json(answer).into_response()
                }
                Some("tools/call") => refuse(&refusal, &Value::Null),
                _ => StatusCode::ACCEPTED.into_response(),
            }
        });
        let answer = echo(&strict_fixture(serve(router).await), "m").await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("the service answered 400: no such workspace"), "{answer}");
    }
}

/// An upstream that answers a call with its session, and one with the message `bad` in any session with a bare 400; a call in
/// the session that it forgot too. Returns what it got: the session of each call, and `end` with that of each that was ended.
async fn strict_upstream(forgets: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let sessions = Arc::new(Mutex::new(0));
    let router = axum::Router::new().fallback(async move |request: Request| {
        let session = request.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let session = session.unwrap_or_default();
        if request.method() == http::Method::DELETE {
            record.lock().push(format!("end {session}"));
            return StatusCode::OK.into_response();
        }
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = |result: Value| {
            axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
        };
        match message["method"].as_str() {
            Some("initialize") => {
                *sessions.lock() += 1;
                let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
                ([("mcp-session-id", format!("s{}", sessions.lock()))], result(greeting)).into_response()
            }
            Some("tools/call") => {
                record.lock().push(session.clone());
                match message["params"]["arguments"]["message"] == "bad" || session == forgets {
                    true => StatusCode::BAD_REQUEST.into_response(),
                    false => result(json!({"content": [{"type": "text", "text": session}]})),
                }
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    });
    (serve(router).await, seen)
}

fn strict_fixture(address: SocketAddr) -> Fixture {
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.set_mutation(Mutation::NonIdempotent);
        primitive.output_schema.clear();
    }
    Fixture::of(snapshot)
}

#[tokio::test]
async fn a_bare_400_that_a_new_session_gets_too_leaves_the_users_session() {
    let (address, seen) = strict_upstream("none").await;
    let fixture = strict_fixture(address);
    assert_eq!(echo(&fixture, "m").await["result"]["content"][0]["text"], "s1");
    let bad = echo(&fixture, "bad").await;
    assert_eq!(bad["result"]["isError"], true, "{bad}");
    assert!(bad["result"]["content"][0]["text"].as_str().unwrap().contains("400"), "{bad}");
    until("the second session is ended", || seen.lock().contains(&"end s2".to_owned())).await;
    assert_eq!(echo(&fixture, "m").await["result"]["content"][0]["text"], "s1");
    assert_eq!(*seen.lock(), ["s1", "s1", "s2", "end s2", "s1"]);
}

#[tokio::test]
async fn a_bare_400_that_a_new_session_does_not_get_ends_the_session_before() {
    let (address, seen) = strict_upstream("s1").await;
    let fixture = strict_fixture(address);
    assert_eq!(echo(&fixture, "m").await["result"]["content"][0]["text"], "s2");
    until("the first session is ended", || seen.lock().contains(&"end s1".to_owned())).await;
    assert_eq!(echo(&fixture, "m").await["result"]["content"][0]["text"], "s2");
    assert_eq!(*seen.lock(), ["s1", "s2", "end s1", "s2"]);
}
