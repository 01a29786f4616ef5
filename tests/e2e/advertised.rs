//! Advertisements of the platform that have to work: every name, URL and permission that it shows to an org is asked for,
//! what a server does not list is shown nowhere, and a plugin that it calls off is in no list.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request};
use asp_e2e::stack::Stack;
use serde_json::{Value, json};

use crate::message::modern;
use crate::trial::{DEFAULT_AGENT, Shared, trials};

trials! { advertised:
    whatever_is_shown_to_an_org_answers,
    whatever_the_registry_lists_answers,
}

/// A browser of anybody's reads which servers there are and what each is, and they answer at the URLs that it finds.
async fn whatever_the_registry_lists_answers(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let origin = [("origin", "https://anywhere.example")];
    let listed = http1::get(stack.edge(), "/v0.1/servers?limit=100", &origin).await?;
    ensure!(listed.header("access-control-allow-origin").is_some(), "{:?}", listed.headers);
    let listed = listed.json()?;
    let mut found = Vec::new();
    for entry in listed["servers"].as_array().context("a list")? {
        let name = text(entry, "/server/name").replace('/', "%2F");
        let single = http1::get(stack.edge(), &format!("/v0.1/servers/{name}/versions/latest"), &[]).await?;
        ensure!(single.status == 200 && single.json()? == *entry, "{}", single.text());
        let url = text(entry, "/server/remotes/0/url");
        let server = url.strip_suffix("/mcp").and_then(|url| url.rsplit('/').next()).context("a server")?;
        let mut discover = modern(&token, "server/discover", json!({}), &[]);
        discover.target = format!("/{server}/mcp");
        let answer = http1::send(stack.edge(), &discover).await?;
        ensure!(answer.status == 200, "{url}: {}", answer.text());
        let updated = "/_meta/io.modelcontextprotocol.registry~1official/updatedAt";
        ensure!(text(entry, updated).ends_with('Z'), "{entry}");
        found.push(server.to_owned());
    }
    ensure!(found.contains(&"demo".to_owned()), "{found:?}");
    ensure!(!found.contains(&"webex-compliance".to_owned()), "it is exposed to nobody by default: {found:?}");
    Ok(())
}

/// The admin API, with one token for all questions.
struct Admin<'s> {
    stack: &'s Stack,
    token: String,
}

async fn whatever_is_shown_to_an_org_answers(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let admin = Admin { stack, token: stack.token(&["--admin", "--user", "root"]).await? };
    let shown = admin.ask("GET", "/api/registry/orgs/acme/primitives", &Value::Null).await?;
    let off = admin.off().await?;
    let token = stack.alice().await?;
    let mut answered = 0;
    for primitive in shown.as_array().context("a list")? {
        let server = text(primitive, "/server");
        let id = text(primitive, "/name");
        let skill = text(primitive, "/exposure/a2a");
        let outcome = admin.explain(&server, &id, "a2a").await?;
        ensure!(outcome["allowed"] != skill.is_empty(), "{id} is shown over a2a as {skill:?}: {outcome}");
        if !skill.is_empty() {
            answers_over_a2a(stack, &token, &server).await?;
        }
        let over_rest = text(primitive, "/exposure/rest");
        if !over_rest.is_empty() {
            let path = format!("/{server}/rest/tools/{over_rest}/calls");
            let bearer = format!("Bearer {token}");
            let calls = http1::get(stack.edge(), &path, &[("authorization", &bearer)]).await?;
            ensure!(calls.status == 200, "{path}: {}", calls.text());
        }
        let name = text(primitive, "/exposure/mcp");
        if name.is_empty() {
            continue;
        }
        let outcome = admin.explain(&server, &id, "mcp").await?;
        ensure!(outcome["allowed"] == true, "{id} is shown, and explain says {outcome}");
        let listed = is_listed(stack, &token, &server, &text(primitive, "/kind"), &name).await?;
        let runs = !off.contains(&format!("{id}@{}", text(primitive, "/version")));
        ensure!(listed == runs, "{server} {name}: listed {listed}, runs {runs}");
        answered += usize::from(listed);
    }
    ensure!(answered > 10, "only {answered} primitives are shown to acme");
    let servers = admin.ask("GET", "/api/registry/servers", &Value::Null).await?;
    for server in servers.as_array().context("a list")? {
        documents(&admin, &text(server, "/server")).await?;
    }
    called(stack, &token).await
}

/// Whether the one name is in the one list of its kind.
async fn is_listed(stack: &Stack, token: &str, server: &str, kind: &str, name: &str) -> Result<bool> {
    let (method, list, key) = match kind {
        "prompt" => ("prompts/list", "prompts", "name"),
        "resource" => ("resources/list", "resources", "uri"),
        "resource_template" => ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        _ => ("tools/list", "tools", "name"),
    };
    let mut request = modern(token, method, json!({}), &[]);
    request.target = format!("/{server}/mcp");
    let answer = http1::send(stack.edge(), &request).await?;
    let body = answer.json()?;
    let listed = body["result"][list].as_array().with_context(|| format!("{server} {method}: {body}"))?;
    Ok(listed.iter().any(|item| item[key] == name))
}

/// A task that the caller does not have is looked for.
async fn answers_over_a2a(stack: &Stack, token: &str, server: &str) -> Result<()> {
    let path = format!("/{server}/a2a");
    let bearer = format!("Bearer {token}");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "no-such-task"}});
    let headers = [("authorization", bearer.as_str()), ("a2a-version", "1.0")];
    let answer = http1::post(stack.edge(), &path, &headers, &message.to_string()).await?;
    ensure!(answer.json()?["error"]["code"] == -32001, "{path}: {} {}", answer.status, answer.text());
    Ok(())
}

/// Metadata of a server that lists mcp names a resource that is there; a server has an agent card if it lists a2a, and at the
/// root is that of the default agent.
async fn documents(admin: &Admin<'_>, server: &str) -> Result<()> {
    let stack = admin.stack;
    let state = admin.ask("GET", &format!("/api/registry/orgs/acme/servers/{server}"), &Value::Null).await?;
    let protocols = state["on"].as_array().context("protocols")?;
    let lists = |protocol: &str| protocols.iter().any(|switch| switch["protocol"] == protocol);
    if lists("mcp") {
        let path = format!("/.well-known/oauth-protected-resource/{server}/mcp");
        let metadata = http1::get(stack.edge(), &path, &[]).await?;
        ensure!(metadata.status == 200, "{path}: {}", metadata.status);
        let resource = text(&metadata.json()?, "/resource");
        ensure!(resource.ends_with(&format!("/{server}/mcp")), "{resource}");
    }
    let path = format!("/{server}/.well-known/agent-card.json");
    let card = http1::get(stack.edge(), &path, &[]).await?;
    let expected = if lists("a2a") { 200 } else { 404 };
    ensure!(card.status == expected, "{path}: {}", card.status);
    let root = http1::get(stack.edge(), "/.well-known/agent-card.json", &[]).await?;
    let url = text(&root.json()?, "/url");
    ensure!(url.ends_with(&format!("/{DEFAULT_AGENT}/a2a")), "{}: {url}", root.status);
    Ok(())
}

/// A tool of `demo` is not only listed.
async fn called(stack: &Stack, token: &str) -> Result<()> {
    let params = json!({"name": "echo", "arguments": {"message": "hello"}});
    let answer =
        http1::send(stack.edge(), &modern(token, "tools/call", params, &[("mcp-name", "echo")])).await?;
    let body = answer.json()?;
    ensure!(body["result"]["structuredContent"]["message"] == "hello", "{body}");
    Ok(())
}

impl Admin<'_> {
    /// The plugins that no runtime can run, as `id@version`. This stack has no runtime at all.
    async fn off(&self) -> Result<HashSet<String>> {
        let runtimes = self.ask("GET", "/api/runtimes", &Value::Null).await?;
        let off = runtimes.as_array().context("a list")?.iter().flat_map(|runtime| runtime["off"].as_array());
        let off: HashSet<String> = off.flatten().map(|plugin| text(plugin, "/plugin")).collect();
        ensure!(!off.is_empty(), "no plugin is off: {runtimes}");
        Ok(off)
    }

    async fn explain(&self, server: &str, primitive: &str, protocol: &str) -> Result<Value> {
        let question = json!({
            "org": "acme", "user": "alice", "server": server, "primitive": primitive, "protocol": protocol
        });
        self.ask("POST", "/api/policy/explain", &question).await
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let headers = vec![
            ("authorization".to_string(), format!("Bearer {}", self.token).into_bytes()),
            ("content-type".to_string(), b"application/json".to_vec()),
        ];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request { method: method.into(), target: path.into(), headers, body };
        let answer = http1::send(self.stack.admin(), &request).await?;
        ensure!(answer.status == 200, "{method} {path}: {} {}", answer.status, answer.text());
        Ok(serde_json::from_str(&answer.text())?)
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string()
}
