//! Tasks (SEP-2663) as an official client comes back for them, through Envoy: the client of the crate `rmcp`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::stack::Stack;
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::clients::named;
use crate::trial::{Shared, trials};

/// Hang guard of one step.
const STEP: Duration = Duration::from_secs(60);

type Client = RunningService<RoleClient, ClientConfig>;

trials! { tasks: rmcp_comes_back_for_tasks_answers_and_cancels_them }

async fn rmcp_comes_back_for_tasks_answers_and_cancels_them(shared: &Shared) -> Result<()> {
    let client = connect(shared.plugin_stack().await?).await?;
    answered(&client).await.context("a task that asks")?;
    cancelled(&client).await.context("a task that is cancelled")?;
    client.cancel().await?;
    Ok(())
}

/// Its types are not to be made from outside.
fn of<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// The server is open to everybody, in development mode alone.
async fn connect(stack: &Stack) -> Result<Client> {
    let config: ClientConfig = of(json!({
        "protocolVersion": "2026-07-28",
        "capabilities": {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
        "clientInfo": {"name": "e2e", "version": "1"},
    }))?;
    let url = stack.mcp_url("conformance");
    let config_of_transport = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(named());
    let transport = StreamableHttpClientTransport::from_config(config_of_transport);
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    Ok(timeout(STEP, config.serve_with_lifecycle(transport, modern)).await??)
}

/// The id of the task that a call becomes.
async fn begun(client: &Client, tool: &'static str, arguments: Value) -> Result<String> {
    let call = CallToolRequestParams::new(tool).with_arguments(of(arguments)?);
    match timeout(STEP, client.call_tool_once(call)).await?? {
        CallToolResponse::Task(created) => Ok(created.task.task_id),
        other => bail!("{tool} became no task: {other:?}"),
    }
}

/// The task, once it has the status.
async fn until(client: &Client, task: &str, status: &str) -> Result<Value> {
    let looking = async {
        loop {
            let found = client.get_task(of(json!({"taskId": task}))?).await?;
            let found = serde_json::to_value(&found)?;
            if found["status"] == status {
                return Ok(found);
            }
            // As clients do; a hang ends above.
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(STEP, looking).await.with_context(|| format!("never {status}"))?
}

async fn answered(client: &Client) -> Result<()> {
    let task = begun(client, "confirm_delete", json!({"filename": "a.txt"})).await?;
    let asked = until(client, &task, "input_required").await?;
    let (key, request) =
        asked["inputRequests"].as_object().and_then(|all| all.iter().next()).context("a question")?;
    ensure!(request["method"] == "elicitation/create", "{asked}");
    let answer = json!({"action": "accept", "content": {"confirm": true}});
    client.update_task(of(json!({"taskId": task, "inputResponses": {key: answer}}))?).await?;
    let done = until(client, &task, "completed").await?;
    ensure!(done["result"]["content"][0]["text"] == "Deleted a.txt.", "{done}");
    Ok(())
}

async fn cancelled(client: &Client) -> Result<()> {
    let task = begun(client, "slow_compute", json!({"seconds": 60})).await?;
    client.cancel_task(of(json!({"taskId": task}))?).await?;
    until(client, &task, "cancelled").await?;
    Ok(())
}
