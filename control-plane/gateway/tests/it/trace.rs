//! A request's trace (W3C Trace Context) is in whatever its client is told of a failure, in the audit row and with
//! whoever works on the call, also where the client sent none.

use std::sync::Arc;

use asp_call::telemetry::traces::{EndedSpan, Sampling, SpanKind, Tracer};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::runtime::{Runtime, Script, Worker};
use crate::support::log_lines::LogLines;
use crate::support::{Answer, Fixture, Legacy, Modern, snapshot, token};

const ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-b7ad6b7169203331-01";

/// Returns the text of a span's attribute.
fn attribute<'a>(span: &'a EndedSpan, name: &str) -> Option<&'a str> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_ref())
}

#[tokio::test]
async fn a_sampled_call_has_a_span_and_its_plugin_is_below_that_of_the_execution() {
    let got: Arc<Mutex<String>> = Arc::default();
    let gets = got.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let gets = gets.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            *gets.lock() = invoke.attrs["traceparent"].clone();
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let (tracer, mut spans) = Tracer::new(Sampling { by_parent: true, ratio: 0.0 }, 8);
    fixture.gateway.pipeline.trace_to(Arc::new(tracer));
    let params = json!({"name": "sweep", "arguments": {}});
    let request = || Modern::new("plugins", &token("alice"), "tools/call", params.clone());
    request().with("traceparent", SENT).send(&fixture).await;
    let ended = spans.recv().await.unwrap();
    let call = &ended[0];
    assert_eq!((&*call.name, call.kind), ("tools/call sweep", SpanKind::Server));
    assert_eq!((format!("{:032x}", call.trace), call.parent), (ID.to_owned(), Some(0xb7ad_6b71_6920_3331)));
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "sweep"),
        ("asp.server", "plugins"),
        ("asp.call.outcome", "completed"),
    ] {
        assert_eq!(attribute(call, name), Some(value), "{call:?}");
    }
    assert!(!call.is_error && attribute(call, "error.type").is_none(), "{call:?}");
    assert!(!format!("{ended:?}").contains("alice"), "a span names no user");
    let execution = ended.iter().find(|span| span.name == "execute").unwrap();
    assert_eq!((execution.kind, execution.parent), (SpanKind::Client, Some(call.id)));
    assert!(call.began_ns <= execution.began_ns && execution.ended_ns <= call.ended_ns, "{ended:?}");
    assert_eq!(*got.lock(), format!("00-{ID}-{:016x}-01", execution.id));
    // Neither the caller nor the ratio samples these.
    let unsampled = SENT.replace("-01", "-00");
    request().with("traceparent", &unsampled).send(&fixture).await;
    assert_eq!(*got.lock(), unsampled, "it is passed on as it came");
    assert!(spans.try_recv().is_err());
}

#[tokio::test]
async fn a_failed_call_has_its_reason_in_its_span_and_a_full_queue_delays_nothing() {
    let fixture = Fixture::new();
    let (tracer, mut spans) = Tracer::new(Sampling { by_parent: false, ratio: 1.0 }, 1);
    let tracer = Arc::new(tracer);
    fixture.gateway.pipeline.trace_to(Arc::clone(&tracer));
    let params = json!({"name": "echo", "arguments": {"message": 7}});
    for _ in 0..3 {
        Modern::new("demo", &token("alice"), "tools/call", params.clone()).send(&fixture).await;
    }
    let ended = spans.recv().await.unwrap();
    assert_eq!(attribute(&ended[0], "error.type"), Some("invalid_params"), "{ended:?}");
    assert!(ended[0].is_error);
    assert_eq!(tracer.take_dropped(), 2);
}

/// Returns the trace in an answer of any form.
fn told(answer: &Answer) -> String {
    let body = answer.json();
    let places = [
        "/error/data/traceId",
        "/error/data/0/metadata/traceId",
        "/error/details/0/metadata/traceId",
        "/traceId",
        "/result/_meta/asp~1traceId",
    ];
    let found: Vec<&Value> = places.iter().filter_map(|place| body.pointer(place)).collect();
    assert_eq!(found.len(), 1, "{} {body}", answer.status);
    found[0].as_str().unwrap().to_owned()
}

/// Requests that end in each of the layers that refuse, with these headers besides their own.
async fn refused(headers: &[(&str, &str)]) -> Vec<(&'static str, Answer)> {
    let fixture = Fixture::new();
    let bearer = format!("Bearer {}", token("alice"));
    let json = ("content-type", "application/json");
    let authorized = [headers, &[json, ("authorization", &bearer)]].concat();
    let mut answers = Vec::new();
    for (what, path, with, body) in [
        ("no token", "/demo/mcp", [headers, &[json]].concat(), "{}"),
        ("no such server", "/nope/mcp", authorized.clone(), "{}"),
        ("no such path", "/nope", authorized.clone(), "{}"),
        (
            "a protocol that is not there",
            "/demo/a2a",
            authorized.clone(),
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
        ),
        ("a binding that is not there", "/demo/a2a/message:send", authorized.clone(), "{}"),
        ("no JSON", "/demo/mcp", authorized.clone(), "{"),
        ("no session", "/demo/mcp", authorized.clone(), r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
        ("a batch", "/demo/mcp", authorized.clone(), r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#),
    ] {
        answers.push((what, fixture.send(Method::POST, path, &with, body).await));
    }
    let long = "v".repeat(70 << 10);
    let too_long = [headers, &[("x-long", &long)]].concat();
    answers.push(("headers too large", fixture.send(Method::POST, "/demo/mcp", &too_long, "{}").await));
    answers.push(("no such session", fixture.send(Method::DELETE, "/demo/mcp", &authorized, "").await));
    for (what, params) in [
        ("no such tool", json!({"name": "nope"})),
        ("arguments that do not fit", json!({"name": "echo", "arguments": {"message": 7}})),
        ("no name", json!({})),
    ] {
        let mut request = Modern::new("demo", &token("alice"), "tools/call", params).without("traceparent");
        for (name, value) in headers {
            request.headers.push(((*name).into(), (*value).into()));
        }
        answers.push((what, request.send(&fixture).await));
        answers.push(("a header that does not fit", request.with("mcp-method", "x").send(&fixture).await));
    }
    answers
}

#[tokio::test]
async fn every_refusal_names_the_trace_its_caller_sent() {
    for (what, answer) in refused(&[("traceparent", SENT)]).await {
        assert_eq!(told(&answer), ID, "{what}");
    }
}

/// The last layers are the pipeline's, whose line is that of a call.
#[tokio::test]
async fn the_trace_of_every_refusal_finds_one_line_of_the_log() {
    let (lines, _listening) = LogLines::listen();
    for (what, answer) in refused(&[]).await {
        let found = lines.with("trace", &told(&answer));
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0]["level"], "INFO", "{what}: {found:?}");
    }
}

#[tokio::test]
async fn where_no_trace_or_a_bad_one_came_every_refusal_names_one_of_its_own() {
    let bad = SENT.replace(ID, &"0".repeat(32));
    let mut made = std::collections::HashSet::new();
    for headers in
        [vec![], vec![("traceparent", bad.as_str())], vec![("traceparent", SENT), ("traceparent", SENT)]]
    {
        for (what, answer) in refused(&headers).await {
            let trace = told(&answer);
            assert!(
                trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{what}: {trace}"
            );
            assert!(trace != ID && trace != "0".repeat(32), "{what}: {trace}");
            assert!(made.insert(trace), "{what} has another one's trace");
        }
    }
}

#[tokio::test]
async fn what_a_message_says_comes_before_its_request_and_is_in_both_audit_rows() {
    let fixture = Fixture::new();
    let params = json!({"name": "echo", "arguments": {"message": 7}});
    let mut request = Modern::new("demo", &token("alice"), "tools/call", params).with("traceparent", OTHER);
    request.body["params"]["_meta"]["traceparent"] = SENT.into();
    assert_eq!(told(&request.send(&fixture).await), ID);
    fixture.gateway.flush().await;
    let rows = fixture.audit.events();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(serde_json::from_str::<Value>(&row.event).unwrap()["trace"], ID);
    }
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_own_trace() {
    let (lines, _listening) = LogLines::listen();
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-03-26", json!({})).await;
    let message = |id: u64, name: &str, trace: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": name, "arguments": {"message": 7}, "_meta": {"traceparent": trace}}})
    };
    let answers = client.post(&json!([message(1, "nope", SENT), message(2, "echo", OTHER)])).await.json();
    assert_eq!(answers[0]["error"]["data"]["traceId"], ID);
    assert_eq!(answers[1]["error"]["data"]["traceId"], "1".repeat(32));
    for trace in [ID, "1".repeat(32).as_str()] {
        assert_eq!(lines.with("trace", trace).len(), 1, "{trace}");
    }
}

#[tokio::test]
async fn a_plugin_gets_a_trace_where_the_caller_sent_none() {
    let got: Arc<Mutex<String>> = Arc::default();
    let gets = got.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let gets = gets.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            *gets.lock() = invoke.attrs["traceparent"].clone();
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let params = json!({"name": "sweep", "arguments": {}});
    Modern::new("plugins", &token("alice"), "tools/call", params).without("traceparent").send(&fixture).await;
    fixture.gateway.flush().await;
    let row: Value = serde_json::from_str(&fixture.audit.events()[0].event).unwrap();
    let sent = got.lock().clone();
    assert_eq!(sent.len(), 55);
    assert_eq!(row["trace"], sent[3..35], "{sent}");
}
