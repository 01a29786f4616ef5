//! Endpoints that fail, and inputs that are none: each has its word, and nothing leaves the gateway that should not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{ProxyOpenai, Runtime as Runs};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use tokio::sync::Notify;

use super::{Model, Once, asks, audited, said, status, sweep, told, with_delegate};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, snapshot};

type Answer = fn(usize) -> Response;

fn body(text: impl Into<String>) -> Response {
    ([("content-type", "application/json")], text.into()).into_response()
}

#[tokio::test]
async fn every_fault_has_its_word_and_its_number_of_requests() {
    let rows: [(&str, Answer, usize, &str); 15] = [
        (
            "429, then well",
            |n| if n < 2 { status(StatusCode::TOO_MANY_REQUESTS, "0") } else { said("1") },
            3,
            "",
        ),
        (
            "500, then well",
            |n| if n < 1 { status(StatusCode::INTERNAL_SERVER_ERROR, "0") } else { said("1") },
            2,
            "",
        ),
        ("429 for ever", |_| status(StatusCode::TOO_MANY_REQUESTS, "0"), 4, "unavailable"),
        ("503 for ever", |_| status(StatusCode::SERVICE_UNAVAILABLE, "0"), 4, "unavailable"),
        ("429 for longer than there is", |_| status(StatusCode::TOO_MANY_REQUESTS, "3600"), 1, "unavailable"),
        ("401", |_| status(StatusCode::UNAUTHORIZED, "0"), 1, "refused"),
        ("400", |_| status(StatusCode::BAD_REQUEST, "0"), 1, "refused"),
        ("404", |_| status(StatusCode::NOT_FOUND, "0"), 1, "refused"),
        ("huge", |_| said(&"x".repeat(2 << 20)), 1, "unavailable"),
        ("no JSON", |_| body("{\"choices\": [{"), 1, "unavailable"),
        ("HTML", |_| body("<html>it works</html>"), 1, "unavailable"),
        ("no choices", |_| body("{\"choices\": []}"), 1, "unavailable"),
        (
            "refusal",
            |_| body("{\"choices\": [{\"message\": {\"content\": null, \"refusal\": \"no\"}}]}"),
            1,
            "refused",
        ),
        ("off the schema", |_| said("{\"n\": 1}"), 1, "invalid_output"),
        (
            "cut off",
            |_| {
                body("{\"choices\": [{\"finish_reason\": \"length\", \"message\": {\"content\": \"[1, \"}}]}")
            },
            1,
            "invalid_output",
        ),
    ];
    for (name, answer, requests, word) in rows {
        let model = Model::start(move |n| async move { answer(n) }).await;
        let snapshot = with_delegate(|delegate| delegate.output_schema = r#"{"type":"integer"}"#.into());
        let (heard, fixture) = Once::of(snapshot, model.endpoints()).run().await;
        match word {
            "" => assert_eq!(heard.unwrap()["json"], 1, "{name}"),
            word => assert_eq!(heard.unwrap_err(), word, "{name}"),
        }
        assert_eq!(model.requests(), requests, "{name}");
        let event = audited(&fixture, "call.delegation").await.remove(0);
        assert_eq!(event["outcome"], if word.is_empty() { "ok" } else { word }, "{name}");
        assert!(!event.to_string().contains("s3cret"), "{event}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let sink = Model::saying("stolen").await;
    let to = format!("http://{}/v1/chat/completions", sink.address);
    for code in [StatusCode::FOUND, StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT] {
        let to = to.clone();
        let model = Model::start(move |_| {
            let to = to.clone();
            async move { (code, [("location", to)], "").into_response() }
        })
        .await;
        let (heard, _) = Once::of(snapshot(), model.endpoints()).run().await;
        assert_eq!(heard.unwrap_err(), "refused", "{code}");
    }
    assert_eq!(sink.requests(), 0);
}

#[tokio::test]
async fn a_specs_endpoint_at_an_address_nobody_allowed_is_never_connected_to() {
    let sink = Model::saying("inside").await;
    let port = sink.address.port();
    for url in [
        format!("http://127.0.0.1:{port}/v1"),
        format!("https://127.0.0.1:{port}/v1"),
        format!("http://localhost:{port}/v1"),
        format!("https://localhost:{port}/v1"),
        format!("https://2130706433:{port}/v1"),
        format!("https://[::ffff:127.0.0.1]:{port}/v1"),
        "https://169.254.169.254/v1".to_owned(),
        "file:///etc/passwd".to_owned(),
        "llm".to_owned(),
    ] {
        let snapshot = with_delegate(|delegate| {
            let openai = ProxyOpenai { url: url.clone(), model: "m".into(), ..ProxyOpenai::default() };
            delegate.runtime = Some(Runs { mode: Some(Mode::ProxyOpenai(openai)) });
        });
        // The operator's own endpoint does not stand in for one that the spec names.
        let (heard, _) = Once::of(snapshot, sink.endpoints()).run().await;
        assert_eq!(heard.unwrap_err(), "unavailable", "{url}");
    }
    assert_eq!(sink.requests(), 0);
}

#[tokio::test]
async fn bad_inputs_are_asked_of_nobody() {
    let model = Model::saying("1").await;
    let schema =
        r#"{"type":"object","required":["text"],"properties":{"text":{"type":"string","maxLength":600000}}}"#;
    let rows = [
        (json!({"text": 7}), "invalid_input"),
        (json!({}), "invalid_input"),
        (json!(null), "invalid_input"),
        (json!({"text": "x".repeat(600_000)}), "too_large"),
    ];
    for (input, word) in rows {
        let snapshot = with_delegate(|delegate| delegate.input_schema = schema.into());
        let (heard, fixture) = Once { input, ..Once::of(snapshot, model.endpoints()) }.run().await;
        assert_eq!(heard.unwrap_err(), word);
        let event = audited(&fixture, "call.delegation").await.remove(0);
        assert_eq!((&event["by"], &event["outcome"]), (&json!("nobody"), &json!(word)));
    }
    assert_eq!(model.requests(), 0);
}

#[tokio::test]
async fn a_silent_endpoint_expires_with_the_delegation() {
    let model = Model::start(|_| std::future::pending()).await;
    let timeout = Duration::from_secs(2);
    let began = Instant::now();
    let (heard, _) = Once { timeout, ..Once::of(snapshot(), model.endpoints()) }.run().await;
    assert_eq!(heard.unwrap_err(), "expired");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(model.requests(), 1);
}

#[tokio::test]
async fn an_endpoint_that_breaks_off_is_unavailable_and_at_last_given_a_pause() {
    let model = Model::start(|_| async { body("no completion") }).await;
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for n in 0..15 {
            worker.say(asks(&invoke.request_id, &format!("d-{n}"), &json!(n), Duration::ZERO)).await;
            assert_eq!(told(&mut worker).await.error, "unavailable");
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = Fixture::with_models(snapshot(), 7, runtime.runtimes(), model.endpoints());
    let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(model.requests(), 10, "the breaker opens after ten failures");
}

/// Says that it was dropped: the client went away.
struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_cancel_ends_the_request() {
    let asked = Arc::new(Notify::new());
    let gone = Arc::new(Notify::new());
    let tells = asked.clone();
    let goes = gone.clone();
    let model = Model::start(move |_| {
        let gone = Gone(goes.clone());
        tells.notify_one();
        async move {
            let _gone = gone;
            std::future::pending().await
        }
    })
    .await;
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks(&invoke.request_id, "d-1", &json!("x"), Duration::ZERO)).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = Fixture::with_models(snapshot(), 7, runtime.runtimes(), model.endpoints());
    let calling = fixture.clone();
    let request = sweep(json!({}));
    let call = tokio::spawn(async move { request.send(&calling).await });
    asked.notified().await;
    // A closed request is the cancel of the modern revision.
    call.abort();
    tokio::time::timeout(Duration::from_secs(60), gone.notified()).await.expect("the request goes on");
}

/// Invariant I-12.
#[tokio::test]
async fn the_operators_model_is_not_asked_for_a_delegate_that_it_does_not_name() {
    let model = Model::saying("1").await;
    let mut endpoints = model.endpoints();
    if let Some(own) = &mut endpoints.default {
        own.primitives = vec!["other/*".into()];
    }
    let (heard, _fixture) = Once::of(snapshot(), endpoints).run().await;
    assert_eq!(heard.unwrap_err(), "unsupported");
    assert_eq!(model.requests(), 0);
}
