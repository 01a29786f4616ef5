//! Clients whose streams break, through Envoy: they come back with `Last-Event-ID` and have each message once.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cut::Cable;
use asp_e2e::resumption;
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::{LEGACY, Place, node_program, python_calls, run};
use crate::trial::{Shared, trials};

/// `make chaos` has ten times as many.
const CUTS: usize = 20;
/// Hang guard of one client program.
const CLIENT: Duration = Duration::from_secs(120);

trials! { resume:
    streams_cut_at_random_points_bring_each_message_once,
    npm_sdk_1_goes_on_with_a_stream_that_is_cut,
    official_clients_come_back_to_a_stream_that_was_closed,
    asp_mcp_goes_on_with_a_stream_that_is_cut,
}

async fn streams_cut_at_random_points_bring_each_message_once(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let seed = rand::random();
    println!("seed {seed}");
    let figures = resumption::cut(&[stack.edge()], &stack.alice().await?, CUTS, seed).await?;
    ensure!(figures.cuts == CUTS, "{figures:?}");
    ensure!((figures.lost, figures.repeated, figures.foreign) == (0, 0, 0), "{figures:?}, seed {seed}");
    Ok(())
}

/// What is called: some five seconds, of which a cut takes one or two.
const SLOWLY: &str = r#"{"to":50,"delayMs":100}"#;

/// A URL of the server `demo` behind a cable.
async fn over_cable(shared: &Shared) -> Result<(Cable, String)> {
    let cable = Cable::start(shared.stack().await?.edge()).await?;
    let url = format!("http://{}/demo/mcp", cable.address);
    Ok((cable, url))
}

/// Each number once, in order, though the cable was cut twice; what was said last.
async fn counts(mut lines: Lines, cable: &Cable, progress: &str) -> Result<Value> {
    let mut next = 1;
    loop {
        let line = timeout(CLIENT, lines.next_line()).await.context("the client says nothing")??;
        let line = line.with_context(|| format!("the client ended at {next}"))?;
        let said: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let Some(number) = said.pointer(progress) else {
            if said.get("result").is_some() && next > 1 {
                ensure!(next == 51, "{} numbers were not told", 51 - next);
                return Ok(said);
            }
            continue;
        };
        ensure!(*number == next, "{number} came in place of {next}");
        if next == 5 || next == 20 {
            cable.cut();
            cable.mend();
        }
        next += 1;
    }
}

type Lines = tokio::io::Lines<BufReader<tokio::process::ChildStdout>>;

fn start(command: &mut Command) -> Result<(tokio::process::Child, Lines)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
    Ok((child, lines))
}

async fn npm_sdk_1_goes_on_with_a_stream_that_is_cut(shared: &Shared) -> Result<()> {
    let (cable, url) = over_cable(shared).await?;
    let mut command = node_program("node-v1/client.mjs")?;
    command.args([&url, "count", SLOWLY, "progress"]).env("ASP_TOKEN", shared.stack().await?.alice().await?);
    let (_child, lines) = start(&mut command)?;
    let last = counts(lines, &cable, "/progress").await?;
    ensure!(last["protocol"] == LEGACY && last["result"]["structuredContent"]["counted"] == 50, "{last}");
    Ok(())
}

async fn asp_mcp_goes_on_with_a_stream_that_is_cut(shared: &Shared) -> Result<()> {
    let (cable, url) = over_cable(shared).await?;
    let mut command = Command::new(tool::asp()?);
    command.args(["mcp", "--server", "demo"]).env("ASP_TOKEN", shared.stack().await?.alice().await?);
    command.env("ASP_EDGE_URL", url.trim_end_matches("/demo/mcp"));
    let (mut child, lines) = start(&mut command)?;
    let hello =
        json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}});
    let arguments: Value = serde_json::from_str(SLOWLY)?;
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "count", "arguments": arguments,
               "_meta": {"progressToken": "p"}}}),
    ];
    let mut input = child.stdin.take().context("its input is piped")?;
    let mut lines = lines;
    for (n, message) in messages.iter().enumerate() {
        input.write_all(format!("{message}\n").as_bytes()).await?;
        if n == 0 {
            // There is a session for what follows.
            timeout(CLIENT, lines.next_line()).await.context("it says nothing")??;
        }
    }
    let last = counts(lines, &cable, "/params/progress").await?;
    ensure!(last["id"] == 2 && last["result"]["structuredContent"]["counted"] == 50, "{last}");
    Ok(())
}

/// A tool whose stream is closed while it goes on.
async fn official_clients_come_back_to_a_stream_that_was_closed(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let url = stack.mcp_url("conformance");
    let token = stack.alice().await?;
    let place = Place { url: &url, token: &token, tools: &["test_reconnection"], environment: &[] };
    let tool = "test_reconnection";
    let mut one = node_program("node-v1/client.mjs")?;
    one.args([&url, tool, "{}"]);
    let mut two = node_program("node-v2/client.mjs")?;
    two.args([&url, "legacy", tool, "{}"]);
    let answers = [
        ("npm sdk 1", run(one, &place).await?),
        ("npm client 2", run(two, &place).await?),
        ("python", python_calls(&place, "legacy", tool, &json!({})).await?),
    ];
    for (client, answer) in answers {
        let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
        ensure!(text == Some("The client came back for this."), "{client}: {answer}");
        ensure!(answer["protocol"] == LEGACY, "{client}: {answer}");
    }
    Ok(())
}
