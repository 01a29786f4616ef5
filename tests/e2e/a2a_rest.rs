//! The REST binding of A2A 1.0 through Envoy and the filter, as an OpenAPI document of ours describes it, tried by Schemathesis.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::agent::{Agent, message};
use asp_e2e::stack::Stack;
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::admin_api::successes;
use crate::trial::{Shared, trials};

const AGENT: &str = "a2a-conformance";
const DOCUMENT: &str = "tests/vectors/a2a/rest-1.0.json";
/// The definition of A2A 1.0, whose methods have their routes as annotations.
const DEFINITION: &str = "tests/vectors/a2a/official/v1.proto";
/// The only address that the document names for notifications. Nobody listens there.
const HOOK: &str = "http://127.0.0.1:9/hook";
/// Hang guard of one run of Schemathesis.
const RUN: Duration = Duration::from_secs(600);
/// Random cases of one operation, beside some hundred that cover the document; `ASP_REST_CASES` says otherwise.
const CASES: &str = "10";
/// Operations that succeed with some of the cases.
const SUCCEED: [&str; 7] = [
    "POST /message:send",
    "POST /message:stream",
    "GET /tasks",
    "GET /tasks/{id}",
    "POST /tasks/{task_id}/pushNotificationConfigs",
    "GET /tasks/{task_id}/pushNotificationConfigs",
    "DELETE /tasks/{task_id}/pushNotificationConfigs/{id}",
];

trials! { a2a_rest:
    the_document_has_the_routes_of_the_definition,
    schemathesis_finds_what_the_document_promises,
}

/// Returns method and path of every operation of the document.
fn operations() -> Result<BTreeSet<String>> {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(tool::root()?.join(DOCUMENT))?)?;
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().context("paths")? {
        let methods = methods.as_object().context("methods")?.keys();
        operations.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    Ok(operations)
}

/// Returns method and path of the route in a line of the definition; `None` for another line, and for a route with a tenant.
fn route(line: &str) -> Option<String> {
    let (method, rest) = line.trim().split_once(": \"")?;
    let (path, _) = rest.split_once('"')?;
    let is_route = ["get", "post", "delete"].contains(&method) && !path.starts_with("/{tenant}/");
    is_route.then(|| format!("{} {}", method.to_uppercase(), path.replace("=*}", "}")))
}

async fn the_document_has_the_routes_of_the_definition(_: &Shared) -> Result<()> {
    let definition = std::fs::read_to_string(tool::root()?.join(DEFINITION))?;
    let routes: BTreeSet<String> = definition.lines().filter_map(route).collect();
    let operations = operations()?;
    ensure!(routes.len() == 11 && routes == operations, "{routes:?} {operations:?}");
    Ok(())
}

async fn schemathesis_finds_what_the_document_promises(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.token(&["--org", "tried", "--user", "tess", "--ttl", "1h"]).await?;
    let task = completed_task(stack, &token).await?;
    let program = tool::clients()?.join("schemathesis/bin/schemathesis");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` installs it", program.display());
    let results = tempfile::tempdir()?;
    let config = results.path().join("schemathesis.toml");
    let mut text = std::fs::read_to_string(tool::root()?.join("tests/clients/schemathesis/a2a.toml"))?;
    // The id of a task is that of a push configuration as well.
    text.push_str(&format!("\n[parameters]\n\"path.id\" = \"{task}\"\n\"path.task_id\" = \"{task}\"\n"));
    std::fs::write(&config, text)?;
    let cases = std::env::var("ASP_REST_CASES").unwrap_or_else(|_| CASES.into());
    // Past the recorder, which holds a lenient answer to a wrong request against the server.
    let url = format!("http://{}/{AGENT}/a2a", stack.envoy.address);
    let mut command = Command::new(program);
    command.arg("--config-file").arg(&config).arg("run").arg(tool::root()?.join(DOCUMENT));
    command.args(["--url", &url, "-H", &format!("Authorization: Bearer {token}"), "-n", &cases]);
    // An agent ignores members that it does not know (ProtoJSON).
    command.args(["--checks", "all", "--exclude-checks", "negative_data_rejection"]);
    command.args(["--phases", "coverage,fuzzing", "--seed", "1", "--no-color"]);
    command.args(["--generation-database", "none", "--request-timeout", "60", "--continue-on-failure"]);
    command.args(["--report", "ndjson", "--report-ndjson-path", "events.ndjson"]);
    command.current_dir(results.path()).kill_on_drop(true);
    let output = timeout(RUN, command.output()).await.context("Schemathesis hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let count = operations()?.len();
    ensure!(said.contains(&format!("Selected: {count}/{count}")), "{said}");
    let good = successes(&results.path().join("events.ndjson"))?;
    let failed: Vec<&str> = SUCCEED.into_iter().filter(|operation| !good.contains(*operation)).collect();
    ensure!(failed.is_empty(), "no case of these succeeds: {failed:?}; {good:?}");
    Ok(())
}

/// Starts a task that completes, with a push configuration under the same id; returns that id.
async fn completed_task(stack: &Stack, token: &str) -> Result<String> {
    let agent = Agent::of(AGENT, token.to_owned());
    let params = json!({"message": message(json!([{"text": "tck-complete-task"}]), None)});
    let task = agent.send(stack.edge(), &params).await?;
    let id = task["id"].as_str().with_context(|| format!("no id: {task}"))?.to_owned();
    let config = json!({"taskId": id, "id": id, "url": HOOK});
    agent.call(stack.edge(), "CreateTaskPushNotificationConfig", &config).await?;
    Ok(id)
}
