//! Tests of checkpoints, their limits, and calls that continue elsewhere because their plugin is drained.

use std::time::{Duration, Instant};

use asp_proto::plugin::CheckpointAck;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::supervisor::DrainRequest;
use asp_proto::supervisor::tunnel_event::Type;
use serde_json::{Value, json};

use super::harness::{Said, Stack, Tunnel, crash, eventually, output, reference, start, start_shims};

fn ack(request_id: &str, seq: u64) -> In {
    In::CheckpointAck(CheckpointAck { request_id: request_id.into(), seq, error: String::new() })
}

/// Acknowledges every checkpoint like a gateway with an instant store; returns their number.
async fn acknowledge(tunnel: &mut Tunnel, request_id: &str) -> (usize, Vec<Said>) {
    let mut count = 0;
    let mut said = Vec::new();
    loop {
        match tunnel.next().await {
            Said::Message(Out::Checkpoint(checkpoint)) => {
                count += 1;
                tunnel.say(ack(request_id, checkpoint.seq)).await;
            }
            end @ Said::End(_) => {
                said.push(end);
                return (count, said);
            }
            other => said.push(other),
        }
    }
}

async fn saving(stack: &Stack, arguments: &Value) -> (usize, Vec<Said>) {
    let mut tunnel = stack.tunnel("bad").await;
    tunnel.invoke("bad", arguments).await;
    acknowledge(&mut tunnel, "bad").await
}

#[tokio::test]
async fn an_oversize_checkpoint_ends_its_worker_and_nobody_elses_call() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 1000})).await;
    good.until_message().await;
    let largest = json!({"mode": "checkpoint", "bytes": 64 << 10});
    let (saved, said) = saving(&stack, &largest).await;
    assert!(saved == 1 && output(&said).is_some(), "the largest that is allowed: {said:?}");
    for bytes in [(64 << 10) + 1, 3 << 20] {
        let (saved, said) = saving(&stack, &json!({"mode": "checkpoint", "bytes": bytes})).await;
        assert_eq!((saved, crash(&said)), (0, Some(("protocol".to_owned(), true))), "{bytes} bytes");
    }
    assert!(output(&good.rest().await).is_some());
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn a_thousand_checkpoints_are_slowed_down_and_those_that_nobody_awaits_end_the_worker() {
    let stack = start(&[("good", json!({})), ("bad", json!({}))]).await;
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 2000})).await;
    good.until_message().await;
    let began = Instant::now();
    let patient = json!({"mode": "checkpoint", "count": 101, "wait": true});
    let (saved, said) = saving(&stack, &patient).await;
    assert!(saved == 101 && output(&said).is_some(), "{saved}: {said:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "a hundred a second at most: {:?}", began.elapsed());

    // These are never acknowledged.
    let flood = json!({"mode": "checkpoint", "count": 1000});
    let said = stack.call("bad", "flood", &flood).await;
    let passed = said.iter().filter(|said| matches!(said, Said::Message(Out::Checkpoint(_)))).count();
    assert_eq!((passed, crash(&said)), (16, Some(("limit".to_owned(), true))), "{said:?}");
    assert!(output(&good.rest().await).is_some());
}

fn yielded(said: &Said) -> bool {
    matches!(said, Said::Message(Out::Failed(failed)) if failed.yielded)
}

/// Drains a plugin: the last quarter of `within` is for calls that neither end nor yield.
async fn drain(stack: &Stack, id: &str, within: Duration) {
    let deadline = prost_types::Duration::try_from(within).ok();
    let drain = DrainRequest { plugin: Some(reference(id)), graceful: true, deadline };
    stack.client.clone().drain(drain).await.unwrap();
}

const STEPS: &str = r#"
import asyncio
from asp_plugin import plugin

@plugin.tool(resumable=True)
async def count(args, ctx):
    step = ctx.resume.state if ctx.resume else 0
    while True:
        step += 1
        await ctx.checkpoint(step)
        await asyncio.sleep(0.05)
"#;

#[tokio::test]
async fn a_python_plugin_that_is_drained_yields_after_its_step() {
    let manifest = json!({
        "language": "python", "entrypoint": "count.py", "limits": {"memoryBytes": 268_435_456, "pids": 64},
    });
    let stack = start_shims(&[("count", manifest, STEPS)]).await;
    let mut tunnel = stack.tunnel("count").await;
    tunnel.invoke("one", &json!({})).await;
    tunnel.until(|said| matches!(said, Said::Message(Out::Checkpoint(_)))).await;
    tunnel.say(ack("one", 1)).await;
    let call = async { acknowledge(&mut tunnel, "one").await };
    let ((saved, said), ()) =
        futures::future::join(call, drain(&stack, "count", Duration::from_secs(8))).await;
    assert!(saved > 1 && said.iter().any(yielded) && crash(&said).is_none(), "{saved}: {said:?}");
    assert_eq!(stack.figure("count@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn a_drain_asks_who_saves_to_yield_and_tells_the_others_to_end() {
    let saves = json!({"entrypoint": "saves.py", "pool": {"concurrency": 1}});
    let stack = start(&[("saves", saves), ("forgets", json!({}))]).await;
    let mut saving = stack.tunnel("saves").await;
    let mut finishing = stack.tunnel("saves").await;
    saving.invoke("one", &json!({"mode": "yield"})).await;
    finishing.invoke("two", &json!({"mode": "slow", "ms": 500})).await;
    let mut forgetting = stack.tunnel("forgets").await;
    forgetting.invoke("three", &json!({"mode": "yield"})).await;
    for tunnel in [&mut saving, &mut finishing, &mut forgetting] {
        tunnel.until_message().await;
    }
    let within = Duration::from_secs(2);
    futures::future::join(drain(&stack, "saves", within), drain(&stack, "forgets", within)).await;
    let said = saving.rest().await;
    assert!(said.iter().any(yielded) && crash(&said).is_none(), "it goes on elsewhere: {said:?}");
    assert!(output(&finishing.rest().await).is_some(), "who is done in time is done");
    let said = forgetting.rest().await;
    assert_eq!(crash(&said), Some(("drained".to_owned(), true)), "its gateway cancelled nothing: {said:?}");
    assert!(said.iter().all(|said| said.failed().is_none()), "{said:?}");
    assert!(said.iter().any(|said| said.is_event(Type::TunnelClosed)));
    for plugin in ["saves@1.0.0", "forgets@1.0.0"] {
        // The drain does not wait for calls that it ended at its very end.
        eventually("its workers go", || async { stack.figure(plugin, "workers").await == 0 }).await;
    }
}
