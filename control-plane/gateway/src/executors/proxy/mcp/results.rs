//! Results of an upstream: passed on as they were written (I-14), or named as malformed.
//!
//! Keeps true: an answer that is no result of MCP is an error that says what is wrong with it, and never an empty success.

use asp_json::Json;
use asp_proto::snapshot::Kind;
use serde_json::Value;

use crate::call::content::{is_content_block, own_meta};
use crate::call::outcome::{Output, text_block};

/// The output that a result is.
pub(super) fn output(kind: Kind, result: &Json) -> Output {
    let list = |name: &str| result.member(name).and_then(|items| items.elements()).unwrap_or_default();
    match kind {
        Kind::Resource | Kind::ResourceTemplate => Output::Contents { contents: list("contents") },
        Kind::Prompt => {
            let description = result.get("description").and_then(Value::as_str).map(str::to_owned);
            Output::Messages { description, messages: list("messages") }
        }
        _ => tool(result).unwrap_or_else(|fault| malformed(&fault, result)),
    }
}

/// A tool's result, or what is malformed in it.
fn tool(result: &Json) -> Result<Output, String> {
    let structured = result.member("structuredContent").filter(|value| !value.is_null());
    let is_error = match result.get("isError") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_error)) => *is_error,
        Some(_) => return Err("isError is neither true nor false".into()),
    };
    let content = match result.member("content").filter(|content| !content.is_null()) {
        Some(content) => content.elements().ok_or("content is no array of content blocks")?,
        None if structured.is_some() => Vec::new(),
        None => return Err("content is missing".into()),
    };
    if let Some(place) = content.iter().position(|block| !is_passable(block)) {
        return Err(format!("content/{place} is no content block"));
    }
    Ok(Output::Tool { content, structured, is_error, meta: own_meta(result.member("_meta").as_ref()) })
}

/// Whether a block has what its type needs. A type that is not known here passes: a later revision may have it.
fn is_passable(block: &Json) -> bool {
    match block.get("type").and_then(Value::as_str) {
        Some("text" | "image" | "audio" | "resource" | "resource_link") => is_content_block(block),
        Some(kind) => !kind.is_empty(),
        None => false,
    }
}

/// A tool error with the fault, and with the text that came in place of content.
fn malformed(fault: &str, result: &Json) -> Output {
    let mut output = Output::tool_error(&format!("the service's answer is malformed: {fault}"));
    if let (Output::Tool { content, .. }, Some(text)) =
        (&mut output, result.get("content").and_then(Value::as_str))
    {
        content.push(text_block(text).into());
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Output {
        output(Kind::Tool, &Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_malformed_answer_is_an_error_that_names_what_is_wrong() {
        for (text, fault) in [
            (r#"{"content":"just text"}"#, "content is no array"),
            (r#"{"content":{"type":"text","text":"x"}}"#, "content is no array"),
            (r#"{}"#, "content is missing"),
            (r#"{"content":null}"#, "content is missing"),
            (r#"{"content":[],"isError":"true"}"#, "isError"),
            (r#"{"content":["a"]}"#, "content/0"),
            (r#"{"content":[{"type":"text","text":"x"},{"text":"x"}]}"#, "content/1"),
            (r#"{"content":[{"type":"text","text":5}]}"#, "content/0"),
            (r#"{"content":[{"type":"image","data":"x"}]}"#, "content/0"),
        ] {
            let Output::Tool { content, is_error: true, .. } = of(text) else { panic!("{text}") };
            assert!(content[0]["text"].as_str().unwrap().contains(fault), "{text}: {content:?}");
        }
        let Output::Tool { content, .. } = of(r#"{"content":"just text"}"#) else { panic!() };
        assert_eq!(content[1]["text"], "just text");
    }

    #[test]
    fn a_result_passes_as_it_was_written() {
        let structured = r#"{"n":340282366920938463463374607431768211455,"a":1,"\u0061":2}"#;
        let text = format!(
            r#"{{"content":[{{"type":"text","text":"\ud83d"}},{{"type":"later","x":1e3}}],"structuredContent":{structured},"isError":true,"_meta":{{"a/b":1.50,"asp/x":1}}}}"#
        );
        let Output::Tool { content, structured: passed, is_error: true, meta } = of(&text) else { panic!() };
        assert_eq!(content[0].text(), r#"{"type":"text","text":"\ud83d"}"#);
        assert_eq!(content[1].text(), r#"{"type":"later","x":1e3}"#);
        assert_eq!(passed.unwrap().text(), structured);
        assert_eq!(meta.to_json().text(), r#"{"a/b":1.50}"#);
    }
}
