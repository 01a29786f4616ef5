//! What passes between gateway, runtime and worker during a plugin call (the sequence of the sample task), and
//! the way of a new plugin from an empty folder to a client.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::plugins::{
    COMPLIANCE, CSV, Client, FACTORIZE, MODES, PRIMES, SUMMARY, SWEEP, sweep_answers, sweep_arguments,
};
use crate::policy;
use crate::trial::{Shared, trials};

const LANGUAGES: [&str; 3] = ["python", "node", "java"];
/// The figures of a closed tunnel, in alphabetical order.
const STATS: &str = "close bytes_in bytes_out cpu_ms duration_ms rss_max";

trials! { plugins:
    wire_the_sequence_of_a_call_in_every_language_and_era,
    wire_a_queued_call_shows_its_place_and_is_cancelled_before_it_starts,
    new_from_an_empty_folder_to_an_official_client_in_every_language,
}

async fn wire_the_sequence_of_a_call_in_every_language_and_era(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options { plugins: true, ..Options::repository()? }).await?;
    policy::expose(&stack, "acme", COMPLIANCE).await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        sweep(&client).await.with_context(|| format!("{mode}, python"))?;
        let table = json!({"csv": "a,b\n1,2\n3,90\n5,4\n"});
        asks(&client, CSV, SUMMARY, &table, "which_column", &json!({"column": {"column": "a"}}))
            .await
            .with_context(|| format!("{mode}, node"))?;
        let numbers = json!({"numbers": [12, 1_000_000_000_039_u64]});
        asks(&client, PRIMES, FACTORIZE, &numbers, "large_numbers", &json!({"include": {"include": false}}))
            .await
            .with_context(|| format!("{mode}, java"))?;
        let slow = json!({"csv": format!("n\n{}", "1\n".repeat(1000)), "pauseMs": 1000});
        cancelled(&client, CSV, SUMMARY, &slow).await.with_context(|| format!("{mode}, node"))?;
        let slow = json!({"numbers": vec![12; 100], "pauseMs": 1000});
        cancelled(&client, PRIMES, FACTORIZE, &slow).await.with_context(|| format!("{mode}, java"))?;
    }
    stack.stop(&[]).await
}

/// The whole sequence: approval is the platform's own and does not reach the worker.
async fn sweep(client: &Client<'_>) -> Result<()> {
    let script = json!({"answers": sweep_answers(), "sampled": "[\"national-id\"]"});
    let answer = client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script).await?;
    ensure!(answer.result.is_some(), "{:?}", answer.error);
    let lines = passed(client).await?;
    in_order(
        &lines,
        &[
            "allocate cdcsr ADMITTED",
            "> invoke",
            "< status",
            "< progress",
            "< elicitation gather_missing_policy",
            "> user_input",
            "< delegation ",
            "> delegation_result",
            "< checkpoint",
            "> checkpoint_ack",
            "< elicitation approve_remediation",
            "> user_input",
            "< artifact_data",
            "< artifact",
            "< completed",
            STATS,
        ],
    )?;
    opened(&lines)
}

async fn asks(
    client: &Client<'_>,
    server: &str,
    name: &str,
    arguments: &Value,
    question: &str,
    answers: &Value,
) -> Result<()> {
    let answer = client.call(server, name, arguments, &json!({"answers": answers})).await?;
    ensure!(answer.result.is_some(), "{:?}", answer.error);
    let lines = passed(client).await?;
    let allocated = format!("allocate {name} ADMITTED");
    let asked = format!("< elicitation {question}");
    in_order(&lines, &[&allocated, "> invoke", &asked, "> user_input", "< progress", "< completed", STATS])?;
    opened(&lines)
}

async fn cancelled(client: &Client<'_>, server: &str, name: &str, arguments: &Value) -> Result<()> {
    let answer = client.call(server, name, arguments, &json!({"cancel": 0.001})).await?;
    ensure!(answer.cancelled, "{answer:?}");
    let lines = passed(client).await?;
    in_order(
        &lines,
        &["> invoke", "< progress", "> cancel", "< cancel accepted:true", "< failed CANCELLED", "close"],
    )
}

/// The tunnel's own beginning: the runtime says when the worker is attached and speaks for it.
fn opened(lines: &[String]) -> Result<()> {
    in_order(lines, &["allocate", "> invoke"])?;
    in_order(lines, &["allocate", "event TUNNEL_READY", "< init ok:true"])
}

/// Everything that passed for the call that has just ended; its tunnel is closed off the path.
async fn passed(client: &Client<'_>) -> Result<Vec<String>> {
    let tap = client.stack.tap.as_ref().context("the stack has a tap")?;
    wait::until("the tunnel is closed", wait::CONVERGE, || async { tap.has("close").then_some(()) }).await?;
    Ok(tap.take())
}

/// Whether lines that begin with each of `expected` appear in this order.
fn in_order(lines: &[String], expected: &[&str]) -> Result<()> {
    let mut rest = lines.iter();
    for start in expected {
        if !rest.any(|line| line.starts_with(start)) {
            bail!("`{start}` is missing or out of order in:\n{}", lines.join("\n"));
        }
    }
    Ok(())
}

const HOLD_SPEC: &str = "
id: hold
name: Hold
type: tool
version: 1.0.0
owner: a@example.com
summary: Holds its worker.
mutation: read_only
capabilities: {supportsProgress: true, supportsCancellation: true, maxRuntimeSeconds: 120}
primitiveSchema:
  input_schema: {type: object, properties: {seconds: {type: number}}}
  output_schema: {type: object}
security: {riskClass: low}
runtime:
  mode: plugin
  language: python
  entrypoint: main.py
  pool: {max: 1, concurrency: 1}
";
const HOLD_CODE: &str = "
import asyncio
from asp_plugin import plugin

@plugin.tool
async def run(args, ctx):
    await ctx.progress(1, 'holding')
    await asyncio.sleep(args.get('seconds', 0))
    return {}
";

async fn wire_a_queued_call_shows_its_place_and_is_cancelled_before_it_starts(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    asp(&["plugin", "new", "hold", "--language", "python"], primitives.path()).await?;
    fs::write(primitives.path().join("hold/hold.yaml"), HOLD_SPEC)?;
    fs::remove_file(primitives.path().join("hold/hold.schema.json"))?;
    fs::write(primitives.path().join("hold/plugins/hold/main.py"), HOLD_CODE)?;
    let stack = start(&primitives).await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        let tap = stack.tap.as_ref().context("the stack has a tap")?;
        let nothing = json!({});
        let waiting = async {
            wait::until("the first call holds", wait::START, || async {
                tap.has("< progress").then_some(())
            })
            .await?;
            let answer = client.call("hold", "hold", &nothing, &json!({"cancel": 0})).await?;
            wait::until("the queued place is given up", wait::CONVERGE, || async {
                tap.has("cancel_allocation").then_some(())
            })
            .await?;
            Ok(answer)
        };
        let (held, waited) = client.hold("hold", "hold", &json!({"seconds": 100}), waiting).await?;
        ensure!(held.cancelled && waited.cancelled, "{mode}: {held:?} {waited:?}");
        let mut told = waited.progress.iter().filter_map(|step| step.message.as_deref());
        ensure!(told.any(|message| message.contains("queued")), "{:?}", waited.progress);
        wait::until("the first call is over", wait::CONVERGE, || async { tap.has("close").then_some(()) })
            .await?;
        let lines = tap.take();
        ensure!(
            lines.iter().filter(|line| line.starts_with("> invoke")).count() == 1,
            "{}",
            lines.join("\n")
        );
        in_order(&lines, &["allocate hold ADMITTED", "allocate hold QUEUED", "cancel_allocation"])?;
    }
    stack.stop(&[]).await
}

async fn new_from_an_empty_folder_to_an_official_client_in_every_language(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    for language in LANGUAGES {
        let id = format!("greet_{language}");
        asp(&["plugin", "new", &id, "--language", language], primitives.path()).await?;
    }
    let said = without_network(primitives.path()).await?;
    ensure!(said.contains("3 passed, 0 failed"), "{said}");
    let stack = start(&primitives).await?;
    for (mode, protocol) in MODES {
        for language in LANGUAGES {
            let client = Client { stack: &stack, mode, protocol };
            let server = format!("greet-{language}");
            let name = format!("greet_{language}");
            let answer = client.call(&server, &name, &json!({"name": "Ada"}), &json!({})).await?;
            let result = answer.result.with_context(|| format!("{language}: {:?}", answer.error))?;
            ensure!(result["structuredContent"]["greeting"] == "Hello, Ada!", "{language}: {result}");
            ensure!(answer.progress.iter().any(|step| step.message.as_deref() == Some("finding the words")));
        }
    }
    stack.stop(&[]).await
}

async fn start(primitives: &TempDir) -> Result<Stack> {
    let primitives = primitives.path().to_owned();
    Stack::start(Options { primitives, plugins: true, ..Options::repository()? }).await
}

/// `asp plugin test` where there is no network: in a network namespace with nothing in it.
async fn without_network(primitives: &Path) -> Result<String> {
    let mut command = Command::new("unshare");
    // Whoever is not root may have one in a user namespace.
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    command.args(["--net", "--"]).arg(tool::asp()?).args(["plugin", "test"]).current_dir(primitives);
    command.env("ASP_RUNTIME_BIN", tool::runtime()?).env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
    let node = tool::plugin_node()?;
    let java = tool::plugin_java()?;
    command.env("ASP_PLUGIN_NODE", node.0).env("ASP_PLUGIN_NODE_SHIM", node.1);
    command.env("ASP_PLUGIN_JAVA", java.0).env("ASP_PLUGIN_JAVA_SHIM", java.1);
    output(command).await
}

pub(crate) async fn asp(arguments: &[&str], directory: &Path) -> Result<String> {
    let mut command = Command::new(tool::asp()?);
    command.args(arguments).current_dir(directory);
    output(command).await
}

async fn output(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {said}");
    }
    Ok(said)
}
