//! `asp import`: brings what an upstream MCP server lists into a directory of primitives.
//!
//! Refuses to write anything when one of the new specs has a fault: what comes from outside is checked as
//! strictly as what people write (hidden text, schemas over budget). An existing `server.yaml` is kept.

mod specs;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, anyhow};
use asp_control::catalog;
use asp_gateway::executors::proxy::mcp::client::{Client, Exchange, Fault, Session};
use asp_registry::Source;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::ImportArgs;
use crate::failure::Failure;
use crate::print;

/// Most pages of one list that are followed.
const MAX_PAGES: usize = 100;

/// What an upstream lists to a client without capabilities.
#[derive(Default)]
struct Upstream {
    tools: Vec<Value>,
    prompts: Vec<Value>,
    resources: Vec<Value>,
    templates: Vec<Value>,
}

/// Lists, converts, checks, and writes.
pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let upstream = runtime.block_on(list(&args.mcp))?;
    let files = specs::convert(args, &upstream);
    let mut sources: Vec<Source> = match asp_registry::read_dir(&args.out) {
        Ok(sources) => sources,
        Err(_) if !args.out.exists() => Vec::new(),
        Err(error) => return Err(anyhow!(error).context(format!("read {}", args.out.display())).into()),
    };
    let prefix = format!("{}/", args.server);
    let kept = format!("{prefix}server.yaml");
    // What an earlier import wrote is replaced, so that a tool the upstream dropped goes away.
    let stale: Vec<String> = sources
        .iter()
        .filter(|source| source.path.starts_with(&prefix) && source.path != kept)
        .map(|source| source.path.clone())
        .collect();
    sources.retain(|source| !stale.contains(&source.path));
    let has_server = sources.iter().any(|source| source.path == kept);
    let new: BTreeMap<String, String> =
        files.into_iter().filter(|(path, _)| !(has_server && *path == kept)).collect();
    sources.extend(new.iter().map(|(path, text)| Source { path: path.clone(), text: text.clone() }));
    let report = asp_registry::check(&sources);
    let ours = |file: &str| file.starts_with(&prefix);
    for warning in report.warnings.iter().filter(|warning| ours(&warning.file)) {
        print::line(&format!("warning: {}", catalog::describe(warning)));
    }
    for fault in report.faults.iter().filter(|fault| ours(&fault.file)) {
        print::line(&format!("error: {}", catalog::describe(fault)));
    }
    if report.faults.iter().any(|fault| ours(&fault.file)) {
        print::error("nothing was written; an import with faults would not be served");
        return Err(Failure::Refused);
    }
    write(&args.out, &stale, &new)?;
    print::line(&format!(
        "{} tools, {} prompts, {} resources, {} templates from {} in {}",
        upstream.tools.len(),
        upstream.prompts.len(),
        upstream.resources.len(),
        upstream.templates.len(),
        args.mcp,
        args.out.join(&args.server).display(),
    ));
    Ok(())
}

fn write(root: &Path, stale: &[String], new: &BTreeMap<String, String>) -> Result<(), Failure> {
    for path in stale.iter().filter(|path| !new.contains_key(*path)) {
        std::fs::remove_file(root.join(path)).with_context(|| format!("remove {path}"))?;
    }
    for (path, text) in new {
        let file = root.join(path);
        let folder = file.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// The operator names the address, so it may be private.
async fn list(url: &str) -> Result<Upstream, Failure> {
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(std::time::Duration::from_secs(5))
        .read_timeout(std::time::Duration::from_secs(30))
        .build()
        .context("build the HTTP client")?;
    let parsed = reqwest::Url::parse(url).map_err(|error| Failure::bad("--mcp", error.to_string()))?;
    let client = Client { http, url: parsed, farewells: TaskTracker::new() };
    let session = client.initialize(1).await.with_context(|| format!("greet {url}"))?;
    let upstream = Upstream {
        tools: pages(&client, &session, "tools/list", "tools").await?,
        prompts: pages(&client, &session, "prompts/list", "prompts").await?,
        resources: pages(&client, &session, "resources/list", "resources").await?,
        templates: pages(&client, &session, "resources/templates/list", "resourceTemplates").await?,
    };
    // The session is ended at its server before this process is gone.
    drop(session);
    client.farewells.close();
    client.farewells.wait().await;
    Ok(upstream)
}

/// All pages of one list; a server without the method lists nothing.
async fn pages(
    client: &Client,
    session: &Session,
    method: &str,
    member: &str,
) -> Result<Vec<Value>, Failure> {
    let mut found = Vec::new();
    let mut cursor = None;
    for page in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = cursor.take() {
            params.insert("cursor".into(), cursor);
        }
        let exchange = Exchange {
            id: 2 + page as u64,
            method,
            params: Value::Object(params),
            heard: &|_| {},
            cancelled: &CancellationToken::new(),
        };
        let mut result = match client.request(session, exchange).await {
            Err(Fault::Error { code: -32601, .. }) if page == 0 => return Ok(found),
            answered => answered.with_context(|| method.to_owned())?,
        };
        if let Some(Value::Array(items)) = result.remove(member) {
            found.extend(items);
        }
        cursor = result.remove("nextCursor").filter(Value::is_string);
        if cursor.is_none() {
            return Ok(found);
        }
    }
    Err(anyhow!("{method}: more than {MAX_PAGES} pages").into())
}

/// Text of a member, or nothing.
fn text<'a>(item: &'a Value, name: &str) -> Option<&'a str> {
    item.get(name)?.as_str()
}

/// The runtime of an imported primitive.
fn runtime(args: &ImportArgs, upstream_name: &str) -> Value {
    let url = args.proxy_url.as_deref().unwrap_or(&args.mcp);
    json!({"mode": "proxy", "mcp": {"url": url, "tool": upstream_name}})
}
