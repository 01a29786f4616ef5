//! The routes of the admin API that were agreed first, from `tests/vectors/admin`, on a running stack: each is taken with its
//! field names, and a client of MCP sees what it has done.

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::{self, Response};
use asp_e2e::stack::Stack;
use asp_e2e::{tool, wait};
use serde_json::{Value, json};

use crate::message::{modern, rest};
use crate::policy::{as_role, caller};
use crate::trial::{Shared, trials};

/// Org of the vectors.
const ORG: &str = "illustrated";

trials! { first_routes:
    each_is_taken_with_its_field_names_and_seen_by_a_client,
}

async fn each_is_taken_with_its_field_names_and_seen_by_a_client(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, ORG).await?;
    let steps = std::fs::read_to_string(tool::root()?.join("tests/vectors/admin/routes.json"))?;
    let steps: Vec<Value> = serde_json::from_str(&steps)?;
    ensure!(steps.len() > 6, "all of them");
    for step in &steps {
        let name = text(step, "name");
        take(stack, step).await.with_context(|| format!("{name}: the request"))?;
        for (place, seen) in step["seen"].as_array().into_iter().flatten().enumerate() {
            see(stack, &token, seen, place == 0).await.with_context(|| format!("{name}: {seen}"))?;
        }
    }
    for path in [format!("/api/ratelimits/orgs/{ORG}"), format!("/api/policy/orgs/{ORG}/bindings")] {
        let gone = as_role(stack, "platform", "DELETE", &path, "").await?;
        ensure!(gone.status < 300, "{path}: {}", gone.text());
    }
    Ok(())
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of[member].as_str().unwrap_or_default()
}

/// Sends the request of a step; its answer must have what the step says.
async fn take(stack: &Stack, step: &Value) -> Result<()> {
    let (kind, body) = match step["file"].as_str() {
        Some(file) => ("application/yaml", std::fs::read_to_string(tool::root()?.join(file))?),
        None if step["body"].is_null() => ("application/json", String::new()),
        None => ("application/json", step["body"].to_string()),
    };
    let token = stack.token(&["--admin", "--user", "root", "--role", "platform"]).await?;
    let mut request = rest(text(step, "method"), text(step, "path"), &token, &Value::Null);
    request.headers.retain(|(name, _)| name != "content-type");
    request.headers.push(("content-type".into(), kind.as_bytes().to_vec()));
    request.body = body.into_bytes();
    let answer = http1::send(stack.admin(), &request).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    let said = answer.json()?;
    for (pointer, wanted) in step["has"].as_object().into_iter().flatten() {
        let found = said.pointer(pointer).unwrap_or(&Value::Null);
        let is_so = match wanted["is"].as_str() {
            Some("array") => found.is_array(),
            Some("object") => found.is_object(),
            Some("string") => found.is_string(),
            Some(other) => bail!("no kind of value is {other}"),
            None => found == wanted,
        };
        ensure!(is_so, "{pointer} is {found}, not {wanted}: {said}");
    }
    Ok(())
}

/// Checks what a client of MCP sees; the first look after a change may take a moment.
async fn see(stack: &Stack, token: &str, seen: &Value, is_first: bool) -> Result<()> {
    if let Some(tool) = seen["call"].as_str() {
        if is_first {
            // A call would draw from the limit before it is in force everywhere.
            in_force(stack).await?;
            // A budget of a day begins again at midnight.
            wait::until_day_lasts(wait::START).await?;
        }
        let answer = call(stack, token, tool).await?.json()?;
        let result = &answer["result"];
        let is = if result["isError"] == false { "ok" } else { text(&result["_meta"], "asp/limit") };
        ensure!(is == text(seen, "is"), "{answer}");
        return Ok(());
    }
    let list = modern(token, "tools/list", json!({}), &[]);
    let wanted = seen["list"].as_object().context("a call or a list")?;
    let matches = |answer: &Response| {
        let said = answer.text();
        let has =
            |(name, is): (&String, &Value)| said.contains(&format!("\"{name}\"")) == (is == &json!(true));
        Some(u64::from(answer.status)) == seen["status"].as_u64() && wanted.iter().all(has)
    };
    wait::until("the client sees it", wait::CONVERGE, || async {
        let answer = http1::send(stack.edge(), &list).await.ok()?;
        matches(&answer).then_some(())
    })
    .await
}

async fn call(stack: &Stack, token: &str, tool: &str) -> Result<Response> {
    let params = json!({"name": tool, "arguments": {"message": "m"}});
    http1::send(stack.edge(), &modern(token, "tools/call", params, &[("mcp-name", tool)])).await
}

/// Waits until every subscriber has what is stored now. Other tests change the same stack: there may be no moment at which
/// everything that is stored is in force.
async fn in_force(stack: &Stack) -> Result<()> {
    let stored = status(stack).await.context("the status")?["storeRevision"].as_u64();
    let stored = stored.context("a revision of the store")?;
    let published = wait::until("the revision is published", wait::CONVERGE, || async {
        let status = status(stack).await?;
        let revision = status["revision"].as_u64()?;
        (status["coversRevision"].as_u64()? >= stored).then_some(revision)
    })
    .await?;
    wait::until("every subscriber has the revision", wait::CONVERGE, || async {
        let status = status(stack).await?;
        let has =
            |one: &Value| one["kind"] == "endpoints" || one["ackedRevision"].as_u64() >= Some(published);
        status["subscribers"].as_array()?.iter().all(has).then_some(())
    })
    .await
}

/// The published snapshot and its subscribers.
async fn status(stack: &Stack) -> Option<Value> {
    as_role(stack, "platform", "GET", "/api/snapshot", "").await.ok()?.json().ok()
}
