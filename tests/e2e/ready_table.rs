//! A machine on which not everything runs: the stack starts all the same, says after `ready` what is off and why, and
//! callers of either era see it (I-10).

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Response};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::main_job::{Running, address, start_in};
use crate::message::{legacy, modern};
use crate::plugin_wire::asp;
use crate::trial::{Shared, trials};

trials! { ready_table:
    what_cannot_run_is_told_after_ready_and_hidden_and_the_rest_works,
    without_a_runtime_that_starts_the_rest_works_and_calls_say_why,
}

/// A server for each plugin, as `asp plugin new` leaves it.
async fn primitives(plugins: &[(&str, &str)]) -> Result<TempDir> {
    let primitives = tempfile::tempdir()?;
    for (id, language) in plugins {
        asp(&["plugin", "new", id, "--language", language], primitives.path()).await?;
    }
    Ok(primitives)
}

/// Python and Java are here, Node is not.
fn two_languages(command: &mut Command, runtime: &Path) -> Result<()> {
    let (java, shim) = tool::plugin_java()?;
    command.env("ASP_RUNTIME_BIN", runtime).env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
    command.env("ASP_PLUGIN_JAVA", java).env("ASP_PLUGIN_JAVA_SHIM", shim);
    command.env_remove("ASP_PLUGIN_NODE").env_remove("ASP_PLUGIN_NODE_SHIM");
    Ok(())
}

async fn start(primitives: &TempDir, runtime: &Path) -> Result<Running> {
    let mut fault = Ok(());
    let running = start_in(primitives.path(), |command| fault = two_languages(command, runtime))
        .await
        .context("start")?;
    fault.map(|()| running)
}

/// The words of the table's line of a server.
async fn line(running: &Running, server: &str) -> Result<String> {
    let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let what = format!("the table has {server}");
    let found = wait::until(&what, wait::START, || async {
        let lines = running.asp.log().lines();
        let mut table = lines.iter().skip_while(|line| !line.starts_with("SERVER ")).map(words);
        table.find(|words| words.first().is_some_and(|name| name == server))
    });
    Ok(found.await.with_details(|| running.asp.tail())?.join(" "))
}

/// A client that speaks each era in turn, to one server.
struct Caller {
    edge: SocketAddr,
    token: String,
}

impl Caller {
    fn of(running: &Running) -> Result<Caller> {
        let token = running.environment.get("ASP_TOKEN").context("a token")?.clone();
        Ok(Caller { edge: address(running, "ASP_EDGE_URL")?, token })
    }

    /// The answers of the modern era and of the legacy one.
    async fn both(&self, server: &str, method: &str, params: Value) -> Result<[Response; 2]> {
        let target = format!("/{server}/mcp");
        let name = params.get("name").and_then(Value::as_str).map(str::to_owned);
        let headers: Vec<(&str, &str)> = name.iter().map(|name| ("mcp-name", name.as_str())).collect();
        let mut request = modern(&self.token, method, params.clone(), &headers);
        request.target = target.clone();
        let new = http1::send(self.edge, &request).await?;
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let mut opening = legacy(&self.token, "initialize", hello, &[]);
        opening.target = target.clone();
        let opened = http1::send(self.edge, &opening).await?;
        let session = opened.header("mcp-session-id").context("a session")?.to_owned();
        let session = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        let mut request = legacy(&self.token, method, params, &session);
        request.target = target;
        Ok([new, http1::send(self.edge, &request).await?])
    }

    /// Whether the server lists its tool; both eras must agree.
    async fn lists(&self, server: &str) -> Result<bool> {
        let [new, old] = self.both(server, "tools/list", json!({})).await?;
        let count = |answer: &Response| -> Result<usize> {
            Ok(answer.json()?["result"]["tools"].as_array().context(answer.text())?.len())
        };
        ensure!(count(&new)? == count(&old)?, "{} {}", new.text(), old.text());
        Ok(count(&new)? == 1)
    }

    async fn call(&self, server: &str, tool: &str) -> Result<[Response; 2]> {
        self.both(server, "tools/call", json!({"name": tool, "arguments": {"name": "Ada"}})).await
    }

    /// A tool that is hidden is answered as one that nobody has.
    async fn is_unknown(&self, server: &str) -> Result<()> {
        ensure!(!self.lists(server).await?, "{server} lists its tool");
        let known = self.call(server, server).await?;
        let nobody = self.call(server, "nobody").await?;
        for (known, nobody) in known.iter().zip(&nobody) {
            ensure!(known.text() == nobody.text().replace("nobody", server), "{}", known.text());
            ensure!(known.reason().as_deref() == Some("unknown_primitive"), "{}", known.text());
        }
        Ok(())
    }

    /// A tool that is listed, and whose calls are tool errors; the texts of both.
    async fn is_refused(&self, server: &str) -> Result<[String; 2]> {
        ensure!(self.lists(server).await?, "{server} does not list its tool");
        let answers = self.call(server, server).await?;
        let text = |answer: &Response| -> Result<String> {
            let result = answer.json()?["result"].clone();
            ensure!(result["isError"] == true, "{}", answer.text());
            ensure!(result["_meta"]["asp/reason"] == "upstream_unavailable", "{}", answer.text());
            Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
        };
        let [new, old] = &answers;
        Ok([text(new)?, text(old)?])
    }
}

async fn what_cannot_run_is_told_after_ready_and_hidden_and_the_rest_works(_: &Shared) -> Result<()> {
    let plugins = [("good", "python"), ("broken", "java"), ("absent", "node"), ("dies", "python")];
    let primitives = primitives(&plugins).await?;
    fs::write(
        primitives.path().join("broken/plugins/broken/Bad.java"),
        "class Bad { void bad() { nothing } }\n",
    )?;
    fs::write(primitives.path().join("dies/plugins/dies/main.py"), "import os\n\nos._exit(3)\n")?;
    let mut running = start(&primitives, &tool::runtime()?).await?;
    let good = line(&running, "good").await?;
    ensure!(good.ends_with("/good/mcp on"), "{good}");
    let broken = line(&running, "broken").await?;
    ensure!(
        broken.contains("/broken/mcp off broken: does not build: ") && broken.contains("Bad.java:1"),
        "{broken}"
    );
    ensure!(broken.ends_with("--only broken"), "the command that shows it: {broken}");
    let absent = line(&running, "absent").await?;
    ensure!(absent.contains("/absent/mcp off absent: node is not here"), "{absent}");
    ensure!(absent.ends_with("make run"), "{absent}");
    line(&running, "dies").await?;

    let caller = Caller::of(&running)?;
    let greeted = caller.call("good", "good").await?;
    for answer in &greeted {
        ensure!(answer.json()?["result"]["isError"] == false, "{}", answer.text());
    }
    caller.is_unknown("broken").await?;
    caller.is_unknown("absent").await?;
    // No call has to crash it: it dies as it starts, and is set aside for that.
    wait::until("the plugin is quarantined", wait::START, || async {
        let refused = caller.is_refused("dies").await.ok()?;
        refused.iter().all(|text| text.contains("fails too often")).then_some(())
    })
    .await
    .with_details(|| running.asp.tail())?;
    status(&running).await?;
    ensure!(running.asp.stop().await?.success(), "{}", running.asp.tail());
    Ok(())
}

/// What is hidden is what `asp status` shows.
async fn status(running: &Running) -> Result<()> {
    let mut command = Command::new(tool::asp()?);
    command.arg("status").envs(&running.environment);
    let shown = command.kill_on_drop(true).output().await?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let words = |line: &str| line.split_whitespace().collect::<Vec<&str>>().join(" ");
    let lines: Vec<String> = shown.lines().map(words).collect();
    for wanted in
        ["off broken@0.1.0 does not build: ", "runtime node absent", "off absent@0.1.0 language_absent"]
    {
        ensure!(lines.iter().any(|line| line.starts_with(wanted)), "{wanted}: {shown}");
    }
    ensure!(
        lines.iter().any(|line| line.starts_with("plugin dies@0.1.0") && line.contains("quarantined")),
        "{shown}"
    );
    Ok(())
}

async fn without_a_runtime_that_starts_the_rest_works_and_calls_say_why(_: &Shared) -> Result<()> {
    let primitives = primitives(&[("good", "python"), ("absent", "node")]).await?;
    let demo = primitives.path().join("demo");
    fs::create_dir(&demo)?;
    for entry in fs::read_dir(tool::root()?.join("primitives/demo"))? {
        let path = entry?.path();
        fs::copy(&path, demo.join(path.file_name().context("a name")?))?;
    }
    let runtime = primitives.path().join("asp-runtime");
    tool::write_program(
        &runtime,
        "#!/bin/sh\necho '{\"level\":\"WARN\",\"error\":\"no sandbox level holds\"}' >&2\nexit 1\n",
    )?;
    let mut running = start(&primitives, &runtime).await?;
    let demo = line(&running, "demo").await?;
    ensure!(demo.ends_with("/demo/mcp on"), "{demo}");
    let good = line(&running, "good").await?;
    ensure!(good.contains("/good/mcp off good: the runtime does not start: "), "{good}");
    ensure!(good.contains("no sandbox level holds"), "its last words: {good}");
    let caller = Caller::of(&running)?;
    let echoed =
        caller.both("demo", "tools/call", json!({"name": "echo", "arguments": {"message": "x"}})).await?;
    for answer in &echoed {
        ensure!(answer.json()?["result"]["isError"] == false, "{}", answer.text());
    }
    for text in caller.is_refused("good").await? {
        ensure!(text == "the plugin runtime does not answer", "{text}");
    }
    caller.is_unknown("absent").await?;
    ensure!(running.asp.stop().await?.success(), "{}", running.asp.tail());
    Ok(())
}
