//! Tool calls of a completion.
//!
//! Keeps true: the arguments of a call are as the model wrote them.

use asp_json::{Json, Members};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::parsed;

#[derive(Deserialize)]
pub(super) struct ToolCall {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    /// JSON text; some endpoints send the object itself.
    #[serde(default)]
    arguments: Value,
}

impl ToolCall {
    /// Returns the text of the `tool_use` block (MCP 2025-11-25). Arguments that are not JSON remain a string, which is
    /// not a valid input: the answer is rejected after its tokens have been counted.
    pub(super) fn block(self) -> String {
        let input = match self.function.arguments {
            Value::Null => json!({}).into(),
            Value::String(text) if text.trim().is_empty() => json!({}).into(),
            Value::String(text) => parsed(&text).unwrap_or_else(|| Json::from(text)),
            other => other.into(),
        };
        let mut block = Members::default();
        block.insert("type", "tool_use");
        block.insert("id", self.id);
        block.insert("name", self.function.name);
        block.insert("input", input);
        block.to_json().text().to_owned()
    }
}
