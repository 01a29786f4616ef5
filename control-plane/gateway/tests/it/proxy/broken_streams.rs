//! An upstream MCP server whose stream breaks off before its result, and is gone on with from its last event.

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use tokio::sync::Notify;

use super::asking::{call, connect, fixture, next};
use super::*;

fn events(text: String) -> Response {
    ([("content-type", "text/event-stream")], text).into_response()
}

/// The events of a stream after the one that it broke off with: its result.
fn rest(after: &str) -> Response {
    let id = after.split('-').next().unwrap().to_owned();
    let result = json!({"content": [], "structuredContent": {"ok": true}});
    let answer = json!({"jsonrpc": "2.0", "id": id.parse::<u64>().unwrap(), "result": result});
    events(format!("id: {id}-2\ndata: {answer}\n\n"))
}

fn greeting(message: &Value) -> Response {
    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
    let body = axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    ([("mcp-session-id", "s1")], body).into_response()
}

async fn read(request: Request) -> Value {
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap_or_default()
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_gone_on_with() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    let router = axum::Router::new().fallback(async move |request: Request| {
        if let Some(after) = request.headers().get("last-event-id") {
            let after = after.to_str().unwrap().to_owned();
            seen.lock().push(after.clone());
            if seen.lock().len() == 1 {
                return StatusCode::BAD_GATEWAY.into_response();
            }
            return rest(&after);
        }
        if request.method() == "GET" {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let message = read(request).await;
        match message["method"].as_str() {
            Some("initialize") => greeting(&message),
            Some("tools/call") => events(format!("id: {}-1\nretry: 10\ndata:\n\n", message["id"])),
            _ => StatusCode::ACCEPTED.into_response(),
        }
    });
    let answer = echo(&fixture(serve(router).await), "m").await;
    assert_eq!(answer["result"]["structuredContent"], json!({"ok": true}), "{answer}");
    assert_eq!(asked.lock().len(), 2, "a server that fails for a moment is asked again");
}

/// Some servers send the head of a stream with its first event only, which here is the result.
#[tokio::test]
async fn what_an_upstream_asks_is_answered_while_its_stream_is_opened_again() {
    let answered = Arc::new(Notify::new());
    let router = axum::Router::new().fallback(async move |request: Request| {
        if let Some(after) = request.headers().get("last-event-id") {
            let after = after.to_str().unwrap().to_owned();
            answered.notified().await;
            return rest(&after);
        }
        if request.method() == "GET" {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let message = read(request).await;
        match message["method"].as_str() {
            Some("initialize") => greeting(&message),
            Some("tools/call") => {
                let asks = json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"});
                events(format!("id: {}-1\nretry: 10\ndata: {asks}\n\n", message["id"]))
            }
            None if message["id"] == "r" => {
                answered.notify_one();
                StatusCode::ACCEPTED.into_response()
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    });
    let fixture = fixture(serve(router).await);
    let client = connect(&fixture, json!({"roots": {}})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let asked = next(&mut body).await;
    assert_eq!(asked["method"], "roots/list", "{asked}");
    client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})).await;
    let result = next(&mut body).await;
    assert_eq!(result["result"]["structuredContent"], json!({"ok": true}), "{result}");
}
