//! The blocks of a conversation (MCP 2025-11-25, `SamplingMessageContentBlock`).
//!
//! Owns: which members each kind has. Refuses: kinds that a conversation does not allow, missing members, and members
//! of `_meta` that code may not set.

use serde_json::Value;

/// Maximum number of blocks in one message, and in the result of one tool.
const MAX_BLOCKS: usize = 128;

/// Returns the blocks of a message's `content`; `None` if one of them is invalid.
pub(super) fn of_message(content: &Value) -> Option<&[Value]> {
    let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    let fits = !blocks.is_empty() && blocks.len() <= MAX_BLOCKS && blocks.iter().all(is_block);
    fits.then_some(blocks)
}

/// Returns the kind of a block.
pub(super) fn kind(block: &Value) -> Option<&str> {
    block.get("type")?.as_str()
}

/// Returns the id of a block of this kind.
pub(super) fn id<'a>(block: &'a Value, of: &str, member: &str) -> Option<&'a str> {
    (kind(block) == Some(of)).then(|| text(block, member)).flatten()
}

/// Whether `_meta` contains no name of the protocol or the platform: clients would take it for theirs.
pub(super) fn has_free_meta(of: &Value) -> bool {
    match of.get("_meta") {
        None => true,
        Some(Value::Object(meta)) => !meta.keys().any(|name| asp_registry::is_reserved_meta(name)),
        Some(_) => false,
    }
}

fn is_block(block: &Value) -> bool {
    has_free_meta(block)
        && match kind(block) {
            Some("tool_use") => {
                has_word(block, "id")
                    && has_word(block, "name")
                    && block.get("input").is_some_and(Value::is_object)
            }
            Some("tool_result") => is_result(block),
            Some("text" | "image" | "audio") => is_content(block),
            _ => false,
        }
}

fn is_result(block: &Value) -> bool {
    let contents = block.get("content").and_then(Value::as_array);
    has_word(block, "toolUseId")
        && contents.is_some_and(|contents| {
            contents.len() <= MAX_BLOCKS && contents.iter().all(|one| has_free_meta(one) && is_content(one))
        })
        && block.get("structuredContent").is_none_or(Value::is_object)
        && block.get("isError").is_none_or(Value::is_boolean)
}

/// Whether a tool's result may contain the block (`ContentBlock`); a message allows only the first three kinds.
fn is_content(block: &Value) -> bool {
    let has = |member: &str| text(block, member).is_some();
    match kind(block) {
        Some("text") => has("text"),
        Some("image" | "audio") => has("data") && has("mimeType"),
        Some("resource_link") => has_word(block, "uri") && has_word(block, "name"),
        Some("resource") => block.get("resource").is_some_and(|resource| {
            let is_one = text(resource, "text").is_some() != text(resource, "blob").is_some();
            has_word(resource, "uri") && is_one && has_free_meta(resource)
        }),
        _ => false,
    }
}

fn text<'a>(of: &'a Value, member: &str) -> Option<&'a str> {
    of.get(member)?.as_str()
}

fn has_word(of: &Value, member: &str) -> bool {
    text(of, member).is_some_and(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_has_its_members() {
        let result = |content: Value| json!({"type": "tool_result", "toolUseId": "a", "content": content});
        let link = json!({"type": "resource_link", "uri": "a://b", "name": "b"});
        let resource = json!({"type": "resource", "resource": {"uri": "a://b", "text": ""}});
        for good in [
            json!({"type": "text", "text": "", "_meta": {"com.example/a": 1}}),
            json!({"type": "image", "data": "", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "", "mimeType": "audio/wav"}),
            json!({"type": "tool_use", "id": "a", "name": "add", "input": {}}),
            result(json!([link, resource, {"type": "text", "text": "2"}])),
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ] {
            assert!(of_message(&good).is_some(), "{good}");
        }
        for bad in [
            json!(null),
            json!([]),
            json!("text"),
            json!({"type": "text"}),
            json!({"type": "text", "text": 1}),
            json!({"type": "text", "text": "", "_meta": {"io.modelcontextprotocol/a": 1}}),
            json!({"type": "text", "text": "", "_meta": {"asp/a": 1}}),
            json!({"type": "text", "text": "", "_meta": 1}),
            json!({"type": "image", "data": ""}),
            json!({"type": "audio", "mimeType": "audio/wav"}),
            json!({"type": "tool_use", "id": "", "name": "add", "input": {}}),
            json!({"type": "tool_use", "id": "a", "input": {}}),
            json!({"type": "tool_use", "id": "a", "name": "add", "input": []}),
            json!({"type": "tool_result", "toolUseId": "a"}),
            json!({"type": "tool_result", "content": []}),
            json!({"type": "tool_result", "toolUseId": "a", "content": [], "isError": "no"}),
            json!({"type": "tool_result", "toolUseId": "a", "content": [], "structuredContent": []}),
            result(json!([{"type": "text"}])),
            result(json!([{"type": "tool_use", "id": "a", "name": "add", "input": {}}])),
            result(json!([{"type": "resource", "resource": {"uri": "a://b"}}])),
            link,
            resource,
        ] {
            assert_eq!(of_message(&bad), None, "{bad}");
        }
    }
}
