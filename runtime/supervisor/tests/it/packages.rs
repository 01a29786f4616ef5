//! Tests of packages with several primitives: in each language all of them run in one process, and no others do.

use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::{InvokeRequest, Json};
use asp_proto::supervisor::{AllocateWorkerRequest, PluginRef};
use serde_json::{Value, json};

use super::harness::{Stack, compile_java, output, reason, reference, start_shims, wanted};
use super::languages::plugin;

const PYTHON: &str = r#"
import os
from asp_plugin import plugin

@plugin.tool
async def forecast(args, ctx):
    return {"tool": "forecast", "pid": os.getpid()}

@plugin.tool
def alerts(args, ctx):
    return {"tool": "alerts", "pid": os.getpid()}
"#;

const NODE: &str = r#"
import { tool } from '@asp/plugin';
export const forecast = tool(() => ({ tool: 'forecast', pid: process.pid }));
export default tool(() => ({ tool: 'alerts', pid: process.pid }));
"#;

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Tool;
import java.util.Map;

public final class Weather implements Tool {
    @Override
    public Object run(Arguments arguments, Context context) {
        return Map.of("tool", "alerts", "pid", ProcessHandle.current().pid());
    }

    public static final class Forecast implements Tool {
        @Override
        public Object run(Arguments arguments, Context context) {
            return Map.of("tool", "forecast", "pid", ProcessHandle.current().pid());
        }
    }
}
"#;

fn request(primitive: &str) -> AllocateWorkerRequest {
    let plugin = PluginRef { primitive: primitive.into(), ..reference("weather") };
    AllocateWorkerRequest { plugin: Some(plugin), ..wanted("weather", "tenant") }
}

async fn call(stack: &Stack, primitive: &str) -> Value {
    let mut tunnel = stack.tunnel_for(request(primitive)).await;
    let invoke = InvokeRequest {
        request_id: primitive.into(),
        primitive: primitive.into(),
        arguments: Some(Json { value: b"{}".to_vec() }),
        ..InvokeRequest::default()
    };
    tunnel.say(In::Invoke(invoke)).await;
    let said = tunnel.rest().await;
    output(&said).unwrap_or_else(|| panic!("{said:?}"))
}

/// Gives the installed plugin the manifest of a package with two tools.
fn make_package(stack: &Stack, forecast: &str, alerts: &str) {
    let file = stack.plugins().join("weather/1.0.0/plugin.json");
    let mut manifest: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let own = ["kind", "entrypoint", "elicitations", "inputSchema"];
    manifest.as_object_mut().unwrap().retain(|key, _| !own.contains(&key.as_str()));
    manifest["primitives"] = json!({
        "forecast": {"kind": "tool", "entrypoint": forecast},
        "alerts": {"kind": "tool", "entrypoint": alerts},
    });
    std::fs::write(file, manifest.to_string()).unwrap();
}

async fn serves_both_from_one_process(stack: &Stack) {
    let first = call(stack, "forecast").await;
    let second = call(stack, "alerts").await;
    assert_eq!((&first["tool"], &second["tool"]), (&json!("forecast"), &json!("alerts")));
    assert_eq!(first["pid"], second["pid"]);
    assert_eq!(stack.homes(), 1, "one pool has one worker");
    let refused = stack.allocate(request("radar")).await;
    assert!(reason(&refused).starts_with("not_installed"), "{refused:?}");
}

#[tokio::test]
async fn two_tools_in_python_share_a_process() {
    let stack = start_shims(&[("weather", plugin("python", "weather.py"), PYTHON)]).await;
    make_package(&stack, "weather.py", "weather.py");
    serves_both_from_one_process(&stack).await;
}

#[tokio::test]
async fn two_tools_in_node_share_a_process() {
    let stack = start_shims(&[("weather", plugin("node", "weather.mjs"), NODE)]).await;
    make_package(&stack, "weather.mjs:forecast", "weather.mjs");
    serves_both_from_one_process(&stack).await;
}

#[tokio::test]
async fn two_tools_in_java_share_a_process() {
    let stack = start_shims(&[("weather", plugin("java", "Weather"), JAVA)]).await;
    compile_java(&stack, "weather", "Weather");
    make_package(&stack, "Weather:Forecast", "Weather");
    serves_both_from_one_process(&stack).await;
}
