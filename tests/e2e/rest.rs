//! REST through Envoy and the filter: a call by hand, and what its OpenAPI document promises, tried by
//! Schemathesis.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::message;
use crate::trial::{Shared, trials};

/// Hang guard of one run of Schemathesis.
const RUN: Duration = Duration::from_secs(900);
/// Cases of one operation; `ASP_REST_CASES` says otherwise.
const CASES: &str = "25";

trials! { rest:
    a_call_is_put_followed_and_cancelled_through_envoy,
    schemathesis_finds_what_the_openapi_document_promises,
}

async fn send(stack: &Stack, method: &str, path: &str, token: &str, body: &Value) -> Result<Response> {
    http1::send(stack.edge(), &message::rest(method, path, token, body)).await
}

async fn a_call_is_put_followed_and_cancelled_through_envoy(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let once = send(stack, "POST", "/demo/rest/tools/echo", &token, &json!({"message": "once"})).await?;
    ensure!(once.status == 200 && once.json()?["structuredContent"]["message"] == "once", "{once:?}");
    let tools = send(stack, "GET", "/demo/rest/tools", &token, &Value::Null).await?;
    ensure!(tools.status == 200 && tools.text().contains("\"echo\""), "{tools:?}");
    let echo = "/demo/rest/tools/echo/calls/by-hand";
    let put = send(stack, "PUT", echo, &token, &json!({"message": "héllo"})).await?;
    ensure!(put.status == 201 && put.header("location") == Some(echo), "{put:?}");
    let again = send(stack, "PUT", echo, &token, &json!({"message": "héllo"})).await?;
    ensure!(again.status == 200 && again.json()? == put.json()?, "{again:?}");
    ensure!(put.json()?["result"]["structuredContent"]["message"] == "héllo", "{put:?}");
    let count = "/demo/rest/tools/count/calls/by-hand-too";
    let runs = send(stack, "PUT", count, &token, &json!({"to": 3, "delayMs": 50})).await?;
    ensure!(runs.status == 201, "{runs:?}");
    let events = send(stack, "GET", &format!("{count}/events"), &token, &Value::Null).await?;
    let text = events.text();
    ensure!(text.contains("event: progress") && text.contains("event: end"), "{text}");
    let long = "/demo/rest/tools/count/calls/by-hand-at-last";
    send(stack, "PUT", long, &token, &json!({"to": 100, "delayMs": 1000})).await?;
    let cancelled = send(stack, "POST", &format!("{long}/cancel"), &token, &Value::Null).await?;
    // What does not end at once is seen to end later.
    ensure!(cancelled.status < 300, "{cancelled:?}");
    wait::until("it is canceled", wait::CONVERGE, || async {
        let seen = send(stack, "GET", long, &token, &Value::Null).await.ok()?;
        (seen.json().ok()?["status"] == "canceled").then_some(())
    })
    .await?;
    let nobody = send(stack, "GET", echo, "x", &Value::Null).await?;
    ensure!(nobody.status == 401 && nobody.reason().as_deref() == Some("token_invalid"), "{nobody:?}");
    Ok(())
}

/// The repository's `demo`, whose calls end soon: a stream of events is as long as its call.
fn primitives() -> Result<TempDir> {
    let copy = tempfile::tempdir()?;
    let demo = copy.path().join("demo");
    fs::create_dir(&demo)?;
    for file in fs::read_dir(tool::root()?.join("primitives/demo"))? {
        let file = file?.path();
        let text = fs::read_to_string(&file)?.replace("maxRuntimeSeconds: 120", "maxRuntimeSeconds: 1");
        fs::write(demo.join(file.file_name().context("a file has a name")?), text)?;
    }
    Ok(copy)
}

async fn schemathesis_finds_what_the_openapi_document_promises(_: &Shared) -> Result<()> {
    let specs = primitives()?;
    let options = Options { primitives: specs.path().to_owned(), ..Options::repository()? };
    let stack = Stack::start(options).await?;
    promises(&stack).await?;
    stack.stop(&[]).await
}

async fn promises(stack: &Stack) -> Result<()> {
    let token = stack.alice().await?;
    let path = "/demo/rest/openapi.json";
    let document = send(stack, "GET", path, &token, &Value::Null).await?;
    let document = document.json()?;
    let operations: usize = document["paths"]
        .as_object()
        .context("paths")?
        .values()
        .filter_map(Value::as_object)
        .map(|path| path.keys().filter(|name| ["get", "put", "post"].contains(&name.as_str())).count())
        .sum();
    ensure!(operations == 3 * 7 + 2, "three tools are shown: {document}");
    // It does not try the document itself.
    let operations = operations - 1;
    let program = tool::clients()?.join("schemathesis/bin/schemathesis");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` installs it", program.display());
    let results = tempfile::tempdir()?;
    let cases = std::env::var("ASP_REST_CASES").unwrap_or_else(|_| CASES.into());
    let url = format!("http://{}{path}", stack.edge());
    let mut command = Command::new(program);
    command.arg("--config-file").arg(tool::root()?.join("tests/clients/schemathesis/schemathesis.toml"));
    command.args(["run", &url, "-H", &format!("Authorization: Bearer {token}"), "-n", &cases]);
    // A method that Envoy's parser does not know, as QUERY, is 400 before any path is looked at; the others are tested
    // at the gateway.
    command.args(["--checks", "all", "--exclude-checks", "unsupported_method"]);
    command.args(["--seed", "1", "--no-color", "--generation-database", "none"]);
    command.args(["--request-timeout", "120", "--continue-on-failure"]);
    command.args(["--report", "ndjson", "--report-ndjson-path", "events.ndjson"]);
    command.current_dir(results.path()).kill_on_drop(true);
    let output = timeout(RUN, command.output()).await.context("Schemathesis hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let tried = format!("Tested: {operations}\n");
    ensure!(
        said.contains(&format!("Selected: {operations}/{operations}")) && said.contains(&tried),
        "{said}"
    );
    Ok(())
}
