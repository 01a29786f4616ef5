//! A call as a stream of events.

use asp_call::call::event::{Event, LogLevel};
use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{Rest, asking, frame, reason, refused, with_plugins};
use crate::support::{Fixture, claims, now, sign};

async fn open(call: &Rest<'_>, last: Option<&str>) -> Response {
    let mut events = call.part("events");
    if let Some(last) = last {
        events = events.with("last-event-id", last);
    }
    let headers: Vec<(&str, &str)> =
        events.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    call.fixture.open(Method::GET, &events.path, &headers, "").await
}

/// The next event: its id, its name and its data.
async fn event(body: &mut Body) -> (String, String, Value) {
    loop {
        let text = frame(body).await;
        if text.starts_with(':') {
            continue;
        }
        let member = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        return (member("id: "), member("event: "), serde_json::from_str(&member("data: ")).unwrap());
    }
}

#[tokio::test]
async fn everything_is_told_once_and_goes_on_where_it_broke_off() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    call.put(&json!({"to": 5, "delayMs": 20})).await;
    let mut seen = Vec::new();
    let mut last: Option<String> = None;
    loop {
        // Each event on a connection of its own.
        let response = open(&call, last.as_deref()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let (id, name, data) = event(&mut response.into_body()).await;
        last = Some(id);
        if name == "end" {
            assert_eq!((&data["status"], &data["id"]), (&json!("success"), &json!("1")));
            break;
        }
        assert_eq!(name, "progress");
        seen.push(data["progress"].as_i64().unwrap());
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    assert_eq!(open(&call, last.as_deref()).await.status(), StatusCode::NO_CONTENT, "a client stops there");
}

#[tokio::test]
async fn what_the_log_has_dropped_is_told_as_a_gap() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    call.put(&json!({"to": 100, "delayMs": 0})).await;
    let done = call.with("prefer", "wait=20").get().await.json();
    assert_eq!(done["status"], "success");
    // Of another log, as after a takeover.
    let mut body = open(&call, Some("00000000.3")).await.into_body();
    let (_, name, _) = event(&mut body).await;
    assert_eq!(name, "gap");
}

#[tokio::test]
async fn what_is_dropped_while_a_stream_waits_is_told_as_a_gap_too() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1");
    call.with("prefer", "wait=20").put(&json!({})).await;
    let mut body = open(&call, None).await.into_body();
    while event(&mut body).await.1 != "asked" {}
    {
        let mut waiting = std::pin::pin!(event(&mut body));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        let running = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
        for n in 0..300_u64 {
            running.emit(Event::Log { level: LogLevel::Info, logger: None, data: n.into() });
        }
        let (_, name, data) = waiting.await;
        assert_eq!(name, "gap", "{data}");
        assert!(data["lost"].as_u64().unwrap() >= 44, "{data}");
    }
    let (_, name, data) = event(&mut body).await;
    assert_eq!((name.as_str(), data["data"].as_u64().unwrap() >= 44), ("log", true), "{data}");
    call.part("cancel").send(Method::POST, "").await;
}

#[tokio::test]
async fn questions_are_told_and_the_end_after_them() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1");
    call.put(&json!({})).await;
    let mut body = open(&call, None).await.into_body();
    let asked = loop {
        let (_, name, data) = event(&mut body).await;
        if name == "asked" {
            break data;
        }
    };
    assert_eq!(asked["elicitationRequest"]["method"], "elicitation/create", "{asked}");
    let answer = json!({"serverData": asked["serverData"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(call.advance(&answer).await.status, StatusCode::OK);
    loop {
        let (_, name, data) = event(&mut body).await;
        assert_ne!(name, "asked", "{data}");
        if name == "end" {
            assert_eq!(data["status"], "success");
            break;
        }
    }
}

#[tokio::test]
async fn a_place_that_is_none_is_refused() {
    let fixture = Fixture::new();
    let call = Rest::of(&fixture, "policy.open", "1");
    call.put(&json!({})).await;
    let answer = call.part("events").with("last-event-id", "x").send(Method::GET, "").await;
    assert_eq!(reason(&answer), refused(400, "invalid_params"));
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_the_call_does_not() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    call.put(&json!({"to": 100, "delayMs": 1000})).await;
    let mut short = claims("alice");
    // Within the leeway of clocks, for a moment.
    short["exp"] = (now() - 4).into();
    short["jti"] = "short".into();
    let brief = call.with("authorization", &format!("Bearer {}", sign(&short)));
    let body = open(&brief, None).await.into_body();
    let bound = std::time::Duration::from_secs(20);
    tokio::time::timeout(bound, http_body_util::BodyExt::collect(body)).await.expect("it ends").unwrap();
    assert_eq!(call.get().await.json()["status"], "running");
    call.part("cancel").send(Method::POST, "").await;
}

/// The client comes back for the rest, at whichever gateway.
#[tokio::test]
async fn a_stream_ends_without_an_end_where_another_gateway_goes_on_with_the_call() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1");
    let asks = call.with("prefer", "wait=20").put(&json!({})).await.json();
    assert_eq!(asks["status"], "awaitingElicitationResult", "{asks}");
    let mut body = open(&call, None).await.into_body();
    while event(&mut body).await.1 != "asked" {}
    let waiting = call
        .with("prefer", "wait=20")
        .with("if-none-match", &format!("\"{}\"", asks["etag"].as_str().unwrap()));
    let waiting = async { waiting.get().await };
    let passed_on = async {
        let running = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
        running.ownership.passed_on.set();
        running.cancel();
        let rest = body.collect().await.unwrap().to_bytes();
        String::from_utf8(rest.to_vec()).unwrap()
    };
    let (waited, rest) = tokio::join!(waiting, passed_on);
    assert!(!rest.contains("event: end"), "{rest}");
    assert_eq!(
        (waited.status, &waited.json()["status"]),
        (StatusCode::OK, &json!("running")),
        "{}",
        waited.text
    );
    assert_eq!(call.get().await.json()["status"], "running");
}
