//! Static content: a prompt's messages and a resource's contents, as the spec writes them.

use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_json::Json;
use asp_proto::snapshot::Kind;
use asp_proto::snapshot::runtime::Mode;
use async_trait::async_trait;
use serde_json::Value;

use crate::backend::{Backend, misplaced, mode};

/// The backend of static content.
pub struct StaticBackend;

#[async_trait]
impl Backend for StaticBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let Some(Mode::Static(content)) = mode(&execution.call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        execution.started().mark_sent();
        answer(&content.json, execution)
    }
}

/// Answers with the content; `{{name}}` in a prompt's texts is replaced by the argument.
fn answer(content: &str, execution: &Execution) -> Result<Output, Refusal> {
    let items: Vec<Value> =
        serde_json::from_str(content).map_err(|e| Refusal::Internal(format!("static content: {e}")))?;
    let primitive = &execution.call.entry.primitive;
    Ok(match primitive.kind() {
        Kind::Prompt => Output::messages(
            (!primitive.summary.is_empty()).then(|| primitive.summary.clone()),
            items.into_iter().map(|item| fill(item, &execution.arguments).into()).collect(),
        ),
        _ => Output::contents(items.into_iter().map(Json::from).collect()),
    })
}

fn fill(item: Value, arguments: &Json) -> Value {
    match item {
        Value::String(text) => Value::String(fill_text(&text, arguments)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| fill(item, arguments)).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, fill(value, arguments))).collect())
        }
        plain => plain,
    }
}

/// Fills a text in one pass from left to right: an argument that contains `{{…}}` is not filled again.
fn fill_text(text: &str, arguments: &Json) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        match after.split_once("}}") {
            Some((name, tail)) => {
                match arguments.member(name.trim()) {
                    Some(value) if value.is_string() => filled.push_str(value.as_str().unwrap_or_default()),
                    None => {}
                    Some(value) if value.is_null() => {}
                    Some(other) => filled.push_str(other.text()),
                }
                rest = tail;
            }
            None => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_fill_texts_once_and_missing_ones_leave_nothing() {
        let arguments = Json::from(json!({"name": "{{other}}", "n": 3, "other": "x"}));
        let rows = [
            ("Hello {{name}}!", "Hello {{other}}!"),
            ("{{ n }}{{n}}", "33"),
            ("{{absent}}.", "."),
            ("open {{name", "open {{name"),
            ("plain", "plain"),
        ];
        for (text, expected) in rows {
            assert_eq!(fill_text(text, &arguments), expected);
        }
    }
}
