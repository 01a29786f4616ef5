//! Questions of a service during a call: to the user by elicitation, to a model by sampling.
//!
//! Owns: which declared primitive a question belongs to, the form, and the body that carries the answer. Refuses: a
//! question that the spec's `primitiveDependencies` does not cover. Keeps true: a service gets an answer or an error
//! to each question; a question has the same id at every gateway, and no other question has it.

use asp_call::call::outcome::Refusal;
use asp_call::call::question::{Ask, Question};
use asp_call::digest;
use asp_call::execution::Execution;
use asp_json::Json;
use asp_proto::snapshot::Kind;
use asp_snapshot::Dependency;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::delegating::{self, ModelCall};
use super::resource::{CallResource, Status};
use crate::conversation::asking::{Elicitation, put};
use crate::conversation::dependencies::{declared, dependency};
use crate::delegate::Delegates;
use crate::delegate::delegation::DelegationFault;

/// Member of `_meta` in a request's parameters that names the declared primitive.
const META_ID: &str = "asp/id";

/// Answer to a question, for the service.
pub(super) struct GivenAnswer {
    answer: Result<Json, Error>,
    /// Whether the user was asked; a refusal by the user is a result too.
    is_form: bool,
    /// The user did not answer in time.
    pub expired: bool,
    /// Id of the question to the client; `None` if nobody was asked.
    pub question: Option<String>,
}

/// Reason why there is no answer.
#[derive(Serialize)]
struct Error {
    code: &'static str,
    message: String,
}

/// Asks and waits for the answer, the input timeout, the deadline or a cancel.
pub(super) async fn ask(
    execution: &Execution,
    delegates: &Delegates,
    resource: &CallResource,
) -> Result<GivenAnswer, Refusal> {
    let is_form = resource.status == Status::AwaitingElicitationResult;
    let mut asked = None;
    let answered = match find(execution, resource, is_form) {
        None => Err(DelegationFault::Undeclared),
        Some((id, found, params)) => {
            let question = question_id(id, resource, params);
            asked = Some(question.clone());
            match is_form {
                true => ask_user(execution, found, params, (id, question)).await,
                false => {
                    delegating::sample(ModelCall {
                        execution,
                        delegates,
                        delegate: found,
                        id,
                        question,
                        params,
                    })
                    .await
                }
            }
        }
    };
    if answered == Err(DelegationFault::Cancelled) {
        return Err(Refusal::Cancelled);
    }
    let expired = is_form && answered == Err(DelegationFault::Expired);
    let answer = answered.map_err(|fault| Error {
        code: fault.word(),
        message: match fault {
            DelegationFault::Failed(said) => said,
            _ => String::new(),
        },
    });
    Ok(GivenAnswer { answer, is_form, expired, question: asked })
}

/// Returns the id by which an answer finds its question: after a takeover a client may still answer the question that
/// the previous gateway had opened, and a late answer to an earlier question must not match.
fn question_id(id: &str, resource: &CallResource, params: &Map<String, Value>) -> String {
    let [a, b, c, d, ..] = digest::of_parts(&[
        Value::Object(params.clone()).to_string().as_str(),
        resource.server_data.as_deref().map_or("", RawValue::get),
        resource.etag.as_deref().unwrap_or_default(),
    ]);
    format!("{id}.{}", u32::from_be_bytes([a, b, c, d]))
}

impl GivenAnswer {
    /// Builds the body `{serverData?, result?, error?}`. A form always has a result, so that a service may ignore
    /// `error`.
    pub(super) fn body(&self, server_data: Option<&RawValue>) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Advance<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            server_data: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a Error>,
        }
        let nobody = Json::from(json!({"action": "cancel"}));
        let result = self.answer.as_ref().ok().or(self.is_form.then_some(&nobody));
        let body = Advance { server_data, result: result.map(Json::raw), error: self.answer.as_ref().err() };
        serde_json::to_vec(&body).map_err(|error| Refusal::Internal(error.to_string()))
    }
}

/// Returns the declared primitive that the question belongs to, and the request's parameters.
fn find<'a>(
    execution: &'a Execution,
    resource: &'a CallResource,
    is_form: bool,
) -> Option<(&'a str, &'a Dependency, &'a Map<String, Value>)> {
    let kind = if is_form { Kind::Elicitation } else { Kind::Delegate };
    let params = resource.asked.as_ref()?;
    let id = declared_id(params, declared(&execution.call.entry.primitive, kind))?;
    Some((id, dependency(execution, kind, id)?, params))
}

/// Returns the primitive that the request names, or the only one that is declared.
fn declared_id<'a>(params: &Map<String, Value>, declared: &'a [String]) -> Option<&'a str> {
    let named = params.get("_meta").and_then(|meta| meta.get(META_ID)).and_then(Value::as_str);
    match (named, declared) {
        (Some(named), _) => declared.iter().find(|id| *id == named).map(String::as_str),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

async fn ask_user(
    execution: &Execution,
    found: &Dependency,
    params: &Map<String, Value>,
    (id, question): (&str, String),
) -> Result<Json, DelegationFault> {
    let call = &execution.call;
    let ask = of_user(found, params, id).ok_or(DelegationFault::Undeclared)?;
    let asked = put(call, Question { id: question, ask: ask.clone() })?;
    let answer = asked.answered(call).await.map_err(|refusal| DelegationFault::unanswered(&refusal))?;
    // A question to a user has no other kinds of answers.
    answer.into_result(&ask).map_err(|_| DelegationFault::Unsupported)
}

/// Builds the question to the user: with the service's form or else the spec's; if the spec names a page, with that
/// page or one below it.
fn of_user(found: &Dependency, params: &Map<String, Value>, id: &str) -> Option<Ask> {
    let elicitation = Elicitation { id, spec: &found.question };
    let text = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let message = elicitation.message(&[text]);
    let default = if elicitation.is_page() { "url" } else { "form" };
    match params.get("mode").map_or(default, |mode| mode.as_str().unwrap_or_default()) {
        "url" => elicitation.page(message, params.get("url").map_or(Some(""), Value::as_str)?),
        "form" => elicitation.form(message, params.get("requestedSchema").cloned().map(Json::from)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_question_belongs_to_the_primitive_it_names_or_to_the_only_one() {
        let two = ["a".to_owned(), "b".to_owned()];
        let named = |id: &str| params(json!({"_meta": {META_ID: id}}));
        assert_eq!(declared_id(&named("b"), &two), Some("b"));
        assert_eq!(declared_id(&named("c"), &two), None);
        assert_eq!(declared_id(&Map::new(), &two), None);
        assert_eq!(declared_id(&Map::new(), &two[..1]), Some("a"));
        assert_eq!(declared_id(&Map::new(), &[]), None);
    }

    #[test]
    fn an_answer_travels_with_the_services_own_data_and_an_error_with_its_word() {
        let data = RawValue::from_string(r#"{"n":  1.0}"#.into()).unwrap();
        let given = |answer, is_form| GivenAnswer { answer, is_form, expired: false, question: None };
        let text = |given: GivenAnswer, data| String::from_utf8(given.body(data).unwrap()).unwrap();
        let taken = given(Ok(json!({"action": "decline"}).into()), true);
        assert_eq!(text(taken, Some(&data)), r#"{"serverData":{"n":  1.0},"result":{"action":"decline"}}"#);
        let error = || Err(Error { code: "expired", message: String::new() });
        assert_eq!(
            text(given(error(), true), None),
            r#"{"result":{"action":"cancel"},"error":{"code":"expired","message":""}}"#
        );
        assert_eq!(text(given(error(), false), None), r#"{"error":{"code":"expired","message":""}}"#);
    }

    #[test]
    fn a_question_has_the_same_id_everywhere_and_another_one_a_different_id() {
        let id = |etag: &str, data: &str, message: &str| {
            let body = format!(
                r#"{{"status":"awaitingElicitationResult","etag":"{etag}","serverData":"{data}",
                "elicitationRequest":{{"message":"{message}"}}}}"#
            );
            let resource = super::super::resource::parse(body.as_bytes()).unwrap();
            question_id("name", &resource, resource.asked.as_ref().unwrap())
        };
        let first = id("1", "a", "Who?");
        assert!(first.starts_with("name."), "{first}");
        assert_eq!(first, id("1", "a", "Who?"));
        for other in [id("2", "a", "Who?"), id("1", "b", "Who?"), id("1", "a", "Which?")] {
            assert_ne!(first, other);
        }
    }
}
