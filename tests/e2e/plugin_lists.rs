//! Resources that a plugin lists itself (`primitiveSchema.listed: plugin`), through Envoy to the official Python client, in both
//! eras: to each user their own, and anew when the plugin says that there are others.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use serde_json::{Value, json};

use crate::message::modern;
use crate::plugins::{Client, MODES};
use crate::trial::{Shared, trials};
use crate::upstreams::rpc;

trials! { plugin_lists:
    a_plugins_own_resources_are_listed_and_read_by_official_clients,
}

const SERVER: &str = "
apiVersion: asp/v1
name: pages
description: Pages that their plugin lists.
protocols: [mcp]
sessions: stateful
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: pages/page}, {ref: pages/write}]
";

const PAGE: &str = "
id: page
name: page
type: resource_template
version: 1.0.0
owner: test@example.com
summary: A page.
primitiveSchema: {uriTemplate: 'page://{owner}/{name}', mimeType: text/plain, listed: plugin}
security: {riskClass: low}
runtime: {mode: plugin, language: python, entrypoint: main.py}
";

/// Beside what leads to this template it lists what does not, which nobody is to see.
const PAGE_CODE: &str = r#"
from asp_plugin import plugin

@plugin.resource
def read(args, ctx):
    return f"{args['owner']} wrote {args['name']}"

@plugin.list
def pages(ctx):
    yield {"uri": f"page://{ctx.caller.user}/first", "name": "First", "title": "Yours", "mime_type": "text/plain"}
    yield {"uri": "page://all/second", "name": "Second", "description": "Everybody's."}
    yield {"uri": "https://example.com/", "name": "Elsewhere"}
"#;

const WRITE: &str = "
id: write
name: write
type: tool
version: 1.0.0
owner: test@example.com
summary: Says that there are other pages.
mutation: read_only
primitiveSchema: {input_schema: {type: object}}
security: {riskClass: low}
runtime: {mode: plugin, language: python, entrypoint: main.py}
";

const WRITE_CODE: &str = r#"
from asp_plugin import plugin

@plugin.tool
async def write(args, ctx):
    await ctx.resource_changed("page://{owner}/{name}")
    return {}
"#;

fn write(primitives: &Path) -> Result<()> {
    for (file, text) in [
        ("server.yaml", SERVER),
        ("page.yaml", PAGE),
        ("plugins/page/main.py", PAGE_CODE),
        ("write.yaml", WRITE),
        ("plugins/write/main.py", WRITE_CODE),
    ] {
        let path = primitives.join("pages").join(file);
        fs::create_dir_all(path.parent().context("it has a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

async fn a_plugins_own_resources_are_listed_and_read_by_official_clients(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    write(primitives.path())?;
    let options =
        Options { primitives: primitives.path().to_owned(), plugins: true, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        let script = json!({"lists": true, "reads": "page://alice/first"});
        let answer = client.call("pages", "write", &json!({}), &script).await.context(mode)?;
        let resources = answer.listed["resources"].as_array().with_context(|| format!("{answer:?}"))?;
        let yours =
            json!({"uri": "page://alice/first", "name": "First", "title": "Yours", "mimeType": "text/plain"});
        let second = json!({"uri": "page://all/second", "name": "Second", "description": "Everybody's."});
        ensure!(*resources == [yours, second], "{mode}: {resources:?}");
        let read = &answer.read["contents"][0];
        ensure!(read["text"] == "alice wrote first" && read["uri"] == "page://alice/first", "{mode}: {read}");
    }
    told(&stack).await?;
    stack.stop(&[]).await
}

/// Who listens is told that the list has changed, by the plugin's own word.
async fn told(stack: &Stack) -> Result<()> {
    let filter = json!({"resourcesListChanged": true});
    let mut listen =
        modern(&stack.alice().await?, "subscriptions/listen", json!({"notifications": filter}), &[]);
    listen.target = "/pages/mcp".into();
    let stream = http1::open(stack.edge(), &listen, "acknowledged").await?;
    let answer = rpc(stack, "pages", "tools/call", json!({"name": "write", "arguments": {}})).await?;
    ensure!(answer["result"]["isError"] == Value::Bool(false), "{answer}");
    drop(stream.until("notifications/resources/list_changed").await?);
    Ok(())
}
