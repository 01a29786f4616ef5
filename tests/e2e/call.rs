//! `asp call`: a tool over MCP and a skill over A2A from the shell, through Envoy with a token. There is no terminal here, so
//! questions are declined.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::Stack;
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::trial::{Shared, trials};

/// Hang guard of one command.
const RUN: Duration = Duration::from_secs(60);

trials! { call:
    a_tool_is_called_over_mcp,
    a_skill_is_called_over_a2a,
    a_question_is_declined_without_a_terminal,
    what_fails_ends_with_the_reason,
}

async fn a_tool_is_called_over_mcp(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let echo = ["demo", "echo", "--arg", "message=hello"];
    ensure!(succeeded(&call(stack, &echo).await?)? == "hello\n");
    let whole: Value =
        serde_json::from_str(&succeeded(&call(stack, &[&echo[..], &["--json"]].concat()).await?)?)?;
    ensure!(whole["structuredContent"] == json!({"message": "hello"}), "{whole}");
    let count = ["demo", "count", "--arguments", r#"{"to": 3, "delayMs": 10}"#];
    let output = call(stack, &count).await?;
    let counted: Value = serde_json::from_str(&succeeded(&output)?)?;
    ensure!(counted == json!({"counted": 3}) && !output.stderr.is_empty(), "{output:?}");
    Ok(())
}

async fn a_skill_is_called_over_a2a(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    for (text, printed) in [
        ("tck-complete-task", "Hello from TCK\n"),
        ("tck-message-response", "Direct message response\n"),
        ("tck-stream-chunked", "chunk-1 chunk-2\n"),
        ("tck-artifact-file-url", "https://example.com/output.txt\n"),
    ] {
        let output = call(stack, &skill(text)).await?;
        ensure!(succeeded(&output)? == printed, "{text}: {output:?}");
    }
    let output = call(stack, &skill("tck-artifact-data")).await?;
    let data: Value = serde_json::from_str(&succeeded(&output)?)?;
    ensure!(data == json!({"key": "value", "count": 42}), "{data}");
    let output = call(stack, &[&skill("tck-long-running")[..], &["--json"]].concat()).await?;
    let whole: Value = serde_json::from_str(&succeeded(&output)?)?;
    ensure!(whole["task"]["status"]["state"] == "TASK_STATE_COMPLETED", "{whole}");
    ensure!(!output.stderr.is_empty(), "its progress is shown: {output:?}");
    Ok(())
}

async fn a_question_is_declined_without_a_terminal(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    for text in ["tck-multi-turn", "tck-auth-required"] {
        let output = call(stack, &skill(text)).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && output.stdout.is_empty(), "{text}: {output:?}");
        ensure!(errors.contains("there is no terminal"), "{text}: {errors}");
    }
    Ok(())
}

async fn what_fails_ends_with_the_reason(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    for (arguments, code, reason) in [
        (&["demo", "nothing"][..], 1, "-32602"),
        (&["demo", "echo", "--arg", "message=1"][..], 1, "asp: "),
        (&["nowhere", "echo"][..], 1, "/nowhere/mcp"),
        (&["a2a-conformance", "nothing", "--a2a", "--message", "hello"][..], 1, "refused"),
        (&skill("tck-task-failure")[..], 1, "as it was asked to"),
        (&["demo", "echo", "--arg", "message"][..], 64, "KEY=VALUE"),
    ] {
        let output = call(stack, arguments).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code) && errors.contains(reason), "{arguments:?}: {output:?}");
        ensure!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    Ok(())
}

/// Arguments that send a text to the agent of A2A's suites.
fn skill(text: &str) -> [&str; 5] {
    ["a2a-conformance", "tck", "--a2a", "--message", text]
}

async fn call(stack: &Stack, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(tool::asp()?);
    command.arg("call").args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
    command.env("ASP_EDGE_URL", format!("http://{}", stack.edge())).env("ASP_TOKEN", stack.alice().await?);
    Ok(timeout(RUN, command.output()).await.context("the command hangs")??)
}

/// Returns what a successful command printed.
fn succeeded(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
