//! What a client is told of the same event is the same whatever the plugin's language.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use serde_json::{Value, json};

use crate::message::modern;
use crate::plugin_wire::asp;
use crate::trial::{Shared, trials};

const PYTHON: &str = r#"
import asyncio
import os
from asp_plugin import PluginError, Result, plugin

@plugin.tool
async def odd(args, ctx):
    what = args["what"]
    if what == "raises":
        raise ValueError("a secret")
    if what == "own":
        raise PluginError("QUOTA", "used up", {"left": 0})
    if what == "tool error":
        return Result(content=[{"type": "text", "text": "no such city"}], is_error=True)
    if what == "output":
        return {"ok": "yes"}
    if what == "ends":
        os._exit(3)
    if what == "sleeps":
        await asyncio.sleep(60)
    if what == "asks nobody":
        await ctx.elicit("nobody")
    return {"ok": True}
"#;
const NODE: &str = r#"
import { setTimeout } from 'node:timers/promises';
import { CallError, ToolError, tool } from '@asp/plugin';

export default tool(async ({ what }, ctx) => {
  if (what === 'raises') throw new TypeError('a secret');
  if (what === 'own') throw new CallError('QUOTA', 'used up', { details: { left: 0 } });
  if (what === 'tool error') throw new ToolError('no such city');
  if (what === 'output') return { ok: 'yes' };
  if (what === 'ends') process.exit(3);
  if (what === 'sleeps') await setTimeout(60_000, undefined, { signal: ctx.signal });
  if (what === 'asks nobody') await ctx.elicit('nobody');
  return { ok: true };
});
"#;
const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.PluginException;
import asp.plugin.Tool;
import asp.plugin.ToolException;
import java.util.Map;

public final class Main implements Tool {
    private record Input(String what) {}

    @Override
    public Object run(Arguments arguments, Context context) throws Exception {
        switch (arguments.as(Input.class).what()) {
            case "raises" -> throw new IllegalStateException("a secret");
            case "own" -> throw new PluginException("QUOTA", "used up", Map.of("left", 0));
            case "tool error" -> throw new ToolException("no such city");
            case "output" -> {
                return Map.of("ok", "yes");
            }
            case "ends" -> Runtime.getRuntime().halt(3);
            case "sleeps" -> Thread.sleep(60_000);
            case "asks nobody" -> context.elicit("nobody");
            default -> {}
        }
        return Map.of("ok", true);
    }
}
"#;
/// What must not run twice, so that a worker's end is seen.
const SPEC: &str = "
name: Odd
type: tool
version: 1.0.0
owner: a@example.com
summary: Ends in every way.
mutation: non_idempotent
capabilities: {maxRuntimeSeconds: 3}
primitiveSchema:
  input_schema: {type: object, properties: {what: {type: string}}, required: [what]}
  output_schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}
";
const LANGUAGES: [(&str, &str, &str); 3] =
    [("python", "main.py", PYTHON), ("node", "main.mjs", NODE), ("java", "Main.java", JAVA)];

/// What is asked for, the member of `_meta` that tells what it was, and what that says.
const EVENTS: [(&str, &str, Option<&str>); 9] = [
    ("fine", REASON, None),
    ("tool error", REASON, None),
    ("", REASON, Some("invalid_params")),
    ("raises", CODE, Some("INTERNAL")),
    ("own", CODE, Some("QUOTA")),
    ("asks nobody", CODE, Some("UNDECLARED")),
    ("output", REASON, Some("internal")),
    ("sleeps", REASON, Some("outcome_unknown")),
    ("ends", REASON, Some("outcome_unknown")),
];
const REASON: &str = "/result/_meta/asp~1reason";
const CODE: &str = "/result/_meta/asp~1code";
/// Each language says it in its own words.
const IN_OWN_WORDS: &str = "asks nobody";

trials! { plugins:
    a_client_is_told_the_same_of_the_same_event_in_every_language,
}

async fn a_client_is_told_the_same_of_the_same_event_in_every_language(_: &Shared) -> Result<()> {
    let primitives = tempfile::tempdir()?;
    for (language, file, code) in LANGUAGES {
        plugin(primitives.path(), language, file, code).await?;
    }
    let options =
        Options { primitives: primitives.path().to_owned(), plugins: true, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    let token = stack.alice().await?;
    let mut wrong = Vec::new();
    for (what, member, expected) in EVENTS {
        let mut told = Vec::new();
        for (language, ..) in LANGUAGES {
            told.push(call(&stack, &token, language, what).await.with_context(|| language)?);
        }
        let [first, others @ ..] = told.as_slice() else { unreachable!() };
        if others.iter().any(|other| other != first) {
            wrong.push(format!("{what}: {told:#?}"));
        }
        if first.pointer(member).and_then(Value::as_str) != expected {
            wrong.push(format!("{what}: {first}"));
        }
        ensure!(!first.to_string().contains("a secret"), "{what}: {first}");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What is no output of the tool's is the operator's to know.
    stack.stop(&["does not fit the output schema"]).await
}

/// `odd_<language>` in a server of its own.
async fn plugin(primitives: &Path, language: &str, file: &str, code: &str) -> Result<()> {
    let (id, server) = (format!("odd_{language}"), format!("odd-{language}"));
    asp(&["plugin", "new", &id, "--language", language], primitives).await?;
    let folder = primitives.join(&server);
    let entrypoint = if language == "java" { "Main" } else { file };
    let runtime = format!("runtime: {{mode: plugin, language: {language}, entrypoint: {entrypoint}}}\n");
    fs::write(folder.join(format!("{id}.yaml")), format!("id: {id}{SPEC}{runtime}"))?;
    fs::remove_file(folder.join(format!("{id}.schema.json")))?;
    fs::write(folder.join(format!("plugins/{id}/{file}")), code)?;
    Ok(())
}

/// The answer without what is each call's own: its id and trace.
async fn call(stack: &Stack, token: &str, language: &str, what: &str) -> Result<Value> {
    let name = format!("odd_{language}");
    let arguments = if what.is_empty() { json!({"what": 7}) } else { json!({"what": what}) };
    let params = json!({"name": name, "arguments": arguments});
    let mut request = modern(token, "tools/call", params, &[("mcp-name", &name)]);
    request.target = format!("/odd-{language}/mcp");
    let answer = http1::send(stack.edge(), &request).await?;
    let text = answer.text();
    let event = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
    let mut told: Value = serde_json::from_str(event.unwrap_or(&text))?;
    for own in ["/result/_meta", "/error/data"] {
        if let Some(members) = told.pointer_mut(own).and_then(Value::as_object_mut) {
            members.retain(|name, _| !name.contains("trace") && !name.contains("serverInfo"));
        }
    }
    if what == IN_OWN_WORDS
        && let Some(text) = told.pointer_mut("/result/content/0/text")
    {
        *text = Value::Null;
    }
    Ok(told)
}
