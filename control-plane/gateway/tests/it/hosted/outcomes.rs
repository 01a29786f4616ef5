//! The ends of a call: what the service says, and what its caller or the clock does.

use std::time::Duration;

use asp_proto::snapshot::Mutation;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Service, Step, done, error, fixture, fixture_at, fixture_with, modern, reply, result, state, sweep,
};
use crate::support::Legacy;

const UNKNOWN: &str = "the call may or may not have taken effect";

#[tokio::test]
async fn an_end_that_the_service_says_becomes_the_calls() {
    let failed =
        |code: &str, message: &str| state("failed", json!({"error": {"code": code, "message": message}}));
    let rows = [
        (
            state("success", json!({"result": {"content": [], "structuredContent": {"ok": 7}}})),
            "internal",
            "schema",
        ),
        (
            state("success", json!({"result": {"content": [{"type": "text", "text": "no value"}]}})),
            "internal",
            "schema",
        ),
        (state("success", json!({"result": {"rows": [1]}})), "internal", "schema"),
        (
            state(
                "success",
                json!({"result": {"isError": true, "content": [{"type": "text", "text": "no such file"}]}}),
            ),
            "",
            "no such file",
        ),
        (failed("NO_QUOTA", "the quota is used up\n  at /srv/app.py:3"), "", "the quota is used up"),
        (failed("", ""), "", "the tool failed"),
        (failed("INVALID_ARGUMENT", "n is too large"), "invalid_params", "n is too large"),
        (failed("DEADLINE", ""), "deadline", "deadline"),
        (state("failed", json!({})), "", "the tool failed"),
        (state("canceled", json!({})), "upstream_unavailable", "the service cancelled the call"),
    ];
    for (step, reason, text) in rows {
        let service = Service::start([state("running", json!({"etag": "1"})), step]).await;
        let answer = sweep(&fixture(&service)).await;
        let (said, why) = error(&answer);
        assert!(said.contains(text), "{text}: {said}");
        assert_eq!(why, reason, "{text}: {}", answer.text);
        assert!(!said.contains("app.py"), "{said}");
        assert!(!service.was_cancelled(), "{text}");
        assert!(result(&answer).get("structuredContent").is_none());
    }
}

#[tokio::test]
async fn a_services_own_code_reaches_the_caller() {
    let service =
        Service::start([state("failed", json!({"error": {"code": "NO_QUOTA", "message": "no"}}))]).await;
    assert_eq!(result(&sweep(&fixture(&service)).await)["_meta"]["asp/code"], "NO_QUOTA");
}

#[tokio::test]
async fn a_refusal_to_begin_says_nothing_of_the_services_inside() {
    let body = json!({"error": {"code": "X", "message": "n must be odd"}, "debug": "/srv/app.py"});
    let rows = [
        (400, "invalid_params", "n must be odd"),
        (422, "invalid_params", "n must be odd"),
        (401, "upstream_unavailable", "the service does not accept calls of this platform"),
        (403, "upstream_unavailable", "the service does not accept calls of this platform"),
        (404, "upstream_unavailable", "the service does not offer this"),
        (302, "upstream_unavailable", "the service answered 302"),
        (413, "upstream_unavailable", "the service answered 413"),
    ];
    for (status, reason, text) in rows {
        let service = Service::start([reply(status, &body)]).await;
        let answer = sweep(&fixture_at(&service.url, Mutation::NonIdempotent)).await;
        let (said, why) = error(&answer);
        assert!(said.ends_with(text), "{status}: {said}");
        assert_eq!(why, reason, "{status}");
        assert_eq!(service.seen().len(), 1, "{status}");
        assert!(!answer.text.contains("app.py") && !answer.text.contains("127.0.0.1"));
    }
}

/// The outcome of a call that is lost at the service, by what it changes.
#[tokio::test]
async fn a_call_that_the_service_lost_is_unknown_unless_repeating_it_is_harmless() {
    let rows = [
        (
            state("running", json!({"etag": "1"})),
            reply(404, &json!({})),
            "the service no longer knows the call",
        ),
        (
            state("running", json!({"etag": "1"})),
            reply(410, &json!({})),
            "the service no longer knows the call",
        ),
        (state("running", json!({"etag": "1"})), reply(403, &json!({})), "the service answered 403"),
        (reply(409, &json!({})), done(), "the service has another call of this id"),
        (state("running", json!({"id": "another"})), done(), "the service answered for another call"),
    ];
    for (first, second, text) in rows {
        for (mutation, expected) in [
            (Mutation::ReadOnly, (text, "upstream_unavailable")),
            (Mutation::Idempotent, (text, "upstream_unavailable")),
            (Mutation::NonIdempotent, (UNKNOWN, "outcome_unknown")),
        ] {
            let service = Service::start([first.clone(), second.clone()]).await;
            let (said, why) = error(&sweep(&fixture_at(&service.url, mutation)).await);
            assert_eq!((said.as_str(), why.as_str()), expected);
        }
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_service_while_a_poll_hangs() {
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang]).await;
    let client = Legacy::connect(&fixture(&service), "plugins", "alice", "2025-11-25", json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let body = client.open(&request).await.into_body();
    service.saw("GET /base/v1/tools/their.sweep/calls/{id}").await;
    client
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}))
        .await;
    let cancel = service.saw("/cancel").await;
    assert_eq!(cancel.method, "POST");
    assert_eq!(cancel.id, service.seen()[0].id);
    drop(body);
}

#[tokio::test]
async fn a_cancel_during_a_put_that_hangs_reaches_the_service_too() {
    let service = Service::start([Step::Hang]).await;
    let client = Legacy::connect(&fixture(&service), "plugins", "alice", "2025-11-25", json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let body = client.open(&request).await.into_body();
    service.saw("PUT /base/v1/tools/their.sweep/calls/{id}").await;
    client
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}))
        .await;
    service.saw("/cancel").await;
    drop(body);
}

#[tokio::test]
async fn a_deadline_cancels_the_call_at_the_service() {
    let cancelled = async |mutation: Mutation, expected: &str| {
        let service = Service::start([state("running", json!({"etag": "1"}))]).await;
        let fixture = fixture_with(&service.url, |primitive| {
            primitive.set_mutation(mutation);
            primitive.max_runtime_seconds = 5;
        });
        assert_eq!(error(&sweep(&fixture).await).1, expected);
        service.saw("/cancel").await;
    };
    // Both wait for their deadline at once.
    tokio::join!(
        cancelled(Mutation::ReadOnly, "deadline"),
        cancelled(Mutation::NonIdempotent, "outcome_unknown")
    );
}

#[tokio::test]
async fn a_task_whose_service_is_silent_for_three_heartbeats_is_given_up() {
    let service =
        Service::start([state("running", json!({"etag": "1"})), Step::Reply(304, vec![], vec![])]).await;
    let fixture = fixture_with(&service.url, |primitive| {
        primitive.set_mutation(Mutation::NonIdempotent);
        primitive.heartbeat_seconds = 1;
    });
    let started = Instant::now();
    assert_eq!(error(&sweep(&fixture).await).1, "outcome_unknown");
    assert!(started.elapsed() >= Duration::from_secs(3));
    service.saw("/cancel").await;
}

#[tokio::test]
async fn a_shutdown_waits_until_the_service_was_told() {
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang]).await;
    let fixture = fixture(&service);
    let running = tokio::spawn({
        let fixture = fixture.clone();
        async move { modern("sweep", json!({})).send(&fixture).await }
    });
    service.saw("GET /base/v1/tools/their.sweep/calls/{id}").await;
    fixture.gateway.pipeline.internals().calls.end().await;
    fixture.gateway.pipeline.internals().backends.drained().await;
    assert!(service.was_cancelled());
    running.await.unwrap();
}
