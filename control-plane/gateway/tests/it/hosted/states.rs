//! The states of a call in their order: what is sent, when the service is asked, what the caller is shown.

use std::time::Duration;

use serde_json::json;

use super::{Service, Step, done, fixture, modern, reply, result, state, sweep, with_header};

#[tokio::test]
async fn a_call_is_put_polled_and_ended() {
    let service = Service::start([
        state("submitted", json!({"etag": "1"})),
        state("running", json!({"etag": "2", "progress": {"progress": 1, "total": 4, "message": "one"}})),
        Step::Reply(304, Vec::new(), Vec::new()),
        state("running", json!({"etag": "\"3\"", "progress": {"progress": 3.5}})),
        state("running", json!({"etag": "4", "progress": {"progress": 2}})),
        done(),
    ])
    .await;
    let answer = sweep(&fixture(&service)).await;
    assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
    let call = "/base/v1/tools/their.sweep/calls/{id}";
    let get = format!("GET {call}");
    assert_eq!(
        service.requests(),
        [format!("PUT {call}"), get.clone(), get.clone(), get.clone(), get.clone(), get]
    );
    let seen = service.seen();
    assert_eq!(seen[0].body, json!({"n": 5}));
    assert!(uuid::Uuid::parse_str(&seen[0].id).is_ok());
    assert!(seen.iter().all(|later| later.id == seen[0].id));
    assert!(seen.iter().all(|seen| seen.header("idempotency-key") == seen.id));
    assert!(seen.iter().all(|seen| seen.header("x-deadline-ms").parse::<u64>().is_ok()));
    for secret in ["authorization", "cookie", "mcp-session-id"] {
        assert!(seen.iter().all(|seen| !seen.headers.contains_key(secret)), "{secret}");
    }
    let known: Vec<&str> = seen[1..].iter().map(|seen| seen.header("if-none-match")).collect();
    assert_eq!(known, ["\"1\"", "\"2\"", "\"2\"", "\"3\"", "\"4\""]);
    let shown: Vec<_> = answer
        .events()
        .into_iter()
        .filter(|event| event["method"] == "notifications/progress")
        .map(|event| event["params"].clone())
        .collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert_eq!(shown[0]["message"], "one");
    assert_eq!((shown[0]["progress"].as_f64(), shown[0]["total"].as_f64()), (Some(1.0), Some(4.0)));
    assert_eq!(shown[1]["progress"], 3.5);
    assert!(!service.was_cancelled());
}

#[tokio::test]
async fn progress_beyond_what_doubles_tell_apart_is_shown_step_by_step() {
    let steps = [9_007_199_254_740_992_u64, 9_007_199_254_740_993];
    let running = |at: u64| state("running", json!({"etag": at.to_string(), "progress": {"progress": at}}));
    let service = Service::start([running(steps[0]), running(steps[1]), done()]).await;
    let answer = sweep(&fixture(&service)).await;
    let events = answer.events();
    let shown = events.iter().filter(|event| event["method"] == "notifications/progress");
    let shown: Vec<_> = shown.map(|event| event["params"]["progress"].as_u64().unwrap()).collect();
    assert_eq!(shown, steps);
}

#[tokio::test]
async fn a_call_that_is_done_at_once_takes_one_request_whatever_its_status_is() {
    for status in [200, 201, 202] {
        let body = json!({"status": "success", "result": {"structuredContent": {"ok": true}}});
        let service = Service::start([reply(status, &body)]).await;
        let answer = sweep(&fixture(&service)).await;
        assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}));
        assert_eq!(service.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_callers_key_goes_along_within_its_scope_and_his_trace_too() {
    let service = Service::start([done()]).await;
    let fixture = fixture(&service);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for user in ["alice", "bob", "alice"] {
        let mut request = modern("sweep", json!({}));
        request.body["params"]["_meta"]["traceparent"] = trace.into();
        let request = request
            .with("authorization", &format!("Bearer {}", crate::support::token(user)))
            .with("idempotency-key", "the-key");
        assert_eq!(result(&request.send(&fixture).await)["isError"], false);
    }
    let seen = service.seen();
    // The third is answered from the ledger.
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    for seen in seen {
        assert_eq!(seen.header("traceparent"), trace);
        assert_eq!(seen.header("idempotency-key").len(), 32);
        assert!(seen.headers.values().all(|value| !value.as_bytes().starts_with(b"the-key")));
    }
}

#[tokio::test]
async fn a_service_says_when_it_wants_to_be_asked_again() {
    let rests = with_header(state("running", json!({"etag": "1"})), "retry-after", "1");
    let service = Service::start([rests, done()]).await;
    let answer = sweep(&fixture(&service)).await;
    assert_eq!(result(&answer)["isError"], false);
    let seen = service.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_service_is_not_asked_more_than_twenty_times_a_second() {
    let mut steps: Vec<Step> = (0..10)
        .map(|n| with_header(state("running", json!({"etag": n.to_string()})), "retry-after", "0"))
        .collect();
    steps.push(done());
    let service = Service::start(steps).await;
    sweep(&fixture(&service)).await;
    let seen = service.seen();
    assert_eq!(seen.len(), 11);
    assert!(seen[10].at - seen[0].at >= Duration::from_millis(500));
}

#[tokio::test]
async fn a_service_without_etags_is_asked_less_often_too_while_nothing_changes() {
    let mut steps = vec![state("running", json!({"progress": {"progress": 1}})); 6];
    steps.push(done());
    let service = Service::start(steps).await;
    sweep(&fixture(&service)).await;
    let seen = service.seen();
    assert_eq!(seen.len(), 7);
    // 100 ms, and half as long again each time.
    assert!(seen[6].at - seen[0].at >= Duration::from_millis(1500), "{:?}", seen[6].at - seen[0].at);
}
