//! Requirements of a sampling request on the client that answers it.
//!
//! Keeps true: content that only a model with tools understands is detected even if no tools are offered.

use serde_json::{Map, Value};

/// Whether the request needs a model that may use tools (MCP 2025-11-25, `sampling.tools`): tools are offered, a
/// message reports the use of tools, or a message has several blocks, which came with that revision.
pub fn needs_tools(params: &Map<String, Value>) -> bool {
    let messages = params.get("messages").and_then(Value::as_array);
    let mut contents = messages.into_iter().flatten().filter_map(|message| message.get("content"));
    params.contains_key("tools")
        || params.contains_key("toolChoice")
        || contents.any(|content| content.is_array() || is_of_tools(content))
}

fn is_of_tools(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("tool_use" | "tool_result"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_needed_for_their_history_as_for_their_offer() {
        let text = json!({"type": "text", "text": "x"});
        let with = |content: &Value| json!({"messages": [{"role": "user", "content": content}]});
        for (params, needed) in [
            (json!({}), false),
            (with(&text), false),
            (with(&json!({"type": "image", "data": "", "mimeType": "image/png"})), false),
            (json!({"messages": [], "tools": []}), true),
            (json!({"messages": [], "toolChoice": {}}), true),
            (with(&json!([text])), true),
            (with(&json!({"type": "tool_use", "id": "a", "name": "add", "input": {}})), true),
            (with(&json!({"type": "tool_result", "toolUseId": "a", "content": []})), true),
        ] {
            assert_eq!(needs_tools(params.as_object().unwrap()), needed, "{params}");
        }
    }
}
