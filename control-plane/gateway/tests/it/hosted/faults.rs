//! Faults of a service and of the network: the call survives them or ends with a reason.

use asp_proto::snapshot::Mutation;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Service, Step, done, error, fixture, fixture_at, reply, result, state, sweep, with_header};

const ID: &str = "/base/v1/tools/their.sweep/calls/{id}";

#[tokio::test]
async fn a_put_without_an_answer_is_put_again_as_the_same_call() {
    let busy = with_header(reply(503, &json!({})), "retry-after", "0");
    for mutation in [Mutation::ReadOnly, Mutation::NonIdempotent] {
        let service = Service::start([
            Step::Break,
            busy.clone(),
            reply(500, &json!({})),
            reply(429, &json!({})),
            reply(408, &json!({})),
            done(),
        ])
        .await;
        let answer = sweep(&fixture_at(&service.url, mutation)).await;
        assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
        let seen = service.seen();
        assert_eq!(service.requests(), vec![format!("PUT {ID}"); 6]);
        assert!(seen.iter().all(|again| again.id == seen[0].id && again.body == seen[0].body));
        assert!(
            seen.iter().all(|again| again.header("idempotency-key") == seen[0].header("idempotency-key"))
        );
    }
}

#[tokio::test]
async fn a_refusal_after_a_put_that_may_have_begun_the_call_is_no_proof_that_it_did_not() {
    for first in [Step::Break, reply(502, &json!({})), reply(408, &json!({}))] {
        for status in [302, 400, 401, 403, 404, 422] {
            let service = Service::start([first.clone(), reply(status, &json!({}))]).await;
            let answer = sweep(&fixture_at(&service.url, Mutation::NonIdempotent)).await;
            assert_eq!(error(&answer).1, "outcome_unknown", "{status}");
            service.saw("/cancel").await;
        }
    }
    let service = Service::start([reply(429, &json!({})), reply(403, &json!({}))]).await;
    let answer = sweep(&fixture_at(&service.url, Mutation::NonIdempotent)).await;
    assert_eq!(error(&answer).1, "upstream_unavailable", "it was certainly not begun");
    assert!(!service.was_cancelled());
}

#[tokio::test]
async fn polls_that_fail_are_made_again() {
    let service = Service::start([
        state("running", json!({"etag": "1"})),
        Step::Break,
        reply(502, &json!({})),
        Step::Reply(429, vec![("retry-after", "0".into())], b"slow down".to_vec()),
        done(),
    ])
    .await;
    let answer = sweep(&fixture_at(&service.url, Mutation::NonIdempotent)).await;
    assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
    assert_eq!(service.seen().len(), 5);
}

#[tokio::test]
async fn a_service_that_never_begins_a_call_is_given_up_in_seconds() {
    let rows = [
        (reply(500, &json!({"stack": "at /srv/app.py"})), Mutation::ReadOnly, "upstream_unavailable"),
        (reply(500, &json!({})), Mutation::NonIdempotent, "outcome_unknown"),
        (reply(429, &json!({})), Mutation::NonIdempotent, "upstream_unavailable"),
    ];
    for (step, mutation, reason) in rows {
        let service = Service::start([step]).await;
        let answer = sweep(&fixture_at(&service.url, mutation)).await;
        assert_eq!(error(&answer).1, reason);
        assert!(!answer.text.contains("app.py"));
        assert_eq!(service.requests().len(), 6);
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error_and_the_call_had_no_effect() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let fixture = fixture_at(&format!("http://{dead}"), Mutation::NonIdempotent);
    let answer = sweep(&fixture).await;
    let expected = ("the service could not be reached".to_owned(), "upstream_unavailable".to_owned());
    assert_eq!(error(&answer), expected);
    // Its six attempts and four more open the breaker; what is refused then was not sent either.
    let (text, reason) = error(&sweep(&fixture).await);
    assert_eq!(reason, "upstream_unavailable");
    assert!(text.contains("gets no requests now"), "{text}");
    assert!(!answer.text.contains("127.0.0.1"));
}

#[tokio::test]
async fn an_address_nobody_allowed_is_never_connected_to() {
    let service = Service::start([done()]).await;
    let port = service.url.rsplit(':').next().unwrap();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("http://service.internal.:{port}/"),
    ] {
        let fixture = super::fixture_with(&service.url, |primitive| {
            let calls = asp_proto::snapshot::ProxyCalls { url: url.clone(), tool: "t".into() };
            let mode = asp_proto::snapshot::runtime::Mode::ProxyCalls(calls);
            primitive.runtime = Some(asp_proto::snapshot::Runtime { mode: Some(mode) });
        });
        assert_eq!(error(&sweep(&fixture).await).1, "upstream_unavailable", "{url}");
    }
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn garbage_ends_the_call_and_the_service_is_told() {
    let raw = |text: &str| Step::Reply(200, Vec::new(), text.as_bytes().to_vec());
    let deep = format!(r#"{{"status": "running", "x": {}{}}}"#, "[".repeat(500), "]".repeat(500));
    let rows = [
        ("no JSON", raw("<html>")),
        ("nothing", raw("")),
        ("half", raw(r#"{"status": "runn"#)),
        ("deep", raw(&deep)),
        ("list", raw("[]")),
        ("unknown status", state("thinking", json!({}))),
        ("no status", reply(200, &json!({"id": "1"}))),
        ("two statuses", raw(r#"{"status": "running", "status": "failed"}"#)),
        ("no result", state("success", json!({}))),
        ("no question", state("awaitingElicitationResult", json!({}))),
        ("long etag", state("running", json!({"etag": "e".repeat(257)}))),
        ("large data", state("running", json!({"serverData": "x".repeat(70 << 10)}))),
        ("large body", raw(&format!(r#"{{"status": "running", "x": "{}"}}"#, "x".repeat(11 << 20)))),
        ("redirect", Step::Reply(302, vec![("location", "http://127.0.0.1:1/".into())], Vec::new())),
    ];
    for (name, step) in rows {
        let service = Service::start([state("running", json!({"etag": "1"})), step]).await;
        let fixture = super::fixture_with(&service.url, |primitive| {
            primitive.set_mutation(Mutation::NonIdempotent);
            // A body that is too large may be a passing fault and is read again.
            primitive.max_runtime_seconds = 2;
        });
        assert_eq!(error(&sweep(&fixture).await).1, "outcome_unknown", "{name}");
        service.saw("/cancel").await;
    }
}

#[tokio::test]
async fn an_etag_that_fits_no_header_only_costs_its_use() {
    let service = Service::start([state("running", json!({"etag": "a\r\nx: y"})), done()]).await;
    let answer = sweep(&fixture(&service)).await;
    assert_eq!(result(&answer)["isError"], false, "{}", answer.text);
    assert_eq!(service.seen()[1].header("if-none-match"), "");
}

#[tokio::test]
async fn one_failing_call_does_not_pause_its_neighbour_at_another_service() {
    let failing = Service::start([reply(500, &json!({}))]).await;
    let broken = fixture(&failing);
    for _ in 0..2 {
        sweep(&broken).await;
    }
    assert!(error(&sweep(&broken).await).0.contains("gets no requests now"));
    let clock = crate::support::Modern::new(
        "demo",
        &crate::support::token("alice"),
        "tools/call",
        json!({"name": "clock"}),
    );
    assert_eq!(clock.send(&broken).await.json()["result"]["isError"], false);
}
