//! Official clients go through one script of all that a client can do, on the server `conformance`: tools, resources and
//! templates, prompts, completion, subscription, logging, progress, sampling, elicitation, roots and cancellation, in each
//! revision that their public API selects; the Inspector's as far as its command line goes.

mod inspector;
mod rust;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::Stack;
use asp_e2e::{tool, wait};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::{LEGACY, MODERN, node_program};
use crate::policy::admin;
use crate::trial::Shared;

/// Hang guard of a script.
const SCRIPT: Duration = Duration::from_secs(120);
/// The first revision in which a server asks the user.
const SINCE_ELICITATION: &str = "2025-06-18";
const EVERY: &[&str] = &["2025-03-26", SINCE_ELICITATION, LEGACY, MODERN];

/// A client whose script is a program.
#[derive(Clone, Copy)]
enum Program {
    Python1,
    Python2,
    Npm1,
    Npm2,
}

/// Its name in the tests' names, and what its public API selects: the lines 1 propose the latest handshake alone.
const PROGRAMS: [(Program, &str, &[&str]); 4] = [
    (Program::Python1, "python_mcp_1", &[LEGACY]),
    (Program::Python2, "python_mcp_2", &[LEGACY, MODERN]),
    (Program::Npm1, "npm_sdk_1", &[LEGACY]),
    (Program::Npm2, "npm_client_2", EVERY),
];

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    let named = |client: &str, revision: &str| {
        format!("scripts::{client}_does_all_that_a_client_can_do_in_{revision}")
    };
    let mut trials = Vec::new();
    for (program, client, revisions) in PROGRAMS {
        for &revision in revisions {
            let name = named(client, revision);
            trials.push(shared.trial(&name, async move |shared: &Shared| {
                let stack = shared.plugin_stack().await?;
                let trace = Trace::new();
                let came = run(stack, program, revision, &trace).await?;
                check(&came, revision)?;
                trace.is_cancelled(stack).await
            }));
        }
    }
    for &revision in EVERY {
        trials.push(shared.trial(&named("rmcp", revision), async move |shared: &Shared| {
            let stack = shared.plugin_stack().await?;
            let trace = Trace::new();
            let url = stack.mcp_url("conformance");
            let script = rust::script(&url, revision, &trace.traceparent);
            check(&timeout(SCRIPT, script).await.context("the script hangs")??, revision)?;
            trace.is_cancelled(stack).await
        }));
    }
    for era in ["legacy", "modern"] {
        let name = format!("scripts::inspector_cli_does_all_that_its_command_line_can_in_the_{era}_era");
        trials.push(shared.trial(&name, async move |shared: &Shared| {
            inspector::script(shared.plugin_stack().await?, era).await
        }));
    }
    trials
}

/// By which the call that a script gives up is found at the platform.
struct Trace {
    id: String,
    traceparent: String,
}

impl Trace {
    fn new() -> Trace {
        let id = format!("{:032x}", rand::random::<u128>().max(1));
        Trace { traceparent: format!("00-{id}-00f067aa0ba902b7-01"), id }
    }

    /// What the client gave up ends as cancelled where it ran.
    async fn is_cancelled(&self, stack: &Stack) -> Result<()> {
        wait::until("the platform cancels the call that was given up", wait::CONVERGE, || async {
            let events = admin(stack, "GET", "/api/audit/calls?limit=1000", "").await.ok()?.json().ok()?;
            events.as_array()?.iter().find_map(|event| {
                let event = &event["event"];
                let is_it = event["event"] == "call.finish" && event["trace"] == *self.id;
                (is_it && event["outcome"] == "cancelled").then_some(())
            })
        })
        .await
    }
}

/// Runs a program at the server, which is open to everybody; what it prints.
async fn run(stack: &Stack, program: Program, revision: &str, trace: &Trace) -> Result<Value> {
    let python = |python| -> Result<Command> {
        let mut command = Command::new(python);
        command.arg(tool::root()?.join("tests/clients/python/script.py"));
        Ok(command)
    };
    let mut command = match program {
        Program::Python1 => python(tool::python_1()?)?,
        Program::Python2 => python(tool::python()?)?,
        Program::Npm1 => node_program("node-v1/script.mjs")?,
        Program::Npm2 => node_program("node-v2/script.mjs")?,
    };
    command.args([&stack.mcp_url("conformance"), revision, &trace.traceparent]);
    let output = timeout(SCRIPT, command.kill_on_drop(true).output()).await.context("the script hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the script ended with {}:\n{said}{errors}", output.status);
    serde_json::from_str(said.trim()).with_context(|| format!("the script printed {said:?}"))
}

/// What each step must come to, whoever takes it.
fn check(came: &Value, revision: &str) -> Result<()> {
    ensure!(came["protocol"] == revision, "not {revision}: {came}");
    check_lists(came)?;
    let mut asked = vec!["sampling", "roots"];
    let mut texts = vec![("filled", "7"), ("sampled", "Paris"), ("rooted", "file:///src")];
    if revision >= SINCE_ELICITATION {
        asked.insert(1, "elicitation");
        texts.push(("elicited", "ada@example.com"));
    }
    for (member, expected) in [
        ("completed", json!(["paris", "park", "party"])),
        ("prompt", json!("Prompt with arguments: arg1='a', arg2='b'")),
        ("called", json!("This is a simple text response for testing.")),
        ("asked", json!(asked)),
        ("logged", json!(3)),
        ("updated", json!("test://watched-resource")),
        ("cancelled", json!(true)),
    ] {
        ensure!(came[member] == expected, "{member} is not {expected}: {came}");
    }
    let steps: Vec<_> = came["progress"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    // A phase of the call, as of one that waits for a worker, is a least step from 0, after which the tool's own 0 is none.
    let (first, told): (Vec<f64>, Vec<f64>) = steps.iter().partition(|step| **step < 1.0);
    let begins = first.first() == Some(&0.0) && first.is_sorted_by(|before, next| before < next);
    ensure!(begins && told == [50.0, 100.0], "the progress is {steps:?}: {came}");
    for (member, part) in texts {
        let text = came[member].as_str().unwrap_or_default();
        ensure!(text.contains(part), "{member} has {part}: {came}");
    }
    ensure!(came["read"].as_str().is_some_and(|text| !text.is_empty()), "nothing was read: {came}");
    Ok(())
}

fn check_lists(came: &Value) -> Result<()> {
    for (member, name) in [
        ("tools", "test_simple_text"),
        ("prompts", "test_prompt_with_arguments"),
        ("resources", "test://static-text"),
        ("templates", "test://template/{id}/data"),
    ] {
        let listed = came[member].as_array().is_some_and(|all| all.contains(&json!(name)));
        ensure!(listed, "{member} has {name}: {came}");
    }
    Ok(())
}
