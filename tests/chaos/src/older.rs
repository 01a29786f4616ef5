//! The programs of an earlier commit, built from a worktree of their own below the target directory, once for each commit.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool::{self, Build};
use tokio::process::Command;

/// Builds `asp` and the filter of a commit with its own toolchain and dependencies, or takes what an earlier run built.
pub(crate) async fn build(revision: &str) -> Result<Build> {
    let root = tool::root()?;
    let mut parsed = Command::new("git");
    parsed.args(["rev-parse", "--verify", "--short=12"]).arg(format!("{revision}^{{commit}}"));
    let commit = output(parsed.current_dir(&root)).await?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let directory = target.join("chaos/older").join(&commit);
    let asp = directory.join("asp");
    if !asp.exists() {
        let source = check_out(&root, &directory, &commit).await?;
        eprintln!("building {commit} in {}", directory.display());
        let built = compile(&root, &source, &directory.join("target")).await?;
        std::fs::copy(built.join("wasm32-wasip1/wasm/asp_filter.wasm"), directory.join("asp_filter.wasm"))?;
        // Last: it says that all is there.
        std::fs::copy(built.join("release/asp"), &asp)?;
    }
    Build::at(&directory)
}

/// The version that a build has, by its workspace's manifest.
pub(crate) fn version(build: &Build) -> Result<String> {
    let manifest = std::fs::read_to_string(build.root.join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.map(str::to_owned).context("the workspace has a version")
}

async fn check_out(root: &Path, directory: &Path, commit: &str) -> Result<PathBuf> {
    let source = directory.join("source");
    if source.join("scripts/build-wasm").exists() {
        return Ok(source);
    }
    // What an interrupted run left.
    if source.exists() {
        std::fs::remove_dir_all(&source)?;
    }
    std::fs::create_dir_all(directory)?;
    let mut add = Command::new("git");
    // Git may still know a worktree here that was removed with the target directory.
    add.args(["worktree", "add", "--force", "--detach"]).arg(&source).arg(commit);
    output(add.current_dir(root)).await?;
    Ok(source)
}

/// Compiles into `target`, and returns it.
async fn compile(root: &Path, source: &Path, target: &Path) -> Result<PathBuf> {
    let tools = std::env::var_os("ASP_TOOLS_DIR").map_or_else(|| root.join(".tools"), PathBuf::from);
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--release", "-p", "asp"]);
    let mut wasm = Command::new(source.join("scripts/build-wasm"));
    for command in [&mut cargo, &mut wasm] {
        command.current_dir(source).env("CARGO_TARGET_DIR", target).env("ASP_TOOLS_DIR", &tools);
        output(command).await?;
    }
    Ok(target.to_owned())
}

/// Runs a command to its end; what it writes to stdout, without the end of the line. Its errors are seen as they come.
async fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("start {:?}", command.as_std()))?;
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{:?} ended with {}", command.as_std(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
