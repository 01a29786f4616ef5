//! Answer to a delegation, from any source: `{text, json, model, stopReason}`.
//!
//! Keeps true: `json` is present only if the text is JSON; an answer that is too large or does not fit the delegate's
//! output schema is rejected.

use asp_call::call::Call;
use asp_call::call::outcome::written_size;
use asp_call::call::question::{Answer, PendingQuestion};
use asp_call::telemetry::metrics::delegations::Usage;
use asp_json::Json;
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
    said: &Value,
    delegate: &ListedPrimitive,
    asked: Option<&Map<String, Value>>,
) -> Result<Value, DelegationFault> {
    let content = blocks(said);
    let uses_tools = content.iter().any(|block| block.get("type").is_some_and(|kind| kind == "tool_use"));
    // If no tool was offered, none may be used.
    if !asked.map_or(!uses_tools, |asked| conversation::is_answer(said, asked)) {
        return Err(DelegationFault::InvalidOutput);
    }
    let mut read = read(said);
    if let (Some(_), Some(members)) = (asked, read.as_object_mut()) {
        let content = json!(content);
        if written_size(&content) > MAX_TEXT {
            return Err(DelegationFault::InvalidOutput);
        }
        members.insert("content".into(), content);
    }
    if read.get("text").and_then(Value::as_str).is_some_and(|text| text.len() > MAX_TEXT) {
        return Err(DelegationFault::InvalidOutput);
    }
    if let Some(schema) = delegate.output.as_ref().filter(|_| !uses_tools) {
        let value = read.get("json").or_else(|| read.get("text")).unwrap_or(&Value::Null);
        schema.check(value).map_err(|_| DelegationFault::InvalidOutput)?;
    }
    Ok(read)
}

fn blocks(said: &Value) -> &[Value] {
    let content = said.get("content").unwrap_or(&Value::Null);
    content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice)
}

fn read(said: &Value) -> Value {
    let texts: Vec<&str> = blocks(said).iter().filter_map(|block| block.get("text")?.as_str()).collect();
    let text = texts.join("\n");
    let mut result = Map::new();
    if let Ok(value) = serde_json::from_str::<Value>(unfenced(&text)) {
        result.insert("json".into(), value);
    }
    result.insert("text".into(), text.into());
    for name in ["model", "stopReason"] {
        if let Some(value) = said.get(name).and_then(Value::as_str).filter(|value| value.len() <= MAX_WORD) {
            result.insert(name.into(), value.into());
        }
    }
    Value::Object(result)
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

    fn said(text: &str) -> Value {
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}})
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
        assert_eq!(read(&blocks)["text"], "a\nb");
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
        let said = |content: &Value| json!({"role": "assistant", "model": "m", "stopReason": "toolUse", "content": content});
        let asked = json!({"tools": [{"name": "weather"}]}).as_object().unwrap().clone();
        let wanted = json!({"text": "", "model": "m", "stopReason": "toolUse", "content": [block]});
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
