//! The REST bindings of A2A 1.0 and 0.3 through Envoy and the filter, as OpenAPI documents of ours describe them, tried by
//! Schemathesis.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::agent::{Agent, message};
use asp_e2e::http1;
use asp_e2e::stack::Stack;
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::admin_api::successes;
use crate::message::rest;
use crate::trial::{Shared, trials};

const AGENT: &str = "a2a-conformance";
/// The only address that the documents name for notifications. Nobody listens there.
const HOOK: &str = "http://127.0.0.1:9/hook";
/// Hang guard of one run of Schemathesis.
const RUN: Duration = Duration::from_secs(600);
/// Random cases of one operation, beside some hundred that cover the document; `ASP_REST_CASES` says otherwise.
const CASES: &str = "10";

/// The binding of one version.
struct Binding {
    document: &'static str,
    /// The definition of the version, whose methods have their routes as annotations.
    definition: &'static str,
    /// Number of its operations.
    operations: usize,
    /// User of the run.
    user: &'static str,
    /// Operations that succeed with some of the cases.
    succeed: &'static [&'static str],
}

const BINDINGS: [Binding; 2] = [
    Binding {
        document: "tests/vectors/a2a/rest-1.0.json",
        definition: "tests/vectors/a2a/official/v1.proto",
        operations: 11,
        user: "tess",
        succeed: &[
            "POST /message:send",
            "POST /message:stream",
            "GET /tasks",
            "GET /tasks/{id}",
            "POST /tasks/{task_id}/pushNotificationConfigs",
            "GET /tasks/{task_id}/pushNotificationConfigs",
            "DELETE /tasks/{task_id}/pushNotificationConfigs/{id}",
        ],
    },
    Binding {
        document: "tests/vectors/a2a/rest-0.3.json",
        definition: "tests/vectors/a2a/official/v0_3.proto",
        operations: 10,
        user: "theo",
        succeed: &[
            "POST /v1/message:send",
            "POST /v1/message:stream",
            "GET /v1/tasks/{id}",
            "POST /v1/tasks/{task_id}/pushNotificationConfigs",
            "GET /v1/tasks/{task_id}/pushNotificationConfigs",
            "DELETE /v1/tasks/{task_id}/pushNotificationConfigs/{id}",
        ],
    },
];

trials! { a2a_rest:
    the_documents_have_the_routes_of_the_definitions,
    every_refusal_of_0_3_is_an_error_object_of_its_own,
    schemathesis_finds_what_the_documents_promise,
}

impl Binding {
    /// Returns method and path of every operation of the document.
    fn paths(&self) -> Result<BTreeSet<String>> {
        let document: Value =
            serde_json::from_str(&std::fs::read_to_string(tool::root()?.join(self.document))?)?;
        let mut operations = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().context("paths")? {
            let methods = methods.as_object().context("methods")?.keys();
            operations.extend(methods.map(|method| format!("{} {}", method.to_uppercase(), plain(path))));
        }
        Ok(operations)
    }
}

/// Returns a path with `*` for each id: of `{id}` as of `{id=*}`, and `tasks/*` of `{name=tasks/*}`.
fn plain(path: &str) -> String {
    let mut pieces = path.split('{');
    let mut found = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (variable, rest) = piece.split_once('}').unwrap_or((piece, ""));
        found.push_str(variable.split_once('=').map_or("*", |(_, pattern)| pattern));
        found.push_str(rest);
    }
    found
}

/// Returns method and path of the route in a line of a definition; `None` for another line, and for a route with a tenant.
fn route(line: &str) -> Option<String> {
    let (method, rest) = line.trim().split_once(": \"")?;
    let (path, _) = rest.split_once('"')?;
    let is_route = ["get", "post", "delete"].contains(&method) && !path.starts_with("/{tenant}/");
    is_route.then(|| format!("{} {}", method.to_uppercase(), plain(path)))
}

async fn the_documents_have_the_routes_of_the_definitions(_: &Shared) -> Result<()> {
    for binding in &BINDINGS {
        let definition = std::fs::read_to_string(tool::root()?.join(binding.definition))?;
        let routes: BTreeSet<String> = definition.lines().filter_map(route).collect();
        let operations = binding.paths()?;
        ensure!(routes.len() == binding.operations && routes == operations, "{routes:?} {operations:?}");
    }
    Ok(())
}

/// The SDK of 0.3 for JavaScript reads the code there, and nothing of the form that 1.0 has.
async fn every_refusal_of_0_3_is_an_error_object_of_its_own(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.token(&["--org", "tried", "--user", "theo"]).await?;
    for (method, path, token, body, status, code) in [
        ("GET", "tasks/a", "", json!(null), 401, -32000),
        ("GET", "tasks/a", "x", json!(null), 401, -32000),
        ("GET", "tasks/a%2Fb", &*token, json!(null), 404, -32000),
        ("GET", "tasks/a", &*token, json!(null), 404, -32001),
        ("GET", "tasks", &*token, json!(null), 404, -32601),
        ("PUT", "message:send", &*token, json!({}), 405, -32601),
        ("POST", "message:send", &*token, json!({}), 400, -32602),
        ("POST", "message:send", &*token, json!({"message": "x".repeat(2 << 20)}), 413, -32600),
    ] {
        // Past the recorder, as below.
        for address in [stack.envoy.address, stack.gateway()] {
            let request = rest(method, &format!("/{AGENT}/a2a/v1/{path}"), token, &body);
            let answer = http1::send(address, &request).await?;
            let found = answer.json()?;
            let named = format!("{method} {path} at {address}: {} {}", answer.status, answer.text());
            ensure!(answer.status == status && found["code"] == code, "{named}");
            ensure!(found["message"].is_string() && found.get("error").is_none(), "{named}");
        }
    }
    Ok(())
}

async fn schemathesis_finds_what_the_documents_promise(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    for binding in &BINDINGS {
        promises(stack, binding).await.with_context(|| binding.document)?;
    }
    Ok(())
}

async fn promises(stack: &Stack, binding: &Binding) -> Result<()> {
    let token = stack.token(&["--org", "tried", "--user", binding.user, "--ttl", "1h"]).await?;
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
    command.arg("--config-file").arg(&config).arg("run").arg(tool::root()?.join(binding.document));
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
    let count = binding.operations;
    ensure!(said.contains(&format!("Selected: {count}/{count}")), "{said}");
    let good = successes(&results.path().join("events.ndjson"))?;
    let failed: Vec<&&str> = binding.succeed.iter().filter(|operation| !good.contains(**operation)).collect();
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
