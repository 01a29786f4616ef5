//! Tests of the lists of a stdio MCP server: requested as a whole, and its notifications of changes.

use std::collections::BTreeMap;

use asp_proto::envelope::MCP_LISTS;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{InvokeRequest, Json, ListResourcesRequest, ListResourcesResponse, McpLists};
use serde_json::{Value, json};

use super::harness::{Said, Stack, start_shims};

const SERVER: &str = include_str!("../../../../tests/services/listing.py");

async fn server() -> Stack {
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "server.py"], "entrypoint": "server.py",
        "pool": {"max": 1},
    });
    start_shims(&[("tickets", manifest, SERVER)]).await
}

async fn look(stack: &Stack, id: &str, request_id: &str) -> Vec<Said> {
    let mut tunnel = stack.tunnel(id).await;
    let asked = ListResourcesRequest { request_id: request_id.into(), mcp: true, ..Default::default() };
    tunnel.frame(&asked).await;
    tunnel.rest().await
}

async fn lists(stack: &Stack, request_id: &str) -> McpLists {
    let said = look(stack, "tickets", request_id).await;
    let listed = said.iter().find_map(|said| match said {
        Said::Other(any) => any.to_msg::<ListResourcesResponse>().unwrap().mcp,
        _ => None,
    });
    listed.unwrap_or_else(|| panic!("{said:?}"))
}

/// Returns the descriptions by name.
fn described(lists: &McpLists) -> Vec<(String, String)> {
    let tools: Vec<Value> = serde_json::from_slice(&lists.tools.as_ref().unwrap().value).unwrap();
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap().to_owned();
    tools.iter().map(|tool| (text(tool, "name"), text(tool, "description"))).collect()
}

/// Calls a tool like a gateway that wants to know about list changes; returns whether the call was notified of one.
async fn call(stack: &Stack, request_id: &str, tool: &str, arguments: &Value) -> bool {
    let attrs = BTreeMap::from([(MCP_LISTS.to_owned(), "watched".to_owned())]);
    called(stack, (request_id, attrs), tool, arguments).await
}

async fn called(
    stack: &Stack,
    (request_id, attrs): (&str, BTreeMap<String, String>),
    tool: &str,
    arguments: &Value,
) -> bool {
    let mut tunnel = stack.tunnel("tickets").await;
    let invoke = InvokeRequest {
        primitive: tool.into(),
        request_id: request_id.into(),
        attrs,
        arguments: Some(Json { value: arguments.to_string().into_bytes() }),
        ..InvokeRequest::default()
    };
    tunnel.say(In::Invoke(invoke)).await;
    let said = tunnel.rest().await;
    assert!(said.iter().any(|said| matches!(said, Said::Message(Out::Completed(_)))), "{said:?}");
    said.iter().any(|said| match said {
        Said::Message(Out::McpListsChanged(changed)) => changed.request_id == request_id,
        _ => false,
    })
}

#[tokio::test]
async fn a_stdio_server_lists_all_that_it_has_and_tells_calls_when_that_changes() {
    let stack = server().await;
    let first = lists(&stack, "one").await;
    let names = |lists: &McpLists| described(lists).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&first), ["ticket", "become"]);
    assert!(first.tells_of_changes);
    assert_eq!(first.prompts.as_ref().unwrap().value, b"[]", "a list that it does not have is empty");

    assert!(!call(&stack, "two", "ticket", &json!({"id": "1"})).await);
    assert!(call(&stack, "three", "become", &json!({"now": "reworded"})).await);
    assert!(described(&lists(&stack, "four").await)[0].1.contains("keys"));
    // A notification between calls is reported to the next call, and to no listing.
    assert!(!call(&stack, "five", "become", &json!({"now": "gone", "later": true})).await);
    stack.log_line("tools/list_changed").await;
    let plain = called(&stack, ("plain", BTreeMap::new()), "ticket", &json!({"id": "1"})).await;
    assert!(!plain, "its gateway may not know what that is");
    assert!(call(&stack, "six", "ticket", &json!({"id": "1"})).await);
    assert!(!call(&stack, "again", "ticket", &json!({"id": "1"})).await, "once");
    assert_eq!(names(&lists(&stack, "seven").await), ["become"]);
    assert_eq!(stack.figure("tickets@1.0.0", "crashes").await, 0);
}

const PLUGIN: &str = r"
from asp_plugin import plugin

@plugin.tool
def greet(args, ctx):
    return {}
";

#[tokio::test]
async fn a_plugin_has_no_lists_of_an_mcp_server() {
    let manifest = json!({"language": "python", "entrypoint": "greet.py"});
    let stack = start_shims(&[("greet", manifest, PLUGIN)]).await;
    let said = look(&stack, "greet", "one").await;
    assert!(said.iter().any(|said| said.failed() == Some("UNSUPPORTED")), "{said:?}");
}
