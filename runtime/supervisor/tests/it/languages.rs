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

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Tool;
import java.lang.management.ManagementFactory;
import java.util.Map;

public final class Greet implements Tool {
    private record Input(String name) {}

    @Override
    public Object run(Arguments arguments, Context context) {
        context.progress(50, "half");
        String name = arguments.as(Input.class).name();
        return Map.of("text", "Hello, " + name + "!",
                "flags", ManagementFactory.getRuntimeMXBean().getInputArguments());
    }
}
"#;

#[tokio::test]
async fn java_serves_a_call_within_its_memory() {
    let stack = start_shims(&[("greet", plugin("java", "Greet"), JAVA)]).await;
    let package = stack.plugins().join("greet/1.0.0/package");
    let source = package.join("Greet.java");
    std::fs::rename(package.join("Greet"), &source).unwrap();
    let shim = std::path::PathBuf::from(std::env::var_os("ASP_PLUGIN_JAVA_SHIM").unwrap());
    let built = std::process::Command::new("javac")
        .arg("-cp")
        .arg(shim.join("asp-plugin.jar"))
        .arg("-d")
        .args([&package, &source])
        .status();
    assert!(built.expect("javac is on the PATH").success());
    let flags = greets(&stack, "greet").await["flags"].to_string();
    for flag in ["-Xmx128m", "-XX:+UseSerialGC", "-XX:MaxMetaspaceSize=64m", "-XX:SharedArchiveFile="] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
}

#[tokio::test]
async fn node_serves_a_call_with_the_shims_flags() {
    let stack = start_shims(&[("greet", plugin("node", "greet.mjs"), NODE)]).await;
    let flags = greets(&stack, "greet").await["flags"].to_string();
    for flag in ["--max-old-space-size=192", "--disable-proto=delete", "--no-addons", "--frozen-intrinsics"] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
}
