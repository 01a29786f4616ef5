//! The main job as `make run` starts it: one process that starts everything, says when it is ready, and
//! takes everything with it when it ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::process::Process;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, stack, tool, wait};
use tempfile::TempDir;
use tokio::process::Command;

use crate::clients::{self, Place};
use crate::trial::{Shared, trials};

/// Hang guard for the whole stack, the reference server's start among it.
const READY: Duration = Duration::from_secs(150);

trials! { main_job:
    serves_demo_and_everything_until_sigterm_ends_all_of_it,
    two_stacks_run_side_by_side,
    bad_settings_end_it_with_64_and_name_every_fault,
}

pub(crate) struct Running {
    pub(crate) asp: Process,
    pub(crate) environment: BTreeMap<String, String>,
    directory: TempDir,
}

async fn serves_demo_and_everything_until_sigterm_ends_all_of_it(_: &Shared) -> Result<()> {
    let mut running = start().await?;
    let edge = address(&running, "ASP_EDGE_URL")?;
    let token = running.environment["ASP_TOKEN"].clone();
    let url = format!("http://{edge}/demo/mcp");
    clients::python_at(&Place::demo(&url, &token), "auto", clients::MODERN).await?;
    let url = format!("http://{edge}/everything/mcp");
    clients::all_at(&Place::everything(&url, &token)).await.with_details(|| running.asp.tail())?;
    let admin = address(&running, "ASP_ADMIN_URL")?;
    let bearer = format!("Bearer {}", running.environment["ASP_ADMIN_TOKEN"]);
    let snapshot = http1::get(admin, "/api/snapshot", &[("authorization", &bearer)]).await?;
    assert_eq!(snapshot.status, 200, "{}", snapshot.text());
    let children = children(&running.asp)?;
    assert!(children.len() >= 2, "Envoy and the reference server are its children: {children:?}");
    assert!(is_named(running.directory.path())?, "Envoy is told its files");
    let status = running.asp.stop().await?;
    assert!(status.success(), "SIGTERM ends it in order: {status}\n{}", running.asp.tail());
    let faults = stack::faults(&[running.asp.log()], &[]);
    assert!(faults.is_empty(), "errors in the log:\n{}", faults.join("\n"));
    assert!(
        !running.asp.log().contains("could not be announced to any control plane"),
        "the gateway ends before its control plane"
    );
    wait::until("every child is gone, and any that was started later", wait::CONVERGE, || async {
        let is_there = |child: &u32| Path::new(&format!("/proc/{child}")).exists();
        (!children.iter().any(is_there) && !is_named(running.directory.path()).ok()?).then_some(())
    })
    .await?;
    drop(running.directory);
    Ok(())
}

async fn two_stacks_run_side_by_side(_: &Shared) -> Result<()> {
    let (first, second) = tokio::join!(start(), start());
    let mut first = first?;
    let mut second = second?;
    for running in [&first, &second] {
        let edge = address(running, "ASP_EDGE_URL")?;
        let url = format!("http://{edge}/demo/mcp");
        let token = &running.environment["ASP_TOKEN"];
        clients::python_at(&Place::demo(&url, token), "legacy", clients::LEGACY).await?;
    }
    let stranger = address(&second, "ASP_EDGE_URL")?;
    let bearer = format!("Bearer {}", first.environment["ASP_TOKEN"]);
    let answer = http1::get(stranger, "/demo/mcp", &[("authorization", &bearer)]).await?;
    assert_eq!(answer.status, 401, "a token of one stack is nothing to the other: {}", answer.text());
    assert!(first.asp.stop().await?.success());
    assert!(second.asp.stop().await?.success());
    Ok(())
}

async fn bad_settings_end_it_with_64_and_name_every_fault(_: &Shared) -> Result<()> {
    let state = tempfile::tempdir()?;
    let mut command = Command::new(tool::asp()?);
    command.args(["serve", "--dev", "--roles", "gateway,driver"]);
    command.env("ASP_STATE_DIR", state.path()).env("ASP_PORT", "many").env("ASP_ENVOY_BIN", "/nowhere");
    let issuers = state.path().join("issuers.json");
    let key = |kid: &str| serde_json::json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "enc"});
    let login = serde_json::json!({
        "name": "login", "iss": "https://login.example", "algs": ["ES256"],
        "jwks": {"keys": [key("first"), key("second")]},
    });
    std::fs::write(&issuers, serde_json::json!({"clients": [login]}).to_string())?;
    command.env("ASP_ISSUERS", &issuers);
    let mut asp = Process::start("asp", command)?;
    let status = asp.wait(wait::START).await?;
    assert_eq!(status.code(), Some(64), "{}", asp.tail());
    let log = asp.log().lines().join("\n");
    for fault in ["driver", "ASP_PORT", "ASP_XDS_URL", "key first", "key second"] {
        assert!(log.contains(fault), "{fault} is named: {log}");
    }
    Ok(())
}

async fn start() -> Result<Running> {
    start_in(Path::new("primitives"), |_| ()).await
}

/// The stack over a directory of primitives, with more in its environment.
pub(crate) async fn start_in(primitives: &Path, change: impl FnOnce(&mut Command)) -> Result<Running> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(tool::asp()?);
    command.current_dir(tool::root()?).args(["serve", "--dev", "--stack", "--primitives"]).arg(primitives);
    command
        .env("ASP_STATE_DIR", directory.path())
        .env("ASP_FILTER_WASM", tool::filter_wasm()?)
        .env("ASP_ENVOY_BIN", tool::envoy()?)
        .env("ASP_NODE_BIN", tool::node()?)
        .env("ASP_EVERYTHING_JS", tool::everything_js()?);
    for port in ["ASP_PORT", "ASP_ADMIN_PORT", "ASP_GATEWAY_PORT", "ASP_XDS_PORT", "ASP_ENVOY_ADMIN_PORT"] {
        command.env(port, "0");
    }
    change(&mut command);
    let mut asp = Process::start("asp", command)?;
    let log = asp.log().clone();
    let deadline = tokio::time::Instant::now() + READY;
    while !log.lines().iter().any(|line| line.starts_with("ready")) {
        asp.check_alive()?;
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "not ready: {}", asp.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let text = std::fs::read_to_string(directory.path().join("env")).context("read the env file")?;
    let export = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_string(), value.trim_matches(['"', '\'']).to_string()))
    };
    let environment = text.lines().filter_map(export).collect();
    Ok(Running { asp, environment, directory })
}

pub(crate) fn address(running: &Running, name: &str) -> Result<SocketAddr> {
    let url = running.environment.get(name).with_context(|| format!("{name} is exported"))?;
    url.strip_prefix("http://")
        .with_context(|| format!("{url} has a scheme"))?
        .parse()
        .context("host and port")
}

/// Whether a process has this path in its command line.
fn is_named(path: &Path) -> Result<bool> {
    let path = path.display().to_string();
    for process in std::fs::read_dir("/proc")? {
        // What is no process has none; one may have ended meanwhile.
        let line = std::fs::read(process?.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&path) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The direct children of a process, from /proc.
fn children(process: &Process) -> Result<Vec<u32>> {
    let id = process.id().context("it runs")?;
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(found)
}
