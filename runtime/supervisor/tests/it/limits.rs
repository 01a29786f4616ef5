//! Tests of time and other limits of calls.

use std::time::Duration;

use asp_proto::plugin::cancel_request::Mode;
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{CancelAllocationRequest, CloseTunnelRequest};
use serde_json::json;

use super::harness::{Said, Stack, crash, eventually, output, start, wanted};

#[tokio::test]
async fn a_call_past_its_deadline_is_cancelled() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    let arguments = json!({"mode": "slow", "ms": 60_000});
    tunnel.invoke_until("one", &arguments, Some(Duration::from_millis(100))).await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| said.failed() == Some("CANCELLED")) && crash(&said).is_none(), "{said:?}");
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn the_plugins_own_maximum_runtime_holds_without_a_deadline() {
    let stack = start(&[("echo", json!({"limits": {"maxRuntimeSeconds": 1}}))]).await;
    let said = stack.call("echo", "one", &json!({"mode": "slow", "ms": 60_000})).await;
    assert!(said.iter().any(|said| said.failed() == Some("CANCELLED")), "{said:?}");
}

#[tokio::test]
async fn a_call_that_ignores_its_cancel_ends_with_its_worker() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "ignore"})).await;
    tunnel.until_message().await;
    tunnel.cancel("one").await;
    assert_eq!(crash(&tunnel.rest().await), Some(("deadline".to_owned(), true)));
}

#[tokio::test]
async fn a_call_is_cancelled_by_its_gateway_in_each_way() {
    let stack = start(&[("echo", json!({}))]).await;
    let slow = json!({"mode": "slow", "ms": 60_000});
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &slow).await;
    tunnel.until_message().await;
    tunnel.cancel("one").await;
    assert!(tunnel.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")));

    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("two", &slow).await;
    tunnel.until_message().await;
    let close = CloseTunnelRequest { tunnel_id: tunnel.id.clone(), reason: String::new() };
    stack.client.clone().close_tunnel(close).await.unwrap();
    assert!(tunnel.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")));

    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("three", &slow).await;
    tunnel.until_message().await;
    let cancel = CancelAllocationRequest { tunnel_id: tunnel.id.clone(), ..Default::default() };
    stack.client.clone().cancel_allocation(cancel).await.unwrap();
    assert!(tunnel.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")));

    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("four", &slow).await;
    tunnel.until_message().await;
    drop(tunnel);
    eventually("a call without its gateway ends", || async {
        stack.figure("echo@1.0.0", "active").await == 0
    })
    .await;
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0, "all of them ended as they should");
}

#[tokio::test]
async fn a_worker_gets_one_cancel_however_often_its_call_is_cancelled() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "cancels"})).await;
    tunnel.until_message().await;
    for mode in [Mode::Preempt, Mode::Hard, Mode::Hard, Mode::Soft] {
        tunnel.cancel_as("one", mode).await;
    }
    assert_eq!(output(&tunnel.rest().await), Some(json!({"modes": ["PREEMPT", "HARD", "SOFT"]})));
}

#[tokio::test]
async fn a_cancel_before_the_worker_is_ready_ends_the_wait() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 1}}))]).await;
    let mut busy = stack.tunnel("echo").await;
    busy.invoke("busy", &json!({"mode": "slow", "ms": 60_000})).await;
    busy.until_message().await;
    let mut waiting = stack.tunnel("echo").await;
    waiting.invoke("waiting", &json!({"mode": "echo"})).await;
    waiting.until_event(Type::AllocationQueued).await;
    waiting.cancel("waiting").await;
    let said = waiting.rest().await;
    assert!(
        said.iter().any(|said| said.failed() == Some("CANCELLED")) && output(&said).is_none(),
        "{said:?}"
    );
    assert_eq!(stack.figure("echo@1.0.0", "queued").await, 0);
}

#[tokio::test]
async fn logs_are_escaped_tagged_and_held_to_their_rate() {
    let stack = start(&[("echo", json!({"limits": {"logBytesPerSecond": 65_536}}))]).await;
    stack.call("echo", "one", &json!({"mode": "log"})).await;
    stack.log_line("second line").await;
    let line = stack.log_line("plain line").await;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["plugin"], "echo@1.0.0");
    assert_eq!(line["line"], "plain line\\u{1b}[31mred");
    stack.call("echo", "two", &json!({"mode": "logflood"})).await;
    stack.call("echo", "three", &json!({"mode": "exit"})).await;
    stack.log_line("exceeds its log rate").await;
}

/// Makes one call and ends it in one of the ways in which a gateway can end one.
async fn end_somehow(stack: &Stack, number: usize) {
    let handle = stack.allocate(wanted("echo", &format!("tenant-{}", number % 3))).await.handle.unwrap();
    let id = format!("call-{number}");
    let close = CloseTunnelRequest { tunnel_id: handle.tunnel_id.clone(), reason: String::new() };
    let way = number % 8;
    if way == 0 {
        stack.client.clone().close_tunnel(close).await.unwrap();
        return;
    }
    let mut tunnel = stack.open(&handle.tunnel_id);
    let slow = json!({"mode": "slow", "ms": 60_000});
    match way {
        1 => tunnel.invoke(&id, &json!({})).await,
        2 => tunnel.invoke_until(&id, &slow, Some(Duration::from_millis(30))).await,
        3 => {
            tunnel.invoke(&id, &slow).await;
            tunnel.cancel(&id).await;
        }
        4 => return drop(tunnel),
        5 => {
            tunnel.invoke(&id, &slow).await;
            tunnel.until_message().await;
            return drop(tunnel);
        }
        6 => {
            tunnel.invoke(&id, &slow).await;
            tunnel.until_message().await;
            stack.client.clone().close_tunnel(close.clone()).await.unwrap();
        }
        _ => {
            let cancel = CancelAllocationRequest { tunnel_id: handle.tunnel_id, ..Default::default() };
            stack.client.clone().cancel_allocation(cancel).await.unwrap();
        }
    }
    tunnel.rest().await;
    // Not found: it was closed above.
    let _ = stack.client.clone().close_tunnel(close).await;
}

#[tokio::test]
async fn however_calls_end_no_slot_is_lost() {
    let stack = start(&[("echo", json!({"pool": {"max": 2, "concurrency": 4}}))]).await;
    futures::future::join_all((0..160).map(|number| end_somehow(&stack, number))).await;
    eventually("all slots are free", || async {
        let health = stack.health().await;
        let echo = &health["plugins"]["echo@1.0.0"];
        echo["active"] == json!(0) && echo["queued"] == json!(0)
    })
    .await;
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0);
    let said = stack.call("echo", "after", &json!({"text": "still here"})).await;
    assert_eq!(output(&said).unwrap()["text"], "still here");
}

#[tokio::test]
async fn a_tunnel_carries_one_call() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "slow", "ms": 60_000})).await;
    tunnel.until_message().await;
    tunnel.invoke("two", &json!({})).await;
    let end = tunnel.rest().await.pop();
    assert!(
        matches!(&end, Some(Said::End(Some(status))) if status.code() == tonic::Code::FailedPrecondition),
        "{end:?}"
    );
}
