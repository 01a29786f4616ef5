//! Tests that everything a call started ends with it, or its worker does.

use serde_json::{Value, json};

use super::account::{PIVOT_ROOT, start_stand_ins};
use super::harness::{Stack, crash, eventually, output, start};

/// Returns the number of processes below the runtime with this name.
fn running(stack: &Stack, name: &str) -> usize {
    super::death::descendants(stack.child.id())
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .filter(|comm| comm.trim_end() == name)
        .count()
}

/// Returns the number of workers so far; the process id of each inside its sandbox is the same.
async fn workers_seen(stack: &Stack) -> u64 {
    stack.figure("echo@1.0.0", "starts").await
}

async fn stopped(stack: &Stack, arguments: &Value) {
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", arguments).await;
    tunnel.until_message().await;
    tunnel.cancel("one").await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| said.failed() == Some("CANCELLED")) && crash(&said).is_none(), "{said:?}");
}

#[tokio::test]
async fn a_stopped_call_that_left_a_thread_or_a_process_ends_with_its_worker() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    for (what, told) in [("thread", "computation"), ("process", "processes")] {
        stopped(&stack, &json!({"mode": "leave", "what": what, "until_cancelled": true})).await;
        stack.log_line(&format!("a call left {told} behind in the worker")).await;
        eventually("everything of it is gone", || async { running(&stack, "sleep") == 0 }).await;
        let said = stack.call("echo", "next", &json!({"text": "served"})).await;
        assert_eq!(output(&said).unwrap()["text"], "served");
    }
    assert_eq!(workers_seen(&stack).await, 3);
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0, "its plugin is not held back for it");
}

#[tokio::test]
async fn it_is_seen_without_a_control_group_too() {
    let low = json!({"isolation": {"minLevel": 1}, "pool": {"max": 1}});
    let stack = start_stand_ins(&[("echo", low)], &[PIVOT_ROOT], &["--min-level", "1"]).await;
    for (what, told) in [("thread", "computation"), ("process", "processes")] {
        stopped(&stack, &json!({"mode": "leave", "what": what, "until_cancelled": true})).await;
        stack.log_line(&format!("a call left {told} behind in the worker")).await;
        eventually("everything of it is gone", || async { running(&stack, "sleep") == 0 }).await;
    }
    stopped(&stack, &json!({"mode": "slow", "ms": 60_000})).await;
    assert!(output(&stack.call("echo", "next", &json!({})).await).is_some());
    assert_eq!(workers_seen(&stack).await, 3, "the last is used again");
}

#[tokio::test]
async fn a_call_that_ended_by_itself_leaves_nothing_either() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let said = stack.call("echo", "one", &json!({"mode": "leave", "what": "process"})).await;
    assert!(output(&said).is_some() && running(&stack, "sleep") == 1, "{said:?}");
    stack.log_line("a call left processes behind in the worker").await;
    eventually("everything of it is gone", || async { running(&stack, "sleep") == 0 }).await;
}

#[tokio::test]
async fn a_worker_that_does_nothing_after_a_cancel_is_used_again() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    stopped(&stack, &json!({"mode": "slow", "ms": 60_000})).await;
    stopped(&stack, &json!({"mode": "leave", "what": "nothing", "until_cancelled": true})).await;
    let said = stack.call("echo", "two", &json!({"mode": "leave", "what": "nothing"})).await;
    assert!(output(&said).is_some());
    assert!(output(&stack.call("echo", "three", &json!({})).await).is_some());
    assert_eq!(workers_seen(&stack).await, 1, "it is the same worker all the time");
}

#[tokio::test]
async fn others_calls_finish_in_a_worker_that_takes_no_more() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 4}}))]).await;
    let mut other = stack.tunnel("echo").await;
    other.invoke("other", &json!({"mode": "slow", "ms": 3000})).await;
    other.until_message().await;
    stopped(&stack, &json!({"mode": "leave", "what": "thread", "until_cancelled": true})).await;
    let next = stack.call("echo", "next", &json!({"text": "served"})).await;
    assert_eq!(output(&next).unwrap()["text"], "served");
    assert_eq!(workers_seen(&stack).await, 2, "the next call does not wait for the other");
    assert!(output(&other.rest().await).is_some(), "which finishes");
    stack.log_line("a call left computation behind in the worker").await;
}
