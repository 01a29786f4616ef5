//! Messages and tools of a sampling request in the chat completions format.
//!
//! Owns: the mark for the prompt cache of an endpoint. Refuses: blocks other than texts and the use of tools.

use serde_json::{Map, Value, json};

/// Member of a text's `_meta` that marks the end of a prefix that an endpoint may cache. It is passed on with the text, as
/// endpoints in front of Anthropic's models take it; others ignore it.
const CACHE_MARK: &str = "cache_control";

/// Returns the messages; `None` if one contains a block of another kind.
pub(super) fn messages(sampling: &Map<String, Value>) -> Option<Vec<Value>> {
    let mut messages = Vec::new();
    if let Some(prompt) = sampling.get("systemPrompt") {
        messages.push(json!({"role": "system", "content": prompt}));
    }
    for message in array(sampling, "messages") {
        convert(message, &mut messages)?;
    }
    Some(messages)
}

/// Returns the tools that the model may use; `None` if there are none.
pub(super) fn tools(sampling: &Map<String, Value>) -> Option<Value> {
    let tools: Vec<Value> = array(sampling, "tools").map(function).collect();
    (!tools.is_empty()).then_some(Value::Array(tools))
}

/// Returns how the model is to use the tools; `None` if there are none, or the request leaves it open.
pub(super) fn tool_choice(sampling: &Map<String, Value>) -> Option<Value> {
    array(sampling, "tools").next()?;
    sampling.get("toolChoice")?.get("mode").cloned()
}

fn array<'a>(of: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn function(tool: &Value) -> Value {
    let mut function = Map::new();
    let members = [("name", "name"), ("description", "description"), ("inputSchema", "parameters")];
    for (name, written) in members {
        if let Some(value) = tool.get(name) {
            function.insert(written.to_owned(), value.clone());
        }
    }
    json!({"type": "function", "function": function})
}

/// Appends a message; the results of tools are messages of their own.
fn convert(message: &Value, messages: &mut Vec<Value>) -> Option<()> {
    let content = message.get("content")?;
    let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    let mut texts = Vec::new();
    let mut calls = Vec::new();
    for block in blocks {
        match block.get("type")?.as_str()? {
            "text" => texts.push(block),
            "tool_use" => calls.push(call(block)?),
            "tool_result" => messages.push(result(block)?),
            _ => return None,
        }
    }
    if texts.is_empty() && calls.is_empty() {
        return Some(());
    }
    let mut converted = Map::new();
    converted.insert("role".to_owned(), message.get("role")?.clone());
    converted.insert("content".to_owned(), text_content(&texts)?);
    if !calls.is_empty() {
        converted.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    messages.push(Value::Object(converted));
    Some(())
}

/// Returns the texts as one string, which every endpoint takes, or as parts if one is marked.
fn text_content(blocks: &[&Value]) -> Option<Value> {
    if blocks.is_empty() {
        return Some(Value::Null);
    }
    let mark = |block: &Value| block.get("_meta")?.get(CACHE_MARK).filter(|mark| mark.is_object()).cloned();
    let texts: Vec<&str> = blocks.iter().map(|block| block.get("text")?.as_str()).collect::<Option<_>>()?;
    if blocks.iter().all(|block| mark(block).is_none()) {
        return Some(Value::String(texts.join("\n")));
    }
    let part = |(block, text): (&&Value, &str)| {
        let mut part = Map::new();
        part.insert("type".to_owned(), json!("text"));
        part.insert("text".to_owned(), json!(text));
        if let Some(mark) = mark(block) {
            part.insert(CACHE_MARK.to_owned(), mark);
        }
        Value::Object(part)
    };
    Some(Value::Array(blocks.iter().zip(texts).map(part).collect()))
}

fn call(block: &Value) -> Option<Value> {
    let arguments = block.get("input")?.to_string();
    let function = json!({"name": block.get("name")?, "arguments": arguments});
    Some(json!({"id": block.get("id")?, "type": "function", "function": function}))
}

fn result(block: &Value) -> Option<Value> {
    let blocks: Vec<&Value> = block.get("content")?.as_array()?.iter().collect();
    let is_text = |block: &&Value| block.get("type").is_some_and(|kind| kind == "text");
    if !blocks.iter().all(is_text) {
        return None;
    }
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    let content = match block.get("structuredContent").filter(|_| texts.is_empty()) {
        Some(structured) => structured.to_string(),
        None => texts.join("\n"),
    };
    Some(json!({"role": "tool", "tool_call_id": block.get("toolUseId")?, "content": content}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_conversation_with_tools_becomes_a_chat() {
        let marked =
            json!({"type": "text", "text": "Rules.", "_meta": {"cache_control": {"type": "ephemeral"}}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let uses = |id: &str| json!({"type": "tool_use", "id": id, "name": "add", "input": {"a": 1}});
        let result = |id: &str, more: Value| {
            let mut result = json!({"type": "tool_result", "toolUseId": id, "content": []});
            result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            result
        };
        let given = json!({
            "systemPrompt": "Be brief.",
            "tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "required"},
            "messages": [
                {"role": "user", "content": [marked, text("1 + 1?")]},
                {"role": "assistant", "content": [text("I add."), uses("a"), uses("b")]},
                {"role": "user", "content": [
                    result("a", json!({"content": [text("2"), text("even")]})),
                    result("b", json!({"structuredContent": {"sum": 2}}))]},
                {"role": "assistant", "content": uses("c")},
                {"role": "user", "content": result("c", json!({}))},
                {"role": "user", "content": [text("So"), text("what?")]}]});
        let given = sampling(&given);
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}});
        let expected = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "1 + 1?"}]},
            {"role": "assistant", "content": "I add.", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "2\neven"},
            {"role": "tool", "tool_call_id": "b", "content": "{\"sum\":2}"},
            {"role": "assistant", "content": null, "tool_calls": [call("c")]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "user", "content": "So\nwhat?"}]);
        assert_eq!(messages(&given).map(Value::Array), Some(expected));
        let function = json!({"name": "add", "description": "Adds.", "parameters": {"type": "object"}});
        assert_eq!(tools(&given), Some(json!([{"type": "function", "function": function}])));
        assert_eq!(tool_choice(&given), Some(json!("required")));
    }

    #[test]
    fn an_empty_offer_is_none() {
        for given in [json!({}), json!({"tools": [], "toolChoice": {"mode": "none"}})] {
            let given = sampling(&given);
            assert_eq!((tools(&given), tool_choice(&given)), (None, None));
        }
    }

    #[test]
    fn other_blocks_than_texts_and_the_use_of_tools_are_refused() {
        let image = json!({"type": "image", "data": "", "mimeType": "image/png"});
        let result = json!({"type": "tool_result", "toolUseId": "a", "content": [image]});
        for block in [image, result] {
            let given = sampling(&json!({"messages": [{"role": "user", "content": block}]}));
            assert_eq!(messages(&given), None);
        }
    }
}
