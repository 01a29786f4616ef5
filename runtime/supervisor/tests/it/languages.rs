//! The real shims in the real sandbox: each language serves a call, and is started as its manifest says.
//!
//! scripts/setup installs the shims; `.tools/env` names them (ASP_PLUGIN_PYTHON and its like).

use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::supervisor::tunnel_event::Type;
use serde_json::{Value, json};

use super::harness::{Said, Stack, crash, eventually, merge, output, start_shims};

const PYTHON: &str = r#"
import sys
from asp_plugin import plugin

@plugin.tool
async def greet(args, ctx):
    await ctx.progress(50, "half")
    if args["name"] == "too much":
        bytes(1 << 60)
    hog = []
    while args["name"] == "everything":
        hog.append(bytearray(1 << 20))
    return {"text": f"Hello, {args['name']}!", "flags": [sys.flags.isolated, sys.flags.dont_write_bytecode]}
"#;

const NODE: &str = r#"
import { tool } from '@asp/plugin';
export default tool(async (args, ctx) => {
  await ctx.progress(50, 'half');
  const hog = [];
  while (args.name === 'everything') hog.push(new Array(1 << 16).fill(hog.length));
  if (args.name === 'abort') process.abort();
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
    let progress =
        said.iter().any(|said| matches!(said, Said::Message(Out::Progress(at)) if at.percent == 50.0));
    assert!(progress && said.iter().any(|said| said.is_event(Type::TunnelReady)), "{said:?}");
    let answer = output(&said).unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(answer["text"], "Hello, Ada!");
    answer
}

/// What the worker's interpreter told with the last sample.
async fn vitals(stack: &Stack, id: &str) -> Value {
    let key = format!("{id}@1.0.0");
    let worker = async || stack.health().await["plugins"][&key]["worker_list"][0].clone();
    eventually("the interpreter tells", || async { worker().await.get("gc_count").is_some() }).await;
    worker().await
}

#[tokio::test]
async fn python_serves_a_call_isolated() {
    let stack = start_shims(&[("greet", plugin("python", "greet.py"), PYTHON)]).await;
    assert_eq!(greets(&stack, "greet").await["flags"], json!([1, 1]));
    let told = vitals(&stack, "greet").await;
    assert!(told["heap_blocks"].as_f64() > Some(1000.0) && told.get("heap_used_bytes").is_none(), "{told}");
    let said = stack.call("greet", "two", &json!({"name": "too much"})).await;
    assert!(said.iter().any(|said| said.failed() == Some("INTERNAL")), "MemoryError is the call's: {said:?}");
    assert_eq!(crash(&said), None, "and ends no worker");
    let said = stack.call("greet", "three", &json!({"name": "everything"})).await;
    assert_eq!(crash(&said), Some(("oom".to_owned(), true)), "the kernel ends it at its bound");
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
        java.util.List<long[]> hog = new java.util.ArrayList<>();
        while ("everything".equals(arguments.as(Input.class).name())) {
            hog.add(new long[1 << 20]);
        }
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
    let told = vitals(&stack, "greet").await;
    assert!(told["heap_used_bytes"].as_f64() <= told["heap_limit_bytes"].as_f64(), "{told}");
    let said = stack.call("greet", "two", &json!({"name": "everything"})).await;
    assert_eq!(crash(&said), Some(("oom".to_owned(), true)), "a full heap ends it, not the machine");
    for flag in ["-Xmx128m", "-XX:+UseSerialGC", "-XX:MaxMetaspaceSize=64m", "-XX:SharedArchiveFile="] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
}

/// A stdio MCP server without any library.
const STDIO: &str = r#"
import json, queue, sys, threading, time

lock, pings = threading.Lock(), queue.Queue()

def write(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def call(request):
    arguments, meta = request["params"]["arguments"], request["params"]["_meta"]
    if arguments.get("mode") == "garbage":
        print("Server started!", flush=True)
    if arguments.get("mode") == "pings":
        # More than a silent worker is allowed to miss.
        for _ in range(5):
            pings.get()
    if arguments.get("mode") == "slow":
        time.sleep(60)
    write({"method": "notifications/progress",
           "params": {"progressToken": meta["progressToken"], "progress": 1, "total": 4, "message": "quarter"}})
    text = f"Hello, {arguments.get('name')}!"
    write({"id": request["id"], "result": {"content": [{"type": "text", "text": text}],
           "structuredContent": {"text": text, "tool": request["params"]["name"]}}})

print("a log line", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        write({"id": 99, "method": "roots/list"})
        write({"id": request["id"], "result": {"protocolVersion": request["params"]["protocolVersion"],
               "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "ping":
        write({"id": request["id"], "result": {}})
        pings.put(1)
    elif method == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
"#;

#[tokio::test]
async fn a_stdio_mcp_server_is_a_worker_like_any_other() {
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "server.py"], "entrypoint": "server.py",
    });
    let stack = start_shims(&[("stdio", manifest, STDIO)]).await;
    let said = stack.call("stdio", "one", &json!({"name": "Ada"})).await;
    assert_eq!(output(&said).unwrap()["text"], "Hello, Ada!");
    assert!(said.iter().any(|said| matches!(said, Said::Message(Out::Progress(at)) if at.percent == 25.0)));
    stack.log_line("a log line").await;

    let mut slow = stack.tunnel("stdio").await;
    slow.invoke("two", &json!({"mode": "slow"})).await;
    assert!(output(&stack.call("stdio", "pinged", &json!({"mode": "pings"})).await).is_some());
    slow.cancel("two").await;
    assert!(slow.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")));
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);

    let said = stack.call("stdio", "three", &json!({"mode": "garbage"})).await;
    assert_eq!(crash(&said), Some(("protocol".to_owned(), true)));
}

#[tokio::test]
async fn node_serves_a_call_with_the_shims_flags() {
    let stack = start_shims(&[("greet", plugin("node", "greet.mjs"), NODE)]).await;
    let flags = greets(&stack, "greet").await["flags"].to_string();
    for flag in ["--max-old-space-size=192", "--disable-proto=delete", "--no-addons", "--frozen-intrinsics"] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
    let told = vitals(&stack, "greet").await;
    assert!(told["heap_used_bytes"].as_f64() < told["heap_limit_bytes"].as_f64(), "{told}");
    let said = stack.call("greet", "two", &json!({"name": "abort"})).await;
    assert_eq!(crash(&said), Some(("signal".to_owned(), true)), "an abort alone says nothing of memory");
    let said = stack.call("greet", "three", &json!({"name": "everything"})).await;
    assert_eq!(crash(&said), Some(("oom".to_owned(), true)), "one with a full heap does");
}

/// Node's own program is as large as its heap then.
#[tokio::test]
async fn an_abort_of_a_small_node_plugin_says_nothing_of_memory_and_a_full_heap_does() {
    let mut small = plugin("node", "greet.mjs");
    merge(&mut small, &json!({"limits": {"memoryBytes": 80 << 20}}));
    let stack = start_shims(&[("greet", small, NODE)]).await;
    for (name, cause) in [("abort", "signal"), ("everything", "oom")] {
        let said = stack.call("greet", name, &json!({"name": name})).await;
        assert_eq!(crash(&said), Some((cause.to_owned(), true)), "{name}");
    }
}
