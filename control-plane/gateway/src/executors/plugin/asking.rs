//! What a worker asks on the way: the user by elicitation, a model by delegation.
//!
//! Owns: the questions' ids, their constant part from the spec and the shape of the answers. Refuses: ids the
//! primitive does not declare. Keeps true: a worker gets an answer or an error to each question, at once when
//! the caller's client cannot be asked; a successor that asks the same again joins the open question.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::{
    DelegationRequested, DeliverDelegationResult, DeliverUserInput, ElicitationRequested, Json,
    deliver_user_input::Action,
};
use asp_proto::snapshot::Kind;
use prost::Message;
use serde_json::{Map, Value, json};

use super::Job;
use super::history::{Delivery, History, Key};
use super::results::parse;
use crate::call::form;
use crate::call::question::{Answer, Ask, Question, put};

/// Why nobody could be asked (plugin.proto, `DeliverUserInput.error`).
const UNSUPPORTED: &str = "unsupported";
const EXPIRED: &str = "expired";
const UNDECLARED: &str = "undeclared";
const TOO_LARGE: &str = "too_large";
/// Largest form and largest input of a model in bytes, as JSON text.
const MAX_FORM: usize = 64 << 10;
const MAX_SAMPLING: usize = 512 << 10;
/// How long a model may take when neither the plugin nor the spec says.
const DEFAULT_DELEGATION: Duration = Duration::from_secs(300);

/// The worker asked the same twice at a time, so that an answer could not be told apart.
#[derive(Debug)]
pub(super) struct AskedTwice;

/// Begins to ask the user; the answer comes out of `history.waiting`.
pub(super) fn elicit(
    job: &Job<'_>,
    history: &mut History,
    requested: ElicitationRequested,
) -> Result<(), AskedTwice> {
    let empty = DeliverUserInput {
        request_id: requested.request_id.clone(),
        task_id: requested.task_id.clone(),
        elicitation_id: requested.elicitation_id.clone(),
        action: Action::Cancel.into(),
        ..DeliverUserInput::default()
    };
    let call = job.call();
    let declared = call.entry.primitive.elicitations.contains(&requested.elicitation_id);
    let form = if declared { user_form(job, &requested) } else { None };
    let asked = match form {
        None => Err(UNDECLARED),
        Some(_) if !call.abilities.elicitation => Err(UNSUPPORTED),
        Some(_) if requested.encoded_len() > MAX_FORM => Err(TOO_LARGE),
        Some(form) => Ok(form),
    };
    let deliver = move |answer: Result<Answer, &str>| Delivery::Input(user_input(empty, answer));
    begin(
        job,
        history,
        Asking {
            key: Key::Input(requested.elicitation_id.clone()),
            id: requested.elicitation_id,
            asked,
            longest: None,
        },
        deliver,
    )
}

/// Begins to ask the client's model; the answer comes out of `history.waiting`.
pub(super) fn delegate(
    job: &Job<'_>,
    history: &mut History,
    requested: DelegationRequested,
) -> Result<(), AskedTwice> {
    let empty = DeliverDelegationResult {
        request_id: requested.request_id.clone(),
        task_id: requested.task_id.clone(),
        correlation_id: requested.correlation_id.clone(),
        ..DeliverDelegationResult::default()
    };
    let call = job.call();
    let declared = call.entry.primitive.delegations.contains(&requested.delegate_id);
    let params = if declared { sampling(job, &requested) } else { None };
    let asked = match params {
        None => Err(UNDECLARED),
        Some(_) if !call.abilities.sampling => Err(UNSUPPORTED),
        Some(_) if requested.encoded_len() > MAX_SAMPLING => Err(TOO_LARGE),
        Some(params) => Ok(Ask::Sampling(params)),
    };
    let timeout = requested.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
    let longest = Some(timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(DEFAULT_DELEGATION));
    let deliver = move |answer: Result<Answer, &str>| Delivery::Delegation(delegation(empty, answer));
    begin(
        job,
        history,
        Asking { key: Key::Delegation(requested.correlation_id), id: requested.delegate_id, asked, longest },
        deliver,
    )
}

/// One question before it is asked.
struct Asking {
    key: Key,
    /// The declared id: the stem of the question's own.
    id: String,
    asked: Result<Ask, &'static str>,
    /// Longest wait, beside the input timeout.
    longest: Option<Duration>,
}

fn begin(
    job: &Job<'_>,
    history: &mut History,
    asking: Asking,
    deliver: impl FnOnce(Result<Answer, &str>) -> Delivery + Send + 'static,
) -> Result<(), AskedTwice> {
    let Asking { key, id, asked, longest } = asking;
    match history.open.insert(key, history.attempt) {
        Some(attempt) if attempt == history.attempt => return Err(AskedTwice),
        // A former worker asked it and is gone; the answer will find this one.
        Some(_) => return Ok(()),
        None => {}
    }
    history.questions += 1;
    let id = if history.questions == 1 { id } else { format!("{id}.{}", history.questions) };
    let call = Arc::clone(job.call());
    // Put now, so that it stands where the worker asked it; only the answer is waited for.
    let put = asked.and_then(|ask| put(&call, Question { id, ask }).map_err(|_| UNSUPPORTED));
    match put {
        Err(why) => history.waiting.push(Box::pin(std::future::ready(deliver(Err(why))))),
        Ok(asked) => {
            let asked = match longest {
                Some(longest) => asked.within(longest),
                None => asked,
            };
            history.waiting.push(Box::pin(async move {
                let answered = asked.answered(&call).await;
                deliver(answered.map_err(|_| EXPIRED))
            }));
        }
    }
    Ok(())
}

/// The form to ask: the plugin's schema, else its fields, else what the spec says.
fn user_form(job: &Job<'_>, requested: &ElicitationRequested) -> Option<Ask> {
    let constant = match job.execution.dependencies.get(&requested.elicitation_id) {
        Some(found) if found.kind == Kind::Elicitation => &found.question,
        _ => return None,
    };
    let schema = match parse(requested.requested_schema.as_ref()).ok()? {
        Some(schema) => schema,
        None if !requested.fields.is_empty() => fields_schema(requested),
        None => constant.get("requestedSchema")?.clone(),
    };
    form::check(&schema).ok()?;
    let spec = constant.get("message").and_then(Value::as_str).unwrap_or_default();
    let said = [requested.message.as_str(), requested.title.as_str(), spec];
    let message = said.into_iter().find(|text| !text.is_empty()).unwrap_or(&requested.elicitation_id);
    Some(Ask::Form { message: message.to_owned(), requested_schema: schema })
}

fn fields_schema(requested: &ElicitationRequested) -> Value {
    let mut properties = Map::new();
    for field in &requested.fields {
        let mut property = Map::new();
        property.insert("type".into(), field.r#type.clone().into());
        if !field.label.is_empty() {
            property.insert("title".into(), field.label.clone().into());
        }
        properties.insert(field.name.clone(), Value::Object(property));
    }
    let required: Vec<&str> =
        requested.fields.iter().filter(|field| field.required).map(|field| field.name.as_str()).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// The parameters of `sampling/createMessage`: the spec's constant part and the plugin's input as one message.
fn sampling(job: &Job<'_>, requested: &DelegationRequested) -> Option<Map<String, Value>> {
    let mut params = match job.execution.dependencies.get(&requested.delegate_id) {
        Some(found) if found.kind == Kind::Delegate => found.question.clone(),
        _ => return None,
    };
    let input = parse(requested.input.as_ref()).ok()?.unwrap_or(Value::Null);
    let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
    params.insert("messages".into(), json!([{"role": "user", "content": {"type": "text", "text": text}}]));
    // Required by MCP; a spec without one leaves the amount to the client.
    params.entry("maxTokens").or_insert(json!(1024));
    Some(params)
}

fn user_input(mut input: DeliverUserInput, answer: Result<Answer, &str>) -> DeliverUserInput {
    match answer {
        Ok(Answer::Accepted(fields)) => {
            input.action = Action::Accept.into();
            input.fields = Some(Json { value: fields.to_string().into_bytes() });
        }
        Ok(Answer::Declined) => input.action = Action::Decline.into(),
        Ok(_) => input.action = Action::Cancel.into(),
        Err(why) => input.error = why.to_owned(),
    }
    input
}

fn delegation(mut result: DeliverDelegationResult, answer: Result<Answer, &str>) -> DeliverDelegationResult {
    match answer {
        Ok(Answer::Sampled(said)) => {
            result.result = Some(Json { value: sampled(&said).to_string().into_bytes() })
        }
        Ok(Answer::Failed(why)) => result.error = format!("failed: {why}"),
        Ok(_) => result.error = "failed".into(),
        Err(why) => result.error = why.to_owned(),
    }
    result
}

/// What a model said, as a plugin gets it: `text`, its value as `json` where the text is JSON, `model`.
fn sampled(said: &Value) -> Value {
    let content = said.get("content").unwrap_or(&Value::Null);
    let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    let text = texts.join("\n");
    let mut result = Map::new();
    if let Ok(value) = serde_json::from_str::<Value>(unfenced(&text)) {
        result.insert("json".into(), value);
    }
    result.insert("text".into(), text.into());
    for name in ["model", "stopReason"] {
        if let Some(value) = said.get(name) {
            result.insert(name.into(), value.clone());
        }
    }
    Value::Object(result)
}

/// The inside of a Markdown code fence, which models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inside.and_then(|inside| inside.split_once('\n')).map_or(text, |(_, inside)| inside.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_answer_is_text_and_json_where_it_is_json() {
        let said = |text: &str| json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}});
        assert_eq!(
            sampled(&said("[\"email\"]")),
            json!({"json": ["email"], "text": "[\"email\"]", "model": "m"})
        );
        assert_eq!(sampled(&said("```json\n{\"a\": 1}\n```"))["json"], json!({"a": 1}));
        assert_eq!(sampled(&said("hello")), json!({"text": "hello", "model": "m"}));
        let blocks = json!({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]});
        assert_eq!(sampled(&blocks)["text"], "a\nb");
    }

    #[test]
    fn every_answer_has_its_action_or_its_error() {
        let rows = [
            (Ok(Answer::Accepted(json!({"a": 1}))), Action::Accept, ""),
            (Ok(Answer::Declined), Action::Decline, ""),
            (Ok(Answer::Cancelled), Action::Cancel, ""),
            (Err(EXPIRED), Action::Cancel, EXPIRED),
        ];
        for (answer, action, error) in rows {
            let empty = DeliverUserInput { action: Action::Cancel.into(), ..DeliverUserInput::default() };
            let input = user_input(empty, answer);
            assert_eq!((input.action(), input.error.as_str()), (action, error));
            assert_eq!(input.fields.is_some(), action == Action::Accept);
        }
    }
}
