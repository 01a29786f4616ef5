//! I-14 as one table: each kind of value, through each protocol that clients speak, to each kind of upstream and back.

use asp_json::{kinds, named};

use super::*;
use crate::rest::Rest;

/// A protocol that clients speak.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Door {
    /// MCP 2025-11-25 with a session.
    Legacy,
    /// MCP 2026-07-28.
    Modern,
    Rest,
}

const DOORS: [Door; 3] = [Door::Legacy, Door::Modern, Door::Rest];

impl Door {
    /// Calls `echo` with arguments as text; the answer's text.
    async fn call(self, fixture: &Fixture, arguments: &str) -> String {
        if self != Door::Rest {
            return call(fixture, self == Door::Modern, arguments, r#""a/b":1"#).await;
        }
        let path = format!("/demo/rest/tools/echo/calls/{}", uuid::Uuid::now_v7());
        let call = Rest::at(fixture, &path).with("prefer", "wait=20");
        call.send(Method::PUT, arguments).await.text
    }
}

/// A kind of upstream.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Http,
    Mcp(Speaks),
}

const BACKENDS: [Backend; 4] =
    [Backend::Http, Backend::Mcp(Speaks::Json), Backend::Mcp(Speaks::Stream), Backend::Mcp(Speaks::Modern)];

impl Backend {
    /// Starts it, and a gateway before it. Its answer to a call is what `say` makes of the arguments, as text.
    async fn start(self, say: fn(&str) -> String) -> (Fixture, Seen) {
        let (mut snapshot, seen) = match self {
            Backend::Http => {
                let (address, seen) = service(say).await;
                let mapping = ProxyHttp { result: "/data".into(), ..http_mapping("/items") };
                let origin = format!("http://{address}");
                (with_runtime("echo", Mode::ProxyHttp(mapping), Mutation::ReadOnly, &origin), seen)
            }
            Backend::Mcp(speaks) => {
                let member = move |call: &str| {
                    let structured = say(arguments_of(call));
                    let content = content_of(&structured);
                    format!(
                        r#""result":{{"resultType":"complete","content":{content},"structuredContent":{structured}}}"#
                    )
                };
                let (address, seen) = scripted(speaks, member).await;
                (via_mcp(&["echo"], address), seen)
            }
        };
        open_echo(&mut snapshot, &json!({"type": "object"}));
        (Fixture::of(snapshot), seen)
    }

    /// The arguments of the last call that came, as text; empty if none came.
    fn came(self, seen: &Seen) -> String {
        let last = seen.lock().pop().unwrap_or_default();
        match self {
            Backend::Mcp(_) if !last.is_empty() => arguments_of(&last).to_owned(),
            Backend::Http | Backend::Mcp(_) => last,
        }
    }

    /// Whether a client got the content that belongs to this structured content.
    fn is_content(self, content: &str, structured: &str) -> bool {
        match self {
            Backend::Mcp(_) => content == content_of(structured),
            // A service has no content: it is the text of the structured one, as a string.
            Backend::Http => {
                let blocks: Value = serde_json::from_str(content).unwrap();
                blocks == json!([{"type": "text", "text": structured}])
            }
        }
    }
}

/// A service of JSON over HTTP.
async fn service(say: fn(&str) -> String) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let router = axum::Router::new().fallback(async move |request: Request| -> Response {
        let body = to_bytes(request.into_body(), 8 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let answer = format!(r#"{{"data":{}}}"#, say(&text));
        record.lock().push(text);
        ([("content-type", "application/json")], answer).into_response()
    });
    (serve(router).await, seen)
}

/// The text of a call's arguments.
fn arguments_of(call: &str) -> &str {
    let params = named(call, ["params"]).and_then(|[params]| params);
    let arguments = params.and_then(|params| named(params, ["arguments"])).and_then(|[arguments]| arguments);
    arguments.unwrap_or_else(|| panic!("no arguments: {call:.500}"))
}

/// Content with half a surrogate pair in its text, and the value in a member of the block.
fn content_of(structured: &str) -> String {
    format!(r#"[{{"type":"text","text":"cut \ud800","_meta":{{"a/b":{structured}}}}}]"#)
}

/// The texts of a result's content and structured content, whichever protocol the answer is of.
fn result(answer: &str) -> (&str, &str) {
    let message = answer.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(answer);
    let result = named(message, ["result"]).and_then(|[result]| result);
    let parts = result.and_then(|result| named(result, ["content", "structuredContent"]));
    let Some([Some(content), Some(structured)]) = parts else { panic!("no result: {answer:.1000}") };
    (content, structured)
}

fn same(arguments: &str) -> String {
    arguments.to_owned()
}

/// With what it is twice in, a result of 4 MiB.
fn large(_: &str) -> String {
    kinds::long(2 << 20)
}

/// Sends each of the arguments by every protocol to every upstream, and compares bytes there and back.
async fn pass(all: &[(&str, String)], say: fn(&str) -> String) {
    for backend in BACKENDS {
        let (fixture, seen) = backend.start(say).await;
        for door in DOORS {
            for (name, arguments) in all {
                let place = format!("{name}, {door:?}, {backend:?}");
                let answer = door.call(&fixture, arguments).await;
                let came = backend.came(&seen);
                assert!(came == *arguments, "{place}: {came:.500} came; {answer:.500}");
                let (content, structured) = result(&answer);
                let said = say(arguments);
                assert!(structured == said, "{place}: {structured:.500} is not {said:.500}");
                assert!(backend.is_content(content, &said), "{place}: {content:.500} of {said:.500}");
            }
        }
    }
}

#[tokio::test]
async fn every_kind_passes_by_every_protocol_to_every_upstream_and_back() {
    let mut all: Vec<(&str, String)> = kinds::KINDS.iter().map(|kind| (kind.name, kind.object())).collect();
    all.push(("all kinds", kinds::all()));
    pass(&all, same).await;
}

#[tokio::test]
async fn long_strings_and_large_results_pass_by_every_protocol_to_every_upstream_and_back() {
    pass(&[("a string of 900 KiB", kinds::long(900 << 10))], large).await;
}

/// ADR 17: a text is on one line, and nothing else of it changes.
#[tokio::test]
async fn a_line_break_between_tokens_becomes_a_space() {
    for backend in BACKENDS {
        let (fixture, seen) = backend.start(same).await;
        for door in DOORS {
            let answer = door.call(&fixture, "{\n\"value\":\t[1,\r\n\"a\\n\"]}").await;
            let expected = "{ \"value\":\t[1,  \"a\\n\"]}";
            assert_eq!(backend.came(&seen), expected, "{door:?}, {backend:?}: {answer}");
            assert_eq!(result(&answer).1, expected, "{door:?}, {backend:?}");
        }
    }
}

/// A call in each era of MCP: its headers and its body.
async fn calls(fixture: &Fixture) -> [(Vec<(String, String)>, String); 2] {
    let client = Legacy::connect(fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let params = json!({"name": "echo", "arguments": {}, "_meta": {"a/b": 1}});
    let legacy = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
    let headers = client.headers().into_iter().map(|(name, value)| (name.to_owned(), value));
    let modern = Modern::new("demo", &token("alice"), "tools/call", params);
    [(headers.collect(), legacy.to_string()), (modern.headers, modern.body.to_string())]
}

/// The message with `value` and then its own under the first key of this name, which is written with an escape then.
fn with_twice(body: &str, name: &str, value: &str) -> String {
    let (before, after) = body.split_once(&format!(r#""{name}":"#)).unwrap();
    let (first, rest) = name.split_at(1);
    let first = first.bytes().next().unwrap();
    format!(r#"{before}"{name}":{value},"\u{first:04x}{rest}":{after}"#)
}

#[tokio::test]
async fn a_key_that_an_envelope_has_twice_is_refused_and_nothing_is_sent() {
    let (fixture, seen) = Backend::Mcp(Speaks::Json).start(same).await;
    for (headers, body) in calls(&fixture).await {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (name, value) in [
            ("jsonrpc", r#""2.0""#),
            ("id", "1"),
            ("method", r#""ping""#),
            ("params", "{}"),
            ("name", r#""clock""#),
            ("arguments", r#"{"a":1}"#),
            ("_meta", "{}"),
        ] {
            let twice = with_twice(&body, name, value);
            let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &twice).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{twice}: {}", answer.text);
            assert_eq!(answer.reason(), "invalid_request", "{twice}: {}", answer.text);
            let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert_eq!(message, "the body is not a valid JSON-RPC 2.0 message", "{twice}");
        }
        assert!(seen.lock().is_empty(), "{body}");
        let within = body.replace(r#""arguments":{}"#, r#""arguments":{"a":1,"\u0061":2}"#);
        let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &within).await;
        assert_eq!(result(&answer.text).1, r#"{"a":1,"\u0061":2}"#, "{}", answer.text);
        seen.lock().clear();
    }
}
