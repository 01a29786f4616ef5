//! Outputs, questions and answers of calls as parts of messages and artifacts.
//!
//! Keeps true: values keep their text (I-14); a value that is also a text is sent once; content of an unknown type is data.

use asp_a2a::{Base64, Part, PartContent};
use asp_call::call::outcome::Output;
use asp_call::call::question::{Answer, Ask, Question};
use asp_json::{Json, Members};
use serde_json::Value;

use super::message::QUESTION;
use super::modes::OutputForms;

/// Returns a part with a text.
pub(super) fn text(text: &str) -> Part {
    PartContent::Text(text.to_owned()).into()
}

fn data(value: Json) -> Part {
    PartContent::Data(value).into()
}

/// Returns the parts of an output, without links to what is `linked` already. A client that accepts only text gets a value as
/// its JSON text; one that accepts only data gets no texts beside a value.
pub(super) fn of_output(output: &Output, linked: &[&str], forms: OutputForms) -> Vec<Part> {
    let of_value = |value: Json| if forms.is_text_only() { text(value.text()) } else { data(value) };
    let Output::Tool { content, structured, .. } = output else {
        let text = serde_json::to_string(output).unwrap_or_else(|_| "null".to_owned());
        return vec![of_value(Json::part(text))];
    };
    let value = structured.as_ref().map(Json::text);
    let is_sent_otherwise = |block: &Json| match (member(block, "text"), member(block, "uri")) {
        (Some(text), _) => value == Some(text),
        (None, Some(uri)) => linked.contains(&uri),
        (None, None) => false,
    };
    let is_left_out =
        |block: &Json| forms.is_data_only() && value.is_some() && member(block, "type") == Some("text");
    let blocks =
        content.iter().filter(|block| !is_sent_otherwise(block) && !is_left_out(block)).map(of_block);
    blocks.chain(structured.iter().cloned().map(of_value)).collect()
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

/// Returns an MCP content block as a part.
fn of_block(block: &Json) -> Part {
    let found = match member(block, "type") {
        Some("text") => member(block, "text").map(text),
        Some("image" | "audio") => raw(block, "data"),
        Some("resource_link") => member(block, "uri").map(|uri| Part {
            media_type: owned(block, "mimeType"),
            filename: owned(block, "name"),
            ..PartContent::Url(uri.to_owned()).into()
        }),
        Some("resource") => block.get("resource").and_then(of_resource),
        _ => None,
    };
    found.unwrap_or_else(|| data(block.clone()))
}

/// Returns the contents of an embedded resource.
fn of_resource(resource: &Value) -> Option<Part> {
    let Some(content) = member(resource, "text") else { return raw(resource, "blob") };
    let filename = member(resource, "uri").and_then(filename);
    Some(Part { media_type: owned(resource, "mimeType"), filename, ..text(content) })
}

/// Returns the file whose bytes a member has; `None` if they are not base64.
fn raw(value: &Value, name: &str) -> Option<Part> {
    let bytes = Base64::parse(member(value, name)?)?;
    let media_type = owned(value, "mimeType");
    let filename = member(value, "uri").and_then(filename);
    Some(Part { media_type, filename, ..PartContent::Raw(bytes).into() })
}

/// Returns the last segment of a URI.
pub(super) fn filename(uri: &str) -> Option<String> {
    let path = uri.split(['?', '#']).next()?;
    path.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns how far a task is: a text, and data with the agent's name for the phase and the percentage, as far as they are known.
pub(super) fn of_progress(message: &str, phase: Option<&str>, percentage: Option<Json>) -> Vec<Part> {
    let mut known = Members::default();
    if let Some(phase) = phase {
        known.insert("phase", phase);
    }
    if let Some(percentage) = percentage {
        known.insert("progressPct", percentage);
    }
    let known = (!known.is_empty()).then(|| data(known.to_json()));
    std::iter::once(text(message)).chain(known).collect()
}

fn owned(value: &Value, name: &str) -> Option<String> {
    member(value, name).map(str::to_owned)
}

/// Returns a question: its text, and data that names it and its fields with their schemas.
pub(super) fn of_question(question: &Question) -> Vec<Part> {
    let mut asked = Members::default();
    asked.insert(QUESTION, question.id.as_str());
    let message = match &question.ask {
        Ask::Form { message, requested_schema, .. } => {
            asked.insert("schema", requested_schema.clone());
            message.as_str()
        }
        Ask::Page { message, url } => {
            asked.insert("url", url.as_str());
            message.as_str()
        }
        Ask::Sampling(params) => {
            asked.insert("sampling", params.clone());
            "the task asks the model of its client"
        }
        Ask::Roots => "the task asks for the roots of its client",
    };
    vec![text(message), data(asked.to_json())]
}

/// Returns an answer, as its client could send it again.
pub(super) fn of_answer(answer: &Answer) -> Part {
    match answer {
        Answer::Accepted(content) | Answer::Sampled(content) | Answer::Roots(content) => {
            data(content.clone())
        }
        Answer::Declined => text("decline"),
        Answer::Cancelled => text("cancel"),
        Answer::Failed(why) => text(why),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(content: Vec<Value>, structured: Option<&str>) -> Output {
        Output::Tool {
            content: content.into_iter().map(Json::from).collect(),
            structured: structured.map(Json::part),
            is_error: false,
            meta: Members::default(),
            more: Members::default(),
        }
    }

    #[test]
    fn each_kind_of_content_has_its_part() {
        let output = tool(
            vec![
                json!({"type": "text", "text": "hi"}),
                json!({"type": "image", "data": "aGk", "mimeType": "image/png"}),
                json!({"type": "image", "data": "?", "mimeType": "image/png"}),
                json!({"type": "resource_link", "uri": "https://a/b", "name": "b", "mimeType": "text/csv"}),
                json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/css", "text": "x"}}),
                json!({"type": "resource", "resource": {"uri": "https://a/b/c.txt?d=/e", "blob": "aGk="}}),
                json!({"type": "hologram", "x": 1}),
            ],
            None,
        );
        let file = |content: PartContent, media_type: Option<&str>, filename: Option<&str>| Part {
            media_type: media_type.map(str::to_owned),
            filename: filename.map(str::to_owned),
            ..content.into()
        };
        let bytes = || PartContent::Raw(Base64::of(b"hi"));
        let expected = vec![
            text("hi"),
            file(bytes(), Some("image/png"), None),
            data(json!({"type": "image", "data": "?", "mimeType": "image/png"}).into()),
            file(PartContent::Url("https://a/b".into()), Some("text/csv"), Some("b")),
            file(PartContent::Text("x".into()), Some("text/css"), Some("a:b")),
            file(bytes(), None, Some("c.txt")),
            data(json!({"type": "hologram", "x": 1}).into()),
        ];
        assert_eq!(of_output(&output, &[], OutputForms::ANY), expected);
    }

    #[test]
    fn a_value_is_sent_once_and_with_its_text() {
        let same = json!({"type": "text", "text": "{\"n\":1.50}"});
        let output = tool(vec![json!({"type": "text", "text": "it is 1.5"}), same], Some(r#"{"n":1.50}"#));
        let parts = of_output(&output, &[], OutputForms::ANY);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0], text("it is 1.5"));
        assert!(matches!(&parts[1].content, PartContent::Data(value) if value.text() == r#"{"n":1.50}"#));
        let accepting = |mode: &str| of_output(&output, &[], OutputForms::of(&[mode.to_owned()]));
        assert_eq!(accepting("text/plain"), [text("it is 1.5"), text(r#"{"n":1.50}"#)]);
        assert_eq!(accepting("application/json"), parts[1..]);
        assert_eq!(accepting("image/png"), parts);
    }

    #[test]
    fn a_text_without_a_value_is_sent_whatever_is_accepted() {
        let output = tool(vec![json!({"type": "text", "text": "hi"})], None);
        let forms = OutputForms::of(&["application/json".to_owned()]);
        assert_eq!(of_output(&output, &[], forms), [text("hi")]);
    }

    #[test]
    fn what_is_an_artifact_of_its_own_is_not_linked_again() {
        let link = json!({"type": "resource_link", "uri": "asp-artifact://a", "name": "a"});
        let output = tool(vec![link], None);
        assert_eq!(of_output(&output, &["asp-artifact://a"], OutputForms::ANY), vec![]);
        assert_eq!(of_output(&output, &[], OutputForms::ANY).len(), 1);
    }
}
