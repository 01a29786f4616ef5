//! The real shims in the real sandbox: each language serves a call, and is started as its manifest says.
//!
//! scripts/setup installs the shims; `.tools/env` names them (ASP_PLUGIN_PYTHON and its like).

use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::supervisor::tunnel_event::Type;
use serde_json::{Value, json};

use super::harness::{Said, Stack, output, start_shims};

const PYTHON: &str = r#"
import sys
from asp_plugin import plugin

@plugin.tool
async def greet(args, ctx):
    await ctx.progress(50, "half")
    return {"text": f"Hello, {args['name']}!", "flags": [sys.flags.isolated, sys.flags.dont_write_bytecode]}
"#;

const NODE: &str = r#"
import { tool } from '@asp/plugin';
export default tool(async (args, ctx) => {
  await ctx.progress(50, 'half');
  return { text: `Hello, ${args.name}!`, flags: process.execArgv };
});
"#;

fn plugin(language: &str, entrypoint: &str) -> Value {
    json!({
        "language": language, "entrypoint": entrypoint,
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        "limits": {"memoryBytes": 268_435_456, "pids": 64},
    })
}

async fn greets(stack: &Stack, id: &str) -> Value {
    let said = stack.call(id, "one", &json!({"name": "Ada"})).await;
    let progress = said.iter().any(|said| matches!(said, Said::Message(Out::Progress(at)) if at.percent == 50.0));
    assert!(progress && said.iter().any(|said| said.is_event(Type::TunnelReady)), "{said:?}");
    let answer = output(&said).unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(answer["text"], "Hello, Ada!");
    answer
}

#[tokio::test]
async fn python_serves_a_call_isolated() {
    let stack = start_shims(&[("greet", plugin("python", "greet.py"), PYTHON)]).await;
    assert_eq!(greets(&stack, "greet").await["flags"], json!([1, 1]));
}

#[tokio::test]
async fn node_serves_a_call_with_the_shims_flags() {
    let stack = start_shims(&[("greet", plugin("node", "greet.mjs"), NODE)]).await;
    let flags = greets(&stack, "greet").await["flags"].to_string();
    for flag in ["--max-old-space-size=192", "--disable-proto=delete", "--no-addons", "--frozen-intrinsics"] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
}
