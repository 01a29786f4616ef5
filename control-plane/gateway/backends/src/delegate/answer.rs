//! Answer to a delegation, from any source: `{text, json, model, stopReason}`.
//!
//! Keeps true: `json` is present only if the text is JSON, and is as it was written; an answer that is too large or does
//! not fit the delegate's output schema is rejected.

use asp_call::call::Call;
use asp_call::call::question::{Answer, PendingQuestion};
use asp_call::telemetry::metrics::Usage;
use asp_json::{Cursor, Json, Members};
use asp_snapshot::ListedPrimitive;
use serde_json::{Map, Value, json};

use crate::delegate::conversation;
use crate::delegate::delegation::DelegationFault;

/// Maximum length of the name of a model or reason that is passed on, in bytes.
const MAX_WORD: usize = 256;

/// Maximum size of the text in bytes: it is sent to the worker twice, as text and as its value, in one message of at
/// most 4 MiB.
const MAX_TEXT: usize = 1 << 20;

/// The answer, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct DelegateAnswer {
    /// An MCP `CreateMessageResult`; a primitive's answer has no model.
    pub said: Json,
    pub usage: Usage,
}

/// Waits for the answer of the client, or of its model, to a question.
pub(crate) async fn of_client(
    asked: PendingQuestion,
    call: &Call,
) -> Result<DelegateAnswer, DelegationFault> {
    match asked.answered(call).await {
        Ok(Answer::Sampled(said)) => Ok(DelegateAnswer { said, usage: Usage::default() }),
        Ok(Answer::Roots(roots)) => {
            // Like a primitive's answer: the text is JSON.
            let text = format!(r#"{{"roots":{roots}}}"#);
            let said = json!({"role": "assistant", "content": {"type": "text", "text": text}}).into();
            Ok(DelegateAnswer { said, usage: Usage::default() })
        }
        Ok(Answer::Failed(why)) => Err(DelegationFault::Failed(why)),
        Ok(_) => Err(DelegationFault::Failed(String::new())),
        Err(refusal) => Err(DelegationFault::unanswered(&refusal)),
    }
}

/// Builds the result for a plugin, with the blocks of the answer if it is to a conversation, whose request is
/// `asked`. The output schema is checked against the value of the text, or the text itself if it is not JSON. An
/// answer in which the model wants to use an offered tool is not final, so the schema is not checked.
pub fn result(
    said: &Json,
    delegate: &ListedPrimitive,
    asked: Option<&Map<String, Value>>,
) -> Result<Json, DelegationFault> {
    let blocks = blocks(said);
    let uses_tools = blocks.iter().any(|block| block.get("type").is_some_and(|kind| kind == "tool_use"));
    // If no tool was offered, none may be used.
    if !asked.map_or(!uses_tools, |asked| conversation::is_answer(said, asked)) {
        return Err(DelegationFault::InvalidOutput);
    }
    let mut read = read(said, &blocks);
    if asked.is_some() {
        let texts: Vec<&str> = blocks.iter().map(Json::text).collect();
        let content = format!("[{}]", texts.join(","));
        if content.len() > MAX_TEXT {
            return Err(DelegationFault::InvalidOutput);
        }
        read.insert("content", Json::part(content));
    }
    if read.get("text").and_then(|text| text.as_str()).is_some_and(|text| text.len() > MAX_TEXT) {
        return Err(DelegationFault::InvalidOutput);
    }
    if let Some(schema) = delegate.output.as_ref().filter(|_| !uses_tools) {
        let value = read.get("json").or_else(|| read.get("text"));
        schema.check(value.map_or(&Value::Null, Json::view)).map_err(|_| DelegationFault::InvalidOutput)?;
    }
    Ok(read.to_json())
}

/// Returns the content blocks of an answer, one or several.
fn blocks(said: &Json) -> Vec<Json> {
    let Some(content) = said.member("content") else { return Vec::new() };
    content.elements().unwrap_or_else(|| vec![content])
}

fn read(said: &Json, blocks: &[Json]) -> Members {
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    let text = texts.join("\n");
    let mut result = Members::default();
    if let Some(value) = parsed(unfenced(&text)) {
        result.insert("json", value);
    }
    result.insert("text", text);
    for name in ["model", "stopReason"] {
        if let Some(value) = said.get(name).and_then(Value::as_str).filter(|value| value.len() <= MAX_WORD) {
            result.insert(name, value);
        }
    }
    result
}

/// Parses JSON without numbers beyond a double, which not every language reads.
pub(crate) fn parsed(text: &str) -> Option<Json> {
    let mut cursor = Cursor::new(text.as_bytes()).ok()?;
    cursor.value().ok()?;
    cursor.end().ok()?;
    (!cursor.beyond_double).then(|| Json::part(text.trim()))
}

/// Returns the content of a Markdown code fence, which models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inside.and_then(|inside| inside.split_once('\n')).map_or(text, |(_, inside)| inside.trim())
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{Listing, Primitive};

    use super::*;

    fn said(text: &str) -> Json {
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}).into()
    }

    fn read(said: &Json) -> Json {
        super::read(said, &blocks(said)).to_json()
    }

    #[test]
    fn a_models_answer_is_text_and_json_where_it_is_json() {
        assert_eq!(
            read(&said("[\"email\"]")),
            json!({"json": ["email"], "text": "[\"email\"]", "model": "m"})
        );
        assert_eq!(read(&said("```json\n{\"a\": 1}\n```"))["json"], json!({"a": 1}));
        assert_eq!(read(&said("hello")), json!({"text": "hello", "model": "m"}));
        let blocks = json!({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]});
        assert_eq!(read(&blocks.into())["text"], "a\nb");
    }

    #[test]
    fn json_in_an_answer_and_the_input_of_a_tool_are_as_they_were_written() {
        let delegate = ListedPrimitive::build(&Primitive::default(), &Listing::default()).unwrap();
        let value = r#"{"n":340282366920938463463374607431768211455,"d":1.50,"s":"\ud83d"}"#;
        assert_eq!(read(&said("1e400")), json!({"text": "1e400", "model": "m"}));
        let read = result(&said(value), &delegate, None).unwrap();
        assert_eq!(read.member("json").unwrap().text(), value);
        let block = format!(r#"{{"type":"tool_use","id":"a","name":"weather","input":{value}}}"#);
        let answered = Json::part(format!(r#"{{"role":"assistant","content":{block}}}"#));
        let asked = json!({"tools": [{"name": "weather"}]}).as_object().unwrap().clone();
        let read = result(&answered, &delegate, Some(&asked)).unwrap();
        assert_eq!(read.member("content").unwrap().text(), format!("[{block}]"));
    }

    #[test]
    fn an_answer_beyond_its_bound_is_none() {
        let delegate = ListedPrimitive::build(&Primitive::default(), &Listing::default()).unwrap();
        assert!(result(&said(&"x".repeat(MAX_TEXT)), &delegate, None).is_ok());
        assert_eq!(
            result(&said(&"x".repeat(MAX_TEXT + 1)), &delegate, None),
            Err(DelegationFault::InvalidOutput)
        );
    }

    #[test]
    fn a_model_that_would_use_a_tool_is_told_so_by_its_blocks() {
        let primitive = Primitive { output_schema: r#"{"type": "array"}"#.into(), ..Primitive::default() };
        let delegate = ListedPrimitive::build(&primitive, &Listing::default()).unwrap();
        let block = json!({"type": "tool_use", "id": "a", "name": "weather", "input": {}});
        let said = |content: &Value| -> Json {
            json!({"role": "assistant", "model": "m", "stopReason": "toolUse", "content": content}).into()
        };
        let asked = json!({"tools": [{"name": "weather"}]}).as_object().unwrap().clone();
        let wanted: Json =
            json!({"text": "", "model": "m", "stopReason": "toolUse", "content": [block]}).into();
        assert_eq!(result(&said(&block), &delegate, Some(&asked)), Ok(wanted.clone()));
        assert_eq!(result(&said(&json!([block])), &delegate, Some(&asked)), Ok(wanted));
        for offered in [None, Some(&Map::new())] {
            assert_eq!(result(&said(&block), &delegate, offered), Err(DelegationFault::InvalidOutput));
        }
        let spoken = json!({"type": "text", "text": "no list"});
        assert_eq!(result(&said(&spoken), &delegate, Some(&asked)), Err(DelegationFault::InvalidOutput));
    }

    #[test]
    fn an_answer_off_the_output_schema_is_none() {
        let delegate = |schema: &str| {
            let primitive = Primitive { output_schema: schema.into(), ..Primitive::default() };
            ListedPrimitive::build(&primitive, &Listing::default()).unwrap()
        };
        let rows = [
            (r#"{"type": "array"}"#, "[1]", true),
            (r#"{"type": "array"}"#, "{}", false),
            (r#"{"type": "array"}"#, "sorry, I cannot", false),
            (r#"{"type": "string", "maxLength": 5}"#, "hello", true),
            (r#"{"type": "string", "maxLength": 5}"#, "hello there", false),
            ("", "anything", true),
        ];
        for (schema, text, fits) in rows {
            let found = result(&said(text), &delegate(schema), None);
            assert_eq!(found.is_ok(), fits, "{schema} {text}");
            assert!(fits || found == Err(DelegationFault::InvalidOutput));
        }
    }
}
