//! Tests of workers that violate the protocol: they end, and nothing else is affected.

use serde_json::{Value, json};

use super::harness::{Stack, crash, eventually, output, start, wanted};

/// Runs a bad call in parallel to a good one of another plugin; returns how the bad one ended.
async fn beside_a_good_call(stack: &Stack, arguments: &Value) -> Option<(String, bool)> {
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 300})).await;
    good.until_message().await;
    // Each by a tenant of its own: a single one would be quarantined.
    let mut bad = stack.tunnel_for(wanted("bad", &arguments.to_string())).await;
    bad.invoke("bad", arguments).await;
    let bad = bad.rest().await;
    assert!(output(&good.rest().await).is_some(), "the other plugin's call goes on");
    crash(&bad)
}

#[tokio::test]
async fn each_fault_ends_its_worker_and_nobody_elses_call() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    for (mode, cause) in
        [("unknown", "protocol"), ("empty", "protocol"), ("oversize", "protocol"), ("gap", "protocol")]
    {
        let ended = beside_a_good_call(&stack, &json!({ "mode": mode })).await;
        assert_eq!(ended, Some((cause.to_owned(), true)), "{mode}");
    }
    // The good plugin still has the same worker.
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
    eventually("each is counted", || async { stack.figure("bad@1.0.0", "crashes").await == 4 }).await;
}

#[tokio::test]
async fn an_undeclared_question_and_a_broken_stream_are_faults() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    for mode in ["undeclared", "end"] {
        let ended = beside_a_good_call(&stack, &json!({ "mode": mode })).await;
        assert_eq!(ended, Some(("protocol".to_owned(), true)), "{mode}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_messages_end_their_worker() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    // A broken connection may end the worker before it is killed.
    for (mode, causes) in [
        ("frames", &["protocol", "exit"][..]),
        ("huge_prefix", &["protocol"]),
        ("compressed", &["protocol"]),
        ("unknown_flag", &["protocol"]),
    ] {
        let ended = beside_a_good_call(&stack, &json!({ "mode": mode })).await;
        assert!(
            matches!(&ended, Some((cause, true)) if causes.contains(&cause.as_str())),
            "{mode}: {ended:?}"
        );
    }
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn a_second_result_ends_the_worker_after_the_first_was_delivered() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    let mut other = stack.tunnel("bad").await;
    other.invoke("other", &json!({"mode": "slow", "ms": 60_000})).await;
    other.until_message().await;
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 300})).await;
    good.until_message().await;
    let said = stack.call("bad", "two", &json!({"mode": "two"})).await;
    assert!(output(&said).is_some() && crash(&said).is_none(), "{said:?}");
    assert_eq!(crash(&other.rest().await), Some(("protocol".to_owned(), true)));
    assert!(output(&good.rest().await).is_some(), "the other plugin's call goes on");
}

#[tokio::test]
async fn a_worker_that_speaks_no_http2_is_quarantined() {
    let stack = start(&[("good", json!({})), ("garbage", json!({"entrypoint": "garbage.py"}))]).await;
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 300})).await;
    good.until_message().await;
    let mut tunnel = stack.tunnel("garbage").await;
    let refused = tunnel.until_event(asp_proto::supervisor::tunnel_event::Type::AdmissionRejected).await;
    assert!(format!("{refused:?}").contains("quarantined: "), "{refused:?}");
    assert_eq!(stack.figure("garbage@1.0.0", "crashes").await, 5);
    assert!(output(&good.rest().await).is_some(), "the other plugin's call goes on");
}

#[tokio::test]
async fn a_flood_of_events_ends_the_call_that_nobody_reads_and_spares_the_others() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let flooded = stack.tunnel("echo").await;
    flooded.invoke("flood", &json!({"mode": "flood"})).await;
    // `flooded` is never read: the stream's window fills, then the outbox, and then the call ends. Its worker ignores
    // the cancellation, so it ends with the call.
    let mut other = stack.tunnel("echo").await;
    other.invoke("other", &json!({"mode": "slow", "ms": 50})).await;
    assert!(output(&other.rest().await).is_some(), "a slow reader does not hold up another call for ever");
    drop(flooded);
    super::harness::eventually("the flooding worker is ended", || async {
        stack.figure("echo@1.0.0", "crashes").await == 1
    })
    .await;
}
