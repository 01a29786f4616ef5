//! Tests of subscriptions to resources: their updates, their ends, and the capacity that they leave to calls.

use std::time::Duration;

use asp_proto::plugin::{ReadResourceRequest, ResourceUpdated, SubscribeRequest};
use asp_proto::supervisor::admission::Status as Admitted;
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{AllocateWorkerRequest, CloseTunnelRequest, DrainRequest};
use serde_json::json;
use tonic::Code;

use super::harness::{
    Said, Stack, Tunnel, admitted, crash, eventually, output, reason, reference, start, start_with, wanted,
};

fn place(plugin: &str) -> AllocateWorkerRequest {
    AllocateWorkerRequest { subscription: true, ..wanted(plugin, "t") }
}

fn subscription(uri: &str) -> SubscribeRequest {
    SubscribeRequest { uri: uri.into(), request_id: format!("watch {uri}"), ..SubscribeRequest::default() }
}

/// Starts a subscription and waits until its worker has it.
async fn subscribe(stack: &Stack, plugin: &str, uri: &str) -> Tunnel {
    let mut tunnel = stack.tunnel_for(place(plugin)).await;
    tunnel.frame(&subscription(uri)).await;
    tunnel.until(is_update).await;
    tunnel
}

fn is_update(said: &Said) -> bool {
    matches!(said, Said::Other(any) if any.to_msg::<ResourceUpdated>().is_ok())
}

/// Returns all updates of a subscription from its beginning to its end.
async fn told(stack: &Stack, uri: &str) -> Vec<Said> {
    let mut tunnel = stack.tunnel_for(place("echo")).await;
    tunnel.frame(&subscription(uri)).await;
    tunnel.rest().await
}

fn failed(said: &[Said]) -> Option<&str> {
    said.iter().find_map(Said::failed)
}

#[tokio::test]
async fn one_tells_what_its_worker_says_and_ends_as_it_ends() {
    let stack = start(&[("echo", json!({}))]).await;
    let said = told(&stack, "test://ends").await;
    assert_eq!(said.iter().filter(|said| is_update(said)).count(), 3, "{said:?}");
    assert!(failed(&said).is_none() && matches!(said.last(), Some(Said::End(None))), "{said:?}");
    assert_eq!(failed(&told(&stack, "test://unwatched").await), Some("UNSUPPORTED"));
    let said = told(&stack, "test://long").await;
    assert!(failed(&said) == Some("INTERNAL") && !said.iter().any(is_update), "{said:?}");
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn one_leaves_a_place_to_calls_and_its_own_when_it_is_closed() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 2}}))]).await;
    let watching = subscribe(&stack, "echo", "test://stays").await;
    let mut busy = stack.tunnel("echo").await;
    busy.invoke("busy", &json!({"mode": "slow", "ms": 60_000})).await;
    busy.until_message().await;
    let response = stack.allocate(wanted("echo", "t")).await;
    assert_eq!(admitted(&response), Admitted::Queued);
    let request = CloseTunnelRequest { tunnel_id: watching.id.clone(), reason: String::new() };
    stack.client.clone().close_tunnel(request).await.unwrap();
    let mut waits = stack.open(&response.handle.unwrap().tunnel_id);
    waits.until_event(Type::TunnelReady).await;
    waits.invoke("waited", &json!({"text": "served"})).await;
    assert_eq!(output(&waits.rest().await).unwrap()["text"], "served");
}

#[tokio::test]
async fn there_are_no_more_than_the_plugins_share_of_places() {
    let stack = start(&[
        ("echo", json!({"pool": {"max": 1, "concurrency": 4}})),
        ("alone", json!({"pool": {"max": 1, "concurrency": 1}})),
    ])
    .await;
    let _first = subscribe(&stack, "echo", "test://one").await;
    let refused = stack.allocate(place("echo")).await;
    assert!(reason(&refused).starts_with("throttled: the plugin has its maximum of"), "{refused:?}");
    let mut other =
        stack.tunnel_for(AllocateWorkerRequest { subscription: true, ..wanted("echo", "u") }).await;
    other.frame(&subscription("test://one/of another org")).await;
    other.until(is_update).await;
    let refused = stack.allocate(AllocateWorkerRequest { subscription: true, ..wanted("echo", "v") }).await;
    assert_eq!(admitted(&refused), Admitted::Rejected, "two of four");
    assert_eq!(admitted(&stack.allocate(place("alone")).await), Admitted::Rejected);
    assert!(output(&stack.call("echo", "call", &json!({})).await).is_some());
}

#[tokio::test]
async fn a_place_is_for_what_it_was_asked_for() {
    let stack = start(&[("echo", json!({}))]).await;
    let fault = |said: Vec<Said>| match said.last() {
        Some(Said::End(Some(status))) => status.code(),
        other => panic!("{other:?}"),
    };
    let mut call = stack.tunnel("echo").await;
    call.frame(&subscription("test://stays")).await;
    assert_eq!(fault(call.rest().await), Code::FailedPrecondition);
    let mut invoked = stack.tunnel_for(place("echo")).await;
    invoked.invoke("one", &json!({})).await;
    assert_eq!(fault(invoked.rest().await), Code::FailedPrecondition);
    let mut read = stack.tunnel_for(place("echo")).await;
    let request =
        ReadResourceRequest { uri: "test://x".into(), request_id: "two".into(), ..Default::default() };
    read.frame(&request).await;
    assert_eq!(fault(read.rest().await), Code::FailedPrecondition);
}

#[tokio::test]
async fn neither_the_time_of_calls_nor_idleness_ends_one() {
    let short = json!({"limits": {"maxRuntimeSeconds": 1}, "pool": {"idleSeconds": 1}});
    let stack = start(&[("echo", short)]).await;
    let said = told(&stack, "test://late").await;
    assert!(said.iter().any(is_update) && failed(&said).is_none(), "{said:?}");
}

#[tokio::test]
async fn one_that_talks_all_the_time_holds_up_no_call_beside_it() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let mut talks = subscribe(&stack, "echo", "test://talks").await;
    for number in 0..20 {
        let said = stack.call("echo", &format!("call {number}"), &json!({"text": "served"})).await;
        assert_eq!(output(&said).unwrap()["text"], "served");
        talks.until(is_update).await;
    }
}

#[tokio::test]
async fn a_killed_worker_is_told_to_its_subscriptions() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let mut watching = subscribe(&stack, "echo", "test://stays").await;
    let said = stack.call("echo", "one", &json!({"mode": "crash"})).await;
    assert!(crash(&said).is_some());
    assert_eq!(crash(&watching.rest().await), Some(("signal".to_owned(), true)));
    drop(subscribe(&stack, "echo", "test://stays").await);
}

#[tokio::test]
async fn how_a_worker_ended_is_told_though_its_connection_ended_before_it() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let mut watching = subscribe(&stack, "echo", "test://stays").await;
    let said = stack.call("echo", "one", &json!({"mode": "exit", "late_ms": 300})).await;
    for said in [said, watching.rest().await] {
        assert_eq!(crash(&said), Some(("exit".to_owned(), true)), "{said:?}");
    }
}

#[tokio::test]
async fn a_drain_waits_for_no_subscription() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut watching = subscribe(&stack, "echo", "test://stays").await;
    let deadline = Some(prost_types::Duration::try_from(Duration::from_secs(600)).unwrap());
    let drain = DrainRequest { plugin: Some(reference("echo")), graceful: true, deadline };
    stack.client.clone().drain(drain).await.unwrap();
    assert_eq!(failed(&watching.rest().await), Some("CANCELLED"));
    assert!(reason(&stack.allocate(place("echo")).await).starts_with("draining: "));
}

#[tokio::test]
async fn a_call_that_needs_the_machine_ends_them() {
    let plugins = [("one", json!({})), ("two", json!({}))];
    let stack = start_with(&plugins, &["--max-workers", "1"]).await;
    let mut watching = subscribe(&stack, "one", "test://stays").await;
    assert!(output(&stack.call("two", "call", &json!({})).await).is_some());
    assert_eq!(failed(&watching.rest().await), Some("CANCELLED"));
}

#[tokio::test]
async fn a_worker_whose_call_was_stopped_has_to_be_found_quiescent_without_them() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let mut watching = subscribe(&stack, "echo", "test://stays").await;
    let mut stopped = stack.tunnel("echo").await;
    stopped.invoke("one", &json!({"mode": "leave", "what": "process", "until_cancelled": true})).await;
    stopped.until_message().await;
    stopped.cancel("one").await;
    assert_eq!(failed(&stopped.rest().await), Some("CANCELLED"));
    assert_eq!(failed(&watching.rest().await), Some("CANCELLED"));
    stack.log_line("a call left processes behind in the worker").await;
}

#[tokio::test]
async fn one_that_is_closed_leaves_its_worker_to_the_others() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 8}}))]).await;
    let mut stays = subscribe(&stack, "echo", "test://talks").await;
    let closed = subscribe(&stack, "echo", "test://stays").await;
    let request = CloseTunnelRequest { tunnel_id: closed.id.clone(), reason: String::new() };
    stack.client.clone().close_tunnel(request).await.unwrap();
    eventually("its place is free", || async { stack.figure("echo@1.0.0", "active").await == 1 }).await;
    assert!(output(&stack.call("echo", "call", &json!({})).await).is_some());
    stays.until(is_update).await;
    assert_eq!(stack.figure("echo@1.0.0", "starts").await, 1, "the call had the same worker");
}
