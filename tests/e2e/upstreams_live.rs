//! Upstream servers that change, die and hang while they are called: what a server of 2026-07-28 alone says of changes, and
//! that one upstream is no trouble of another.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::process::Process;
use asp_e2e::stack::Stack;
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::modern;
use crate::trial::{Shared, trials};
use crate::upstreams::{counted, import, port, rpc, sees, stack_of};

trials! { upstreams_live:
    what_an_sdks_server_of_2026_07_28_says_of_changes_is_told,
    what_an_sdks_server_with_sessions_says_of_a_resource_is_told,
    a_dead_and_a_hanging_upstream_are_no_trouble_of_a_live_one,
}

/// A service in Python, with its port.
async fn python(file: &str, arguments: &[&Path]) -> Result<(Process, u64)> {
    let mut command = Command::new(tool::python()?);
    command.arg("-B").arg(tool::root()?.join("tests/services").join(file)).args(arguments);
    let service = Process::start(file, command)?;
    let port = port(&service).await?;
    Ok((service, port))
}

/// Imports what the server at `port` offers, as one of ours with its name.
async fn imported(server: &str, port: u64, primitives: &Path) -> Result<()> {
    let url = format!("http://127.0.0.1:{port}/mcp");
    let proxy = format!("http://{server}.internal/mcp");
    let arguments = ["--mcp", &url, "--server", server, "--proxy-url", &proxy];
    let (done, said) = import(&arguments, primitives).await?;
    ensure!(done, "{said}");
    Ok(())
}

async fn call(stack: &Stack, server: &str, tool: &str, arguments: Value) -> Result<Value> {
    rpc(stack, server, "tools/call", json!({"name": tool, "arguments": arguments})).await
}

async fn what_an_sdks_server_of_2026_07_28_says_of_changes_is_told(_: &Shared) -> Result<()> {
    let (service, port) = python("modern.py", &[]).await?;
    let folder = tempfile::tempdir()?;
    imported("notes", port, folder.path()).await?;
    let stack = stack_of(folder.path(), &[("notes", "notes.internal", port)]).await?;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["note://text"]});
    let mut listen =
        modern(&stack.alice().await?, "subscriptions/listen", json!({"notifications": filter}), &[]);
    listen.target = "/notes/mcp".into();
    let mut stream = http1::open(stack.edge(), &listen, "acknowledged").await?;
    // The upstream may be subscribed to after our client has its answer.
    let failed = wait::until("an update is told", wait::CONVERGE, || async {
        let answer = call(&stack, "notes", "set", json!({"text": "first"})).await;
        let is_done = |answer: &Value| answer["result"]["structuredContent"]["result"] == "first";
        if answer.as_ref().is_ok_and(is_done) { None } else { Some(answer) }
    });
    stream = tokio::select! {
        stream = stream.until("notifications/resources/updated") => stream?,
        failed = failed => anyhow::bail!("{:?}", failed?),
    };
    call(&stack, "notes", "set", json!({"text": "last"})).await?;
    let read = rpc(&stack, "notes", "resources/read", json!({"uri": "note://text"})).await?;
    ensure!(read["result"]["contents"][0]["text"] == "last", "{read}");
    let reference = json!({"type": "ref/prompt", "name": "greet"});
    let asked = json!({"ref": reference, "argument": {"name": "name", "value": "A"}});
    let offered = rpc(&stack, "notes", "completion/complete", asked).await?;
    ensure!(offered["result"]["completion"]["values"] == json!(["Ada"]), "{offered}");

    // Nobody calls the tool that is taken away, nor opens a session.
    ensure!(call(&stack, "notes", "old", json!({})).await?["result"]["isError"] == false);
    ensure!(call(&stack, "notes", "retire", json!({})).await?["result"]["isError"] == false);
    drop(stream.until("notifications/tools/list_changed").await.context("told of the tools")?);
    let tools = rpc(&stack, "notes", "tools/list", json!({})).await?["result"]["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    ensure!(names == ["set", "retire"], "{names:?}");
    counted(&stack, "removed").await?;
    drop(service);
    stack.stop(&[]).await
}

/// An upstream of the handshake era: it is subscribed to in a session of the gateway's own, whichever calls change it.
async fn what_an_sdks_server_with_sessions_says_of_a_resource_is_told(_: &Shared) -> Result<()> {
    let mut command = Command::new(tool::python_1()?);
    command.arg("-B").arg(tool::root()?.join("tests/services/subscribed.py"));
    let service = Process::start("subscribed.py", command)?;
    let port = port(&service).await?;
    let folder = tempfile::tempdir()?;
    imported("notes", port, folder.path()).await?;
    let stack = stack_of(folder.path(), &[("notes", "notes.internal", port)]).await?;
    let seen = sees("updates.mjs", &stack.mcp_url("notes"), &stack.alice().await?).await?;
    ensure!(seen["updated"] == json!(["note://text"]), "{seen}");
    ensure!(seen["read"].as_str().is_some_and(|text| text.starts_with("note ")), "{seen}");
    service.logged("\"subscribed\"").await?;
    // Nobody is subscribed any more.
    service.logged("\"unsubscribed\"").await?;
    drop(service);
    stack.stop(&[]).await
}

/// How many calls go to the live one and how long one of them may take beside the others, which wait for longer.
const CALLS: usize = 10;
const ANSWER: Duration = Duration::from_secs(20);
/// Fewer than wait at a listener of Python.
const HANGING: usize = 3;

async fn a_dead_and_a_hanging_upstream_are_no_trouble_of_a_live_one(_: &Shared) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tools.json");
    let tool = json!([{"name": "ticket", "inputSchema": {"type": "object"},
                       "annotations": {"readOnlyHint": true, "openWorldHint": false}}]);
    std::fs::write(&file, tool.to_string())?;
    let primitives = folder.path().join("primitives");
    let mut services = Vec::new();
    let mut ports = Vec::new();
    for server in ["live", "dead", "hanging"] {
        let (service, port) = python("drifting.py", &[&file]).await?;
        imported(server, port, &primitives).await?;
        services.push(service);
        ports.push(port);
    }
    let servers: Vec<(&str, &str, u64)> = vec![
        ("live", "live.internal", ports[0]),
        ("dead", "dead.internal", ports[1]),
        ("hanging", "hanging.internal", ports[2]),
    ];
    let stack = stack_of(&primitives, &servers).await?;
    for (server, ..) in &servers {
        let answer = call(&stack, server, "ticket", json!({})).await?;
        ensure!(answer["result"]["isError"] == false, "{server}: {answer}");
    }
    services[1].stop().await?;
    services[2].signal(Signal::STOP)?;
    go_through_beside(&stack, &services[2]).await?;
    drop(services);
    stack.stop(&[]).await
}

/// Calls go through while others hang at their own upstream, and those end when it goes on.
async fn go_through_beside(stack: &Stack, hung: &Process) -> Result<()> {
    let mut hanging = std::pin::pin!(futures::future::try_join_all((0..HANGING).map(|_| call(
        stack,
        "hanging",
        "ticket",
        json!({})
    ))));
    let live = async {
        for number in 0..CALLS {
            let begun = Instant::now();
            let answer = call(stack, "live", "ticket", json!({"number": number})).await?;
            ensure!(answer["result"]["isError"] == false, "{answer}");
            ensure!(begun.elapsed() < ANSWER, "call {number} took {:?}", begun.elapsed());
            let answer = call(stack, "dead", "ticket", json!({})).await?;
            let reason = &answer["result"]["_meta"]["asp/reason"];
            ensure!(reason == "upstream_unavailable", "{answer}");
        }
        Ok(())
    };
    tokio::select! {
        done = live => done?,
        answers = &mut hanging => anyhow::bail!("the hanging one answered: {:?}", answers?),
    }
    // It goes on, and so do its calls.
    hung.signal(Signal::CONT)?;
    for answer in hanging.await? {
        ensure!(answer["result"]["isError"] == false, "{answer}");
    }
    Ok(())
}
