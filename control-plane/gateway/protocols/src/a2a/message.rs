//! Content of a message: the skill that it names, its arguments, and the answer to a question.
//!
//! Keeps true: nothing is guessed here. A skill is named in the metadata, or in a data part with the arguments, or is the only
//! one. Arguments are one data part, or the text if that is a JSON object; another text is the value of the argument that
//! the spec names for it, or else of the one field that is required, if that is a string. A text that is none of these is no
//! argument, unless a tool of the server finds some in it (`reading`): it is refused with the fields if none is required, and
//! the pipeline asks for those that are. Data keeps its text (I-14).

use asp_a2a::{A2aError, A2aFailure, FieldViolation, Message, Part, PartContent, SendRequest};
use asp_call::call::question::{Answer, Ask, Question};
use asp_json::{Json, Members, members, string};
use serde_json::Value;

use crate::estimate;

/// Metadata of a message with the name of the skill; a data part may have it beside [`ARGUMENTS`].
pub(super) const SKILL: &str = "skill";
/// Member of a data part that names the skill.
const ARGUMENTS: &str = "arguments";
/// Metadata of an answer with the id of the question; the oldest open one if absent.
pub(super) const QUESTION: &str = "questionId";
/// Metadata of an answer that accepts nothing: `decline` or `cancel`.
const ACTION: &str = "action";

/// Content of a message for a skill.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    /// A JSON object.
    Object(Json),
    Text(String),
}

impl Input {
    /// Returns the content as one JSON value.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Input::Object(object) => object.clone(),
            Input::Text(text) => Json::from(text.as_str()),
        }
    }
}

/// Request for a skill.
#[derive(Debug, PartialEq)]
pub(super) struct SkillRequest {
    /// `None` for the agent's only skill.
    pub(super) skill: Option<String>,
    pub(super) input: Input,
}

impl SkillRequest {
    /// Reads a message that starts a task.
    pub(super) fn read(send: &SendRequest) -> Result<SkillRequest, A2aFailure> {
        let input = input(&send.message.parts)?;
        let named = match named(send.message.metadata.as_ref(), SKILL)? {
            Some(name) => Some(name),
            None => named(send.metadata.as_ref(), SKILL)?,
        };
        Ok(match (named, input) {
            (None, Input::Object(object)) => match wrapped(&object) {
                Some((skill, arguments)) => {
                    SkillRequest { skill: Some(skill), input: Input::Object(arguments) }
                }
                None => SkillRequest { skill: None, input: Input::Object(object) },
            },
            (skill, input) => SkillRequest { skill, input },
        })
    }
}

/// Returns the text of a member of the metadata.
pub(super) fn named(metadata: Option<&Json>, name: &str) -> Result<Option<String>, A2aFailure> {
    match metadata.and_then(|metadata| metadata.get(name)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(A2aFailure::invalid_field(format!("message.metadata.{name}"), "must be a string")),
    }
}

/// Whether a value is an object; its text says so before it is decoded.
fn is_object(value: &str) -> bool {
    value.starts_with('{')
}

/// Returns skill and arguments of an object that has nothing else. The object is not decoded: only its arguments are used.
fn wrapped(object: &Json) -> Option<(String, Json)> {
    let mut skill = None;
    let mut arguments = None;
    for (name, value) in members(object.text())? {
        match &*name {
            SKILL => skill = Some(value),
            ARGUMENTS => arguments = Some(value),
            _ => return None,
        }
    }
    let skill = string(skill?)?.into_owned();
    match arguments {
        None => Some((skill, Members::default().to_json())),
        Some(arguments) => is_object(arguments).then(|| (skill, Json::part(arguments))),
    }
}

fn input(parts: &[Part]) -> Result<Input, A2aFailure> {
    let (mut data, mut texts): (Option<&Json>, Vec<&str>) = (None, Vec::new());
    for (at, part) in parts.iter().enumerate() {
        let refuse = |why: &str| Err(A2aFailure::invalid_field(format!("message.parts[{at}]"), why));
        match &part.content {
            PartContent::Text(text) => texts.push(text),
            PartContent::Data(_) if data.is_some() => return refuse("only one part can be data"),
            PartContent::Data(object) if is_object(object.text()) => data = Some(object),
            PartContent::Data(_) => return refuse("data must be an object"),
            PartContent::Raw(_) | PartContent::Url(_) => {
                let message = "this agent reads text and data, and no files";
                return Err(A2aFailure::new(A2aError::ContentTypeNotSupported, message));
            }
        }
    }
    if let Some(object) = data {
        return Ok(Input::Object(object.clone()));
    }
    let text = texts.join("\n");
    match Json::parse_request(text.trim().as_bytes()) {
        Ok(object) if is_object(object.text()) => Ok(Input::Object(object)),
        Ok(_) | Err(_) => Ok(Input::Text(text)),
    }
}

/// Returns an upper bound of the memory that the arguments in the texts of a message need, in bytes; 0 without such arguments.
/// The estimate of the body counts them as texts.
pub(super) fn estimate_of_texts(parts: &[Part]) -> usize {
    let texts = parts.iter().filter_map(|part| {
        let PartContent::Text(text) = &part.content else { return None };
        Some(text.as_str())
    });
    let first = texts.clone().map(str::trim_start).find(|text| !text.is_empty());
    match first.is_some_and(|text| text.starts_with('{')) {
        true => texts.map(|text| estimate(text.as_bytes())).sum(),
        false => 0,
    }
}

/// Whether arguments have to be found in the input: it is a text, the schema takes arguments, and none of them is for a text.
/// `for_text` as in [`arguments`].
pub(super) fn must_be_read(schema: &str, for_text: &str, input: &Input) -> bool {
    let Input::Text(text) = input else { return false };
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let is_argument = !for_text.is_empty() || field_for_text(&schema).is_some();
    !is_argument && !text.trim().is_empty() && properties(&schema).next().is_some()
}

/// Returns the arguments for an input schema, which is a JSON text. `for_text`: argument that the spec names for a text, or
/// empty.
pub(super) fn arguments(schema: &str, for_text: &str, input: Input) -> Result<Json, A2aFailure> {
    let text = match input {
        Input::Object(object) => return Ok(object),
        Input::Text(text) => text,
    };
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let takes_nothing = properties(&schema).next().is_none();
    match Some(for_text).filter(|name| !name.is_empty()).or_else(|| field_for_text(&schema)) {
        Some(field) if !text.trim().is_empty() => {
            Ok([(field, text)].into_iter().collect::<Members>().to_json())
        }
        // The pipeline asks for what is missing.
        _ if takes_nothing || text.trim().is_empty() || needs_values(&schema) => {
            Ok(Members::default().to_json())
        }
        _ => Err(lacking(
            &schema,
            "the text cannot be an argument of the skill; send the arguments in a data part",
        )),
    }
}

/// Returns the answer in a message to a question.
pub(super) fn answer(question: &Question, message: &Message) -> Result<Answer, A2aFailure> {
    match named(message.metadata.as_ref(), ACTION)?.as_deref() {
        None | Some("accept") => {}
        Some("decline") => return Ok(Answer::Declined),
        Some("cancel") => return Ok(Answer::Cancelled),
        Some(_) => {
            let field = format!("message.metadata.{ACTION}");
            return Err(A2aFailure::invalid_field(field, "must be accept, decline or cancel"));
        }
    }
    match &question.ask {
        Ask::Page { .. } => Ok(Answer::Accepted(Members::default().to_json())),
        Ask::Form { requested_schema, .. } => {
            match (input(&message.parts)?, field_for_text(requested_schema)) {
                (Input::Object(content), _) => Ok(Answer::Accepted(content)),
                (Input::Text(text), Some(field)) => {
                    Ok(Answer::Accepted([(field, text)].into_iter().collect::<Members>().to_json()))
                }
                (Input::Text(_), None) => Err(misfit(question)),
            }
        }
        Ask::Sampling(_) | Ask::Roots => Err(A2aError::UnsupportedOperation.into()),
    }
}

/// Returns the refusal of an answer that does not fit its question.
pub(super) fn misfit(question: &Question) -> A2aFailure {
    let message = "the answer does not fit the question; send the fields in a data part";
    match &question.ask {
        Ask::Form { requested_schema, .. } => lacking(requested_schema, message),
        Ask::Page { .. } | Ask::Sampling(_) | Ask::Roots => A2aFailure::new(A2aError::InvalidParams, message),
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a field is required and has no default.
fn needs_values(schema: &Value) -> bool {
    let default = |name: &str| schema.get("properties")?.get(name)?.get("default");
    required(schema).any(|name| default(name).is_none())
}

/// Returns the one required field if it is a string.
fn field_for_text(schema: &Value) -> Option<&str> {
    let mut names = required(schema);
    let only = names.next().filter(|_| names.next().is_none())?;
    let (_, field) = properties(schema).find(|(name, _)| *name == only)?;
    (field.get("type").and_then(Value::as_str) == Some("string")).then_some(only)
}

/// Returns the refusal with the required fields, or all if none is required.
fn lacking(schema: &Value, message: &str) -> A2aFailure {
    let needed: Vec<&str> = required(schema).collect();
    let violations = properties(schema)
        .filter(|(name, _)| needed.is_empty() || needed.contains(&name.as_str()))
        .map(|(name, field)| {
            let kind = field.get("type").and_then(Value::as_str).unwrap_or("value");
            let is_required = if needed.is_empty() { "optional" } else { "required" };
            FieldViolation {
                field: format!("arguments.{name}"),
                description: format!("{is_required} {kind}"),
            }
        });
    A2aFailure { message: message.to_owned(), ..A2aFailure::invalid(violations.collect()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn send(parts: Vec<PartContent>, metadata: Value) -> SendRequest {
        let parts = parts.into_iter().map(Part::from).collect();
        let metadata = metadata.is_object().then(|| metadata.into());
        SendRequest { message: Message { parts, metadata, ..Message::default() }, ..SendRequest::default() }
    }

    fn data(value: Value) -> PartContent {
        PartContent::Data(value.into())
    }

    fn text(text: &str) -> PartContent {
        PartContent::Text(text.into())
    }

    fn read(parts: Vec<PartContent>, metadata: Value) -> (Option<String>, Input) {
        let SkillRequest { skill, input } = SkillRequest::read(&send(parts, metadata)).unwrap();
        (skill, input)
    }

    /// Invariant I-4.
    #[test]
    fn arguments_in_a_text_need_as_much_memory_as_elsewhere() {
        let of = |texts: &[&str]| {
            let parts: Vec<Part> = texts.iter().map(|part| text(part).into()).collect();
            estimate_of_texts(&parts)
        };
        let many = format!(r#"{{"a":[{}]}}"#, vec!["[0]"; 1_000].join(","));
        assert!(of(&[&many]) >= estimate(many.as_bytes()));
        let (one, other) = many.split_at(many.len() / 2);
        assert!(of(&[" ", one, other]) >= estimate(many.as_bytes()));
        assert_eq!(of(&["a text, and no object: {}"]), 0);
        assert_eq!(of(&[]), 0);
    }

    #[test]
    fn a_skill_is_named_in_metadata_or_with_its_arguments() {
        let object = |value: Value| Input::Object(value.into());
        let echo = Some("echo".to_owned());
        let named = json!({"skill": "echo"});
        assert_eq!(read(vec![data(json!({"a": 1}))], named.clone()), (echo.clone(), object(json!({"a": 1}))));
        let wrapped = json!({"skill": "echo", "arguments": {"a": 1}});
        assert_eq!(read(vec![data(wrapped.clone())], json!(null)), (echo.clone(), object(json!({"a": 1}))));
        let as_text = vec![text(&wrapped.to_string())];
        assert_eq!(read(as_text, json!(null)), (echo.clone(), object(json!({"a": 1}))));
        assert_eq!(
            read(vec![data(json!({"skill": "echo"}))], json!(null)),
            (echo.clone(), object(json!({})))
        );
        // What is named elsewhere is no wrapper, and neither is an object with other members.
        assert_eq!(read(vec![data(wrapped.clone())], named), (echo, object(wrapped)));
        let other = json!({"skill": "echo", "to": 1});
        assert_eq!(read(vec![data(other.clone())], json!(null)), (None, object(other)));
        let beyond = r#"{"skill": "echo", "arguments": {"a": 1e400}}"#;
        assert_eq!(read(vec![text(beyond)], json!(null)), (None, Input::Text(beyond.into())));
        let hi = Input::Text("hi\nthere".into());
        assert_eq!(read(vec![text("hi"), text("there")], json!(null)), (None, hi));
        let mut request = send(vec![text("hi")], json!(null));
        request.metadata = Some(json!({"skill": "b"}).into());
        assert_eq!(SkillRequest::read(&request).unwrap().skill.as_deref(), Some("b"));
    }

    #[test]
    fn what_is_no_text_and_no_single_object_is_refused_with_its_part() {
        for (parts, field) in [
            (vec![data(json!({})), data(json!({}))], "message.parts[1]"),
            (vec![text("a"), data(json!([1]))], "message.parts[1]"),
        ] {
            let failure = SkillRequest::read(&send(parts, json!(null))).unwrap_err();
            assert_eq!(
                (failure.error, failure.violations[0].field.as_str()),
                (A2aError::InvalidParams, field)
            );
        }
        let file = send(vec![PartContent::Url("https://a/b".into())], json!(null));
        assert_eq!(SkillRequest::read(&file).unwrap_err().error, A2aError::ContentTypeNotSupported);
        let misnamed = send(vec![text("a")], json!({"skill": 7}));
        assert_eq!(SkillRequest::read(&misnamed).unwrap_err().violations[0].field, "message.metadata.skill");
    }

    #[test]
    fn a_text_is_the_one_required_string_and_nothing_else() {
        let one = r#"{"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}"#;
        let given = |schema: &str, text: &str| arguments(schema, "", Input::Text(text.into()));
        assert_eq!(given(one, "7 \"x\"").unwrap().text(), r#"{"q":"7 \"x\""}"#);
        assert_eq!(given("{}", "what time is it?").unwrap().text(), "{}");
        let optional = r#"{"properties": {"q": {"type": "string"}}}"#;
        assert_eq!(given(optional, " ").unwrap().text(), "{}");
        let two =
            r#"{"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q", "n"]}"#;
        let number = r#"{"properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;
        for (schema, text) in [(one, " "), (two, "x"), (number, "7")] {
            assert_eq!(given(schema, text).unwrap().text(), "{}", "what is missing is asked for: {schema}");
        }
        let filled = r#"{"properties": {"n": {"type": "integer", "default": 1}}, "required": ["n"]}"#;
        for (schema, field, description) in
            [(optional, "arguments.q", "optional string"), (filled, "arguments.n", "required integer")]
        {
            let failure = given(schema, "x").unwrap_err();
            let found: Vec<(&str, &str)> =
                failure.violations.iter().map(|v| (v.field.as_str(), v.description.as_str())).collect();
            assert_eq!(found, [(field, description)], "{schema}");
        }
        let kept = Json::parse(br#"{"n":1.50}"#).unwrap();
        assert_eq!(arguments(number, "", Input::Object(kept)).unwrap().text(), r#"{"n":1.50}"#);
    }

    #[test]
    fn a_text_is_the_argument_that_the_spec_names_for_it() {
        let schema =
            r#"{"properties": {"q": {"type": "string"}, "n": {"type": "string"}}, "required": ["n"]}"#;
        let given = |schema: &str, text: &str| arguments(schema, "q", Input::Text(text.into()));
        assert_eq!(given(schema, "hi").unwrap().text(), r#"{"q":"hi"}"#);
        assert_eq!(given(schema, " ").unwrap().text(), "{}");
        let optional = r#"{"properties": {"q": {"type": "string"}}}"#;
        assert_eq!(given(optional, " ").unwrap().text(), "{}");
    }

    #[test]
    fn a_text_is_read_if_no_argument_is_for_it() {
        let two =
            r#"{"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q", "n"]}"#;
        let one = r#"{"properties": {"q": {"type": "string"}}, "required": ["q"]}"#;
        let optional = r#"{"properties": {"q": {"type": "string"}}}"#;
        let hi = || Input::Text("hi".into());
        for (schema, for_text, input, is_read) in [
            (two, "", hi(), true),
            (optional, "", hi(), true),
            (two, "q", hi(), false),
            (one, "", hi(), false),
            ("{}", "", hi(), false),
            (two, "", Input::Text(" ".into()), false),
            (two, "", Input::Object(json!({"q": "x"}).into()), false),
        ] {
            assert_eq!(must_be_read(schema, for_text, &input), is_read, "{schema} {input:?}");
        }
    }

    #[test]
    fn a_question_is_answered_by_data_text_or_action() {
        let schema = json!({"properties": {"name": {"type": "string"}}, "required": ["name"]});
        let ask = Ask::Form { message: "?".into(), requested_schema: schema.into(), relayed: false };
        let form = Question { id: "a".into(), ask };
        let answered =
            |question: &Question, parts, metadata| answer(question, &send(parts, metadata).message);
        let ada = Answer::Accepted(json!({"name": "Ada"}).into());
        for parts in [vec![data(json!({"name": "Ada"}))], vec![text(r#"{"name": "Ada"}"#)], vec![text("Ada")]]
        {
            assert_eq!(answered(&form, parts, json!(null)).as_ref(), Ok(&ada));
        }
        assert_eq!(answered(&form, vec![text("no")], json!({"action": "decline"})), Ok(Answer::Declined));
        assert_eq!(answered(&form, vec![text("no")], json!({"action": "cancel"})), Ok(Answer::Cancelled));
        assert!(answered(&form, vec![text("no")], json!({"action": "x"})).is_err());
        let page = Ask::Page { message: "?".into(), url: "https://a".into() };
        let page = Question { id: "p".into(), ask: page };
        assert_eq!(answered(&page, vec![text("done")], json!(null)), Ok(Answer::Accepted(json!({}).into())));
        let approve = json!({"properties": {"approve": {"type": "boolean"}}, "required": ["approve"]});
        let ask = Ask::Form { message: "?".into(), requested_schema: approve.into(), relayed: false };
        let failure =
            answered(&Question { id: "b".into(), ask }, vec![text("yes")], json!(null)).unwrap_err();
        assert_eq!(failure.violations[0].description, "required boolean");
    }
}
