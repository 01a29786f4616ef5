//! A conversation with a model in which it uses tools (MCP 2025-11-25, sampling with tools).
//!
//! Owns: the part of a sampling request that code provides, `{messages, tools, toolChoice}`, and the valid answers of
//! a model to it. Refuses: anything else, and anything that a client would refuse: each use of a tool must be
//! followed immediately by its complete result. Keeps true: no tool is used that was not offered.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::blocks::{self, has_free_meta, id, kind};

/// Maximum number of messages, and of tools.
const MAX_MESSAGES: usize = 256;
const MAX_TOOLS: usize = 128;

/// Returns the members to put into the request; `None` for an invalid conversation.
pub(crate) fn read(given: &Value) -> Option<Map<String, Value>> {
    let given = given.as_object()?;
    let known = |name: &String| matches!(name.as_str(), "messages" | "tools" | "toolChoice");
    let messages = given.get("messages")?.as_array()?;
    let fits = given.keys().all(known)
        && are_tools(given.get("tools"), given.get("toolChoice"))
        && !messages.is_empty()
        && messages.len() <= MAX_MESSAGES
        && is_balanced(messages);
    fits.then(|| given.clone())
}

/// Whether `said` is a valid answer of a model to the request `asked`: an assistant's message that only uses offered
/// tools, each use with a unique id.
pub(super) fn is_answer(said: &Value, asked: &Map<String, Value>) -> bool {
    let Some(("assistant", blocks)) = parts(said) else { return false };
    let offered = asked.get("tools").and_then(Value::as_array);
    let offers = |name: &Value| offered.into_iter().flatten().any(|tool| tool.get("name") == Some(name));
    let uses = || blocks.iter().filter(|block| kind(block) == Some("tool_use"));
    let ids: BTreeSet<&str> = uses().filter_map(|block| id(block, "tool_use", "id")).collect();
    blocks.iter().all(|block| kind(block) != Some("tool_result"))
        && uses().all(|block| block.get("name").is_some_and(offers))
        && ids.len() == uses().count()
}

fn are_tools(tools: Option<&Value>, choice: Option<&Value>) -> bool {
    let Some(tools) = tools else { return choice.is_none() };
    let is_tool = |tool: &Value| {
        let name = tool.get("name").and_then(Value::as_str);
        let schema = tool.get("inputSchema").and_then(|schema| schema.get("type")?.as_str());
        name.is_some_and(|name| !name.is_empty()) && schema == Some("object") && has_free_meta(tool)
    };
    let is_own = |tools: &[Value]| {
        let names: BTreeSet<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
        names.len() == tools.len()
    };
    let is_choice = |choice: &Value| {
        let mode = choice.get("mode").map(|mode| mode.as_str().unwrap_or_default());
        choice.is_object() && matches!(mode, None | Some("auto" | "required" | "none"))
    };
    let listed = tools
        .as_array()
        .is_some_and(|tools| tools.len() <= MAX_TOOLS && tools.iter().all(is_tool) && is_own(tools));
    listed && choice.is_none_or(is_choice)
}

/// Whether every message is valid, and each message in which the model used tools is followed by one with the result
/// of each use.
fn is_balanced(messages: &[Value]) -> bool {
    let mut used = BTreeSet::new();
    for message in messages {
        let Some((role, blocks)) = parts(message) else { return false };
        let told: BTreeSet<&str> =
            blocks.iter().filter_map(|block| id(block, "tool_result", "toolUseId")).collect();
        let uses: BTreeSet<&str> = blocks.iter().filter_map(|block| id(block, "tool_use", "id")).collect();
        let results = blocks.iter().filter(|block| kind(block) == Some("tool_result")).count();
        let calls = blocks.iter().filter(|block| kind(block) == Some("tool_use")).count();
        let by_whom = match role {
            "user" => calls == 0 && (results == 0 || results == blocks.len()),
            "assistant" => results == 0,
            _ => false,
        };
        // Each id occurs once.
        if !by_whom || told != used || told.len() != results || uses.len() != calls {
            return false;
        }
        used = uses;
    }
    used.is_empty()
}

fn parts(message: &Value) -> Option<(&str, &[Value])> {
    let role = message.get("role")?.as_str()?;
    let blocks = blocks::of_message(message.get("content")?)?;
    has_free_meta(message).then_some((role, blocks))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text() -> Value {
        json!({"role": "user", "content": {"type": "text", "text": "What is the weather?"}})
    }

    fn used(ids: &[&str]) -> Value {
        let block = |id: &&str| json!({"type": "tool_use", "id": id, "name": "weather", "input": {}});
        json!({"role": "assistant", "content": ids.iter().map(block).collect::<Vec<_>>()})
    }

    fn told(ids: &[&str]) -> Value {
        let block = |id: &&str| json!({"type": "tool_result", "toolUseId": id, "content": []});
        json!({"role": "user", "content": ids.iter().map(block).collect::<Vec<_>>()})
    }

    #[test]
    fn what_a_client_would_refuse_is_no_conversation() {
        let tools = json!([{"name": "weather", "inputSchema": {"type": "object"}}]);
        let with =
            |messages: Value| json!({"messages": messages, "tools": tools, "toolChoice": {"mode": "auto"}});
        for good in [
            json!({"messages": [text()]}),
            with(json!([text()])),
            with(json!([text(), used(&["a", "b"]), told(&["b", "a"]), used(&["c"]), told(&["c"]), text()])),
        ] {
            assert_eq!(read(&good).as_ref(), good.as_object(), "{good}");
        }
        let mixed = json!({"role": "user", "content": [{"type": "tool_result", "toolUseId": "a", "content": []},
            {"type": "text", "text": "so?"}]});
        let many = vec![text(); MAX_MESSAGES + 1];
        for bad in [
            json!(null),
            json!({"messages": []}),
            json!({"messages": many}),
            json!({"messages": [text()], "systemPrompt": "Obey."}),
            json!({"messages": [text()], "toolChoice": {"mode": "auto"}}),
            json!({"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}]}),
            json!({"messages": [{"role": "user", "content": []}]}),
            json!({"messages": [{"role": "user", "content": {"type": "resource"}}]}),
            json!({"messages": [text()], "tools": [{"name": "x"}]}),
            json!({"messages": [text()], "tools": tools, "toolChoice": {"mode": "any"}}),
            json!({"messages": [text()], "tools": [tools[0], tools[0]]}),
            json!({"messages": [text()], "tools": [{"name": "x", "inputSchema": {"type": "object"}, "_meta": {"asp/a": 1}}]}),
            json!({"messages": [{"role": "user", "content": {"type": "text"}}]}),
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "x"}, "_meta": {"dev.mcp/a": 1}}]}),
            with(json!([text(), used(&["a"])])),
            with(json!([text(), used(&["a"]), text()])),
            with(json!([text(), used(&["a", "b"]), told(&["a"])])),
            with(json!([text(), used(&["a", "a"]), told(&["a"])])),
            with(json!([text(), told(&["a"])])),
            with(json!([text(), used(&["a"]), mixed])),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_model_uses_what_it_was_offered_or_its_answer_is_none() {
        let asked = json!({"tools": [{"name": "weather", "inputSchema": {"type": "object"}}]});
        let asked = asked.as_object().unwrap();
        let said = |content: Value| json!({"role": "assistant", "model": "m", "content": content});
        let block = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        let text = json!({"type": "text", "text": "x"});
        for good in [text.clone(), json!([text]), block("a", "weather"), json!([text, block("a", "weather")])]
        {
            assert!(is_answer(&said(good.clone()), asked), "{good}");
        }
        let mut user = said(text.clone());
        user["role"] = "user".into();
        for bad in [
            user,
            said(json!({})),
            said(json!([])),
            said(json!({"type": "text"})),
            said(json!({"type": "tool_use"})),
            said(block("a", "rm")),
            said(block("", "weather")),
            said(json!([block("a", "weather"), block("a", "weather")])),
            said(json!({"type": "tool_use", "id": "a", "name": "weather", "input": "{}"})),
            said(json!({"type": "tool_result", "toolUseId": "a", "content": []})),
        ] {
            assert!(!is_answer(&bad, asked), "{bad}");
        }
        assert!(!is_answer(&said(block("a", "weather")), &Map::new()));
    }
}
