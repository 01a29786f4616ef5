//! Unchanged official clients list and call tools through Envoy, in both eras of MCP.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_e2e::tool;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use libtest_mimic::Trial;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::trial::{Shared, trials};

/// Hang guard of one client program.
const CLIENT: Duration = Duration::from_secs(120);
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";
/// Tells a client program to kill its bridge in the middle of a call, and to go on with another one.
pub(crate) const BREAK: &str = "ASP_BREAK";

trials! { clients:
    npm_sdk_1_lists_and_calls_echo,
    rmcp_legacy_lists_and_calls_echo,
    rmcp_modern_lists_and_calls_echo,
    rmcp_lists_and_calls_the_tools_of_all_servers; in_each_mode
}

fn in_each_mode(shared: &Shared) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (mode, protocol) in [("legacy", LEGACY), ("auto", MODERN), (MODERN, MODERN)] {
        let name = format!("clients::python_mcp_2_in_mode_{mode}_lists_and_calls_echo");
        trials.push(shared.trial(&name, async move |shared: &Shared| python(shared, mode, protocol).await));
        let name = format!("clients::npm_client_2_in_mode_{mode}_lists_and_calls_echo");
        trials.push(shared.trial(&name, async move |shared: &Shared| node_v2(shared, mode, protocol).await));
    }
    for era in ["legacy", "modern"] {
        let name = format!("clients::inspector_cli_in_the_{era}_era_lists_and_calls_echo");
        trials.push(shared.trial(&name, async move |shared: &Shared| inspector(shared, era).await));
    }
    trials
}

async fn python(shared: &Shared, mode: &str, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    python_at(&Place::demo(&url, &token), mode, protocol).await
}

async fn npm_sdk_1_lists_and_calls_echo(shared: &Shared) -> Result<()> {
    let (url, token) = target(shared).await?;
    node_v1_at(&Place::demo(&url, &token)).await
}

async fn node_v2(shared: &Shared, mode: &str, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    node_v2_at(&Place::demo(&url, &token), mode, protocol).await
}

async fn inspector(shared: &Shared, era: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    inspector_at(&Place::demo(&url, &token), era).await
}

async fn rmcp_legacy_lists_and_calls_echo(shared: &Shared) -> Result<()> {
    rmcp(shared, ClientLifecycleMode::Initialize, LEGACY).await
}

async fn rmcp_modern_lists_and_calls_echo(shared: &Shared) -> Result<()> {
    rmcp(shared, modern(), MODERN).await
}

/// `/all/mcp`: one address for the tools of every server, in both eras.
async fn rmcp_lists_and_calls_the_tools_of_all_servers(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let url = stack.mcp_url("all");
    let token = stack.alice().await?;
    let tools = &["demo__echo", "demo__clock", "everything__echo"];
    let place = Place { url: &url, token: &token, tools, environment: &[] };
    for (lifecycle, protocol) in [(ClientLifecycleMode::Initialize, LEGACY), (modern(), MODERN)] {
        rmcp_calls(&place, "demo__echo", lifecycle, protocol).await?;
    }
    Ok(())
}

async fn rmcp(shared: &Shared, lifecycle: ClientLifecycleMode, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    rmcp_at(&Place::demo(&url, &token), lifecycle, protocol).await
}

/// Where a client is sent, and what it must find there.
pub(crate) struct Place<'a> {
    pub(crate) url: &'a str,
    pub(crate) token: &'a str,
    pub(crate) tools: &'a [&'a str],
    /// What the client program is told by its environment.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl<'a> Place<'a> {
    /// The server `demo`.
    pub(crate) fn demo(url: &'a str, token: &'a str) -> Place<'a> {
        Place { url, token, tools: &["echo", "clock"], environment: &[] }
    }

    /// The server `everything`, the reference server behind the MCP backend.
    pub(crate) fn everything(url: &'a str, token: &'a str) -> Place<'a> {
        Place { url, token, tools: &["echo", "get-sum", "get-tiny-image"], environment: &[] }
    }
}

/// Every client once: each lists the tools and calls `echo`.
pub(crate) async fn all_at(place: &Place<'_>) -> Result<()> {
    python_at(place, "legacy", LEGACY).await.context("python, legacy")?;
    python_at(place, "auto", MODERN).await.context("python, auto")?;
    node_v1_at(place).await.context("npm sdk 1")?;
    node_v2_at(place, MODERN, MODERN).await.context("npm client 2, modern")?;
    inspector_at(place, "legacy").await.context("inspector, legacy")?;
    inspector_at(place, "modern").await.context("inspector, modern")?;
    rmcp_at(place, ClientLifecycleMode::Initialize, LEGACY).await.context("rmcp, legacy")?;
    rmcp_at(place, modern(), MODERN).await.context("rmcp, modern")
}

pub(crate) fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

pub(crate) async fn python_at(place: &Place<'_>, mode: &str, protocol: &str) -> Result<()> {
    let answer = python_calls(place, mode, "echo", &serde_json::from_str(ECHO)?).await?;
    check(place, &answer, protocol)
}

/// The Python client lists the tools and calls one; what it prints.
pub(crate) async fn python_calls(
    place: &Place<'_>,
    mode: &str,
    name: &str,
    arguments: &Value,
) -> Result<Value> {
    let mut command = Command::new(tool::python()?);
    command.arg(tool::root()?.join("tests/clients/python/client.py"));
    command.args([place.url, mode, name, &arguments.to_string()]);
    run(command, place).await
}

async fn node_v1_at(place: &Place<'_>) -> Result<()> {
    let mut command = node_program("node-v1/client.mjs")?;
    command.args([place.url, "echo", ECHO]);
    check(place, &run(command, place).await?, LEGACY)
}

pub(crate) async fn node_v2_at(place: &Place<'_>, mode: &str, protocol: &str) -> Result<()> {
    let mut command = node_program("node-v2/client.mjs")?;
    command.args([place.url, mode, "echo", ECHO]);
    check(place, &run(command, place).await?, protocol)
}

async fn inspector_at(place: &Place<'_>, era: &str) -> Result<()> {
    let answer = inspect(place, era, &["--method", "tools/list"]).await?;
    let tools = answer.pointer("/result/tools").or(answer.get("tools")).and_then(Value::as_array);
    let names: Vec<_> = tools.into_iter().flatten().map(|tool| &tool["name"]).collect();
    for name in place.tools {
        assert!(names.contains(&&json!(name)), "{name} is listed: {answer}");
    }
    let call = ["--method", "tools/call", "--tool-name", "echo", "--tool-args-json", ECHO];
    let answer = inspect(place, era, &call).await?;
    check_result(answer.get("result").unwrap_or(&answer))
}

pub(crate) async fn inspect(place: &Place<'_>, era: &str, arguments: &[&str]) -> Result<Value> {
    let launcher = "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = node_program(launcher)?;
    let header = format!("Authorization: Bearer {}", place.token);
    command.args(["--cli", place.url, "--transport", "http", "--protocol-era", era]);
    command.args(["--header", &header, "--format", "json", "-q"]);
    command.args(arguments);
    run(command, place).await
}

async fn rmcp_at(place: &Place<'_>, lifecycle: ClientLifecycleMode, protocol: &str) -> Result<()> {
    rmcp_calls(place, "echo", lifecycle, protocol).await
}

async fn rmcp_calls(
    place: &Place<'_>,
    tool: &'static str,
    lifecycle: ClientLifecycleMode,
    protocol: &str,
) -> Result<()> {
    let config = StreamableHttpClientTransportConfig::with_uri(place.url)
        .auth_header(place.token)
        .custom_headers(named());
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = timeout(CLIENT, ().serve_with_lifecycle(transport, lifecycle)).await??;
    let tools = timeout(CLIENT, client.list_all_tools()).await??;
    let call = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(ECHO)?);
    let result = timeout(CLIENT, client.call_tool(call)).await??;
    let peer = client.peer_info().context("the server told its version")?;
    let answer = json!({
        "protocol": peer.protocol_version.to_string(),
        "tools": tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>(),
        "result": result,
    });
    client.cancel().await?;
    check(place, &answer, protocol)
}

/// What the client calls itself, which its HTTP library leaves out.
pub(crate) fn named() -> HashMap<HeaderName, HeaderValue> {
    HashMap::from([(USER_AGENT, HeaderValue::from_static("rmcp"))])
}

/// Arguments of the call, and what must come back.
const ECHO: &str = r#"{"message":"héllo from a client"}"#;

async fn target(shared: &Shared) -> Result<(String, String)> {
    let stack = shared.stack().await?;
    Ok((stack.mcp_url("demo"), stack.alice().await?))
}

pub(crate) fn node_program(below_clients: &str) -> Result<Command> {
    let program: PathBuf = tool::clients()?.join(below_clients);
    if !program.exists() {
        bail!("{} is missing; `scripts/setup test` installs it", program.display());
    }
    let mut command = Command::new(tool::node()?);
    command.arg("--preserve-symlinks-main").arg(program);
    Ok(command)
}

/// Runs a client program and parses the JSON it prints.
pub(crate) async fn run(mut command: Command, place: &Place<'_>) -> Result<Value> {
    command.env("ASP_TOKEN", place.token).envs(place.environment.iter().copied()).kill_on_drop(true);
    let output = timeout(CLIENT, command.output()).await.context("the client hangs")??;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "the client ended with {}:\n{stdout}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_str(stdout.trim()).with_context(|| format!("the client printed {stdout:?}"))
}

fn check(place: &Place<'_>, answer: &Value, protocol: &str) -> Result<()> {
    assert_eq!(answer["protocol"], protocol, "{answer}");
    if place.environment.iter().any(|(name, _)| *name == BREAK) {
        assert_eq!(answer["broken"], "failed", "a call whose bridge is killed ends: {answer}");
    }
    let tools = answer["tools"].as_array().context("tools is an array")?;
    for name in place.tools {
        assert!(tools.contains(&json!(name)), "{name} is listed: {answer}");
    }
    check_result(&answer["result"])
}

fn check_result(result: &Value) -> Result<()> {
    assert_ne!(result["isError"], true, "{result}");
    let text = result.pointer("/content/0/text").and_then(Value::as_str).context("the result has a text")?;
    assert!(text.contains("héllo from a client"), "{result}");
    Ok(())
}
