//! Tests of workers that do not read their messages, and of workers that send too much: they are ended or limited to
//! their rate, and nothing else is affected.

use std::time::{Duration, Instant};

use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::supervisor::CloseTunnelRequest;
use serde_json::{Value, json};

use super::harness::{Said, Stack, Tunnel, crash, eventually, output, start, wanted};

/// Time limit for a worker's end: it has 2 s after a cancel, and the rest is for a busy machine. Far below the
/// harness's own patience.
const SOON: Duration = Duration::from_secs(20);
/// Maximum duration of another plugin's call: a guard against hanging.
const NEIGHBOUR: Duration = SOON;

/// Makes a call whose worker has closed the window of its stream and still sends pongs.
async fn deaf(stack: &Stack, id: &str, end: Option<Duration>) -> Tunnel {
    // A tenant whose calls end worker after worker is quarantined, so each of these has its own.
    let mut tunnel = stack.tunnel_for(wanted("deaf", id)).await;
    tunnel.invoke_until(id, &json!({"mode": "deaf"}), end).await;
    tunnel.until_message().await;
    // More than the window, gRPC's own buffers and the supervisor's queue hold.
    for number in 0..60 {
        tunnel.answer(id, &format!("{number}"), &json!({"text": "x".repeat(16 << 10)})).await;
    }
    tunnel
}

async fn is_killed(mut tunnel: Tunnel, how: &str) {
    let began = Instant::now();
    let (cause, delivered) = crash(&tunnel.rest().await).expect("the worker is killed");
    assert!(began.elapsed() < SOON, "{how}: {:?}", began.elapsed());
    assert!(delivered && ["deadline", "wedged"].contains(&cause.as_str()), "{how}: {cause}");
}

#[tokio::test]
async fn a_worker_that_shuts_its_window_is_killed_whatever_it_sends() {
    let deaf_plugin = json!({"entrypoint": "deaf.py", "elicitations": ["age"]});
    let stack = start(&[("deaf", deaf_plugin)]).await;
    let tunnel = deaf(&stack, "cancelled", None).await;
    tunnel.cancel("cancelled").await;
    is_killed(tunnel, "cancelled").await;

    is_killed(deaf(&stack, "late", Some(Duration::from_millis(500))).await, "past its deadline").await;

    let tunnel = deaf(&stack, "closed", None).await;
    let close = CloseTunnelRequest { tunnel_id: tunnel.id.clone(), reason: String::new() };
    let mut client = stack.client.clone();
    let closing = tokio::spawn(async move { client.close_tunnel(close).await });
    is_killed(tunnel, "closed").await;
    closing.await.unwrap().unwrap();

    let began = Instant::now();
    let crashes = stack.figure("deaf@1.0.0", "crashes").await;
    drop(deaf(&stack, "left", None).await);
    eventually("a worker whose caller has gone is killed", || async {
        stack.figure("deaf@1.0.0", "crashes").await == crashes + 1
    })
    .await;
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn a_pong_to_no_ping_shows_nothing() {
    let stack = start(&[("deaf", json!({"entrypoint": "deaf.py"}))]).await;
    let mut tunnel = stack.tunnel("deaf").await;
    tunnel.invoke("one", &json!({"mode": "deaf"})).await;
    let began = Instant::now();
    // It is not cancelled: it is killed because it answers no ping, whatever pongs it sends.
    assert_eq!(crash(&tunnel.rest().await), Some(("wedged".to_owned(), true)));
    assert!(began.elapsed() < SOON);
}

/// Makes calls of another plugin, one after another, until `bad` has ended. Each must succeed soon.
async fn neighbours(stack: &Stack, bad: &mut Tunnel) -> (Vec<Said>, u32) {
    let mut calls = 0;
    let good = async {
        loop {
            let began = Instant::now();
            let said = stack.call("good", &format!("good-{calls}"), &json!({})).await;
            assert!(output(&said).is_some(), "a neighbour's call failed: {said:?}");
            assert!(began.elapsed() < NEIGHBOUR, "a neighbour's call took {:?}", began.elapsed());
            calls += 1;
        }
    };
    let said = tokio::select! {
        said = bad.rest() => said,
        () = good => Vec::new(),
    };
    (said, calls)
}

async fn beside_good(arguments: &Value) -> (Stack, Vec<Said>, u32) {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    assert!(output(&stack.call("good", "first", &json!({})).await).is_some());
    let mut bad = stack.tunnel("bad").await;
    bad.invoke("bad", arguments).await;
    let (said, calls) = neighbours(&stack, &mut bad).await;
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
    (stack, said, calls)
}

#[tokio::test]
async fn a_flood_of_pongs_ends_its_worker_and_nobody_elses_call() {
    let (_stack, said, _) = beside_good(&json!({"mode": "pongs"})).await;
    assert_eq!(crash(&said), Some(("protocol".to_owned(), true)), "{said:?}");
}

#[tokio::test]
async fn a_flood_of_tiny_lines_is_held_to_a_rate_of_lines_and_slows_nobody() {
    let (stack, said, calls) = beside_good(&json!({"mode": "tiny_lines", "ms": 5000})).await;
    assert!(output(&said).is_some(), "its own call ends as it should: {said:?}");
    assert!(calls > 10, "only {calls} calls went on beside it");
    let dropped: Value = serde_json::from_str(&stack.log_line("exceeds its log rate").await).unwrap();
    assert!(dropped["lines"].as_u64().unwrap() > 0, "{dropped}");
    // Millions were written; 500 a second are logged, for as long as it took on a slow machine.
    let logged = stack.logged("\"line\":\"x\"").len();
    assert!(logged > 0 && logged < 50_000, "{logged} lines");
}

#[tokio::test]
async fn a_flood_of_log_messages_is_held_to_the_same_rate() {
    let stack = start(&[("echo", json!({}))]).await;
    let said = stack.call("echo", "one", &json!({"mode": "log_messages", "count": 50_000})).await;
    assert!(output(&said).is_some(), "{:?}", said.last());
    let passed = said.iter().filter(|said| matches!(said, Said::Message(Out::Log(_)))).count();
    assert!(passed > 0 && passed < 25_000, "{passed} lines were passed on");
    stack.log_line("exceeds its log rate").await;
}
