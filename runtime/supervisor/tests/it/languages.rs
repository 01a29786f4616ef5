//! Tests of the real shims in the real sandbox: each language serves a call, and is started as its manifest requires.
//!
//! scripts/setup installs the shims; `.tools/env` names them (ASP_PLUGIN_PYTHON and its like).

use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{DeliverMcpAnswer, Json};
use asp_proto::supervisor::tunnel_event::Type;
use serde_json::{Value, json};

use super::harness::{Said, Stack, Tunnel, compile_java, crash, eventually, merge, output, start_shims};
use super::lines::{self, notified};

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

pub(super) fn plugin(language: &str, entrypoint: &str) -> Value {
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

/// Returns what the worker's interpreter reported with the last sample.
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
    compile_java(&stack, "greet", "Greet");
    let flags = greets(&stack, "greet").await["flags"].to_string();
    let told = vitals(&stack, "greet").await;
    assert!(told["heap_used_bytes"].as_f64() <= told["heap_limit_bytes"].as_f64(), "{told}");
    let said = stack.call("greet", "two", &json!({"name": "everything"})).await;
    assert_eq!(crash(&said), Some(("oom".to_owned(), true)), "a full heap ends it, not the machine");
    for flag in ["-Xmx128m", "-XX:+UseSerialGC", "-XX:MaxMetaspaceSize=64m", "-XX:SharedArchiveFile="] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
}

/// A stdio MCP server that uses no library.
const STDIO: &str = r#"
import json, queue, sys, threading, time

lock, pings, answers = threading.Lock(), queue.Queue(), queue.Queue()
client, levels, refused = {}, [], []

def write(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def call(request):
    arguments, meta = request["params"]["arguments"], request["params"]["_meta"]
    if arguments.get("mode") == "garbage":
        print("Server started!", flush=True)
        print("[1, 2]", flush=True)
        print('{"id": %d, "level": 30, "result": {"logged": true}}' % request["id"], flush=True)
        print('{"id": %d, "level": 50, "error": {"code": 1}, "msg": oops}' % request["id"], flush=True)
    if arguments.get("mode") == "cut":
        return print('{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "structuredContent": {"text": "cut \\ud83d"}}}' % request["id"], flush=True)
    if arguments.get("mode") == "malformed":
        return print('{"jsonrpc": "2.0", "id": %d, "result": oops}' % request["id"], flush=True)
    if arguments.get("mode") == "many":
        return print('{"jsonrpc": "2.0", "id": %d, "result": {"structuredContent": {"a": [%s0]}}}' % (
            request["id"], "0," * arguments["values"]), flush=True)
    if arguments.get("mode") == "large":
        return write({"id": request["id"], "result": {"content": [], "structuredContent": {"text": "x" * arguments["bytes"]}}})
    if arguments.get("mode") == "pings":
        # More than a silent worker is allowed to miss.
        for _ in range(5):
            pings.get()
    if arguments.get("mode") == "slow":
        write({"method": "notifications/progress",
               "params": {"progressToken": meta["progressToken"], "progress": 0, "message": "begun"}})
        time.sleep(60)
    asked = ask(arguments["asks"]) if "asks" in arguments else None
    write({"method": "notifications/progress",
           "params": {"progressToken": meta["progressToken"], "progress": 1, "total": 4, "message": "quarter"}})
    write({"method": "notifications/message", "params": {"level": "alert", "data": "fire"}})
    write({"method": "notifications/resources/updated", "params": {"uri": "doc:1"}})
    write({"method": "notifications/tools/list_changed"})
    text = f"Hello, {arguments.get('name')}!"
    write({"id": request["id"], "result": {"content": [{"type": "text", "text": text}], "_meta": {"own": 1},
           "structuredContent": {"text": text, "tool": request["params"]["name"], "asked": asked,
                                 "client": client, "levels": levels, "refused": refused}}})

def ask(method):
    write({"id": "q", "method": method, "params": {"own": True}})
    return answers.get()

def read(request):
    asked = ask("roots/list")
    write({"id": request["id"], "result": {"contents": [
        {"uri": request["params"]["uri"], "text": json.dumps(asked["result"]), "_meta": {"own": 1}}]}})

print("a log line", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method is None:
        refused.append(request["error"]["code"]) if request["id"] == 99 else answers.put(request)
    elif method == "initialize":
        client.update(request["params"]["capabilities"])
        write({"id": 99, "method": "roots/list"})
        write({"id": request["id"], "result": {"protocolVersion": request["params"]["protocolVersion"],
               "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "ping":
        write({"id": request["id"], "result": {}})
        pings.put(1)
    elif method == "logging/setLevel":
        levels.append(request["params"]["level"])
        write({"id": request["id"], "result": {}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
    elif method == "resources/read":
        threading.Thread(target=read, args=(request,), daemon=True).start()
    elif method == "prompts/get" and request["params"]["name"] == "hello":
        said = "Hello, " + request["params"]["arguments"]["name"]
        write({"id": request["id"], "result": {"messages": [
            {"role": "user", "content": {"type": "text", "text": said}}]}})
    elif method == "prompts/get":
        write({"id": request["id"], "error": {"code": -32602, "message": "no such prompt"}})
"#;

async fn stdio_server() -> Stack {
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "server.py"], "entrypoint": "server.py",
    });
    start_shims(&[("stdio", manifest, STDIO)]).await
}

#[tokio::test]
async fn a_stdio_mcp_server_is_a_worker_like_any_other() {
    let stack = stdio_server().await;
    let said = stack.tool("stdio", "one", &json!({"name": "Ada"})).await;
    assert_eq!(output(&said).unwrap()["text"], "Hello, Ada!");
    let progress = notified(&said, "notifications/progress");
    assert_eq!((&progress[0]["progress"], &progress[0]["total"]), (&json!(1), &json!(4)), "{progress:?}");
    stack.log_line("a log line").await;

    let mut slow = stack.tunnel("stdio").await;
    slow.tool("two", "t", r#"{"mode":"slow"}"#).await;
    assert!(output(&stack.tool("stdio", "pinged", &json!({"mode": "pings"})).await).is_some());
    slow.cancel("two").await;
    assert!(slow.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")));
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);

    let said = stack.tool("stdio", "three", &json!({"mode": "garbage", "name": "Eve"})).await;
    assert_eq!(output(&said).unwrap()["text"], "Hello, Eve!");
    for printed in ["Server started!", "logged", "oops"] {
        stack.log_line(printed).await;
    }
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_fails_its_call_alone() {
    let stack = stdio_server().await;
    let mut slow = stack.tunnel("stdio").await;
    slow.tool("slow", "t", r#"{"mode":"slow"}"#).await;
    for (request, mode, bytes, code) in
        [("one", "malformed", 0, "INTERNAL"), ("two", "large", 17 << 20, "TOO_LARGE")]
    {
        let said = stack.tool("stdio", request, &json!({"mode": mode, "bytes": bytes})).await;
        assert!(said.iter().any(|said| said.failed() == Some(code)), "{mode}");
    }
    let large = stack.tool("stdio", "three", &json!({"mode": "large", "bytes": 15 << 20})).await;
    assert_eq!(output(&large).unwrap()["text"].as_str().unwrap().len(), 15 << 20);
    let cut = stack.tool("stdio", "four", &json!({"mode": "cut"})).await;
    let written = cut.iter().find_map(Said::output_text).unwrap();
    assert!(written.contains(r#""cut \ud83d""#), "half of a pair passes as it was written: {written}");
    slow.cancel("slow").await;
    assert!(slow.rest().await.iter().any(|said| said.failed() == Some("CANCELLED")), "it still ran");
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);
}

/// A decoded value takes at least 32 bytes, however short its text is.
#[tokio::test]
async fn the_runtimes_memory_follows_the_length_of_an_answer_and_not_its_values() {
    const VALUES: usize = 8_000_000;
    let stack = stdio_server().await;
    assert!(output(&stack.tool("stdio", "warm", &json!({"name": "Ada"})).await).is_some());
    let memory = |figure: &str| -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", stack.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        line.trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
    };
    let before = memory("VmRSS:");
    let said = stack.tool("stdio", "many", &json!({"mode": "many", "values": VALUES})).await;
    let peak = memory("VmHWM:");
    let done = said.iter().find_map(lines::structured);
    let line = done.unwrap_or_else(|| panic!("{said:.1000?}")).text().len();
    assert_eq!(line, r#"{"a": [0]}"#.len() + 2 * VALUES);
    assert!(peak - before < 8 * line, "{} MiB for {} MiB", (peak - before) >> 20, line >> 20);
}

#[tokio::test]
async fn what_a_stdio_server_says_and_asks_is_its_only_calls() {
    let stack = stdio_server().await;
    let mut tunnel = stack.tunnel("stdio").await;
    tunnel.tool("one", "t", r#"{"asks":"roots/list"}"#).await;
    answer_mcp(&mut tunnel, ("one", "roots/list"), Ok(json!({"roots": []}))).await;
    let said = tunnel.rest().await;
    let answer = output(&said).unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(answer["asked"], json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}));
    assert_eq!(answer["client"], json!({"elicitation": {}, "sampling": {"tools": {}}, "roots": {}}));
    assert_eq!((&answer["levels"], &answer["refused"]), (&json!(["debug"]), &json!([-32000])), "{answer}");
    let progress = notified(&said, "notifications/progress");
    assert_eq!(progress.len(), 1, "{said:?}");
    assert_eq!((&progress[0]["progress"], &progress[0]["total"]), (&json!(1), &json!(4)));
    let logs = notified(&said, "notifications/message");
    assert_eq!(logs, [json!({"level": "alert", "data": "fire"})]);
    assert_eq!(notified(&said, "notifications/resources/updated"), [json!({"uri": "doc:1"})]);
    let meta = said.iter().find_map(|said| lines::result(said)?.member("_meta"));
    assert_eq!(meta.unwrap(), json!({"own": 1}));
    stack.log_line("tools/list_changed").await;

    let mut tunnel = stack.tunnel("stdio").await;
    tunnel.tool("two", "t", r#"{"asks":"tools/call"}"#).await;
    answer_mcp(&mut tunnel, ("two", "tools/call"), Err(-32601)).await;
    let said = tunnel.rest().await;
    assert_eq!(output(&said).unwrap()["asked"]["error"]["code"], -32601, "the gateway refuses it");
    // With a second call in the server, nothing identifies the call of a request.
    let mut slow = stack.tunnel("stdio").await;
    slow.tool("three", "t", r#"{"mode":"slow"}"#).await;
    slow.until_message().await;
    let said = stack.tool("stdio", "four", &json!({"asks": "roots/list"})).await;
    assert_eq!(output(&said).unwrap()["asked"]["error"]["code"], -32000);
    slow.cancel("three").await;
    slow.rest().await;
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn a_stdio_server_reads_resources_and_prompts_and_asks_within_them() {
    let stack = stdio_server().await;
    let mut tunnel = stack.tunnel("stdio").await;
    tunnel.line("one", "resources/read", r#"{"uri":"doc:7"}"#).await;
    answer_mcp(&mut tunnel, ("one", "roots/list"), Ok(json!({"roots": [1]}))).await;
    let said = tunnel.rest().await;
    let read = said.iter().find_map(lines::result).unwrap_or_else(|| panic!("{said:?}"));
    let content = json!({"uri": "doc:7", "text": r#"{"roots": [1]}"#, "_meta": {"own": 1}});
    assert_eq!(read.view()["contents"], json!([content]));

    let hello = r#"{"name":"hello","arguments":{"name":"Ada"}}"#;
    let said = stack.line("stdio", "two", "prompts/get", hello).await;
    let given = said.iter().find_map(lines::result).unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(given.view()["messages"][0]["content"]["text"], "Hello, Ada");

    let said = stack.line("stdio", "three", "prompts/get", r#"{"name":"unknown"}"#).await;
    let error = said.iter().find_map(|said| match said {
        Said::Message(Out::LineAnswer(answer)) => answer.error.clone(),
        _ => None,
    });
    let error: Value = serde_json::from_slice(&error.unwrap_or_else(|| panic!("{said:?}")).value).unwrap();
    assert_eq!(error["code"], -32602);
    assert_eq!(stack.figure("stdio@1.0.0", "crashes").await, 0);
}

/// Answers the next request of a stdio server, which has this method, by a result or by an error with this code.
async fn answer_mcp(tunnel: &mut Tunnel, (request_id, method): (&str, &str), answer: Result<Value, i64>) {
    let asked = tunnel.until(|said| matches!(said, Said::Message(Out::McpRequested(_)))).await;
    let Said::Message(Out::McpRequested(asked)) = asked else { panic!("{asked:?}") };
    assert_eq!((asked.request_id.as_str(), asked.method.as_str()), (request_id, method));
    let empty = DeliverMcpAnswer {
        request_id: request_id.into(),
        correlation_id: asked.correlation_id,
        ..DeliverMcpAnswer::default()
    };
    let answer = match answer {
        Ok(result) => {
            DeliverMcpAnswer { result: Some(Json { value: result.to_string().into_bytes() }), ..empty }
        }
        Err(error_code) => DeliverMcpAnswer { error_code, ..empty },
    };
    tunnel.say(In::McpAnswer(answer)).await;
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
