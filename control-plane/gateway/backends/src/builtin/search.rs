//! `search_tools`: finds tools of the call's own server by words, for models whose context does not hold all of them.
//!
//! Keeps true: it finds only tools in the caller's own list, and nothing hidden (I-10); its answer fits the requested
//! budget of tokens; the same query finds the same tools.

use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use asp_snapshot::search::is_tool;
use serde_json::{Value, json};

/// Maximum number of tools in one answer, and the default.
const MAX_TOOLS: u64 = 50;
const TOOLS: u64 = 5;
/// Maximum number of tokens of one answer, and the default.
const MAX_TOKENS: u64 = 50_000;
const TOKENS: u64 = 2_000;
/// Bytes of JSON per token, as the tokenizers of common models average for English and JSON.
const BYTES_A_TOKEN: usize = 4;
/// Overhead of an answer around the tools, in tokens.
const AROUND: usize = 16;
/// Maximum number of characters of a description if the definition does not fit.
const SHORT: usize = 200;

/// Runs a search. Arguments: `query`, and optionally `limit` and `tokenBudget`.
pub(super) fn run(execution: &Execution) -> Result<Output, Refusal> {
    let call = &execution.call;
    let mut arguments = execution.arguments.view().clone();
    asp_json::integers(&mut arguments);
    let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str, usual: u64, most: u64| {
        let asked = arguments.get(name).and_then(Value::as_u64).unwrap_or(usual).clamp(1, most);
        usize::try_from(asked).unwrap_or(usize::MAX)
    };
    let limit = number("limit", TOOLS, MAX_TOOLS);
    let budget = number("tokenBudget", TOKENS, MAX_TOKENS);
    let entries = &call.server.entries;
    let visible = execution.platform.visible(&execution.snapshot, call);
    let is_shown = |at: usize| {
        visible.get(at) == Some(&true)
            && entries.get(at).is_some_and(|entry| {
                let is_itself = entry.primitive.id == call.entry.primitive.id;
                is_tool(&entry.primitive) && !is_itself && !name(entry, call.protocol).is_empty()
            })
    };
    let found = call.server.search_index().find(query, is_shown);
    let best = found.iter().take(limit).filter_map(|at| entries.get(*at));
    let tools = within(best.map(|entry| described(entry, call.protocol)), budget);
    let more = found.len().saturating_sub(tools.len());
    Ok(Output::structured(json!({"tools": tools, "more": more})))
}

fn name(entry: &ListedPrimitive, protocol: Protocol) -> &str {
    match protocol {
        Protocol::Rest => &entry.listing.rest_name,
        Protocol::A2a => &entry.listing.a2a_skill,
        _ => &entry.listing.mcp_name,
    }
}

fn described(entry: &ListedPrimitive, protocol: Protocol) -> Value {
    let primitive = &entry.primitive;
    let schema: Value = serde_json::from_str(&primitive.input_schema).unwrap_or_else(|_| json!({}));
    json!({
        "name": name(entry, protocol),
        "title": primitive.title,
        "description": primitive.summary,
        "inputSchema": schema,
    })
}

/// Returns as many tools as fit, the best first. If a definition does not fit, its tool is listed without its schema.
fn within(tools: impl Iterator<Item = Value>, budget: usize) -> Vec<Value> {
    let mut left = budget.saturating_sub(AROUND);
    let mut fitting = Vec::new();
    for tool in tools {
        let short = short(&tool);
        let Some(fits) = [tool, short].into_iter().find(|tool| tokens(tool) <= left) else { break };
        left -= tokens(&fits);
        fitting.push(fits);
    }
    fitting
}

fn short(tool: &Value) -> Value {
    let text = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
    let description: String = text("description").chars().take(SHORT).collect();
    json!({"name": text("name"), "description": description})
}

fn tokens(tool: &Value) -> usize {
    tool.to_string().len().div_ceil(BYTES_A_TOKEN) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_to_its_budget_and_leaves_schemas_out_first() {
        let tool = |name: &str, bytes: usize| json!({"name": name, "title": "T", "description": "d".repeat(300), "inputSchema": {"x": "y".repeat(bytes)}});
        let tools = || [tool("a", 100), tool("b", 4_000), tool("c", 100)].into_iter();
        let names = |budget: usize| {
            let fitting = within(tools(), budget);
            let spent: usize = fitting.iter().map(tokens).sum();
            assert!(spent + AROUND <= budget.max(AROUND), "{budget}: {spent}");
            let shown = fitting.iter().map(|tool| {
                let name = tool["name"].as_str().unwrap().to_owned();
                (name, tool.get("inputSchema").is_some())
            });
            shown.collect::<Vec<_>>()
        };
        let whole = |name: &str| (name.to_owned(), true);
        assert_eq!(names(5_000), [whole("a"), whole("b"), whole("c")]);
        assert_eq!(names(500), [whole("a"), ("b".into(), false), whole("c")]);
        assert_eq!(names(100), [("a".into(), false)]);
        assert!(names(20).is_empty());
    }
}
