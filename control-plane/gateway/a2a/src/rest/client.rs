//! Requests of clients and their answers.

use form_urlencoded::Serializer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{A2aFailure, FieldViolation};
use crate::json::Dialect;
use crate::json::answer::{read_answer, read_stream_event};
use crate::json::request::write_operation;
use crate::json::writer;
use crate::jsonrpc::AnswerFault;
use crate::model::{A2aAnswer, Operation, OperationKind, Request, StreamEvent};
use crate::version::Generation;

/// Everything but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request over HTTP, apart from its base URL and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestRequest {
    pub method: &'static str,
    /// Path below the base URL, with its query.
    pub target: String,
    /// JSON, for POST.
    pub body: Option<String>,
}

/// Writes a request; `None` for an operation that its version lacks.
pub fn encode_request(request: &Request) -> Option<RestRequest> {
    let generation = request.generation;
    let dialect = Dialect::of_rest(generation);
    let (method, path) = path_of(generation, &request.operation)?;
    let prefix = match (generation, &request.tenant) {
        (Generation::V03, _) => "/v1".to_owned(),
        (Generation::V10, Some(tenant)) => format!("/{}", segment(tenant)),
        (Generation::V10, None) => String::new(),
    };
    let mut target = format!("{prefix}{path}");
    let has_body = method == "POST" && !matches!(request.operation, Operation::Subscribe { .. });
    if !has_body {
        let query = query_of(&request.operation);
        if !query.is_empty() {
            target = format!("{target}?{query}");
        }
    }
    let body =
        has_body.then(|| writer::object(|writer| write_operation(writer, &request.operation, dialect, true)));
    Some(RestRequest { method, target, body })
}

fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}

fn path_of(generation: Generation, operation: &Operation) -> Option<(&'static str, String)> {
    let task = |id: &str| format!("/tasks/{}", segment(id));
    let configs = |id: &str| format!("{}/pushNotificationConfigs", task(id));
    Some(match operation {
        Operation::Send(_) => ("POST", "/message:send".to_owned()),
        Operation::Stream(_) => ("POST", "/message:stream".to_owned()),
        Operation::GetTask { id, .. } => ("GET", task(id)),
        Operation::ListTasks(_) if generation == Generation::V03 => return None,
        Operation::ListTasks(_) => ("GET", "/tasks".to_owned()),
        Operation::CancelTask { id, .. } => ("POST", format!("{}:cancel", task(id))),
        // What the protocol buffers of 0.3 say, and the text of 1.0.
        Operation::Subscribe { id } if generation == Generation::V03 => {
            ("GET", format!("{}:subscribe", task(id)))
        }
        Operation::Subscribe { id } => ("POST", format!("{}:subscribe", task(id))),
        Operation::CreatePush(config) => ("POST", configs(&config.task_id)),
        Operation::GetPush { task_id, id } => {
            ("GET", format!("{}/{}", configs(task_id), segment(id.as_deref()?)))
        }
        Operation::ListPush { task_id, .. } => ("GET", configs(task_id)),
        Operation::DeletePush { task_id, id } => ("DELETE", format!("{}/{}", configs(task_id), segment(id))),
        Operation::ExtendedCard if generation == Generation::V03 => ("GET", "/card".to_owned()),
        Operation::ExtendedCard => ("GET", "/extendedAgentCard".to_owned()),
    })
}

fn query_of(operation: &Operation) -> String {
    let text = writer::object(|writer| write_operation(writer, operation, Dialect::V10, true));
    let mut query = Serializer::new(String::new());
    for (name, value) in asp_json::members(&text).unwrap_or_default() {
        let value = asp_json::string(value).unwrap_or(std::borrow::Cow::Borrowed(value));
        query.append_pair(&name, &value);
    }
    query.finish()
}

/// Reads an answer; every HTTP status but 2xx is an error.
pub fn decode_answer(
    kind: OperationKind,
    generation: Generation,
    status: u16,
    body: &[u8],
) -> Result<A2aAnswer, AnswerFault> {
    let is_success = (200..300).contains(&status);
    let text = std::str::from_utf8(asp_json::unmarked(body)).unwrap_or_default().trim();
    if !is_success {
        return Err(AnswerFault::Refused(A2aFailure::read(text, Some(status))));
    }
    read_answer(kind, text, Dialect::of_rest(generation)).map_err(AnswerFault::Invalid)
}

/// Reads one event of a stream, or the error that ends it.
pub fn decode_event(generation: Generation, data: &[u8]) -> Result<StreamEvent, AnswerFault> {
    let invalid = || {
        AnswerFault::Invalid(vec![FieldViolation {
            field: "event".into(),
            description: "is not a JSON object".into(),
        }])
    };
    let text = std::str::from_utf8(data).map_err(|_| invalid())?;
    let [error] = asp_json::named(text, ["error"]).ok_or_else(invalid)?;
    match error.filter(|error| *error != "null") {
        Some(_) => Err(AnswerFault::Refused(A2aFailure::read(text, None))),
        None => read_stream_event(text, Dialect::of_rest(generation)).map_err(AnswerFault::Invalid),
    }
}
