//! What a worker asks on the way: the user by elicitation, and a model or another primitive by delegation.
//!
//! Owns: the questions' ids, their constant part from the spec and the shape of the answers. Refuses: ids the
//! primitive does not declare. Keeps true: a worker gets an answer or an error to each question, at once when
//! the caller's client cannot be asked; a successor that asks the same again joins the open question.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use asp_proto::plugin::{DeliverUserInput, ElicitationRequested, Json, deliver_user_input::Action};
use asp_proto::snapshot::Kind;
use prost::Message;
use serde_json::{Map, Value, json};

use super::attempt_state::{AttemptState, Delivery, Key, OpenQuestion, Page};
use super::job::Job;
use crate::call::content::parse;
use crate::call::event::Event;
use crate::call::question::{Answer, Ask, Question, put};
use crate::call::{form, page};

mod delegation;
mod rounds;

pub(super) use delegation::delegate;
pub(super) use rounds::all;

/// Why nobody could be asked (plugin.proto, `DeliverUserInput.error`).
const UNSUPPORTED: &str = "unsupported";
const EXPIRED: &str = "expired";
const UNDECLARED: &str = "undeclared";
const TOO_LARGE: &str = "too_large";
/// Largest form in bytes, as JSON text.
const MAX_FORM: usize = 64 << 10;

/// The worker asked the same twice at a time, so that an answer could not be told apart.
#[derive(Debug)]
pub(super) struct AskedTwice;

/// Begins to ask the user; the answer comes out of `attempt_state.waiting`.
pub(super) fn elicit(
    job: &Job<'_>,
    attempt_state: &mut AttemptState,
    requested: ElicitationRequested,
) -> Result<(), AskedTwice> {
    if !opens(attempt_state, Key::Input(requested.elicitation_id.clone()))? {
        return Ok(());
    }
    let empty = DeliverUserInput {
        request_id: requested.request_id.clone(),
        task_id: requested.task_id.clone(),
        elicitation_id: requested.elicitation_id.clone(),
        action: Action::Cancel.into(),
        ..DeliverUserInput::default()
    };
    let call = job.call();
    let declared = call.entry.primitive.elicitations.contains(&requested.elicitation_id);
    let ask = if declared { of_user(job, &requested) } else { None };
    let asked = match ask {
        None => Err(UNDECLARED),
        Some(ask) if !call.abilities().answers(&ask) => Err(UNSUPPORTED),
        Some(_) if requested.encoded_len() > MAX_FORM => Err(TOO_LARGE),
        Some(ask) => Ok(ask),
    };
    // Put now, so that it stands where the worker asked it; only the answer is waited for.
    let key = Key::Input(requested.elicitation_id.clone());
    let id = attempt_state.question_id(&key, &requested.elicitation_id);
    let page = matches!(asked, Ok(Ask::Page { .. })).then(|| Page { id: id.clone(), is_agreed: false });
    let put = asked.and_then(|ask| put(call, Question { id, ask }).map_err(|_| UNSUPPORTED));
    if let (Ok(_), Some(page)) = (&put, page) {
        attempt_state.pages.insert(requested.elicitation_id.clone(), page);
    }
    let call = Arc::clone(call);
    attempt_state.waiting.push(Box::pin(async move {
        let answer = match put {
            Ok(asked) => asked.answered(&call).await.map_err(|_| EXPIRED),
            Err(why) => Err(why),
        };
        Delivery::Input(user_input(empty, answer))
    }));
    Ok(())
}

/// Notes that this is asked. False: a former worker asked it and is gone, and the answer will find this one.
fn opens(attempt_state: &mut AttemptState, key: Key) -> Result<bool, AskedTwice> {
    let attempt = attempt_state.attempt;
    match attempt_state.open.entry(key) {
        Entry::Occupied(open) if open.get().attempt == attempt => Err(AskedTwice),
        Entry::Occupied(mut open) => {
            open.get_mut().attempt = attempt;
            Ok(false)
        }
        Entry::Vacant(vacant) => {
            vacant.insert(OpenQuestion { attempt, question: None });
            Ok(true)
        }
    }
}

/// The user is done on the page that was shown last for a declared id; one that nobody agreed to see is nobody's.
pub(super) fn visited(job: &Job<'_>, attempt_state: &mut AttemptState, declared: &str) {
    if attempt_state.pages.get(declared).is_some_and(|page| page.is_agreed)
        && let Some(Page { id, .. }) = attempt_state.pages.remove(declared)
    {
        job.call().emit(Event::Visited { id });
    }
}

/// What to ask: the page that the spec names, or one below it; else the form, which is the plugin's schema, else its
/// fields, else what the spec says.
fn of_user(job: &Job<'_>, requested: &ElicitationRequested) -> Option<Ask> {
    let constant = match job.execution.snapshot.dependencies.get(&requested.elicitation_id) {
        Some(found) if found.kind == Kind::Elicitation => &found.question,
        _ => return None,
    };
    let spec = constant.get("message").and_then(Value::as_str).unwrap_or_default();
    let said = [requested.message.as_str(), requested.title.as_str(), spec];
    let message =
        said.into_iter().find(|text| !text.is_empty()).unwrap_or(&requested.elicitation_id).to_owned();
    if let Some(page) = constant.get("url").and_then(Value::as_str) {
        return Some(Ask::Page { message, url: page::address(page, &requested.url)? });
    }
    if !requested.url.is_empty() {
        return None;
    }
    let schema = match parse(requested.requested_schema.as_ref()).ok()? {
        Some(schema) => schema,
        None if !requested.fields.is_empty() => fields_schema(requested).into(),
        None => constant.get("requestedSchema")?.clone().into(),
    };
    form::check(&schema).ok()?;
    Some(Ask::Form { message, requested_schema: schema, relayed: false })
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

fn user_input(mut input: DeliverUserInput, answer: Result<Answer, &str>) -> DeliverUserInput {
    match answer {
        Ok(Answer::Accepted(fields)) => {
            input.action = Action::Accept.into();
            input.fields = Some(Json { value: fields.text().as_bytes().to_vec() });
        }
        Ok(Answer::Declined) => input.action = Action::Decline.into(),
        Ok(_) => input.action = Action::Cancel.into(),
        Err(why) => input.error = why.to_owned(),
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_action_or_its_error() {
        let rows = [
            (Ok(Answer::Accepted(json!({"a": 1}).into())), Action::Accept, ""),
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
