//! Unchanged official clients list and call tools through Envoy, in both eras of MCP.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_e2e::tool;
use libtest_mimic::Trial;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::trial::Shared;

/// Hang guard of one client program.
const CLIENT: Duration = Duration::from_secs(120);
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (mode, protocol) in [("legacy", LEGACY), ("auto", MODERN), (MODERN, MODERN)] {
        let name = format!("clients::python_mcp_2_in_mode_{mode}_lists_and_calls_echo");
        trials.push(shared.trial(&name, move |shared| async move { python(&shared, mode, protocol).await }));
        let name = format!("clients::npm_client_2_in_mode_{mode}_lists_and_calls_echo");
        trials.push(shared.trial(&name, move |shared| async move { node_v2(&shared, mode, protocol).await }));
    }
    trials
        .push(shared.trial("clients::npm_sdk_1_lists_and_calls_echo", |shared| async move {
            node_v1(&shared).await
        }));
    trials.push(
        shared.trial(
            "clients::inspector_cli_lists_tools",
            |shared| async move { inspector_lists(&shared).await },
        ),
    );
    trials.push(
        shared.trial(
            "clients::inspector_cli_calls_echo",
            |shared| async move { inspector_calls(&shared).await },
        ),
    );
    trials.push(shared.trial("clients::rmcp_legacy_lists_and_calls_echo", |shared| async move {
        rmcp(&shared, ClientLifecycleMode::Initialize, LEGACY).await
    }));
    trials.push(shared.trial("clients::rmcp_modern_lists_and_calls_echo", |shared| async move {
        let modern =
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        rmcp(&shared, modern, MODERN).await
    }));
    trials
}

async fn python(shared: &Shared, mode: &str, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    python_at(&url, &token, mode, protocol, &[]).await
}

/// The Python client lists the tools of `demo` at `url` and calls `echo`.
pub(crate) async fn python_at(
    url: &str,
    token: &str,
    mode: &str,
    protocol: &str,
    environment: &[(&str, &str)],
) -> Result<()> {
    let mut command = Command::new(tool::python()?);
    command.arg(tool::root()?.join("tests/clients/python/client.py"));
    command.args([url, mode, "echo", ECHO]).envs(environment.iter().copied());
    check(&run(command, token).await?, protocol)
}

async fn node_v1(shared: &Shared) -> Result<()> {
    let mut command = node_program("node-v1/client.mjs")?;
    let (url, token) = target(shared).await?;
    command.args([&url, "echo", ECHO]);
    check(&run(command, &token).await?, LEGACY)
}

async fn node_v2(shared: &Shared, mode: &str, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    node_v2_at(&url, &token, mode, protocol, &[]).await
}

/// The TypeScript client, 2.x line, lists the tools of `demo` at `url` and calls `echo`.
pub(crate) async fn node_v2_at(
    url: &str,
    token: &str,
    mode: &str,
    protocol: &str,
    environment: &[(&str, &str)],
) -> Result<()> {
    let mut command = node_program("node-v2/client.mjs")?;
    command.args([url, mode, "echo", ECHO]).envs(environment.iter().copied());
    check(&run(command, token).await?, protocol)
}

async fn inspector_lists(shared: &Shared) -> Result<()> {
    let answer = inspector(shared, &["--method", "tools/list"]).await?;
    let tools = answer.pointer("/result/tools").or(answer.get("tools")).and_then(Value::as_array);
    let names: Vec<_> = tools.into_iter().flatten().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("echo")), "{answer}");
    Ok(())
}

async fn inspector_calls(shared: &Shared) -> Result<()> {
    let answer =
        inspector(shared, &["--method", "tools/call", "--tool-name", "echo", "--tool-args-json", ECHO])
            .await?;
    check_result(answer.get("result").unwrap_or(&answer))
}

async fn inspector(shared: &Shared, arguments: &[&str]) -> Result<Value> {
    let launcher = "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = node_program(launcher)?;
    let (url, token) = target(shared).await?;
    let header = format!("Authorization: Bearer {token}");
    command.args(["--cli", &url, "--transport", "http", "--header", &header, "--format", "json", "-q"]);
    command.args(arguments);
    run(command, &token).await
}

async fn rmcp(shared: &Shared, lifecycle: ClientLifecycleMode, protocol: &str) -> Result<()> {
    let (url, token) = target(shared).await?;
    let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = timeout(CLIENT, ().serve_with_lifecycle(transport, lifecycle)).await??;
    let tools = timeout(CLIENT, client.list_all_tools()).await??;
    let call = CallToolRequestParams::new("echo").with_arguments(serde_json::from_str(ECHO)?);
    let result = timeout(CLIENT, client.call_tool(call)).await??;
    let peer = client.peer_info().context("the server told its version")?;
    let answer = json!({
        "protocol": peer.protocol_version.to_string(),
        "tools": tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>(),
        "result": result,
    });
    client.cancel().await?;
    check(&answer, protocol)
}

/// Arguments of the call, and what must come back.
const ECHO: &str = r#"{"message":"héllo from a client"}"#;

async fn target(shared: &Shared) -> Result<(String, String)> {
    let stack = shared.stack().await?;
    Ok((stack.mcp_url("demo"), stack.alice().await?))
}

fn node_program(below_clients: &str) -> Result<Command> {
    let program: PathBuf = tool::clients()?.join(below_clients);
    if !program.exists() {
        bail!("{} is missing; `scripts/setup test` installs it", program.display());
    }
    let mut command = Command::new(tool::node()?);
    command.arg("--preserve-symlinks-main").arg(program);
    Ok(command)
}

/// Runs a client program and parses the JSON it prints.
async fn run(mut command: Command, token: &str) -> Result<Value> {
    command.env("ASP_TOKEN", token).kill_on_drop(true);
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

fn check(answer: &Value, protocol: &str) -> Result<()> {
    assert_eq!(answer["protocol"], protocol, "{answer}");
    let tools = answer["tools"].as_array().context("tools is an array")?;
    for name in ["echo", "clock"] {
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
