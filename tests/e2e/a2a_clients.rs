//! The official SDKs of A2A as clients, unchanged, through Envoy and with tokens: each takes the steps of all that a client can
//! do at `a2a-conformance`, in each version and over each binding that it speaks; the examples of docs/a2a.md run as they are
//! written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::push_receiver::Receiver;
use asp_e2e::stack::Stack;
use asp_e2e::tool;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::node_program;
use crate::trial::{Shared, trials};

/// Hang guard of one program.
const RUN: Duration = Duration::from_secs(120);
const SERVER: &str = "a2a-conformance";
/// The agent's answer to a message that asks for nothing else.
const ANSWER: &str = "Hello from TCK";
pub(crate) const V10: &str = "1.0";
pub(crate) const V03: &str = "0.3";
pub(crate) const REST: &str = "HTTP+JSON";
const GRPC: &str = "GRPC";
/// Bindings over HTTP, with their names in the tests' names.
pub(crate) const HTTP_BINDINGS: [(&str, &str); 2] = [("JSONRPC", "json_rpc"), (REST, "rest")];
/// SDKs that make agents too, with their names in the tests' names and the versions that they speak.
pub(crate) const SDKS: [(Sdk, &str, &[&str]); 4] = [
    (Sdk::Python, "python_sdk_1", &[V10, V03]),
    (Sdk::Python03, "python_sdk_0_3", &[V03]),
    (Sdk::Node, "npm_sdk_1", &[V10, V03]),
    (Sdk::Node03, "npm_sdk_0_3", &[V03]),
];
const RUST: (Sdk, &str, &[&str]) = (Sdk::Rust, "rust_sdk_1", &[V10]);

/// An SDK, each with its programs below `tests/clients`: a client and an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    Python03,
    Node,
    Node03,
    Rust,
}

/// Observations of a program, by its steps.
pub(crate) type Steps = BTreeMap<String, Value>;

trials! { a2a_clients:
    the_first_calls_of_the_page_on_a2a_run_as_written;
    in_each_version_over_each_binding
}

fn in_each_version_over_each_binding(shared: &Shared) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (sdk, client, versions) in SDKS.into_iter().chain([RUST]) {
        for &version in versions {
            for (binding, over) in HTTP_BINDINGS.into_iter().chain([(GRPC, "grpc")]) {
                let name =
                    format!("a2a_clients::{client}_does_all_that_a_client_can_do_in_{version}_over_{over}");
                trials.push(shared.trial(&name, async move |shared: &Shared| {
                    let stack = shared.stack().await?;
                    let edge = format!("http://{}", stack.edge());
                    let receiver = Receiver::start().await?;
                    let mut program = sdk.program((&edge, SERVER), version, binding)?;
                    program.env("ASP_HOOK", &receiver.url);
                    let steps = read(&output(program, stack).await?)?;
                    check(&steps, &sdk.url(&edge, binding))?;
                    sdk.check(&steps, version, binding)?;
                    check_push(&steps, &receiver, version).await
                }));
            }
        }
    }
    trials
}

impl Sdk {
    /// Whether it has a mode for 0.3 beside 1.0. Such an SDK also verifies cards.
    fn has_both_versions(self) -> bool {
        matches!(self, Sdk::Python | Sdk::Node)
    }

    /// Returns the URL that its program prints of the card: of the interface in 1.0, of the agent in the SDKs for 0.3.
    fn url(self, edge: &str, binding: &str) -> String {
        match (self, binding) {
            (Sdk::Python | Sdk::Node | Sdk::Rust, GRPC) => edge.trim_start_matches("http://").to_owned(),
            _ => format!("{edge}/{SERVER}/a2a"),
        }
    }

    /// Returns the client that takes the steps at a server.
    pub(crate) fn program(
        self,
        (edge, server): (&str, &str),
        version: &str,
        binding: &str,
    ) -> Result<Command> {
        let mut command = match self {
            Sdk::Python => python_program("a2a-python", "script.py")?,
            Sdk::Python03 => python_program("a2a-python-03", "script_03.py")?,
            Sdk::Node => node_program("a2a-node/script.mjs")?,
            Sdk::Node03 => node_program("a2a-node-03/script.mjs")?,
            Sdk::Rust => rust_program()?,
        };
        command.args([edge, server]);
        if self.has_both_versions() {
            command.arg(version);
        }
        command.arg(binding);
        Ok(command)
    }

    /// Returns the agent that is made with it.
    pub(crate) fn agent(self) -> Result<Command> {
        match self {
            Sdk::Python => python_program("a2a-python", "agent.py"),
            Sdk::Python03 => python_program("a2a-python-03", "agent_03.py"),
            Sdk::Node => node_program("a2a-node/agent.mjs"),
            Sdk::Node03 => node_program("a2a-node-03/agent.mjs"),
            Sdk::Rust => bail!("no agent is made with it"),
        }
    }

    /// Checks the steps that not every SDK takes, and those that each reports in its own way.
    fn check(self, steps: &Steps, version: &str, binding: &str) -> Result<()> {
        let artifacts = match (self, version, binding) {
            // It reads the bytes of the file, which are no base64 in protocol buffers, as base64.
            (Sdk::Python, V03, REST | GRPC) => json!({"error": "Error: Incorrect padding"}),
            _ => json!({"text": ["text"], "file": ["raw"], "file-url": ["url"], "data": ["data"]}),
        };
        let mut more = BTreeMap::from([("artifacts", artifacts)]);
        if self.has_both_versions() {
            more.insert("signature", json!({"accepted": true, "changed": "refused"}));
        }
        if version == V10 {
            more.insert("list", json!({"same": true}));
        }
        for (name, expected) in &more {
            ensure!(steps.get(*name) == Some(expected), "{name} is not {expected}: {steps:?}");
        }
        Ok(())
    }
}

/// Checks that the webhook gets the task for which the SDK registered it, in the form of its version.
pub(crate) async fn check_push(steps: &Steps, receiver: &Receiver, version: &str) -> Result<()> {
    let task = steps.get("push").and_then(|seen| seen["registered"].as_str());
    let task = task.with_context(|| format!("no webhook was registered: {steps:?}"))?;
    let (pointer, state) = match version {
        V10 => ("/task", "TASK_STATE_COMPLETED"),
        _ => ("", "completed"),
    };
    let ended = |body: &Value| {
        let seen = body.pointer(pointer);
        seen.is_some_and(|seen| seen["id"] == task && seen["status"]["state"] == state)
    };
    receiver.until(ended).await.map(drop)
}

fn interpreter(venv: &str) -> Result<PathBuf> {
    let python = tool::clients()?.join(venv).join("bin/python");
    ensure!(python.exists(), "{} is missing; `scripts/setup test` installs it", python.display());
    Ok(python)
}

pub(crate) fn python_program(venv: &str, program: &str) -> Result<Command> {
    let mut command = Command::new(interpreter(venv)?);
    command.arg(tool::root()?.join("tests/clients/a2a-python").join(program));
    Ok(command)
}

fn rust_program() -> Result<Command> {
    let program = tool::clients()?.join("a2a-rust/bin/asp-client-a2a-rust");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` builds it", program.display());
    Ok(Command::new(program))
}

/// Runs a program with the variables of `.asp/env`; returns what it prints.
pub(crate) async fn output(mut command: Command, stack: &Stack) -> Result<String> {
    command.env("ASP_EDGE_URL", format!("http://{}", stack.edge())).env("ASP_TOKEN", stack.alice().await?);
    let output = timeout(RUN, command.kill_on_drop(true).output()).await.context("the client hangs")??;
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the client ended with {}:\n{printed}{errors}", output.status);
    Ok(printed.into_owned())
}

pub(crate) fn read(printed: &str) -> Result<Steps> {
    let mut steps = Steps::new();
    for line in printed.lines() {
        let seen: Value =
            serde_json::from_str(line).with_context(|| format!("the program printed {line:?}"))?;
        let Value::Object(mut members) = seen else { bail!("{line} is no object") };
        let step = members.remove("step").context("a line names its step")?;
        let step = step.as_str().context("a step is named by a string")?.to_owned();
        ensure!(steps.insert(step, Value::Object(members)).is_none(), "twice: {line}");
    }
    Ok(steps)
}

/// Checks the steps that every SDK takes with the same outcome.
fn check(steps: &Steps, url: &str) -> Result<()> {
    for (name, expected) in [
        (
            "card",
            json!({"name": "A2A Conformance Agent", "url": url, "skills": ["tck"], "extended": ["tck"]}),
        ),
        ("send", json!({"kind": "task", "state": "completed", "got": "completed", "same": true})),
        ("message", json!({"kind": "message", "text": "Direct message response"})),
        ("failure", json!({"state": "failed"})),
        ("cancel", json!({"state": "canceled", "same": true})),
    ] {
        ensure!(steps.get(name) == Some(&expected), "{name} is not {expected}: {steps:?}");
    }
    let step = |name: &str| steps.get(name).with_context(|| format!("no step {name}: {steps:?}"));
    for name in ["stream", "resubscribe"] {
        let seen = step(name)?;
        let list = |member: &str| seen[member].as_array().cloned().unwrap_or_default();
        let (kinds, states) = (list("kinds"), list("states"));
        ensure!(kinds.first() == Some(&json!("task")), "{name} begins with another event: {seen}");
        ensure!(kinds.contains(&json!("artifact-update")), "{name} has no result: {seen}");
        ensure!(states.last() == Some(&json!("completed")), "{name} ends otherwise: {seen}");
    }
    let question = step("question")?;
    ensure!(question["asked"] == "input-required" && question["answered"] == "completed", "{question}");
    let is_asked = question["text"].as_str().is_some_and(|text| !text.is_empty());
    ensure!(is_asked && question["same"] == true, "{question}");
    Ok(())
}

async fn the_first_calls_of_the_page_on_a2a_run_as_written(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let page = fs::read_to_string(tool::root()?.join("docs/a2a.md"))?;
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    // The variables are in the environment already.
    fs::create_dir(place.join(".asp"))?;
    fs::write(place.join(".asp/env"), "")?;
    symlink(tool::clients()?.join("a2a-node/node_modules"), place.join("node_modules"))?;
    let mut calls = Vec::new();
    for (language, code) in blocks(&page) {
        let (file, mut command) = match language {
            "sh" => ("call.sh", Command::new("bash")),
            "python" => ("call.py", Command::new(interpreter("a2a-python")?)),
            "js" => ("call.mjs", Command::new(tool::node()?)),
            _ => continue,
        };
        fs::write(place.join(file), code)?;
        command.arg(file).current_dir(place);
        let printed = output(command, stack).await.with_context(|| format!("the call in {language}"))?;
        ensure!(printed.contains(ANSWER), "{language} printed {printed}");
        calls.push(language);
    }
    ensure!(calls == ["sh", "python", "js"], "the page has the calls {calls:?}");
    Ok(())
}

/// Returns the fenced blocks of a page, each with its language.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}
