//! Questions of a server, asked at the terminal.
//!
//! Keeps true: without a terminal a question is declined, and its text is printed; what was typed fits its field.

use std::io::{self, BufRead, IsTerminal, Write};

use asp_command::print;
use serde_json::{Map, Number, Value};

/// Longest line that is read, in bytes.
const MAX_LINE: u64 = 64 << 10;

/// A person's reply.
#[derive(Debug, PartialEq)]
pub(super) enum QuestionReply {
    /// The fields of the form.
    Accepted(Map<String, Value>),
    /// The person has the page.
    Visited,
    Declined,
}

/// Asks for the fields of a form; `schema` is a flat object schema (MCP 2025-11-25, elicitation).
pub(super) async fn ask_form(message: String, schema: Value) -> QuestionReply {
    at_terminal(message, move |message, input, output| form(input, output, message, &schema)).await
}

/// Sends the person to a page.
pub(super) async fn ask_page(message: String, url: String) -> QuestionReply {
    at_terminal(format!("{message}\n{url}"), |message, input, output| {
        writeln!(output, "{message}")?;
        let is_accepted = confirm(input, output, "Continue?")?;
        Ok(if is_accepted { QuestionReply::Visited } else { QuestionReply::Declined })
    })
    .await
}

/// Asks for yes or no.
pub(in crate::commands) async fn ask_yes(question: String) -> bool {
    let reply = at_terminal(question, |question, input, output| {
        let is_accepted = confirm(input, output, question)?;
        Ok(if is_accepted { QuestionReply::Accepted(Map::new()) } else { QuestionReply::Declined })
    });
    reply.await != QuestionReply::Declined
}

/// Asks in a thread of its own, because reading blocks. A terminal that cannot be read declines.
async fn at_terminal(
    message: String,
    ask: impl FnOnce(&str, &mut dyn BufRead, &mut dyn Write) -> io::Result<QuestionReply> + Send + 'static,
) -> QuestionReply {
    // The text is a server's.
    let message = print::printable(&message, &['\n', '\t']);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        print::error(&format!("declined a question, because there is no terminal to ask it at: {message}"));
        return QuestionReply::Declined;
    }
    let asked = tokio::task::spawn_blocking(move || {
        ask(&message, &mut io::stdin().lock(), &mut io::stderr().lock()).unwrap_or(QuestionReply::Declined)
    });
    asked.await.unwrap_or(QuestionReply::Declined)
}

fn form(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    message: &str,
    schema: &Value,
) -> io::Result<QuestionReply> {
    writeln!(output, "{message}")?;
    let mut content = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    for (name, field) in fields.into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|required| required == name));
        match ask_field(input, output, (name.as_str(), field), is_required)? {
            FieldReply::Value(value) => {
                content.insert(name.clone(), value);
            }
            FieldReply::Empty => {}
            FieldReply::End => return Ok(QuestionReply::Declined),
        }
    }
    let is_accepted = fields.is_some_and(|fields| !fields.is_empty()) || confirm(input, output, "Accept?")?;
    Ok(if is_accepted { QuestionReply::Accepted(content) } else { QuestionReply::Declined })
}

enum FieldReply {
    Value(Value),
    /// The field is left out.
    Empty,
    /// The terminal has no more lines.
    End,
}

fn ask_field(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    (name, field): (&str, &Value),
    is_required: bool,
) -> io::Result<FieldReply> {
    let default = field.get("default").filter(|value| !value.is_null());
    let prompt = prompt(name, field, default, is_required);
    loop {
        write!(output, "{prompt}")?;
        output.flush()?;
        let Some(line) = read_line(input)? else { return Ok(FieldReply::End) };
        match (line.trim(), default) {
            ("", Some(default)) => return Ok(FieldReply::Value(default.clone())),
            ("", None) if is_required => writeln!(output, "a value is required")?,
            ("", None) => return Ok(FieldReply::Empty),
            (text, _) => match value(field, text) {
                Ok(value) => return Ok(FieldReply::Value(value)),
                Err(wanted) => writeln!(output, "the value is {}", print::printable(&wanted, &[]))?,
            },
        }
    }
}

/// Returns the line that asks for a field, such as `Column (to sum; id or amount) [optional]: `.
fn prompt(name: &str, field: &Value, default: Option<&Value>, is_required: bool) -> String {
    let text = |member: &str| field.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
    let choices = Some(choices(field).join(" or ")).filter(|choices| !choices.is_empty());
    let notes: Vec<String> = text("description").map(str::to_owned).into_iter().chain(choices).collect();
    let mut prompt = text("title").unwrap_or(name).to_owned();
    if !notes.is_empty() {
        prompt = format!("{prompt} ({})", notes.join("; "));
    }
    match default {
        Some(default) => prompt = format!("{prompt} [{}]", text_of(default)),
        None if !is_required => prompt.push_str(" [optional]"),
        None => {}
    }
    print::printable(&format!("{prompt}: "), &[])
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the values that a field, or the items of a list, can have; none if any.
fn choices(field: &Value) -> Vec<&str> {
    let kind = field.get("items").unwrap_or(field);
    let list = |member: &str| kind.get(member).and_then(Value::as_array).into_iter().flatten();
    let titled = list("oneOf").chain(list("anyOf")).filter_map(|choice| choice.get("const"));
    list("enum").chain(titled).filter_map(Value::as_str).collect()
}

/// Reads a value of a field, or returns the kind of value that is wanted.
fn value(field: &Value, text: &str) -> Result<Value, String> {
    match field.get("type").and_then(Value::as_str) {
        Some("boolean") => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(true.into()),
            "n" | "no" | "false" => Ok(false.into()),
            _ => Err("yes or no".to_owned()),
        },
        Some("integer") => text.parse::<i64>().map(Value::from).map_err(|_| "a whole number".to_owned()),
        Some("number") => {
            serde_json::from_str::<Number>(text).map(Value::Number).map_err(|_| "a number".to_owned())
        }
        Some("array") => text.split(',').map(|item| choice(field, item.trim())).collect(),
        _ => choice(field, text),
    }
}

fn choice(field: &Value, text: &str) -> Result<Value, String> {
    let choices = choices(field);
    if choices.is_empty() || choices.contains(&text) {
        return Ok(text.into());
    }
    Err(choices.join(" or "))
}

/// Asks for yes or no; anything but yes is no.
fn confirm(input: &mut dyn BufRead, output: &mut dyn Write, question: &str) -> io::Result<bool> {
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let line = read_line(input)?.unwrap_or_default();
    Ok(["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()))
}

/// Reads a line; `None` at the end of the input.
fn read_line(input: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = io::Read::take(input, MAX_LINE).read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(schema: &Value, typed: &str) -> (QuestionReply, String) {
        let mut output = Vec::new();
        let reply = form(&mut typed.as_bytes(), &mut output, "Which?", schema).unwrap();
        (reply, String::from_utf8(output).unwrap())
    }

    #[test]
    fn each_field_is_asked_for_until_its_value_fits() {
        let schema = json!({"required": ["n"], "properties": {"n": {"type": "integer", "title": "Number"}}});
        let (reply, shown) = asked(&schema, "\nmany\n7\n");
        assert_eq!(reply, QuestionReply::Accepted(Map::from_iter([("n".to_owned(), json!(7))])));
        assert_eq!(
            shown,
            "Which?\nNumber: a value is required\nNumber: the value is a whole number\nNumber: "
        );
    }

    #[test]
    fn a_field_may_be_left_out_or_have_its_default() {
        let optional = json!({"properties": {"a": {"type": "string", "description": "Any text"}}});
        let (reply, shown) = asked(&optional, "\n");
        assert_eq!(
            (reply, shown.as_str()),
            (QuestionReply::Accepted(Map::new()), "Which?\na (Any text) [optional]: ")
        );
        let default = json!({"properties": {"a": {"enum": ["x", "y"], "default": "y"}}});
        let (reply, shown) = asked(&default, "\n");
        assert_eq!(reply, QuestionReply::Accepted(Map::from_iter([("a".to_owned(), json!("y"))])));
        assert_eq!(shown, "Which?\na (x or y) [y]: ");
    }

    #[test]
    fn the_end_of_the_input_declines_and_a_question_without_fields_wants_a_yes() {
        let schema = json!({"required": ["n"], "properties": {"n": {"type": "integer"}}});
        assert_eq!(asked(&schema, "").0, QuestionReply::Declined);
        for (typed, reply) in [
            ("y\n", QuestionReply::Accepted(Map::new())),
            ("YES\n", QuestionReply::Accepted(Map::new())),
            ("\n", QuestionReply::Declined),
            ("", QuestionReply::Declined),
        ] {
            assert_eq!(asked(&json!({"properties": {}}), typed).0, reply, "{typed:?}");
        }
    }

    #[test]
    fn a_value_has_the_type_of_its_field() {
        let list = json!({"type": "array", "items": {"enum": ["a", "b"]}});
        let titled = json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}]});
        for (field, text, read) in [
            (json!({"type": "boolean"}), "Yes", Some(json!(true))),
            (json!({"type": "boolean"}), "no", Some(json!(false))),
            (json!({"type": "boolean"}), "maybe", None),
            (json!({"type": "integer"}), "7.5", None),
            (json!({"type": "number"}), "7.5", Some(json!(7.5))),
            (json!({"type": "number"}), "many", None),
            (json!({"type": "string"}), "7", Some(json!("7"))),
            (list.clone(), "a, b", Some(json!(["a", "b"]))),
            (list, "a, c", None),
            (titled.clone(), "a", Some(json!("a"))),
            (titled, "A", None),
        ] {
            assert_eq!(value(&field, text).ok(), read, "{field} {text}");
        }
    }
}
