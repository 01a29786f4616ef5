//! Requests of a worker during a call: to the user by elicitation, and to a model or another primitive by delegation.
//!
//! Owns: the questions' ids and the form of the answers. Refuses: ids that the primitive does not declare, and forms
//! beyond their bound. Keeps true: a worker gets an answer or an error to each question, immediately if the caller's
//! client cannot be asked; a successor that asks the same again joins the open question.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use asp_call::call::content::parse;
use asp_call::call::event::Event;
use asp_call::call::question::{Answer, Ask, Question};
use asp_proto::plugin::{DeliverUserInput, ElicitationRequested, Json, deliver_user_input::Action};
use asp_proto::snapshot::Kind;
use prost::Message;
use serde_json::{Map, Value, json};

use super::attempt_state::{AttemptState, Delivery, Key, OpenQuestion, Page};
use super::job::Job;
use crate::conversation::asking::{Elicitation, MAX_FORM, put};
use crate::conversation::dependencies::dependency;
use crate::delegate::delegation::DelegationFault;

mod delegation;
mod offered;
mod rounds;

pub(super) use delegation::delegate;
pub(super) use rounds::all;

/// The worker has two open questions with the same key, so that their answers could not be distinguished.
#[derive(Debug)]
pub(super) struct DuplicateQuestion;

/// Starts to ask the user; the answer arrives through `attempt_state.waiting`.
pub(super) fn elicit(
    job: &Job<'_>,
    attempt_state: &mut AttemptState,
    requested: ElicitationRequested,
) -> Result<(), DuplicateQuestion> {
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
    let ask = match of_user(job, &requested) {
        None => Err(DelegationFault::Undeclared),
        Some(_) if requested.encoded_len() > MAX_FORM => Err(DelegationFault::TooLarge),
        Some(ask) => Ok(ask),
    };
    let is_page = matches!(ask, Ok(Ask::Page { .. }));
    // Put now, to keep its position among the events; only the answer is waited for.
    let key = Key::Input(requested.elicitation_id.clone());
    let id = attempt_state.question_id(&key, &requested.elicitation_id);
    let put = ask.and_then(|ask| put(call, Question { id: id.clone(), ask }).map_err(DelegationFault::from));
    if put.is_ok() && is_page {
        attempt_state.pages.insert(requested.elicitation_id.clone(), Page { id, is_agreed: false });
    }
    let call = Arc::clone(call);
    attempt_state.waiting.push(Box::pin(async move {
        let answer = match put {
            // A cancelled call has no fault of its own: the plugin itself is cancelled.
            Ok(asked) => asked.answered(&call).await.map_err(|_| DelegationFault::Expired),
            Err(fault) => Err(fault),
        };
        Delivery::Input(user_input(empty, answer))
    }));
    Ok(())
}

/// Records an open question. `false`: a previous worker asked it and is gone; its answer will be delivered to this
/// one.
fn opens(attempt_state: &mut AttemptState, key: Key) -> Result<bool, DuplicateQuestion> {
    let attempt = attempt_state.attempt;
    match attempt_state.open.entry(key) {
        Entry::Occupied(open) if open.get().attempt == attempt => Err(DuplicateQuestion),
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

/// Reports that the user has finished on the page that was shown last for a declared id; ignored if the user has not
/// agreed to open it.
pub(super) fn visited(job: &Job<'_>, attempt_state: &mut AttemptState, declared: &str) {
    if attempt_state.pages.get(declared).is_some_and(|page| page.is_agreed)
        && let Some(Page { id, .. }) = attempt_state.pages.remove(declared)
    {
        job.call().emit(Event::Visited { id });
    }
}

/// Builds the question: the page that the spec names, or one below it; otherwise a form from the plugin's schema, its
/// fields, or the spec, in this order.
fn of_user(job: &Job<'_>, requested: &ElicitationRequested) -> Option<Ask> {
    let id = requested.elicitation_id.as_str();
    let found = dependency(job.execution, Kind::Elicitation, id)?;
    let elicitation = Elicitation { id, spec: &found.question };
    let message = elicitation.message(&[requested.message.as_str(), requested.title.as_str()]);
    if elicitation.is_page() || !requested.url.is_empty() {
        return elicitation.page(message, &requested.url);
    }
    let schema = match parse(requested.requested_schema.as_ref()).ok()? {
        None if !requested.fields.is_empty() => Some(fields_schema(requested).into()),
        schema => schema,
    };
    elicitation.form(message, schema)
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

/// Builds the delivery of an answer, or of the reason why nobody could be asked (plugin.proto,
/// `DeliverUserInput.error`).
fn user_input(mut input: DeliverUserInput, answer: Result<Answer, DelegationFault>) -> DeliverUserInput {
    match answer {
        Ok(Answer::Accepted(fields)) => {
            input.action = Action::Accept.into();
            input.fields = Some(Json { value: fields.text().as_bytes().to_vec() });
        }
        Ok(Answer::Declined) => input.action = Action::Decline.into(),
        Ok(_) => input.action = Action::Cancel.into(),
        Err(fault) => input.error = fault.word().to_owned(),
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
            (Err(DelegationFault::Expired), Action::Cancel, "expired"),
        ];
        for (answer, action, error) in rows {
            let empty = DeliverUserInput { action: Action::Cancel.into(), ..DeliverUserInput::default() };
            let input = user_input(empty, answer);
            assert_eq!((input.action(), input.error.as_str()), (action, error));
            assert_eq!(input.fields.is_some(), action == Action::Accept);
        }
    }
}
