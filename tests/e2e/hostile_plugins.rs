//! Plugins and a machine at their worst, each behind real Envoy and gateway with a real worker: a call of another
//! tenant goes on all the while (I-7).

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Response};
use asp_e2e::runtime::World;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::message::modern;
use crate::plugin_wire::asp;
use crate::trial::{Shared, trials};

/// The other tenant.
const BOB: &[&str] = &["--org", "globex", "--user", "bob"];
/// One process: what runs after it has ended runs in another.
const BAD_SPEC: &str = "
id: bad
name: Bad
type: tool
version: 1.0.0
owner: a@example.com
summary: Does what it can.
mutation: read_only
capabilities: {supportsProgress: true, maxRuntimeSeconds: 30}
primitiveSchema:
  input_schema: {type: object, properties: {name: {type: string}, text: {type: string}}}
  output_schema: {type: object}
security: {riskClass: low}
runtime:
  mode: plugin
  language: python
  entrypoint: main.py
  pool: {max: 1, concurrency: 4}
";
/// Once asked, it reads nothing of its stream any more and says pong without end, to no ping.
const DEAF: &str = r#"
import asyncio
import os
from asp_plugin import plugin, service
from asp_plugin.session import Session
from asp_plugin.wire import plugin_pb2 as wire

service.OPTIONS += (("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
deaf = asyncio.Event()
process = os.urandom(8).hex()
streams = []
read = Session._read

async def shut(self, context):
    streams.append(self)
    message = await read(self, context)
    if deaf.is_set():
        await asyncio.Event().wait()
    return message

Session._read = shut

@plugin.tool
async def run(args, ctx):
    if args.get("name") != "deaf":
        return {"process": process}
    deaf.set()
    await ctx.progress(1, "deaf from now on")
    while True:
        try:
            streams[-1]._outbox.urgent(wire.ServerMessage(pong=wire.Pong(nonce="7")))
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            pass
"#;
/// Two million lines of one letter; then it answers.
const TINY_LINES: &str = r#"
import os
from asp_plugin import plugin

@plugin.tool
def run(args, ctx):
    for _ in range(1000):
        os.write(1, b"x\n" * 2000)
    return {}
"#;
/// Bytes and files of the runtime's disk: enough for the workers of a few plugins.
const DISK: &str = "size=4m,nr_inodes=512,mode=0755";

trials! { plugins:
    a_worker_that_shuts_its_window_ends_with_its_calls_and_no_others,
    a_flood_of_tiny_lines_is_dropped_and_slows_nobody,
    // Only root can mount a disk of its own.
    a_full_disk_at_worker_start_is_told_and_ends_with_room if rustix::process::geteuid().is_root(),
}

/// `good`, as `asp plugin new` leaves it, and `bad` with this code.
async fn primitives(code: &str) -> Result<TempDir> {
    let primitives = tempfile::tempdir()?;
    for id in ["good", "bad"] {
        asp(&["plugin", "new", id, "--language", "python"], primitives.path()).await?;
    }
    fs::write(primitives.path().join("bad/bad.yaml"), BAD_SPEC)?;
    fs::remove_file(primitives.path().join("bad/bad.schema.json"))?;
    fs::write(primitives.path().join("bad/plugins/bad/main.py"), code)?;
    Ok(primitives)
}

async fn start(primitives: &TempDir, disk: Option<&'static str>) -> Result<Stack> {
    let primitives = primitives.path().to_owned();
    let runtime = World { disk, ..World::default() };
    Stack::start(Options { primitives, plugins: true, runtime, ..Options::repository()? }).await
}

async fn call(stack: &Stack, token: &str, server: &str, arguments: Value) -> Result<Response> {
    let params = json!({"name": server, "arguments": arguments});
    let mut request = modern(token, "tools/call", params, &[("mcp-name", server)]);
    request.target = format!("/{server}/mcp");
    http1::send(stack.edge(), &request).await
}

/// The result of a call, whether it came alone or as the last event of a stream.
fn result(answer: &Response) -> Option<Value> {
    let text = answer.text();
    let event = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
    let answer: Value = serde_json::from_str(event.unwrap_or(&text)).ok()?;
    answer.get("result").filter(|result| result["isError"] != true).cloned()
}

/// Bob's calls of `good`, one after another, until `until` has come. Each succeeds; returns how many there were.
async fn beside<T>(stack: &Stack, until: impl Future<Output = Result<T>>) -> Result<(T, usize)> {
    let bob = stack.token(BOB).await?;
    let mut calls = 0;
    let neighbour = async {
        loop {
            let answer = call(stack, &bob, "good", json!({"name": "Bob"})).await?;
            ensure!(result(&answer).is_some(), "a neighbour's call failed: {}", answer.text());
            calls += 1;
        }
    };
    let ended = tokio::select! {
        ended = until => ended?,
        failed = neighbour => failed?,
    };
    Ok((ended, calls))
}

async fn a_worker_that_shuts_its_window_ends_with_its_calls_and_no_others(_: &Shared) -> Result<()> {
    let primitives = primitives(DEAF).await?;
    let stack = start(&primitives, None).await?;
    let alice = stack.alice().await?;
    let first = call(&stack, &alice, "bad", json!({})).await?;
    let process =
        |answer: &Response| result(answer)?["structuredContent"]["process"].as_str().map(str::to_owned);
    let its = process(&first).with_context(|| first.text())?;
    let tap = stack.tap.as_ref().context("the stack has a tap")?;
    let shut = async {
        let deaf = call(&stack, &alice, "bad", json!({"name": "deaf"}));
        let behind = async {
            wait::until("the worker is deaf", wait::START, || async { tap.has("< progress").then_some(()) })
                .await?;
            // The worker takes one from its stream; of the other its window has room for a part.
            let large = || call(&stack, &alice, "bad", json!({"text": "x".repeat(200 << 10)}));
            tokio::try_join!(large(), large())
        };
        tokio::try_join!(deaf, behind)
    };
    let ((deaf, behind), calls) = beside(&stack, shut).await?;
    ensure!(result(&deaf).is_none() && deaf.text().contains("\"isError\":true"), "{}", deaf.text());
    let runtime = stack.runtime.as_ref().context("the stack has a runtime")?;
    // Its pongs answered no ping.
    runtime.lock().await.process.logged("the worker did not answer").await?;
    for waited in [behind.0, behind.1] {
        // What only reads may have been given to another worker in its time; the deaf one answered nothing.
        ensure!(
            waited.text().contains("\"result\"") && process(&waited) != Some(its.clone()),
            "{}",
            waited.text()
        );
    }
    ensure!(calls > 0, "no call went on beside it");
    // Its place is free again: the next call has another process.
    let next = call(&stack, &alice, "bad", json!({})).await?;
    let another = process(&next).with_context(|| next.text())?;
    ensure!(another != its, "the worker that was deaf serves on");
    stack.stop(&[]).await
}

async fn a_flood_of_tiny_lines_is_dropped_and_slows_nobody(_: &Shared) -> Result<()> {
    let primitives = primitives(TINY_LINES).await?;
    let stack = start(&primitives, None).await?;
    let alice = stack.alice().await?;
    // Its worker takes as long to start as that of the flood, which ends soon.
    let before = call(&stack, &stack.token(BOB).await?, "good", json!({"name": "Bob"})).await?;
    ensure!(result(&before).is_some(), "{}", before.text());
    let (flood, calls) = beside(&stack, call(&stack, &alice, "bad", json!({}))).await?;
    ensure!(result(&flood).is_some(), "its own call ends as it should: {}", flood.text());
    ensure!(calls > 0, "no call went on beside it");
    let runtime = stack.runtime.as_ref().context("the stack has a runtime")?.lock().await;
    runtime.process.logged("exceeds its log rate").await?;
    let logged = runtime.process.log().lines().iter().filter(|line| line.contains("\"line\":\"x\"")).count();
    ensure!(logged > 0 && logged < 50_000, "{logged} of two million lines were logged");
    drop(runtime);
    stack.stop(&[]).await
}

async fn a_full_disk_at_worker_start_is_told_and_ends_with_room(_: &Shared) -> Result<()> {
    let primitives = primitives(TINY_LINES).await?;
    let stack = start(&primitives, Some(DISK)).await?;
    let alice = stack.alice().await?;
    let bob = stack.token(BOB).await?;
    let before = call(&stack, &bob, "good", json!({"name": "Bob"})).await?;
    ensure!(result(&before).is_some(), "{}", before.text());
    let fill = stack.runtime.as_ref().context("the stack has a runtime")?.lock().await.disk().join("fill");
    fill_up(&fill)?;
    let refused = async {
        // More than the crashes that would set the plugin aside.
        for _ in 0..8 {
            let refused = call(&stack, &alice, "bad", json!({})).await?;
            let text = refused.text();
            let told = text.contains("host_trouble: ") && text.contains("No space left on device");
            ensure!(told && text.contains(r#""asp/reason":"upstream_unavailable""#), "{text}");
        }
        Ok(())
    };
    let ((), calls) = beside(&stack, refused).await?;
    ensure!(calls > 0, "no call went on beside it");
    fs::remove_dir_all(&fill)?;
    let after = call(&stack, &alice, "bad", json!({})).await?;
    ensure!(result(&after).is_some(), "{}", after.text());
    stack.stop(&["this machine could not start a worker"]).await
}

/// Takes every byte and every file of the disk below `fill`.
fn fill_up(fill: &Path) -> Result<()> {
    fs::create_dir(fill)?;
    let mut big = File::create(fill.join("big"))?;
    while big.write(&[0; 4096]).is_ok() {}
    let files = (0..).map(|number| fill.join(format!("{number}")));
    let made = files.take_while(|path| File::create(path).is_ok()).count();
    ensure!(made > 0, "the disk has no bound of files");
    Ok(())
}
