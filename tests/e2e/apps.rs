//! Two official servers of MCP Apps, imported and served: their pages, and the tools that name them, are through us what they
//! are directly.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool;
use asp_e2e::wait::ErrorDetails;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::trial::{Shared, trials};
use crate::upstreams::{import, port, sees};

/// Package, the platform's name for it, and its tool and page.
const SERVERS: [(&str, &str, &str, &str); 2] = [
    ("server-basic-vanillajs", "clock-app", "get-time", "ui://get-time/mcp-app.html"),
    ("server-budget-allocator", "budget-app", "get-budget-data", "ui://budget-allocator/mcp-app.html"),
];
const APP: &str = "text/html;profile=mcp-app";
/// Listens on the loopback address alone, and says on which port.
const LISTEN: &str = "data:text/javascript,import http from 'node:http';\
    const listen=http.Server.prototype.listen;\
    http.Server.prototype.listen=function(port,...rest){this.once('listening',()=>\
    console.log(JSON.stringify({port:this.address().port})));\
    return listen.call(this,port,'127.0.0.1',...rest)}";

trials! { apps:
    official_apps_are_through_us_what_they_are_directly,
}

async fn official_apps_are_through_us_what_they_are_directly(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    let mut services = Vec::new();
    let mut upstreams = Vec::new();
    for (package, name, _, _) in SERVERS {
        let (service, port) = start(package).await?;
        let url = format!("http://127.0.0.1:{port}/mcp");
        let host = format!("{name}.internal");
        imported(&url, name, &format!("http://{host}/mcp"), primitives.path()).await.context(package)?;
        upstreams.push(format!("{host}=http://127.0.0.1:{port}"));
        services.push((service, url));
    }
    let environment = vec![("ASP_UPSTREAMS", upstreams.join(","))];
    let options = Options { primitives: primitives.path().to_owned(), environment, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    let token = stack.alice().await?;
    for ((package, name, tool, page), (_, url)) in SERVERS.into_iter().zip(&services) {
        let directly = sees("apps.mjs", url, "").await.with_context(|| format!("{package} directly"))?;
        let through = sees("apps.mjs", &stack.mcp_url(name), &token).await;
        let through = through.with_details(|| format!("{package} through us: {}", stack.asp.tail()))?;
        compare(&directly, &through, tool, page).context(package)?;
    }
    drop(services);
    stack.stop(&[]).await
}

async fn start(package: &str) -> Result<(Process, u64)> {
    let program =
        tool::clients()?.join("apps/node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` installs it", program.display());
    let mut command = Command::new(tool::node()?);
    command.args(["--import", LISTEN]).arg(program).env("PORT", "0");
    let service = Process::start(package, command)?;
    let port = port(&service).await?;
    Ok((service, port))
}

/// Imports a server, and shows it to everybody: what is imported is denied until an operator allows it.
async fn imported(url: &str, name: &str, proxy: &str, primitives: &Path) -> Result<()> {
    let (done, said) = import(&["--mcp", url, "--server", name, "--proxy-url", proxy], primitives).await?;
    ensure!(done, "{said}");
    let file = primitives.join(name).join("server.yaml");
    let text = std::fs::read_to_string(&file)?.replace("defaultExposure: deny", "defaultExposure: allow");
    Ok(std::fs::write(&file, text)?)
}

fn compare(directly: &Value, through: &Value, tool: &str, page: &str) -> Result<()> {
    // That both were asked for what there is.
    ensure!(directly["tools"][0]["_meta"]["ui"]["resourceUri"] == page, "{}", directly["tools"]);
    let contents = &directly["pages"][page][0];
    ensure!(contents["mimeType"] == APP, "{contents}");
    ensure!(contents["text"].as_str().is_some_and(|text| text.contains("<!DOCTYPE html>")), "{contents}");
    let content = &directly["results"][tool]["content"];
    ensure!(content.as_array().is_some_and(|blocks| !blocks.is_empty()), "{content}");

    ensure!(through["pages"] == directly["pages"], "the pages differ: {}", through["pages"]);
    let results = [&through["results"], &directly["results"]];
    ensure!(results[0] == results[1], "{}\ndirectly:\n{}", results[0], results[1]);
    for (list, members) in [
        ("tools", &["name", "title", "description", "inputSchema", "outputSchema", "_meta"] as &[&str]),
        // A resource's name is its spec's id.
        ("resources", &["uri", "mimeType", "_meta"]),
    ] {
        let listed = |seen: &Value| -> Value {
            let entries = seen[list].as_array().into_iter().flatten();
            entries.map(|entry| members.iter().map(|name| entry[*name].clone()).collect::<Value>()).collect()
        };
        let found = listed(through);
        let expected = listed(directly);
        ensure!(found == expected && found != json!([]), "{list}: {found}\ndirectly:\n{expected}");
    }
    Ok(())
}
