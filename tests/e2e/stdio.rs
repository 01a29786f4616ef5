//! `asp mcp`: clients that start a program and talk to it over standard input and output, in both eras.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::clients::{BREAK, LEGACY, MODERN, Place, node_v2_at, python_at};
use crate::plugins::{CSV, Client, MODES, SUMMARY};
use crate::trial::{Shared, trials};

/// Hang guard of one message.
const MESSAGE: Duration = Duration::from_secs(60);
/// What the processes say when one of them is killed.
const EXPECTED: &[&str] = &["runtime", "worker", "tunnel"];

trials! { stdio:
    official_clients_list_and_call_in_both_eras,
    official_clients_go_on_with_another_bridge_when_theirs_is_killed_in_a_call,
    questions_and_progress_pass_and_a_killed_platform_is_told_of,
    a_request_is_answered_after_the_end_of_the_input,
}

async fn official_clients_list_and_call_in_both_eras(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let url = stack.mcp_url("demo");
    let token = stack.alice().await?;
    let asp = tool::asp()?;
    let bridge = [("ASP_BRIDGE", asp.to_str().context("its path is text")?)];
    let place = Place { environment: &bridge, ..Place::demo(&url, &token) };
    python_at(&place, "legacy", LEGACY).await.context("python, legacy")?;
    python_at(&place, "auto", MODERN).await.context("python, auto")?;
    node_v2_at(&place, "legacy", LEGACY).await.context("npm client 2, legacy")?;
    node_v2_at(&place, MODERN, MODERN).await.context("npm client 2, modern")
}

async fn official_clients_go_on_with_another_bridge_when_theirs_is_killed_in_a_call(
    shared: &Shared,
) -> Result<()> {
    let stack = shared.stack().await?;
    let url = stack.mcp_url("demo");
    let token = stack.alice().await?;
    let asp = tool::asp()?;
    let environment = [("ASP_BRIDGE", asp.to_str().context("its path is text")?), (BREAK, "1")];
    let place = Place { environment: &environment, ..Place::demo(&url, &token) };
    python_at(&place, "legacy", LEGACY).await.context("python, legacy")?;
    python_at(&place, "auto", MODERN).await.context("python, auto")?;
    node_v2_at(&place, "legacy", LEGACY).await.context("npm client 2, legacy")?;
    node_v2_at(&place, MODERN, MODERN).await.context("npm client 2, modern")
}

async fn questions_and_progress_pass_and_a_killed_platform_is_told_of(_: &Shared) -> Result<()> {
    let mut stack = Stack::start(Options { plugins: true, ..Options::repository()? }).await?;
    for (mode, protocol) in MODES {
        asks(Client { stack: &stack, mode, protocol }).await.with_context(|| mode.to_owned())?;
    }
    let token = stack.alice().await?;
    let mut legacy = Bridge::start(&stack, &token)?;
    let hello =
        json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}});
    legacy.answer(&request(1, "initialize", hello)).await?;
    legacy.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
    let mut modern = Bridge::start(&stack, &token)?;
    let era = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                     "io.modelcontextprotocol/clientCapabilities": {}});
    let count =
        |meta: Value| json!({"name": "count", "arguments": {"to": 100, "delayMs": 1000}, "_meta": meta});
    let mut marked = era.clone();
    marked["progressToken"] = json!("p");
    legacy.say(&request(2, "tools/call", count(json!({"progressToken": "p"})))).await?;
    modern.say(&request(2, "tools/call", count(marked))).await?;
    for bridge in [&mut legacy, &mut modern] {
        ensure!(bridge.next().await?["method"] == "notifications/progress", "the call runs");
    }
    stack.restart_asp(Signal::KILL).await?;
    let echo = |meta: Value| json!({"name": "echo", "arguments": {"message": "again"}, "_meta": meta});
    for (bridge, meta) in [(&mut legacy, json!({})), (&mut modern, era)] {
        let lost = bridge.answered(2).await?;
        ensure!(lost["error"]["data"]["reason"] == "outcome_unknown", "{lost}");
        let again = bridge.answer(&request(3, "tools/call", echo(meta))).await?;
        ensure!(
            again["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("again")),
            "{again}"
        );
        let bad = bridge.answer_line("{", Value::Null).await?;
        ensure!(bad["error"]["code"] == -32700, "{bad}");
        bridge.end().await?;
    }
    stack.stop(EXPECTED).await
}

/// `echo '{…}' | asp mcp --server demo`.
async fn a_request_is_answered_after_the_end_of_the_input(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let mut bridge = Bridge::start(stack, &stack.alice().await?)?;
    let era = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                     "io.modelcontextprotocol/clientCapabilities": {}});
    let count = json!({"name": "count", "arguments": {"to": 3, "delayMs": 100}, "_meta": era});
    bridge.say(&request(1, "tools/call", count)).await?;
    drop(bridge.input.take());
    let answer = bridge.answered(1).await?;
    ensure!(answer["result"]["structuredContent"]["counted"] == 3, "{answer}");
    bridge.end().await
}

/// A sample asks for a column, and tells how far it is.
async fn asks(client: Client<'_>) -> Result<()> {
    let asp = tool::asp()?;
    let arguments = json!({"csv": "id,amount\n1,10\n2,30\n"});
    let script = json!({"answers": {"column": {"column": "amount"}}});
    let mut command = client.command(CSV, SUMMARY, &arguments, &script).await?;
    let output = timeout(MESSAGE, command.env("ASP_BRIDGE", asp).output()).await.context("it hangs")??;
    let answer = client.read(&output)?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    ensure!(result["structuredContent"]["mean"] == 20, "{result}");
    ensure!(answer.asked.len() == 1 && !answer.progress.is_empty(), "{:?}", answer.asked);
    Ok(())
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The program, as its client has it.
struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    fn start(stack: &Stack, token: &str) -> Result<Bridge> {
        let mut command = Command::new(tool::asp()?);
        command.args(["mcp", "--server", "demo"]).env("ASP_TOKEN", token).kill_on_drop(true);
        command.env("ASP_EDGE_URL", stack.mcp_url("demo").trim_end_matches("/demo/mcp"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("it has an output")?).lines();
        Ok(Bridge { child, input, output })
    }

    async fn say(&mut self, message: &Value) -> Result<()> {
        self.say_line(&message.to_string()).await
    }

    async fn say_line(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input is open")?;
        Ok(input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn next(&mut self) -> Result<Value> {
        let line = timeout(MESSAGE, self.output.next_line()).await.context("it says nothing")??;
        Ok(serde_json::from_str(&line.context("it ended")?)?)
    }

    /// The answer to a request, whatever else comes before it.
    async fn answered(&mut self, id: impl Into<Value>) -> Result<Value> {
        let id = id.into();
        loop {
            let message = self.next().await?;
            if message["id"] == id && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    async fn answer(&mut self, request: &Value) -> Result<Value> {
        self.say(request).await?;
        self.answered(request["id"].clone()).await
    }

    async fn answer_line(&mut self, line: &str, id: Value) -> Result<Value> {
        self.say_line(line).await?;
        self.answered(id).await
    }

    /// Closes its input: it ends by itself, and well.
    async fn end(&mut self) -> Result<()> {
        drop(self.input.take());
        let status = timeout(MESSAGE, self.child.wait()).await.context("it does not end")??;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}
