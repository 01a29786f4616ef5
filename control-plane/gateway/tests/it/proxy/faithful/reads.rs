//! I-14: what a resource or a prompt says of its result passes as it was written.

use super::*;

/// An upstream of 2025-11-25 with a prompt and a resource, whose results have `_meta`.
async fn describing() -> SocketAddr {
    let router = axum::Router::new().fallback(async |request: Request| -> Response {
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let meta = r#""_meta":{"a/b":1.50,"asp/x":1}"#;
        let member = match Speaks::Json.greeting(&text) {
            Some((_, member)) => member.to_owned(),
            None if text.contains(r#""prompts/get""#) => format!(r#""result":{{"messages":[],{meta}}}"#),
            None if text.contains(r#""resources/read""#) => format!(r#""result":{{"contents":[],{meta}}}"#),
            None => return StatusCode::ACCEPTED.into_response(),
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, id_of(&text));
        ([("content-type", "application/json"), ("mcp-session-id", "s")], message).into_response()
    });
    serve(router).await
}

#[tokio::test]
async fn the_meta_of_a_resource_and_of_a_prompt_passes() {
    let fixture = Fixture::of(via_mcp(&["about", "greeting"], describing().await));
    for (method, params) in [
        ("resources/read", json!({"uri": "demo://about"})),
        ("prompts/get", json!({"name": "greeting", "arguments": {"name": "Ada"}})),
    ] {
        let modern = Modern::new("demo", &token("alice"), method, params.clone()).send(&fixture).await.text;
        let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
        let legacy = client.request(2, method, params).await.text;
        for answer in [modern, legacy] {
            assert!(answer.contains(r#""a/b":1.50"#) && !answer.contains("asp/x"), "{method}: {answer}");
        }
    }
}
