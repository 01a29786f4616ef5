//! Services that hang, refuse or answer in odd shapes, over HTTP/JSON: what the caller gets, and the breaker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::support::log_lines::LogLines;

fn fixture_of(name: &str, mode: Mode, upstream: &str) -> Fixture {
    Fixture::of(with_runtime(name, mode, Mutation::ReadOnly, upstream))
}

async fn legacy(fixture: &Fixture, revision: &str, method: &str, params: Value) -> Value {
    let client = Legacy::connect(fixture, "demo", "alice", revision, json!({})).await;
    client.request(2, method, params).await.json()
}

/// MCP: up to 2025-11-25 `structuredContent` is an object; 2026-07-28 takes any JSON value.
#[tokio::test]
async fn a_structured_result_that_is_no_object_is_text_to_legacy_clients() {
    let service = axum::Router::new().fallback(async |_: Request| axum::Json(json!([1, "a"])));
    let upstream = format!("http://{}", serve(service).await);
    let fixture = fixture_of("echo", Mode::ProxyHttp(http_mapping("/")), &upstream);
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let answer = legacy(&fixture, revision, "tools/call", params.clone()).await;
        assert!(answer["result"].get("structuredContent").is_none(), "{revision}: {answer}");
        assert_eq!(
            answer["result"]["content"],
            json!([{"type": "text", "text": r#"[1,"a"]"#}]),
            "{revision}"
        );
    }
    assert_eq!(echo(&fixture, "m").await["result"]["structuredContent"], json!([1, "a"]));
}

/// `resources/read` and `prompts/get` have no result that could carry an error.
#[tokio::test]
async fn a_failure_behind_a_resource_or_a_prompt_is_a_protocol_error() {
    let rows = [
        (400, "invalid_params"),
        (401, "upstream_unavailable"),
        (403, "upstream_unavailable"),
        (404, "upstream_unavailable"),
        (409, "upstream_unavailable"),
        (429, "rate_limited"),
        (500, "upstream_unavailable"),
        (302, "upstream_unavailable"),
    ];
    for (status, reason) in rows {
        let answered = StatusCode::from_u16(status).unwrap();
        let service = axum::Router::new().fallback(async move |_: Request| {
            (answered, [("retry-after", "7")], "token=abc at db1.internal")
        });
        let upstream = format!("http://{}", serve(service).await);
        for (id, method, params) in [
            ("about", "resources/read", json!({"uri": "demo://about"})),
            ("item", "resources/read", json!({"uri": "demo://items/1"})),
            ("greeting", "prompts/get", json!({"name": "greeting", "arguments": {"name": "x"}})),
        ] {
            let fixture = fixture_of(id, Mode::ProxyHttp(http_mapping("/")), &upstream);
            let modern =
                Modern::new("demo", &token("alice"), method, params.clone()).send(&fixture).await.json();
            for answer in [modern, legacy(&fixture, "2025-11-25", method, params.clone()).await] {
                assert!(answer.get("result").is_none(), "{status} {id}: {answer}");
                let expected = match (status, method) {
                    (404, "resources/read") => "unknown_primitive",
                    _ => reason,
                };
                assert_eq!(answer["error"]["data"]["reason"], expected, "{status} {id}: {answer}");
                if status == 429 {
                    assert_eq!(answer["error"]["data"]["retryAfterMs"], 7000, "{answer}");
                }
                assert!(!answer.to_string().contains("abc"), "{answer}");
            }
        }
    }
}

/// A fault of the arguments is a result for the model; a fault of the service is not. An effect that may have happened
/// is reported.
#[tokio::test]
async fn each_status_behind_a_tool_has_one_meaning() {
    let rows = [
        (302, "", ""),
        (400, "", ""),
        (401, "upstream_unavailable", "upstream_unavailable"),
        (403, "", ""),
        (404, "", ""),
        (408, "outcome_unknown", "upstream_unavailable"),
        (409, "", ""),
        (422, "", ""),
        (429, "rate_limited", "rate_limited"),
        (500, "outcome_unknown", "upstream_unavailable"),
        (502, "outcome_unknown", "upstream_unavailable"),
        (503, "outcome_unknown", "upstream_unavailable"),
    ];
    for (status, changing, reading) in rows {
        let answered = StatusCode::from_u16(status).unwrap();
        let service =
            axum::Router::new().fallback(async move |_: Request| (answered, [("retry-after", "7")]));
        let upstream = format!("http://{}", serve(service).await);
        for (mutation, reason) in [(Mutation::NonIdempotent, changing), (Mutation::ReadOnly, reading)] {
            let mode = Mode::ProxyHttp(http_mapping("/"));
            let answer = echo(&Fixture::of(with_runtime("echo", mode, mutation, &upstream)), "m").await;
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{status}: {answer}");
            assert_eq!(
                result["_meta"]["asp/reason"].as_str().unwrap_or_default(),
                reason,
                "{status}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn a_tools_error_is_counted_apart_from_a_success_and_from_a_failure_of_the_service() {
    let statuses = Arc::new(Mutex::new(vec![503_u16, 403, 200]));
    let service = axum::Router::new()
        .fallback(async move |_: Request| StatusCode::from_u16(statuses.lock().pop().unwrap()).unwrap());
    let upstream = format!("http://{}", serve(service).await);
    let fixture = fixture_of("echo", Mode::ProxyHttp(http_mapping("/")), &upstream);
    for _ in 0..3 {
        echo(&fixture, "m").await;
    }
    // A name that a client chose makes no series.
    let unlisted = json!({"name": "unlisted", "arguments": {}});
    Modern::new("demo", &token("alice"), "tools/call", unlisted).send(&fixture).await;
    let metrics = fixture.send(http::Method::GET, "/metrics", &[], "").await.text;
    let echo = r#"server="demo",primitive="echo",upstream="http://service.internal""#;
    for (outcome, status, reason) in [
        ("ok", "completed", "ok"),
        ("tool_error", "completed", "tool_error"),
        ("failed", "failed", "upstream_unavailable"),
    ] {
        let of_protocol = format!(r#"{{protocol="mcp",status="{status}",reason="{reason}"}} 1"#);
        for line in [
            format!(r#"asp_calls_total{{{echo},outcome="{outcome}"}} 1"#),
            format!("asp_protocol_requests_total{of_protocol}"),
            format!("protocol_requests_total{of_protocol}"),
        ] {
            assert!(metrics.lines().any(|written| written == line), "{line}\n{metrics}");
        }
    }
    assert!(metrics.contains(&format!("asp_call_duration_seconds_count{{{echo}}} 3\n")), "{metrics}");
    assert!(!metrics.contains("unlisted"), "{metrics}");
    for name in ["asp_build_info{version=", "process_cpu_seconds_total ", "process_resident_memory_bytes "] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name}: {metrics}");
    }
}

/// A service that sends a name of 1 MiB would otherwise write as much to the log with each call.
#[tokio::test]
async fn the_cause_of_a_failure_has_a_bounded_length() {
    let (lines, _listening) = LogLines::listen();
    let name = "x".repeat(1 << 20);
    let said = json!({name: 1});
    let service = axum::Router::new().fallback(async move |_: Request| axum::Json(said.clone()));
    let upstream = format!("http://{}", serve(service).await);
    let mapping = Mode::ProxyHttp(http_mapping("/"));
    let mut snapshot = with_runtime("echo", mapping, Mutation::ReadOnly, &upstream);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema = json!({"type": "object", "additionalProperties": false}).to_string();
    }
    let answer = echo(&Fixture::of(snapshot), "m").await;
    assert_eq!(answer["result"]["isError"], true);
    let found = lines.with("message", "call failed");
    let causes: Vec<&str> = found.iter().filter_map(|line| line["cause"].as_str()).collect();
    assert_eq!(causes.len(), 1, "{} lines", found.len());
    assert!(causes[0].len() <= 2048, "{} bytes", causes[0].len());
    assert!(causes[0].starts_with("the service's result does not fit the output schema"), "{}", causes[0]);
}

#[tokio::test]
async fn what_a_service_says_in_an_error_keeps_its_lines_and_is_clean() {
    let said = "denied for \u{1b}[31mbob\r\nauthorization: Bearer s3cr3t\r\nask the owner\r\n";
    let long = format!("{} password=hunter2", "x".repeat(5000));
    let page = "<!doctype html>\n<p>denied";
    let plain = "text/plain";
    for (kind, said, expected) in [
        (plain, said.to_owned(), "denied for [31mbob\nauthorization: ***\nask the owner".to_owned()),
        (plain, "Authorization: Bearer s3cr3t".to_owned(), "***".to_owned()),
        (plain, long, format!("{} password=***", "x".repeat(5000))),
        (
            "application/json",
            "{\r\n  \"error\": {\r\n    \"message\": \"no such item\"\r\n  }\r\n}\r\n".to_owned(),
            "{\n  \"error\": {\n    \"message\": \"no such item\"\n  }\n}".to_owned(),
        ),
        (plain, "no\nat f (/srv/app.js:3:5)".to_owned(), "no\n***".to_owned()),
        ("text/html; charset=utf-8", page.to_owned(), "<!doctype html>".to_owned()),
    ] {
        let expected = format!("the service answered 403: {expected}");
        let service = axum::Router::new().fallback(async move |_: Request| {
            (StatusCode::FORBIDDEN, [("content-type", kind)], said.clone())
        });
        let upstream = format!("http://{}", serve(service).await);
        let answer = echo(&fixture_of("echo", Mode::ProxyHttp(http_mapping("/")), &upstream), "m").await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().replace("Authorization: ", "");
        assert_eq!(text, expected);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_says_where_it_leads() {
    let place = [("location", "https://files.example/report.pdf")];
    for (status, expected) in [
        (StatusCode::FOUND, "the service answered 302: it is at https://files.example/report.pdf"),
        (StatusCode::CONFLICT, "the service answered 409: moved"),
    ] {
        let service = axum::Router::new().fallback(async move |_: Request| (status, place, "moved"));
        let upstream = format!("http://{}", serve(service).await);
        let answer = echo(&fixture_of("echo", Mode::ProxyHttp(http_mapping("/")), &upstream), "m").await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert_eq!(answer["result"]["content"][0]["text"], expected);
    }
}

/// A service that never answers, and how many calls of it `headers` make fail at once.
async fn hangs(calls: usize, headers: &[(&str, String)]) -> (Fixture, Vec<Value>) {
    let service = axum::Router::new().fallback(async |_: Request| std::future::pending::<StatusCode>().await);
    let upstream = format!("http://{}", serve(service).await);
    let mut snapshot =
        with_runtime("echo", Mode::ProxyHttp(http_mapping("/")), Mutation::ReadOnly, &upstream);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.max_runtime_seconds = 2;
    }
    let fixture = Fixture::of(snapshot);
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    let answers = futures::future::join_all((0..calls).map(|_| {
        let mut call = Modern::new("demo", &token("alice"), "tools/call", params.clone());
        for (name, value) in headers {
            call = call.with(name, value);
        }
        let fixture = fixture.clone();
        async move { call.send(&fixture).await.json() }
    }))
    .await;
    (fixture, answers)
}

#[tokio::test]
async fn a_service_that_hangs_until_the_deadline_is_given_a_pause() {
    let (fixture, answers) = hangs(12, &[]).await;
    assert!(answers.iter().all(|answer| answer["error"]["data"]["reason"] == "deadline"), "{answers:?}");
    let text = echo(&fixture, "m").await["result"]["content"][0]["text"].clone();
    assert!(text.as_str().is_some_and(|text| text.contains("gets no requests now")), "{text}");
}

/// Else one impatient caller could shut a service for everybody.
#[tokio::test]
async fn a_deadline_that_callers_shorten_says_nothing_of_the_service() {
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_millis(600);
    let (fixture, _) = hangs(20, &[("x-deadline-ms", soon.as_millis().to_string())]).await;
    let answer = echo(&fixture, "m").await;
    assert_eq!(answer["error"]["data"]["reason"], "deadline", "it is asked: {answer}");
}
