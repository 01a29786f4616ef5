//! The admin API as its own OpenAPI document describes it, tried by Schemathesis as an admin of every role; and what of
//! others an admin of one org or one server finds: nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::trial::{Shared, trials};

/// Hang guard of one run of Schemathesis.
const RUN: Duration = Duration::from_secs(600);
/// Random cases of one operation, beside those that cover the document, for the role that reaches everything.
const CASES: &str = "25";
/// The same for the other roles, whose runs show what a role is let do. `ASP_REST_CASES` gives every role its number, and the
/// cases that cover the document too.
const FEW_CASES: &str = "5";
/// What needs no token.
const PUBLIC: [&str; 2] = ["GET /.well-known/jwks.json", "GET /api/login"];
/// What a team of one server reaches beside its server.
const OF_TEAMS: [&str; 4] =
    ["/api/registry/validate", "/api/registry/compile", "/api/registry/servers", "/api/login"];
/// Who tries the API, and what a path names to reach something that is his.
const ROLES: [(&str, &[(&str, &str)]); 6] = [
    ("platform", &[]),
    ("platform:read", &[]),
    ("org:acme", &[("org", "acme")]),
    ("org:acme:read", &[("org", "acme")]),
    ("server:demo", &[("server", "demo")]),
    ("installer", &[]),
];

trials! { admin_api:
    an_admin_of_one_org_or_server_finds_nothing_of_others,
    schemathesis_finds_in_every_role_what_the_openapi_document_promises,
}

async fn ask(stack: &Stack, role: &str, method: &str, path: &str, body: &Value) -> Result<Response> {
    let token = stack.token(&["--admin", "--user", "ops", "--role", role]).await?;
    let request = Request {
        method: method.to_uppercase(),
        target: path.into(),
        headers: vec![
            ("authorization".into(), format!("Bearer {token}").into_bytes()),
            ("content-type".into(), b"application/json".to_vec()),
        ],
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
    };
    http1::send(stack.admin(), &request).await
}

async fn document(stack: &Stack) -> Result<Value> {
    http1::get(stack.admin(), "/api/openapi.json", &[]).await?.json()
}

/// Method and path of every operation.
fn operations(document: &Value) -> Result<Vec<(String, String)>> {
    let paths = document["paths"].as_object().context("paths")?;
    let of = |(path, item): (&String, &Value)| -> Vec<(String, String)> {
        item.as_object().into_iter().flatten().map(|(method, _)| (method.clone(), path.clone())).collect()
    };
    Ok(paths.iter().flat_map(of).collect())
}

/// A body that the operation takes, so that it is refused for what it is about.
fn body(method: &str, path: &str) -> Value {
    match (method, path) {
        ("put", path) if path.ends_with("/exposure") => {
            json!({ "server": "demo", "protocol": "mcp", "enabled": false })
        }
        ("put", path) if path.ends_with("/bindings") => json!({
            "target": { "type": "user", "idOrPattern": "bob" }, "primitive": { "name": "echo" }, "allowed": false,
        }),
        ("put", path) if path.starts_with("/api/ratelimits") => {
            json!([{ "selector": { "user": "*" }, "policy": { "capacity": 1, "refill": "1/s" } }])
        }
        ("post", "/api/policy/explain") => {
            json!({ "org": "globex", "server": "everything", "primitive": "echo", "protocol": "mcp" })
        }
        ("post", "/api/explain") => json!({ "token": "x", "server": "everything", "primitive": "echo" }),
        ("post", "/api/policy/preview") => json!({ "org": "globex" }),
        ("put", "/api/regions/orgs/{org}") => json!({ "region": "eu" }),
        ("put", "/api/registry/servers/{server}") => json!({ "files": [] }),
        ("post", "/api/registry/servers/{server}/rollback") => json!({ "revision": 1 }),
        ("put", "/api/machines/orgs/{org}/bound") => {
            json!({ "groups": ["robots"], "scopes": ["orders:read"] })
        }
        ("post", "/api/machines/orgs/{org}/keys") => json!({ "machine": "press-7" }),
        ("post", "/api/machines/orgs/{org}/certificates") => {
            json!({ "machine": "press-7", "fingerprint": "ab".repeat(32) })
        }
        _ => Value::Null,
    }
}

/// What an admin of a role is answered about what is not his.
#[derive(Default)]
struct Foreign {
    asked: usize,
    faults: Vec<String>,
}

impl Foreign {
    /// It must be as if it did not exist.
    async fn ask(&mut self, stack: &Stack, role: &str, method: &str, path: &str, body: &Value) -> Result<()> {
        let answer = ask(stack, role, method, path, body).await?;
        self.asked += 1;
        let code = answer.json().unwrap_or_default()["code"].clone();
        if (answer.status, &code) != (404, &json!("not_found")) {
            self.faults.push(format!("{role}: {method} {path}: {} {:.200}", answer.status, answer.text()));
        }
        Ok(())
    }
}

async fn an_admin_of_one_org_or_server_finds_nothing_of_others(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let revoked = json!({ "type": "user", "org": "globex", "id": "bob" });
    let revoked = ask(&stack, "platform", "POST", "/api/revocations", &revoked).await?.json()?;
    let revocation = revoked["revocation"].as_str().context("a revocation")?.to_owned();
    let mut foreign = Foreign::default();
    for (method, path) in operations(&document(&stack).await?)? {
        let body = body(&method, &path);
        let of_org = path.contains("{org}") || path == "/api/revocations/{id}";
        // Whatever is not about servers does not exist for a team of one, nor do the servers of others.
        let of_server = path.starts_with("/api/") && !OF_TEAMS.contains(&path.as_str());
        let mut path =
            path.replace("{org}", "globex").replace("{id}", &revocation).replace("{server}", "everything");
        path = path.replace("{side}", "clients").replace("{name}", "dev").replace("{revision}", "1");
        path = path.replace("{sha256}", &format!("{}?name=a.whl", "0".repeat(64)));
        for (role, is_foreign) in [
            ("org:acme", of_org),
            ("org:acme:read", of_org),
            ("server:demo", of_server),
            ("server:demo:read", of_server),
        ] {
            if is_foreign {
                foreign.ask(&stack, role, &method, &path, &body).await?;
            }
        }
    }
    for path in [
        "/api/audit",
        "/api/audit/calls",
        "/api/revocations",
        "/api/artifacts",
        "/api/usage",
        "/api/usage/unused",
        "/api/calls",
        "/api/sessions",
    ] {
        foreign.ask(&stack, "org:acme", "get", &format!("{path}?org=globex"), &Value::Null).await?;
    }
    let question =
        json!({ "org": "globex", "user": "bob", "server": "demo", "primitive": "echo", "protocol": "mcp" });
    foreign.ask(&stack, "org:acme", "post", "/api/policy/explain", &question).await?;
    let others = json!({ "type": "org", "id": "globex" });
    for method in ["post", "delete"] {
        foreign.ask(&stack, "org:acme", method, "/api/revocations", &others).await?;
    }
    let Foreign { asked, faults } = foreign;
    ensure!(asked >= 80, "{asked} requests");
    ensure!(faults.is_empty(), "{} of {asked}:\n{}", faults.len(), faults.join("\n"));
    let kept =
        ask(&stack, "platform", "GET", &format!("/api/revocations/{revocation}"), &Value::Null).await?;
    ensure!(kept.status == 200, "{}", kept.text());
    stack.stop(&[]).await
}

async fn schemathesis_finds_in_every_role_what_the_openapi_document_promises(_: &Shared) -> Result<()> {
    // It writes faster than an org may.
    let environment = vec![("ASP_ADMIN_WRITES_PER_SECOND", "0".to_owned())];
    let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
    let count = operations(&document(&stack).await?)?.len();
    let mut faults = Vec::new();
    for (role, own) in ROLES {
        if let Err(fault) = promises(&stack, role, own, count).await {
            faults.push(format!("as {role}: {fault:#}"));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    stack.stop(&[]).await
}

/// One run in one role.
async fn promises(stack: &Stack, role: &str, own: &[(&str, &str)], count: usize) -> Result<()> {
    let token = stack.token(&["--admin", "--user", "ops", "--role", role]).await?;
    let program = tool::clients()?.join("schemathesis/bin/schemathesis");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` installs it", program.display());
    let results = tempfile::tempdir()?;
    let config = results.path().join("schemathesis.toml");
    let mut text = std::fs::read_to_string(tool::root()?.join("tests/clients/schemathesis/admin.toml"))?;
    text.push_str("\n[parameters]\n");
    text.extend(own.iter().map(|(name, value)| format!("\"path.{name}\" = \"{value}\"\n")));
    std::fs::write(&config, text)?;
    let at_length = std::env::var("ASP_REST_CASES").ok();
    let (phases, cases) = match at_length {
        Some(cases) => ("coverage,fuzzing", cases),
        None if role == "platform" => ("coverage,fuzzing", CASES.into()),
        None => ("fuzzing", FEW_CASES.into()),
    };
    let url = format!("http://{}/api/openapi.json", stack.admin());
    let mut command = Command::new(program);
    command.arg("--config-file").arg(&config);
    command.args(["run", &url, "-H", &format!("Authorization: Bearer {token}"), "-n", &cases]);
    command.args(["--checks", "all", "--phases", phases, "--seed", "1", "--no-color"]);
    command.args(["--generation-database", "none", "--request-timeout", "60", "--continue-on-failure"]);
    command.args(["--report", "ndjson", "--report-ndjson-path", "events.ndjson"]);
    command.current_dir(results.path()).kill_on_drop(true);
    let output = timeout(RUN, command.output()).await.context("Schemathesis hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(said.contains(&format!("Selected: {count}/{count}")), "{said}");
    let good = successes(&results.path().join("events.ndjson"))?;
    ensure!(
        good.iter().any(|operation| !PUBLIC.contains(&operation.as_str())),
        "{role} was let do nothing: {good:?}"
    );
    Ok(())
}

/// The operations that answered a request with 2xx.
pub(crate) fn successes(events: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(events).with_context(|| events.display().to_string())?;
    let mut good = BTreeSet::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line)?;
        let recorder = &event["ScenarioFinished"]["recorder"];
        let answers = recorder["interactions"].as_object().into_iter().flatten();
        let mut statuses = answers.filter_map(|(_, answer)| answer["response"]["status_code"].as_u64());
        if statuses.any(|status| (200..300).contains(&status)) {
            good.insert(recorder["label"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(good)
}
