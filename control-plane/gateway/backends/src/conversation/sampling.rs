//! Messages of sampling requests, as backends receive them.

use serde_json::Value;

/// Maximum number of messages in one sampling request.
pub(super) const MAX_MESSAGES: usize = 256;

/// Returns the messages of a request; `None` unless there are 1 to 256, each with a role of MCP and content.
pub(crate) fn read_messages(messages: Option<&Value>) -> Option<&[Value]> {
    let messages = messages?.as_array()?;
    let fits = |message: &Value| {
        matches!(message.get("role").and_then(Value::as_str), Some("user" | "assistant"))
            && message.get("content").is_some_and(|content| content.is_object() || content.is_array())
    };
    let is_fit = !messages.is_empty() && messages.len() <= MAX_MESSAGES && messages.iter().all(fits);
    is_fit.then_some(messages.as_slice())
}
