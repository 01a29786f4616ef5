//! What a service asks on the way: the user by elicitation, the client's model by sampling.
//!
//! Owns: which declared primitive a question belongs to, its constant part from the spec, and the body that
//! brings the answer. Refuses: a question that the spec's `primitiveDependencies` does not cover. Keeps true:
//! a service gets an answer or an error to each question.

use asp_proto::snapshot::Kind;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::resource::{CallResource, Status};
use crate::call::form;
use crate::call::outcome::Refusal;
use crate::call::question::{Answer, Ask, Question, put};
use crate::executors::Execution;
use crate::live::Dependency;

/// Why nobody could be asked; the words a plugin gets too.
const UNSUPPORTED: &str = "unsupported";
const EXPIRED: &str = "expired";
const UNDECLARED: &str = "undeclared";
const FAILED: &str = "failed";
/// Names the declared primitive in the `_meta` of a request's parameters.
const META_ID: &str = "asp/id";
/// What a service may say of a model call where the spec does not; nothing else of its request is used.
const OPEN_PARAMS: [&str; 5] =
    ["systemPrompt", "maxTokens", "temperature", "stopSequences", "modelPreferences"];
/// Most messages of one sampling request.
const MAX_MESSAGES: usize = 256;

/// What is brought to the service.
pub(super) struct Given {
    answer: Result<Value, Error>,
    /// Whether the user was asked, whose refusal is a result too.
    is_form: bool,
    pub expired: bool,
}

/// Why there is no answer.
#[derive(Serialize)]
struct Error {
    code: &'static str,
    message: String,
}

/// Asks and waits for the answer, the input timeout, the deadline or a cancel.
pub(super) async fn ask(
    execution: &Execution,
    resource: &CallResource,
    number: u32,
) -> Result<Given, Refusal> {
    let call = &execution.call;
    let is_form = resource.status == Status::AwaitingElicitationResult;
    let without = |code: &'static str| Given {
        answer: Err(Error { code, message: String::new() }),
        is_form,
        expired: code == EXPIRED,
    };
    let (mut id, ask) = match question(execution, resource, is_form) {
        Ok(found) => found,
        Err(code) => return Ok(without(code)),
    };
    if number > 1 {
        id = format!("{id}.{number}");
    }
    let answered = match put(call, Question { id, ask }) {
        Ok(asked) => asked.answered(call).await,
        Err(_) => return Ok(without(UNSUPPORTED)),
    };
    let answer = match answered {
        Err(Refusal::InputExpired) => return Ok(without(EXPIRED)),
        Err(refusal) => return Err(refusal),
        Ok(Answer::Accepted(content)) => Ok(json!({"action": "accept", "content": content})),
        Ok(Answer::Declined) => Ok(json!({"action": "decline"})),
        Ok(Answer::Cancelled) => Ok(json!({"action": "cancel"})),
        Ok(Answer::Sampled(said)) => Ok(said),
        Ok(Answer::Failed(why)) => Err(Error { code: FAILED, message: why }),
    };
    Ok(Given { answer, is_form, expired: false })
}

impl Given {
    /// `{serverData?, result?, error?}`: a form always has a result, so that a service may ignore `error`.
    pub(super) fn body(&self, server_data: Option<&RawValue>) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Advance<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            server_data: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a Error>,
        }
        let nobody = json!({"action": "cancel"});
        let result = self.answer.as_ref().ok().or(self.is_form.then_some(&nobody));
        let body = Advance { server_data, result, error: self.answer.as_ref().err() };
        serde_json::to_vec(&body).map_err(|error| Refusal::Internal(error.to_string()))
    }
}

/// The declared primitive's id and what is asked; `Err` is the word for the service.
fn question(
    execution: &Execution,
    resource: &CallResource,
    is_form: bool,
) -> Result<(String, Ask), &'static str> {
    let primitive = &execution.call.entry.primitive;
    let (kind, declared, able) = match is_form {
        true => (Kind::Elicitation, &primitive.elicitations, execution.call.abilities.elicitation),
        false => (Kind::Delegate, &primitive.delegations, execution.call.abilities.sampling),
    };
    let empty = Map::new();
    let params = resource.asked.as_ref().unwrap_or(&empty);
    let id = declared_id(params, declared).ok_or(UNDECLARED)?;
    let found = execution.dependencies.get(id).filter(|found| found.kind == kind).ok_or(UNDECLARED)?;
    let ask = match is_form {
        true => user_form(found, params, id),
        false => sampling(found, params),
    };
    let ask = ask.ok_or(UNDECLARED)?;
    if able { Ok((id.to_owned(), ask)) } else { Err(UNSUPPORTED) }
}

/// The primitive that the request names, else the only one that is declared.
fn declared_id<'a>(params: &Map<String, Value>, declared: &'a [String]) -> Option<&'a str> {
    let named = params.get("_meta").and_then(|meta| meta.get(META_ID)).and_then(Value::as_str);
    match (named, declared) {
        (Some(named), _) => declared.iter().find(|id| *id == named).map(String::as_str),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

/// The service's form, else the spec's. Only forms: a URL to visit is never shown.
fn user_form(found: &Dependency, params: &Map<String, Value>, id: &str) -> Option<Ask> {
    if params.get("mode").is_some_and(|mode| mode != "form") {
        return None;
    }
    let of = |from: &Map<String, Value>| from.get("message").and_then(Value::as_str).map(str::to_owned);
    let schema = params.get("requestedSchema").or_else(|| found.question.get("requestedSchema"))?;
    form::check(schema).ok()?;
    let said = of(params).filter(|text| !text.is_empty()).or_else(|| of(&found.question));
    Some(Ask::Form { message: said.unwrap_or_else(|| id.to_owned()), requested_schema: schema.clone() })
}

/// The service's messages with the spec's constants; what the spec leaves open the service may say.
fn sampling(found: &Dependency, params: &Map<String, Value>) -> Option<Ask> {
    let messages = params.get("messages")?.as_array()?;
    let fits = |message: &Value| {
        matches!(message.get("role").and_then(Value::as_str), Some("user" | "assistant"))
            && message.get("content").is_some_and(|content| content.is_object() || content.is_array())
    };
    if messages.is_empty() || messages.len() > MAX_MESSAGES || !messages.iter().all(fits) {
        return None;
    }
    let mut request = found.question.clone();
    request.insert("messages".into(), Value::Array(messages.clone()));
    for name in OPEN_PARAMS {
        if let (None, Some(value)) = (request.get(name), params.get(name)) {
            request.insert(name.into(), value.clone());
        }
    }
    // Required by MCP; where nobody names an amount it is left to the client.
    request.entry("maxTokens").or_insert(json!(1024));
    Some(Ask::Sampling(request))
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
        let given = |answer, is_form| Given { answer, is_form, expired: false };
        let text = |given: Given, data| String::from_utf8(given.body(data).unwrap()).unwrap();
        let taken = given(Ok(json!({"action": "decline"})), true);
        assert_eq!(text(taken, Some(&data)), r#"{"serverData":{"n":  1.0},"result":{"action":"decline"}}"#);
        let error = || Err(Error { code: EXPIRED, message: String::new() });
        assert_eq!(
            text(given(error(), true), None),
            r#"{"result":{"action":"cancel"},"error":{"code":"expired","message":""}}"#
        );
        assert_eq!(text(given(error(), false), None), r#"{"error":{"code":"expired","message":""}}"#);
    }
}
