//! Stage 5 for a client that sends missing arguments later: asks for them until the arguments fit.
//!
//! Keeps true: nothing is guessed, an argument is what the caller sent or the spec's default; nothing of the call starts
//! before its arguments fit; a caller is asked at most [`MAX_ASKED`] times, and the input timeout bounds all questions
//! at one gateway together; if the gateway is lost or stops, another one asks the same question again; arguments of which
//! none is missing are refused at once if they do not fit, as those of any client.

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::call::question::{ARGUMENTS, Answer, Ask, Question, input_timeout, put};
use asp_call::durable::record::Record;
use asp_json::{Json, Members};
use asp_snapshot::schema::Schema;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::approve::title;
use super::limits::Grant;
use super::{CallInput, CallTask, input, ledger};

/// Maximum number of questions for the arguments of one call.
const MAX_ASKED: u32 = 5;

impl CallTask {
    /// Asks for the arguments that are missing, until all of them fit. `misfit` is the reason why they do not; the error is
    /// the last one.
    pub(super) async fn ask_for_arguments(
        &self,
        input: &mut CallInput,
        grant: &Grant,
        mut misfit: Refusal,
    ) -> Result<(), Refusal> {
        let call = &self.call;
        let Some(schema) = call.entry.input.as_ref().map(Schema::source) else { return Err(misfit) };
        if input.question == 1 && missing(schema, input.arguments.view()).next().is_none() {
            return Err(misfit);
        }
        let until = Instant::now() + input_timeout(&call.entry.primitive);
        while input.question <= MAX_ASKED {
            self.keep_waiting(input, grant).await?;
            let fields = fields(schema, input.arguments.view(), &misfit);
            let named = if fields.is_empty() { "the arguments".to_owned() } else { fields.join(", ") };
            let ask = Ask::Form {
                message: format!("“{}” cannot start yet: {misfit}. Please send {named}.", title(call)),
                requested_schema: form(schema, &fields).into(),
                // Checked here, by the schema of all arguments.
                relayed: true,
            };
            let question = put(call, Question { id: id(input.question), ask })?;
            let left = until.saturating_duration_since(Instant::now());
            let answered = question.within(left).answered(call).await;
            if answered == Err(Refusal::Cancelled) && self.pipeline.has_stopped(call) {
                // The next gateway asks again.
                call.ownership.passed_on.set();
            }
            let Answer::Accepted(content) = answered? else { return Err(misfit) };
            input.arguments = merged(&input.arguments, &content);
            input.question += 1;
            match input::check(call, &mut input.arguments) {
                Ok(()) => return Ok(()),
                Err(error) => misfit = error,
            }
        }
        Err(misfit)
    }

    /// Stores the row from which another gateway asks the next question.
    async fn keep_waiting(&self, input: &CallInput, grant: &Grant) -> Result<(), Refusal> {
        let call = &self.call;
        let is_first = !call.ownership.is_stored();
        let record = Record::waiting(call, &input.arguments, grant.remaining, input.question);
        match self.pipeline.active.put(call, &record).await {
            // No client is told of a call that only this gateway knows.
            Err(error) if is_first => {
                tracing::debug!(call = %call.id, trace = %call.trace, %error, "call was refused, because it waits for arguments and its row could not be stored");
                Err(ledger::not_begun())
            }
            Err(error) => {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "arguments of a waiting call could not be stored; if this gateway is lost, the next one asks for them again: check the store");
                Ok(())
            }
            Ok(()) => {
                (1..input.question).for_each(|before| call.questions.note_saved(id(before)));
                Ok(())
            }
        }
    }
}

/// Notes that the row of a call has its arguments with the answers to all questions for them.
pub(super) fn note_stored(call: &Call) {
    if call.authority.begun_with().late_arguments {
        (1..=MAX_ASKED).for_each(|question| call.questions.note_saved(id(question)));
    }
}

/// Returns the id of a question.
fn id(question: u32) -> String {
    format!("{ARGUMENTS}{question}")
}

/// Returns the required arguments that are missing.
fn missing<'a>(schema: &'a Value, arguments: &'a Value) -> impl Iterator<Item = &'a str> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).filter(move |name| arguments.get(*name).is_none())
}

/// Returns the fields to ask for: those that are missing, and the one that does not fit. None if no field is at fault.
fn fields(schema: &Value, arguments: &Value, misfit: &Refusal) -> Vec<String> {
    let mut fields: Vec<String> = missing(schema, arguments).map(str::to_owned).collect();
    let pointer = match misfit {
        Refusal::InvalidArguments { pointer, .. } => pointer.as_str(),
        _ => "",
    };
    let first = pointer.split('/').nth(1).map(|name| name.replace("~1", "/").replace("~0", "~"));
    let is_defined = |name: &str| schema.get("properties").is_some_and(|all| all.get(name).is_some());
    let wrong = first.filter(|name| is_defined(name) && !fields.contains(name));
    fields.extend(wrong);
    fields
}

/// Returns the schema of an answer with these fields, or with all arguments if there are none.
fn form(schema: &Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return schema.clone();
    }
    let defined = schema.get("properties");
    let field = |name: &String| {
        let field = defined.and_then(|all| all.get(name.as_str())).cloned();
        (name.clone(), field.unwrap_or_else(|| json!({})))
    };
    let properties: Map<String, Value> = fields.iter().map(field).collect();
    let mut form = Map::new();
    form.insert("type".to_owned(), "object".into());
    form.insert("properties".to_owned(), Value::Object(properties));
    form.insert("required".to_owned(), json!(fields));
    for name in ["$defs", "definitions"] {
        if let Some(named) = schema.get(name) {
            form.insert(name.to_owned(), named.clone());
        }
    }
    Value::Object(form)
}

/// Returns the arguments with those of an answer, which count where both have one.
fn merged(arguments: &Json, answer: &Json) -> Json {
    let (sent, more) = (Members::of(arguments), Members::of(answer));
    let all = sent.iter().chain(more.iter()).map(|(name, value)| (name, value.clone()));
    all.collect::<Members>().to_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(pointer: &str) -> Refusal {
        Refusal::InvalidArguments { pointer: pointer.into(), message: "is missing".into() }
    }

    #[test]
    fn what_is_missing_is_asked_for_and_what_does_not_fit() {
        let schema = json!({"required": ["a", "b"], "properties": {"a": {}, "b": {}, "c/d": {}}});
        let asked = |arguments: Value, pointer: &str| fields(&schema, &arguments, &misfit(pointer));
        assert_eq!(asked(json!({}), "/a"), ["a", "b"]);
        assert_eq!(asked(json!({"a": 1}), "/b"), ["b"]);
        assert_eq!(asked(json!({"a": {"x": 1}}), "/a/x"), ["b", "a"]);
        assert_eq!(asked(json!({"a": null, "b": 1, "c/d": 1}), "/c~1d"), ["c/d"]);
        assert_eq!(asked(json!({"a": 1, "b": 1}), "/other"), Vec::<String>::new());
        assert_eq!(asked(json!({"a": 1, "b": 1}), ""), Vec::<String>::new());
    }

    #[test]
    fn a_question_has_the_schemas_of_its_fields_and_their_definitions() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["a", "b"],
            "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"type": "string"}}, "$defs": {"A": {"type": "integer"}}});
        let asked = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": {}},
            "required": ["a", "b"], "$defs": {"A": {"type": "integer"}}});
        assert_eq!(form(&schema, &["a".into(), "b".into()]), asked);
        assert_eq!(form(&schema, &[]), schema);
    }

    #[test]
    fn an_answer_completes_the_arguments_and_keeps_their_texts() {
        let parse = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let all = merged(&parse(r#"{"n":1.50,"q":"old"}"#), &parse(r#"{"q":"new","m":2.0}"#));
        assert_eq!(all.text(), r#"{"n":1.50,"q":"new","m":2.0}"#);
        assert_eq!(merged(&parse("{}"), &parse("[1]")).text(), "{}");
    }
}
