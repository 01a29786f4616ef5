//! Tests of the lines of a stdio server: requests of any method, notifications about its process, and gateways and
//! runtimes that do not fit together.

use asp_proto::envelope::LINES;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::{InvokeRequest, ListResourcesRequest};
use asp_proto::supervisor::{AllocateWorkerRequest, EnsurePluginRequest};
use serde_json::{Value, json};

use super::harness::{Said, Stack, reason, reference, start_shims, wanted};
use super::lines::{notified, protocol, result};

const SERVER: &str = include_str!("../../../../tests/services/listing.py");
const CHANGED: &str = "notifications/tools/list_changed";

async fn server() -> Stack {
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "server.py"], "entrypoint": "server.py",
        "pool": {"max": 1},
    });
    start_shims(&[("tickets", manifest, SERVER)]).await
}

async fn answer(stack: &Stack, request_id: &str, method: &str) -> Value {
    let said = stack.line("tickets", request_id, method, "{}").await;
    said.iter().find_map(result).unwrap_or_else(|| panic!("{said:?}")).view().clone()
}

/// Returns the descriptions by name.
async fn described(stack: &Stack, request_id: &str) -> Vec<(String, String)> {
    let lists = answer(stack, request_id, "tools/list").await;
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap().to_owned();
    let tools = lists["tools"].as_array().unwrap();
    tools.iter().map(|tool| (text(tool, "name"), text(tool, "description"))).collect()
}

/// Calls a tool; returns how often the call was notified that the list has changed.
async fn call(stack: &Stack, request_id: &str, tool: &str, arguments: &Value) -> usize {
    let mut tunnel = stack.tunnel("tickets").await;
    tunnel.tool(request_id, tool, &arguments.to_string()).await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| result(said).is_some()), "{said:?}");
    notified(&said, CHANGED).len()
}

#[tokio::test]
async fn a_stdio_server_lists_what_it_has_and_tells_calls_when_that_changes() {
    let stack = server().await;
    let names = |tools: Vec<(String, String)>| tools.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(described(&stack, "one").await), ["ticket", "become"]);

    assert_eq!(call(&stack, "two", "ticket", &json!({"id": "1"})).await, 0);
    assert_eq!(call(&stack, "three", "become", &json!({"now": "reworded"})).await, 1);
    assert!(described(&stack, "four").await[0].1.contains("keys"));
    // A notification between calls is reported to the next call.
    assert_eq!(call(&stack, "five", "become", &json!({"now": "gone", "later": true})).await, 0);
    stack.log_line("tools/list_changed").await;
    assert_eq!(call(&stack, "six", "ticket", &json!({"id": "1"})).await, 1);
    assert_eq!(call(&stack, "again", "ticket", &json!({"id": "1"})).await, 0, "once");
    assert_eq!(names(described(&stack, "seven").await), ["become"]);
    assert_eq!(stack.figure("tickets@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn the_first_request_is_answered_by_what_the_process_answered_to_it() {
    let stack = server().await;
    for request_id in ["one", "two"] {
        let greeting = answer(&stack, request_id, "initialize").await;
        assert_eq!(greeting["serverInfo"]["name"], "listing");
        assert_eq!(greeting["capabilities"], json!({"tools": {"listChanged": true}}));
    }
    let said = stack.line("tickets", "three", "resources/list", "{}").await;
    let error = said.iter().find_map(|said| match said {
        Said::Message(asp_proto::plugin::server_message::Payload::LineAnswer(answer)) => answer.error.clone(),
        _ => None,
    });
    let error: Value = serde_json::from_slice(&error.unwrap_or_else(|| panic!("{said:?}")).value).unwrap();
    assert_eq!(error, json!({"code": -32601, "message": "unknown method"}), "as the server wrote it");
}

const PLUGIN: &str = r"
from asp_plugin import plugin

@plugin.tool
def greet(args, ctx):
    return {}
";

#[tokio::test]
async fn a_plugin_has_no_lists_of_an_mcp_server_and_takes_no_lines() {
    let manifest = json!({"language": "python", "entrypoint": "greet.py"});
    let stack = start_shims(&[("greet", manifest, PLUGIN)]).await;
    let mut tunnel = stack.tunnel("greet").await;
    let asked = ListResourcesRequest { request_id: "one".into(), mcp: true, ..Default::default() };
    tunnel.frame(&asked).await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| said.failed() == Some("UNSUPPORTED")), "{said:?}");
    let said = stack.line("greet", "two", "tools/call", "{}").await;
    assert!(said.iter().any(|said| said.failed() == Some("UNSUPPORTED")), "{said:?}");
}

#[tokio::test]
async fn a_gateway_that_knows_no_lines_is_refused_at_once_and_told_why() {
    let stack = server().await;
    let request = AllocateWorkerRequest { lines: None, ..wanted("tickets", "t") };
    let refused = reason(&stack.allocate(request).await);
    assert!(refused.starts_with("outdated: "), "{refused}");
    let ensure =
        |lines| EnsurePluginRequest { plugin: Some(reference("tickets")), lines, ..Default::default() };
    let refused = stack.client.clone().ensure_plugin(ensure(None)).await.unwrap_err();
    assert!(refused.message().starts_with("outdated: "), "{refused}");
    let ensured = stack.client.clone().ensure_plugin(ensure(Some(protocol()))).await.unwrap().into_inner();
    assert_eq!(ensured.features, [LINES]);

    let mut tunnel = stack.tunnel("tickets").await;
    tunnel.say(In::Invoke(InvokeRequest { request_id: "one".into(), ..InvokeRequest::default() })).await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| said.failed() == Some("UNSUPPORTED")), "{said:?}");
    assert_eq!(stack.figure("tickets@1.0.0", "crashes").await, 0);
}
