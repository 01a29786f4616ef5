//! Resources that a plugin watches for clients (`primitiveSchema.watched: plugin`), in each language, through Envoy to clients of
//! both eras: told in their org alone, told again when the plugin's process was lost, and nothing held when they have left.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Opened};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use serde_json::{Value, json};

use crate::message::modern;
use crate::revisions::Session;
use crate::runtimes;
use crate::trial::{Shared, trials};
use crate::upstreams::rpc;

const LANGUAGES: [&str; 3] = ["python", "node", "java"];
/// How long what nobody is to be told is waited for.
const QUIET: Duration = Duration::from_millis(500);
const UPDATED: &str = "notifications/resources/updated";

trials! { plugin_watches:
    clients_of_both_eras_hear_what_a_plugin_watches,
}

const SERVER: &str = "
apiVersion: asp/v1
name: bells
description: Bells that their plugins hear.
protocols: [mcp]
sessions: stateful
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: bells/python}, {ref: bells/node}, {ref: bells/java}]
";

/// A bell, which is rung by a read of `ring`; a read of `crash` ends its plugin's process a moment later.
fn spec(language: &str, entrypoint: &str) -> String {
    format!(
        "
id: {language}
name: {language}
type: resource_template
version: 1.0.0
owner: test@example.com
summary: A bell.
primitiveSchema: {{uriTemplate: 'bell-{language}://{{name}}', mimeType: text/plain, watched: plugin}}
security: {{riskClass: low}}
runtime:
  mode: plugin
  language: {language}
  entrypoint: {entrypoint}
  pool: {{max: 2, concurrency: 4}}
"
    )
}

const PYTHON: &str = r#"
import asyncio
import os

from asp_plugin import plugin

bells = {}

def bell(ctx):
    return bells.setdefault(ctx.caller.tenant, asyncio.Condition())

@plugin.resource
async def read(args, ctx):
    if args["name"] == "crash":
        asyncio.get_running_loop().call_later(2, os._exit, 3)
    if args["name"] == "ring":
        async with bell(ctx):
            bell(ctx).notify_all()
    return args["name"]

@plugin.watch
async def watch(ctx):
    while True:
        async with bell(ctx):
            await bell(ctx).wait()
        yield ctx.uri
"#;

const NODE: &str = r#"
import { EventEmitter, on } from 'node:events';
import { resource } from '@asp/plugin';

const bells = new EventEmitter();

export default resource({
  async read(uri, { name }, ctx) {
    if (name === 'crash') setTimeout(() => process.exit(3), 2000);
    if (name === 'ring') bells.emit(ctx.caller.tenant);
    return name;
  },
  async *subscribe(uri, ctx) {
    for await (const _ of on(bells, ctx.caller.tenant, { signal: ctx.signal })) yield;
  },
});
"#;

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Content;
import asp.plugin.Context;
import asp.plugin.Resource;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public final class Main implements Resource {
    private final Map<String, Integer> rings = new HashMap<>();

    @Override
    public List<Content> read(String uri, Arguments variables, Context context) {
        String name = variables.string("name");
        if (name.equals("crash")) {
            new Thread(Main::crash).start();
        }
        if (name.equals("ring")) {
            synchronized (rings) {
                rings.merge(context.caller().tenant(), 1, Integer::sum);
                rings.notifyAll();
            }
        }
        return List.of(Content.text(uri, "text/plain", name));
    }

    @Override
    public void watch(String uri, Runnable updated, Context context) throws InterruptedException {
        String tenant = context.caller().tenant();
        int heard = rung(tenant);
        while (true) {
            synchronized (rings) {
                while (rung(tenant) == heard) {
                    rings.wait();
                }
                heard = rung(tenant);
            }
            updated.run();
        }
    }

    private int rung(String tenant) {
        synchronized (rings) {
            return rings.getOrDefault(tenant, 0);
        }
    }

    private static void crash() {
        try {
            Thread.sleep(2000);
        } catch (InterruptedException gone) {
            return;
        }
        System.exit(3);
    }
}
"#;

fn write(primitives: &Path) -> Result<()> {
    let plugins = [
        ("python", "main.py", "main.py", PYTHON),
        ("node", "main.mjs", "main.mjs", NODE),
        ("java", "Main", "Main.java", JAVA),
    ];
    let mut files = vec![("server.yaml".to_owned(), SERVER.to_owned())];
    for (language, entrypoint, file, code) in plugins {
        files.push((format!("{language}.yaml"), spec(language, entrypoint)));
        files.push((format!("plugins/{language}/{file}"), code.to_owned()));
    }
    for (file, text) in files {
        let path = primitives.join("bells").join(file);
        fs::create_dir_all(path.parent().context("it has a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}

async fn clients_of_both_eras_hear_what_a_plugin_watches(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    write(primitives.path())?;
    let options =
        Options { primitives: primitives.path().to_owned(), plugins: true, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    for language in LANGUAGES {
        of(&stack, language).await.with_details(|| format!("{language}: {}", stack.asp.tail()))?;
    }
    stack.stop(&[]).await
}

async fn of(stack: &Stack, language: &str) -> Result<()> {
    let uri = format!("bell-{language}://tower");
    let alice = stack.alice().await?;
    let foreign = stack.token(&["--org", "globex", "--user", "bob"]).await?;
    let session = Session::open(stack.edge(), "/bells/mcp", &alice, "2025-11-25").await?;
    session.result("resources/subscribe", json!({"uri": uri})).await?;
    let legacy = session.listen().await?;
    let ours = listen(stack, &alice, &uri).await?;
    let theirs = listen(stack, &foreign, &uri).await?;
    figure(stack, language, "active", |active| active == 2).await.context("a stream for each org")?;
    drop(rung(stack, language, ours).await.context("the modern client")?);
    let legacy = rung(stack, language, legacy).await.context("the legacy client")?;

    let ours = listen(stack, &alice, &uri).await?;
    read(stack, language, "crash").await?;
    let ours = ours.until(UPDATED).await.context("told after the loss")?;
    figure(stack, language, "crashes", |crashes| crashes >= 1).await?;
    figure(stack, language, "active", |active| active == 2).await.context("the streams are back")?;
    drop(rung(stack, language, ours).await.context("after the loss")?);

    drop(legacy);
    session.result("resources/unsubscribe", json!({"uri": uri})).await?;
    figure(stack, language, "active", |active| active == 1)
        .await
        .context("nobody of the org is subscribed")?;
    let (told, _) = theirs.within(QUIET).await?;
    ensure!(told.matches(UPDATED).count() <= 1, "nobody rang there, and one loss is told once: {told}");
    figure(stack, language, "active", |active| active == 0).await.context("nobody is subscribed")
}

async fn listen(stack: &Stack, token: &str, uri: &str) -> Result<Opened> {
    let filter = json!({"notifications": {"resourceSubscriptions": [uri]}});
    let mut listen = modern(token, "subscriptions/listen", filter, &[]);
    listen.target = "/bells/mcp".into();
    http1::open(stack.edge(), &listen, "acknowledged").await
}

/// Rings until the client is told: its plugin may begin to watch after the first time. No ring is given up on the way,
/// since a worker whose call was stopped ends what it watches.
async fn rung(stack: &Stack, language: &str, stream: Opened) -> Result<Opened> {
    let is_told = AtomicBool::new(false);
    let told = async {
        let stream = stream.until(UPDATED).await;
        is_told.store(true, Ordering::Relaxed);
        stream
    };
    let rings = wait::until("an update is told", wait::START, || async {
        read(stack, language, "ring").await.ok().filter(|()| is_told.load(Ordering::Relaxed))
    });
    let (told, rung) = tokio::join!(told, rings);
    rung.and(told)
}

async fn read(stack: &Stack, language: &str, name: &str) -> Result<()> {
    let uri = format!("bell-{language}://{name}");
    let answer = rpc(stack, "bells", "resources/read", json!({"uri": uri})).await?;
    ensure!(answer["result"]["contents"][0]["text"] == name, "{answer}");
    Ok(())
}

/// Waits until a figure of the plugin's workers is as `wanted`.
async fn figure(stack: &Stack, language: &str, name: &str, wanted: fn(u64) -> bool) -> Result<()> {
    let is_it = |runtime: &Value| {
        let plugins = runtime["report"]["plugins"].as_object();
        let plugin = plugins.into_iter().flatten().find(|(id, _)| id.starts_with(&format!("{language}@")));
        plugin.is_some_and(|(_, plugin)| plugin[name].as_u64().is_some_and(wanted))
    };
    wait::until(name, wait::START, || async { runtimes::listed(stack).await.ok().filter(is_it).map(drop) })
        .await
}
