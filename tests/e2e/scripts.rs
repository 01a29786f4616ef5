//! Official clients go through one script of all that a client can do, on the server `conformance`: tools, resources and
//! templates, prompts, completion, subscription, logging, progress, sampling, elicitation, roots, and
//! cancellation where they can.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::{LEGACY, MODERN, node_program};
use crate::trial::Shared;

/// Hang guard of a script.
const SCRIPT: Duration = Duration::from_secs(120);

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    let mut trials = vec![
        shared.trial("scripts::python_mcp_1_does_all_that_a_client_can_do", |shared| async move {
            let mut command = Command::new(tool::python_1()?);
            command.arg(tool::root()?.join("tests/clients/python-1/script.py"));
            check(&run(&shared, command, &[]).await?, LEGACY)
        }),
        shared.trial("scripts::npm_sdk_1_does_all_that_a_client_can_do", |shared| async move {
            let command = node_program("node-v1/script.mjs")?;
            check(&run(&shared, command, &[]).await?, LEGACY)
        }),
    ];
    for (mode, protocol) in [("legacy", LEGACY), (MODERN, MODERN)] {
        let name = format!("scripts::npm_client_2_in_mode_{mode}_does_all_that_a_client_can_do");
        trials.push(shared.trial(&name, move |shared| async move {
            let command = node_program("node-v2/script.mjs")?;
            check(&run(&shared, command, &[mode]).await?, protocol)
        }));
    }
    trials
}

/// Runs a script at the server, which is open to everybody; what it prints.
async fn run(shared: &Shared, mut command: Command, arguments: &[&str]) -> Result<Value> {
    command.arg(shared.plugin_stack().await?.mcp_url("conformance")).args(arguments);
    let output = timeout(SCRIPT, command.kill_on_drop(true).output()).await.context("the script hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the script ended with {}:\n{said}{errors}", output.status);
    serde_json::from_str(said.trim()).with_context(|| format!("the script printed {said:?}"))
}

/// What each step must come to, whoever takes it.
fn check(came: &Value, protocol: &str) -> Result<()> {
    ensure!(came["protocol"] == protocol, "{came}");
    for (member, name) in [
        ("tools", "test_simple_text"),
        ("prompts", "test_prompt_with_arguments"),
        ("resources", "test://static-text"),
        ("templates", "test://template/{id}/data"),
    ] {
        let listed = came[member].as_array().is_some_and(|all| all.contains(&json!(name)));
        ensure!(listed, "{member} has {name}: {came}");
    }
    for (member, expected) in [
        ("completed", json!(["paris", "park", "party"])),
        ("prompt", json!("Prompt with arguments: arg1='a', arg2='b'")),
        ("called", json!("This is a simple text response for testing.")),
        ("asked", json!(["sampling", "elicitation", "roots"])),
    ] {
        ensure!(came[member] == expected, "{member} is not {expected}: {came}");
    }
    let steps: Vec<_> = came["progress"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    ensure!(steps == [0.0, 50.0, 100.0], "{came}");
    for (member, part) in
        [("filled", "7"), ("sampled", "Paris"), ("elicited", "ada@example.com"), ("rooted", "file:///src")]
    {
        let text = came[member].as_str().unwrap_or_default();
        ensure!(text.contains(part), "{member} has {part}: {came}");
    }
    ensure!(came["read"].as_str().is_some_and(|text| !text.is_empty()), "{came}");
    // In 2026-07-28 a request asks for logs, which these clients leave to whoever calls.
    ensure!(protocol == MODERN || came["logged"].as_u64().is_some_and(|lines| lines >= 1), "{came}");
    // A client that can give up has done so; the 1.x line of Python cannot.
    ensure!(came.get("cancelled").is_none_or(|gave_up| gave_up == true), "{came}");
    Ok(())
}
