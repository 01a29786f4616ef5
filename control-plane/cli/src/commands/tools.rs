//! `asp tools`: the tools of a server as a caller sees them, or every stored server with its tools.

use std::time::Duration;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::shell;
use asp_proto::snapshot::{Kind, Listing};
use asp_registry::CompiledServer;
use serde_json::{Value, json};

use super::answer::{list, text};
use super::call::CallTarget;
use super::client::{AdminClient, block_on};
use super::known::suggest;
use super::mcp::endpoint;
use super::{call, next_call, specs};
use crate::args::tools::ToolsArgs;

/// Time that hanging tasks have at the end.
const REST: Duration = Duration::from_millis(100);

pub fn run(args: &ToolsArgs) -> Result<(), Failure> {
    let Some(server) = &args.server else { return stored(args.json) };
    let endpoint = endpoint(args.url.as_deref(), server, "mcp", &ProcessEnvironment)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let listed = runtime.block_on(async {
        let target = CallTarget::new(endpoint, "").await?;
        Ok::<_, Failure>(call::mcp::tools(&target).await?)
    });
    runtime.shutdown_timeout(REST);
    let mut tools = listed?;
    if let Some(wanted) = &args.tool {
        let known: Vec<String> = tools.iter().map(|tool| text(tool, "name").to_owned()).collect();
        tools.retain(|tool| text(tool, "name") == wanted);
        if tools.is_empty() {
            print::error(&format!(
                "{server} lists no tool {wanted} to this caller{}",
                suggest(wanted, &known)
            ));
            return Err(Failure::Refused);
        }
    }
    if args.json {
        print::json(&tools);
        return Ok(());
    }
    if tools.is_empty() {
        print::line(&format!("{server} lists no tools to this caller"));
    }
    tools.iter().flat_map(describe).for_each(|line| print::line(&line));
    if let Some(tool) = tools.first() {
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        print::next_step(&next_call::line(server, text(tool, "name"), "", schema));
    }
    Ok(())
}

/// Prints the stored servers, each with its tools.
fn stored(as_json: bool) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let servers = block_on(specs::stored(&api, None))?;
    if as_json {
        let row = |server: &CompiledServer| json!({ "server": server.server.name, "tools": names(server) });
        print::json(&servers.iter().map(row).collect::<Vec<_>>());
        return Ok(());
    }
    for server in &servers {
        print::line(&format!("{:<24} {}", server.server.name, names(server).join(", ")));
    }
    if let Some(server) = servers.first() {
        print::next_step(&format!("asp tools {}", shell::word(&server.server.name)));
    }
    Ok(())
}

/// Returns the names of a server's tools over MCP.
fn names(server: &CompiledServer) -> Vec<&str> {
    let is_tool = |listing: &&Listing| {
        let primitive =
            server.primitives.iter().find(|one| one.id == listing.id && one.version == listing.version);
        primitive.is_some_and(|primitive| matches!(primitive.kind(), Kind::Tool | Kind::Task))
    };
    let listed = server.server.listings.iter().filter(|listing| !listing.mcp_name.is_empty());
    listed.filter(is_tool).map(|listing| listing.mcp_name.as_str()).collect()
}

/// Describes a tool: its name and the first line of its description, then a line for each argument.
fn describe(tool: &Value) -> Vec<String> {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let head = format!("{}  {}", text(tool, "name"), first(text(tool, "description")));
    let mut lines = vec![head.trim_end().to_owned()];
    let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
    let required: Vec<&str> = list(schema, "required").filter_map(Value::as_str).collect();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { ", required" } else { "" };
        let line = format!("  {name} ({}{needed})  {}", kind(property), first(text(property, "description")));
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Describes the values of an argument: its choices, or its type.
fn kind(property: &Value) -> String {
    let choices: Vec<String> = list(property, "enum")
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .collect();
    if !choices.is_empty() {
        return choices.join(" or ");
    }
    match property.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_described_with_its_arguments() {
        let tool = json!({
            "name": "find",
            "description": "Finds contacts.\n\nSlowly.",
            "inputSchema": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "description": "Name or part of it"},
                "limit": {"type": ["integer", "null"]},
                "order": {"enum": ["name", "date"]},
                "extra": {},
            }},
        });
        assert_eq!(
            describe(&tool),
            [
                "find  Finds contacts.",
                "  name (string, required)  Name or part of it",
                "  limit (integer or null)",
                "  order (name or date)",
                "  extra (any value)",
            ]
        );
        assert_eq!(describe(&json!({"name": "now"})), ["now"]);
    }
}
