//! I-14: JSON that the platform does not judge passes as it was written, in both eras and over HTTP.

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::Method;

use super::*;

/// JSON that a decoder of doubles and Unicode strings changes or refuses.
const ODD: &str = r#"{"n":340282366920938463463374607431768211455,"d":0.123456789012345678901234567890,"e":1e3,"s":"cut \ud83d","u":"\u00e4","a":1,"\u0061":[{"x":-0.0}]}"#;

type Seen = Arc<Mutex<Vec<String>>>;

/// An upstream that answers each call with `result`, as text.
async fn upstream(result: String) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let router = axum::Router::new().fallback(async move |request: Request| -> Response {
        let body = to_bytes(request.into_body(), 8 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let json = |text: String| {
            ([("content-type", "application/json"), ("mcp-session-id", "s")], text).into_response()
        };
        let id = id_of(&text);
        if text.contains(r#""initialize""#) {
            let result = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}"#;
            return json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        }
        if text.contains(r#""tools/call""#) {
            record.lock().push(text);
            return json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        }
        StatusCode::ACCEPTED.into_response()
    });
    (serve(router).await, seen)
}

fn id_of(text: &str) -> String {
    let rest = text.split_once(r#""id":"#).map(|(_, rest)| rest).unwrap_or("0,");
    rest.split([',', '}']).next().unwrap().to_owned()
}

/// `echo` with any arguments.
fn open_echo(snapshot: &mut GatewaySnapshot, input: &Value) {
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.input_schema = input.to_string();
        primitive.output_schema.clear();
        primitive.set_mutation(Mutation::ReadOnly);
    }
}

/// Calls `echo` with arguments as text, in either era; the answer's text.
async fn call(fixture: &Fixture, is_modern: bool, arguments: &str, meta: &str) -> String {
    if is_modern {
        let params = json!({"name": "echo", "arguments": "@arguments"});
        let mut request = Modern::new("demo", &token("alice"), "tools/call", params);
        request.body["params"]["_meta"]["@meta"] = json!(0);
        let body =
            request.body.to_string().replace(r#""@arguments""#, arguments).replace(r#""@meta":0"#, meta);
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        return fixture.send(Method::POST, "/demo/mcp", &headers, &body).await.text;
    }
    let client = Legacy::connect(fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{{{meta}}}}}}}"#
    );
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fixture.send(Method::POST, "/demo/mcp", &headers, &body).await.text
}

#[tokio::test]
async fn arguments_and_results_pass_an_mcp_upstream_as_they_were_written() {
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"cut \ud83d"}}],"structuredContent":{ODD},"_meta":{{"a/b":1.50}}}}"#
    );
    let (address, seen) = upstream(result).await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(
        &mut snapshot,
        &json!({"type": "object", "properties": {
        "assignee": {"default": null}, "limit": {"type": "integer", "default": 10}}}),
    );
    let fixture = Fixture::of(snapshot);
    for is_modern in [true, false] {
        let meta = r#""com.example/run":"r-7","asp/x":1"#;
        let answer = call(&fixture, is_modern, ODD, meta).await;
        for part in [ODD, r#"{"type":"text","text":"cut \ud83d"}"#, r#""a/b":1.50"#, r#""isError":false"#] {
            assert!(answer.contains(part), "{is_modern}: {part} of {answer}");
        }
        let sent = seen.lock().pop().unwrap();
        assert!(sent.contains(&format!(r#""arguments":{ODD}"#)), "{sent}");
        assert!(sent.contains(r#""com.example/run":"r-7""#), "{sent}");
        for kept in ["assignee", "limit", "asp/x", "clientCapabilities"] {
            assert!(!sent.contains(kept), "{kept} of {sent}");
        }
    }
}

#[tokio::test]
async fn long_texts_and_large_results_pass() {
    let long = "x".repeat(900 << 10);
    let large = format!(r#"{{"content":[{{"type":"text","text":"{}\ud83d"}}]}}"#, "y".repeat(4 << 20));
    let (address, seen) = upstream(large).await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let fixture = Fixture::of(snapshot);
    let answer = call(&fixture, true, &format!(r#"{{"s":"{long}\ud83d"}}"#), r#""a/b":1"#).await;
    assert!(answer.contains(r#"yyy\ud83d"}"#) && answer.len() > 4 << 20, "{} bytes", answer.len());
    assert!(seen.lock().pop().unwrap().contains(&format!(r#"{long}\ud83d"#)));
}

#[tokio::test]
async fn a_malformed_answer_is_named_and_an_errors_data_passes() {
    for (result, has) in [
        (r#"{"content":"just text"}"#, "content is no array of content blocks"),
        (r#"{"content":"just text"}"#, "just text"),
        (r#"{"content":[],"isError":"true"}"#, "isError is neither true nor false"),
        (
            r#"{"content":[{"type":"text","text":"bad"}],"structuredContent":{"line":121},"isError":true}"#,
            r#"{"line":121}"#,
        ),
    ] {
        let (address, _) = upstream(result.into()).await;
        let mut snapshot = via_mcp(&["echo"], address);
        open_echo(&mut snapshot, &json!({"type": "object"}));
        let answer = call(&Fixture::of(snapshot), true, "{}", r#""a/b":1"#).await;
        assert!(answer.contains(has) && answer.contains(r#""isError":true"#), "{result}: {answer}");
    }
}

#[tokio::test]
async fn an_http_service_gets_and_gives_json_as_it_was_written() {
    let seen = Seen::default();
    let record = seen.clone();
    let service = axum::Router::new().fallback(async move |request: Request| {
        let uri = request.uri().to_string();
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        record.lock().push(format!("{uri} {}", String::from_utf8_lossy(&body)));
        ([("content-type", "application/json")], format!(r#"{{"data":{ODD}}}"#))
    });
    let address = serve(service).await;
    let mapping = ProxyHttp {
        query: [("limit".to_owned(), "{limit}".to_owned()), ("n".to_owned(), "{n}".to_owned())].into(),
        result: "/data".into(),
        ..http_mapping("/items/{item}")
    };
    let mode = Mode::ProxyHttp(mapping);
    let mut snapshot = with_runtime("echo", mode, Mutation::ReadOnly, &format!("http://{address}"));
    open_echo(&mut snapshot, &json!({"type": "object", "properties": {"page": {"default": 1}}}));
    let arguments = r#"{"item":7.0,"limit":1e2,"n":340282366920938463463374607431768211455,"s":"\ud83d"}"#;
    let answer = call(&Fixture::of(snapshot), true, arguments, r#""a/b":1"#).await;
    assert!(answer.contains(&format!(r#""structuredContent":{ODD}"#)), "{answer}");
    let sent = seen.lock().pop().unwrap();
    let expected = format!("/items/7?limit=100&n=340282366920938463463374607431768211455 {arguments}");
    assert_eq!(sent, expected);
}
