//! Shell blocks of README and `docs/` run as they stand: `tests/documents/run.py` reads and runs them.

use std::process::Stdio;

use anyhow::{Result, ensure};
use asp_e2e::tool;
use libtest_mimic::Trial;
use tokio::process::Command;

use crate::trial::{Shared, trials};

trials! { documents:
    every_shell_block_is_in_a_group_and_at_most_a_fifth_is_left_out,
    blocks_are_read_and_what_stood_in_the_way_on_a_first_day_has_a_proof;
    of_groups
}

/// Groups of documents, each with a directory and a platform of its own.
const GROUPS: [&str; 10] =
    ["readme", "access", "admin", "authors", "callers", "files", "imports", "operators", "places", "traces"];

fn of_groups(shared: &Shared) -> Vec<Trial> {
    let trial = |group: &'static str| {
        let name = format!("documents::the_shell_blocks_for_{group}_run_as_they_stand");
        shared.trial(&name, async move |_: &Shared| output(&mut run(&[group])?).await.map(drop))
    };
    GROUPS.into_iter().map(trial).collect()
}

async fn every_shell_block_is_in_a_group_and_at_most_a_fifth_is_left_out(_: &Shared) -> Result<()> {
    output(&mut run(&["--check"])?).await?;
    let groups = output(&mut run(&["--groups"])?).await?;
    ensure!(groups.lines().eq(GROUPS), "run.py has the groups {groups:?}");
    Ok(())
}

async fn blocks_are_read_and_what_stood_in_the_way_on_a_first_day_has_a_proof(_: &Shared) -> Result<()> {
    let mut command = python()?;
    output(command.args(["-m", "unittest", "test_blocks", "test_first_day"])).await.map(drop)
}

fn run(arguments: &[&str]) -> Result<Command> {
    let mut command = python()?;
    command.arg("run.py").args(arguments);
    Ok(command)
}

/// Python in `tests/documents`, with the programs of this build and the installed tools.
fn python() -> Result<Command> {
    let (node, node_shim) = tool::plugin_node()?;
    let (java, java_shim) = tool::plugin_java()?;
    let mut command = Command::new("python3");
    command.arg("-B").current_dir(tool::root()?.join("tests/documents")).stdin(Stdio::null());
    command.envs([
        ("ASP_BIN", tool::asp()?),
        ("ASP_RUNTIME_BIN", tool::runtime()?),
        ("ASP_FILTER_WASM", tool::filter_wasm()?),
        ("ASP_ENVOY_BIN", tool::envoy()?),
        ("ASP_NODE_BIN", tool::node()?),
        ("ASP_PYTHON_BIN", tool::python()?),
        ("ASP_EVERYTHING_JS", tool::everything_js()?),
        ("ASP_CLIENTS_DIR", tool::clients()?),
        ("ASP_PLUGIN_PYTHON", tool::plugin_python()?),
        ("ASP_PLUGIN_NODE", node),
        ("ASP_PLUGIN_NODE_SHIM", node_shim),
        ("ASP_PLUGIN_JAVA", java),
        ("ASP_PLUGIN_JAVA_SHIM", java_shim),
        ("ASP_POSTGRES_DIR", tool::postgres()?),
    ]);
    Ok(command)
}

/// Runs a command that must succeed; returns its standard output.
async fn output(command: &mut Command) -> Result<String> {
    let output = command.output().await?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{printed}{errors}");
    Ok(printed)
}
