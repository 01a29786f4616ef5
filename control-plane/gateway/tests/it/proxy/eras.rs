//! An upstream MCP server that comes to speak another era while the gateway knows it.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::modern::{Heard, answer, methods, reply};
use super::*;

/// Refuses what is of the other era.
async fn of_era(is_modern: bool, request: Request, heard: Heard) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let has_session = parts.headers.contains_key("mcp-session-id");
    let is_of_modern =
        parts.headers.get("mcp-protocol-version").is_some_and(|version| version == "2026-07-28");
    if parts.method != "POST" {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if is_modern && !has_session {
        return answer(Request::from_parts(parts, Body::from(body)), heard).await;
    }
    if is_modern || is_of_modern {
        let error = json!({"code": -32022, "message": "unsupported"});
        return reply(StatusCode::BAD_REQUEST, &message["id"], "error", error);
    }
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    heard.send_modify(|heard| heard.push((method.clone(), message.clone())));
    match method.as_str() {
        "initialize" => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
            ([("mcp-session-id", "s1")], reply(StatusCode::OK, &message["id"], "result", result))
                .into_response()
        }
        "tools/call" => {
            let result = json!({"content": [], "structuredContent": {"told": "before"}});
            reply(StatusCode::OK, &message["id"], "result", result)
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

#[tokio::test]
async fn the_next_call_of_an_upstream_that_speaks_another_era_goes_through() {
    let heard: Heard = watch::Sender::new(Vec::new());
    let is_modern = Arc::new(AtomicBool::new(false));
    let (hears, speaks) = (heard.clone(), is_modern.clone());
    let router = axum::Router::new().fallback(async move |request: Request| {
        of_era(speaks.load(Ordering::Relaxed), request, hears.clone()).await
    });
    let mut snapshot = via_mcp(&["echo"], serve(router).await);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema.clear();
        primitive.set_mutation(Mutation::NonIdempotent);
        primitive.input_schema = json!({"type": "object", "properties": {
            "message": {"type": "string", "x-mcp-header": "Message"}}, "required": ["message"]})
        .to_string();
    }
    let fixture = Fixture::of(snapshot);
    for (modern, told) in [(false, "before"), (true, "m"), (false, "before"), (true, "m")] {
        is_modern.store(modern, Ordering::Relaxed);
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let call = Modern::new("demo", &token("alice"), "tools/call", params).with("mcp-param-message", "m");
        let answer = call.send(&fixture).await.json();
        assert_eq!(answer["result"]["structuredContent"]["told"], told, "{answer} {:?}", methods(&heard));
    }
    let discovered = methods(&heard).iter().filter(|method| *method == "server/discover").count();
    assert_eq!(discovered, 2, "an era that was forgotten is found out again");
}
