//! Results of an upstream: passed on as they were written (I-14), or reported as malformed.
//!
//! Keeps true: an answer that is not an MCP result becomes an error that says what is wrong with it, never an empty
//! success.

use asp_call::call::content::{is_content_block, own_meta};
use asp_call::call::outcome::{Output, text_block};
use asp_json::{Json, Members};
use asp_proto::snapshot::Kind;
use asp_snapshot::schema::Schema;
use serde_json::Value;

/// Members of results in any revision of MCP: they are read here, or the caller's protocol writes its own.
const DEFINED: [&str; 14] = [
    "_meta",
    "cacheScope",
    "content",
    "contents",
    "description",
    "inputRequests",
    "isError",
    "messages",
    "nextCursor",
    "requestState",
    "resultType",
    "structuredContent",
    "task",
    "ttlMs",
];

/// Converts a result into an output; `schema` is a tool's output schema. `Err` says what is malformed in a resource or a
/// prompt, whose results cannot carry an error.
pub(crate) fn output(kind: Kind, schema: Option<&Schema>, result: &Json) -> Result<Output, String> {
    let meta = own_meta(result.member("_meta").as_ref());
    let more = Members::select(result.text(), |name| !DEFINED.contains(&name) && !name.starts_with("asp/"));
    match kind {
        Kind::Resource | Kind::ResourceTemplate => {
            let contents = list(result, "contents", is_contents).map_err(|fault| named(&fault))?;
            Ok(Output::Contents { contents, meta, more })
        }
        Kind::Prompt => {
            let messages = list(result, "messages", is_message).map_err(|fault| named(&fault))?;
            let description = result.get("description").and_then(Value::as_str).map(str::to_owned);
            Ok(Output::Messages { description, messages, meta, more })
        }
        _ => Ok(tool(result, schema, (meta, more)).unwrap_or_else(|fault| malformed(&fault, result))),
    }
}

/// Returns the elements of a list that a result must have.
fn list(result: &Json, name: &str, fits: fn(&Json) -> bool) -> Result<Vec<Json>, String> {
    let list =
        result.member(name).filter(|list| !list.is_null()).ok_or_else(|| format!("{name} is missing"))?;
    let items = list.elements().ok_or_else(|| format!("{name} is not an array"))?;
    match items.iter().position(|item| !fits(item)) {
        Some(place) => Err(format!("{name}/{place} lacks members that MCP requires")),
        None => Ok(items),
    }
}

/// Whether the item is the text or the bytes of a resource (MCP `ResourceContents`).
fn is_contents(item: &Json) -> bool {
    let has = |name: &str| item.get(name).is_some_and(Value::is_string);
    has("uri") && (has("text") || has("blob"))
}

/// Whether the item is a message of a prompt (MCP `PromptMessage`).
fn is_message(item: &Json) -> bool {
    matches!(item.get("role").and_then(Value::as_str), Some("user" | "assistant"))
        && item.member("content").is_some_and(|content| is_passable(&content))
}

fn named(fault: &str) -> String {
    format!("the service's answer is malformed: {fault}")
}

/// Converts a tool's result; `Err` says what is malformed in it.
fn tool(result: &Json, schema: Option<&Schema>, (meta, more): (Members, Members)) -> Result<Output, String> {
    let is_error = match result.get("isError") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_error)) => *is_error,
        Some(_) => return Err("isError is neither true nor false".into()),
    };
    // Some servers write null for an absent member, so it is a value only where the tool may return it.
    let may_be_null = || !is_error && schema.is_some_and(|schema| schema.check(&Value::Null).is_ok());
    let structured = result.member("structuredContent").filter(|value| !value.is_null() || may_be_null());
    let content = match result.member("content").filter(|content| !content.is_null()) {
        Some(content) => content.elements().ok_or("content is not an array of content blocks")?,
        None if structured.is_some() => Vec::new(),
        None => return Err("content is missing".into()),
    };
    if let Some(place) = content.iter().position(|block| !is_passable(block)) {
        return Err(format!("content/{place} is not a content block"));
    }
    Ok(Output::Tool { content, structured, is_error, meta, more })
}

/// Whether a block has the members that its type needs. An unknown type is accepted: a later revision may define it.
fn is_passable(block: &Json) -> bool {
    match block.get("type").and_then(Value::as_str) {
        Some("text" | "image" | "audio" | "resource" | "resource_link") => is_content_block(block),
        Some(kind) => !kind.is_empty(),
        None => false,
    }
}

/// Returns a tool error with the fault, and with the text that was sent instead of content.
fn malformed(fault: &str, result: &Json) -> Output {
    let mut output = Output::tool_error(&named(fault));
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
        output(Kind::Tool, None, &Json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    /// Invariant I-14.
    #[test]
    fn null_is_a_value_where_the_output_schema_allows_it() {
        let result = Json::parse(br#"{"content":[],"structuredContent":null}"#).unwrap();
        let alone = Json::parse(br#"{"structuredContent":null}"#).unwrap();
        let failed = Json::parse(br#"{"content":[],"structuredContent":null,"isError":true}"#).unwrap();
        for (text, is_value) in [
            (Some(r#"{"type":["object","null"]}"#), true),
            (Some(r#"{"type":"object"}"#), false),
            (None, false),
        ] {
            let schema = text.map(|text| Schema::compile(text).unwrap());
            let structured = |result: &Json| match output(Kind::Tool, schema.as_ref(), result).unwrap() {
                Output::Tool { structured, is_error, .. } => (structured, is_error),
                other => panic!("{other:?}"),
            };
            let expected = is_value.then(|| Json::from(Value::Null));
            assert_eq!(structured(&result), (expected.clone(), false), "{text:?}");
            assert_eq!(structured(&alone), (expected, !is_value), "{text:?}");
            assert_eq!(structured(&failed), (None, true), "{text:?}");
        }
    }

    #[test]
    fn a_malformed_answer_is_an_error_that_names_what_is_wrong() {
        for (text, fault) in [
            (r#"{"content":"just text"}"#, "content is not an array"),
            (r#"{"content":{"type":"text","text":"x"}}"#, "content is not an array"),
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
    fn a_malformed_resource_or_prompt_is_no_empty_success() {
        let of = |kind, text: &str| output(kind, None, &Json::parse(text.as_bytes()).unwrap());
        for (kind, text, fault) in [
            (Kind::Resource, r#"{}"#, "contents is missing"),
            (Kind::Resource, r#"{"contents":null}"#, "contents is missing"),
            (Kind::ResourceTemplate, r#"{"contents":{"uri":"a","text":"b"}}"#, "contents is not an array"),
            (Kind::Resource, r#"{"contents":["a"]}"#, "contents/0"),
            (Kind::Resource, r#"{"contents":[{"uri":"a","text":"b"},{"uri":"a","text":7}]}"#, "contents/1"),
            (Kind::Prompt, r#"{"contents":[]}"#, "messages is missing"),
            (Kind::Prompt, r#"{"messages":"hello"}"#, "messages is not an array"),
            (
                Kind::Prompt,
                r#"{"messages":[{"role":"system","content":{"type":"text","text":"a"}}]}"#,
                "messages/0",
            ),
            (Kind::Prompt, r#"{"messages":[{"role":"user","content":"a"}]}"#, "messages/0"),
        ] {
            let said = of(kind, text).unwrap_err();
            assert!(said.contains("malformed") && said.contains(fault), "{text}: {said}");
        }
        for (kind, text) in [
            (Kind::Resource, r#"{"contents":[]}"#),
            (Kind::Resource, r#"{"contents":[{"uri":"a","blob":"","later":1.50}]}"#),
            (Kind::Prompt, r#"{"messages":[{"role":"user","content":{"type":"later"}}]}"#),
        ] {
            assert!(of(kind, text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_a_resource_or_a_prompt_says_of_its_result_passes() {
        for (kind, list) in [(Kind::Resource, "contents"), (Kind::Prompt, "messages")] {
            let text = format!(r#"{{"{list}":[],"_meta":{{"a/b":1.50,"asp/x":1}}}}"#);
            let (Output::Contents { meta, .. } | Output::Messages { meta, .. }) =
                output(kind, None, &Json::parse(text.as_bytes()).unwrap()).unwrap()
            else {
                panic!("{text}")
            };
            assert_eq!(meta.to_json().text(), r#"{"a/b":1.50}"#);
        }
    }

    /// Invariant I-14.
    #[test]
    fn contents_that_have_one_uri_stay_apart() {
        let text = r#"{"contents":[{"uri":"a:1","text":"one"},{"uri":"a:1","text":"two"},{"uri":"a:1","blob":"aGk="}]}"#;
        let read = output(Kind::Resource, None, &Json::parse(text.as_bytes()).unwrap()).unwrap();
        let Output::Contents { contents, .. } = read else { panic!("no contents") };
        assert_eq!(contents.len(), 3);
        let told = [&contents[0]["text"], &contents[1]["text"], &contents[2]["blob"]];
        assert_eq!(told, ["one", "two", "aGk="]);
    }

    #[test]
    fn a_result_passes_as_it_was_written() {
        let structured = r#"{"n":340282366920938463463374607431768211455,"a":1,"\u0061":2}"#;
        let text = format!(
            r#"{{"content":[{{"type":"text","text":"\ud83d"}},{{"type":"later","x":1e3}}],"structuredContent":{structured},"isError":true,"_meta":{{"a/b":1.50,"asp/x":1}},"usage":{structured},"resultType":"complete","ttlMs":9,"asp/y":1}}"#
        );
        let Output::Tool { content, structured: passed, is_error: true, meta, more } = of(&text) else {
            panic!()
        };
        assert_eq!(more.to_json().text(), format!(r#"{{"usage":{structured}}}"#));
        assert_eq!(content[0].text(), r#"{"type":"text","text":"\ud83d"}"#);
        assert_eq!(content[1].text(), r#"{"type":"later","x":1e3}"#);
        assert_eq!(passed.unwrap().text(), structured);
        assert_eq!(meta.to_json().text(), r#"{"a/b":1.50}"#);
    }
}
