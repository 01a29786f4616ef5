//! I-14: JSON that the platform does not judge passes as it was written, in both eras and over HTTP.

use asp_proto::snapshot::condition::Test;
use asp_proto::snapshot::{Binding, Condition, Protocol, TargetKind};
use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method};

use super::*;

#[path = "faithful/doors.rs"]
mod doors;
#[path = "faithful/form_bodies.rs"]
mod form_bodies;
#[path = "faithful/misfits.rs"]
mod misfits;
#[path = "faithful/reads.rs"]
mod reads;

/// JSON that a decoder of doubles and Unicode strings changes or refuses.
const ODD: &str = r#"{"n":340282366920938463463374607431768211455,"d":0.123456789012345678901234567890,"e":1e3,"s":"cut \ud83d","u":"\u00e4","a":1,"\u0061":[{"x":-0.0}]}"#;

type Seen = Arc<Mutex<Vec<String>>>;

/// Variant of MCP that an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Speaks {
    /// 2025-11-25 with a session, by JSON.
    Json,
    /// 2025-11-25 with a session, by event streams.
    Stream,
    /// 2026-07-28 alone.
    Modern,
}

/// An upstream that answers each call with `result`, as text.
async fn upstream(result: String) -> (SocketAddr, Seen) {
    answering(format!(r#""result":{result}"#)).await
}

/// An upstream whose answer to each call has this member, as text.
async fn answering(member: String) -> (SocketAddr, Seen) {
    scripted(Speaks::Json, move |_| member.clone()).await
}

/// An upstream whose answer to each call has the member that `member` makes of the call, both as text.
async fn scripted(
    speaks: Speaks,
    member: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
) -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let router = axum::Router::new().fallback(async move |request: Request| -> Response {
        let body = to_bytes(request.into_body(), 8 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let id = id_of(&text);
        let (status, member) = match speaks.greeting(&text) {
            Some((status, member)) => (status, member.to_owned()),
            None if text.contains(r#""tools/call""#) => {
                let member = member(&text);
                record.lock().push(text);
                (StatusCode::OK, member)
            }
            None => return StatusCode::ACCEPTED.into_response(),
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#);
        let (kind, body) = match speaks {
            Speaks::Stream => ("text/event-stream", format!("data: {message}\n\n")),
            Speaks::Json | Speaks::Modern => ("application/json", message),
        };
        let mut response = (status, [("content-type", kind)], body).into_response();
        if speaks != Speaks::Modern {
            response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s"));
        }
        response
    });
    (serve(router).await, seen)
}

impl Speaks {
    /// The status and the member of the answer to a message of the handshake.
    fn greeting(self, text: &str) -> Option<(StatusCode, &'static str)> {
        let is = |method: &str| text.contains(&format!(r#""method":"{method}""#));
        match self {
            Speaks::Modern if is("initialize") => {
                let error = r#""error":{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}"#;
                Some((StatusCode::BAD_REQUEST, error))
            }
            Speaks::Modern if is("server/discover") => {
                let result = r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":1,"cacheScope":"public"}"#;
                Some((StatusCode::OK, result))
            }
            _ if is("initialize") => {
                let result = r#""result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}"#;
                Some((StatusCode::OK, result))
            }
            _ => None,
        }
    }
}

fn id_of(text: &str) -> String {
    let rest = text.split_once(r#""id":"#).map(|(_, rest)| rest).unwrap_or("0,");
    rest.split([',', '}']).next().unwrap().to_owned()
}

/// An upstream of 2025-11-25 whose answers are what `write` makes of their ids and their members: a media type and a body.
async fn writing(
    write: impl Fn(&str, &str) -> (&'static str, String) + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let router = axum::Router::new().fallback(async move |request: Request| -> Response {
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let member = match Speaks::Json.greeting(&text) {
            Some((_, member)) => member.to_owned(),
            None if text.contains(r#""tools/call""#) => format!(r#""result":{DONE}"#),
            None => return StatusCode::ACCEPTED.into_response(),
        };
        let (kind, body) = write(&id_of(&text), &member);
        ([("content-type", kind), ("mcp-session-id", "s")], body).into_response()
    });
    serve(router).await
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
async fn a_malformed_answer_is_named_and_an_errors_data_passes() {
    for (result, has) in [
        (r#"{"content":"just text"}"#, "content is not an array of content blocks"),
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
async fn the_data_of_an_error_passes_as_it_was_written() {
    let error = format!(r#""error":{{"code":-32099,"message":"no","data":{ODD}}}"#);
    let (address, _) = answering(error).await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let fixture = Fixture::of(snapshot);
    for is_modern in [true, false] {
        let answer = call(&fixture, is_modern, "{}", r#""a/b":1"#).await;
        let expected = format!(r#""upstream":{{"code":-32099,"data":{ODD}}}"#);
        assert!(answer.contains(&expected), "{is_modern}: {answer}");
    }
}

#[tokio::test]
async fn half_an_emoji_in_words_of_an_upstream_loses_none_of_them() {
    let (address, _) = answering(r#""error":{"code":-1,"message":"cut \ud83d"}"#.into()).await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let answer = call(&Fixture::of(snapshot), true, "{}", r#""a/b":1"#).await;
    assert!(answer.contains("cut \u{fffd}"), "an error: {answer}");
    let address = writing(|id, member| {
        let progress = format!(r#""progressToken":{id},"progress":1,"message":"cut \ud83d""#);
        let messages = [
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{progress}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#),
        ];
        ("text/event-stream", messages.map(|message| format!("data: {message}\n\n")).concat())
    })
    .await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let answer = call(&Fixture::of(snapshot), true, "{}", r#""progressToken":"cut \ud83d""#).await;
    for part in ["cut \u{fffd}", r#""progressToken":"cut \ud83d""#, "done"] {
        assert!(answer.contains(part), "progress, {part}: {answer}");
    }
}

#[tokio::test]
async fn progress_and_log_data_pass_as_they_were_written() {
    let address = writing(|id, member| {
        let progress = format!(r#""progressToken":{id},"progress":9007199254740993,"total":1e30"#);
        let log = format!(r#""level":"error","data":{ODD}"#);
        let messages = [
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{progress}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{{log}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#),
        ];
        ("text/event-stream", messages.map(|message| format!("data: {message}\n\n")).concat())
    })
    .await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let fixture = Fixture::of(snapshot);
    let token = r#""progressToken":340282366920938463463374607431768211455"#;
    let meta = format!(r#"{token},"io.modelcontextprotocol/logLevel":"debug""#);
    for is_modern in [true, false] {
        let answer = call(&fixture, is_modern, "{}", &meta).await;
        let progress = format!(r#"{{{token},"progress":9007199254740993,"total":1e30}}"#);
        for part in [progress, format!(r#""data":{ODD}"#), "done".to_owned()] {
            assert!(answer.contains(&part), "{is_modern}: {part} of {answer}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_known_by_its_number_however_that_is_written_and_after_a_byte_order_mark() {
    for (before, around) in [("\u{feff}", ""), ("", ".0"), ("", "\"")] {
        for is_stream in [false, true] {
            let address = writing(move |id, member| {
                let id =
                    if around == "\"" { format!("{around}{id}{around}") } else { format!("{id}{around}") };
                let message = format!(r#"{before}{{"jsonrpc":"2.0","id":{id},{member}}}"#);
                match is_stream {
                    true => ("text/event-stream", format!("data: {message}\n\n")),
                    false => ("application/json", message),
                }
            })
            .await;
            let mut snapshot = via_mcp(&["echo"], address);
            open_echo(&mut snapshot, &json!({"type": "object"}));
            let answer = call(&Fixture::of(snapshot), true, "{}", r#""a/b":1"#).await;
            assert!(answer.contains("done"), "{before:?} {around:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn an_upstreams_question_and_a_clients_answer_pass_as_they_were_written() {
    let form = r#"{"type":"object","properties":{"n":{"type":"integer","maximum":340282366920938463463374607431768211455}}}"#;
    let asked = format!(
        r#""result":{{"resultType":"input_required","inputRequests":{{"who":{{"method":"elicitation/create","params":{{"message":"?","requestedSchema":{form}}}}}}}}}"#
    );
    let (address, seen) = scripted(Speaks::Modern, move |text| match text.contains("inputResponses") {
        true => format!(r#""result":{DONE}"#),
        false => asked.clone(),
    })
    .await;
    let mut snapshot = via_mcp(&["echo"], address);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    let fixture = Fixture::of(snapshot);
    let params = json!({"name": "echo", "arguments": {}});
    let mut call =
        Modern::new("demo", &token("alice"), "tools/call", params).capabilities(json!({"elicitation": {}}));
    let asked = call.send(&fixture).await;
    assert!(asked.text.contains(&format!(r#""requestedSchema":{form}"#)), "{}", asked.text);
    let asked = asked.json()["result"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    call.body["params"]["requestState"] = asked["requestState"].clone();
    call.body["params"]["inputResponses"] = json!({key: "@answer"});
    let given = format!(
        r#"{{"action":"accept","content":{{"n":340282366920938463463374607431768211455,"f":{ODD}}}}}"#
    );
    let body = call.body.to_string().replace(r#""@answer""#, &given);
    let headers: Vec<(&str, &str)> =
        call.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &body).await.text;
    assert!(answer.contains("done"), "{answer}");
    let sent = seen.lock().pop().unwrap();
    assert!(sent.contains(&format!(r#""inputResponses":{{"who":{given}}}"#)), "{sent}");
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
        query: [("limit", "{limit}"), ("n", "{n}"), ("of", "{of*}"), ("tag", "{tag*}"), ("to", "{to}")]
            .map(|(name, template)| (name.to_owned(), template.to_owned()))
            .into(),
        result: "/data".into(),
        ..http_mapping("/items/{item}")
    };
    let mode = Mode::ProxyHttp(mapping);
    let mut snapshot = with_runtime("echo", mode, Mutation::ReadOnly, &format!("http://{address}"));
    open_echo(&mut snapshot, &json!({"type": "object", "properties": {"page": {"default": 1}}}));
    let arguments = r#"{"item":7.0,"limit":1e2,"n":340282366920938463463374607431768211455,"s":"\ud83d","tag":["a&b",0.10],"to":[1.0,"c,d"],"of":{"k":1.50}}"#;
    let answer = call(&Fixture::of(snapshot), true, arguments, r#""a/b":1"#).await;
    assert!(answer.contains(&format!(r#""structuredContent":{ODD}"#)), "{answer}");
    let sent = seen.lock().pop().unwrap();
    let query =
        "limit=100&n=340282366920938463463374607431768211455&of%5Bk%5D=1.50&tag=a%26b&tag=0.10&to=1,c%2Cd";
    let expected = format!("/items/7?{query} {arguments}");
    assert_eq!(sent, expected);
}

/// `echo` at an upstream, with a binding that denies calls for their path.
fn denying_paths(address: SocketAddr, is_observed: bool) -> GatewaySnapshot {
    let path = Condition { pointer: "/path".into(), test: Some(Test::Glob("/etc/*".into())) };
    let binding = Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "*".into(),
        primitive: "echo".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        name: "paths".into(),
        when: vec![path],
        ..Binding::default()
    };
    let (bindings, observed) = if is_observed { (vec![], vec![binding]) } else { (vec![binding], vec![]) };
    let mut snapshot = via_mcp(&["echo"], address);
    snapshot.bindings.extend(bindings);
    snapshot.observed_bindings.extend(observed);
    open_echo(&mut snapshot, &json!({"type": "object"}));
    snapshot
}

const DONE: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// Arguments that mean something else to whoever takes the first of equal keys, and the pointer of the key.
const AMBIGUOUS: [(&str, &str); 4] = [
    (r#"{"path":"/etc/shadow","path":"/srv/ok"}"#, "/path"),
    (r#"{"path":"/etc/shadow","p\u0061th":"/srv/ok"}"#, "/path"),
    (r#"{"path":"/srv/ok","in":[{"a":1,"a":2}]}"#, "/in/0/a"),
    (r#"{"path":"/srv/ok","\ud83d":1,"\ud83e":2}"#, "/\u{fffd}"),
];

#[tokio::test]
async fn equal_keys_are_refused_where_a_rule_asks_about_arguments() {
    let (address, seen) = upstream(DONE.into()).await;
    let fixture = Fixture::of(denying_paths(address, false));
    for (arguments, pointer) in AMBIGUOUS {
        let answer = call(&fixture, true, arguments, r#""a/b":1"#).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let result = &answer["result"];
        assert_eq!(result["_meta"]["asp/reason"], "invalid_params", "{arguments}: {answer}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("{pointer} is there twice")), "{arguments}: {text}");
    }
    assert_eq!(*seen.lock(), Vec::<String>::new());
    let answer = call(&fixture, true, r#"{"path":"/srv/ok","in":[{"a":1},{"a":2}]}"#, r#""a/b":1"#).await;
    assert!(answer.contains("done"), "{answer}");
}

#[tokio::test]
async fn equal_keys_pass_where_no_rule_is_enforced() {
    let (address, seen) = upstream(DONE.into()).await;
    for is_observed in [false, true] {
        let mut snapshot = denying_paths(address, is_observed);
        // One that is about another primitive does not count.
        snapshot.bindings.iter_mut().for_each(|binding| binding.primitive = "echo.other".into());
        let fixture = Fixture::of(snapshot);
        for (arguments, _) in AMBIGUOUS {
            let answer = call(&fixture, true, arguments, r#""a/b":1"#).await;
            assert!(answer.contains("done"), "{arguments}: {answer}");
            let sent = seen.lock().pop().unwrap();
            assert!(sent.contains(&format!(r#""arguments":{arguments}"#)), "{sent}");
        }
    }
}
