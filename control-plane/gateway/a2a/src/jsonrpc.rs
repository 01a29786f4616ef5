//! The JSON-RPC binding of both versions.
//!
//! Keeps true: the method's name decides the version; faults are reported in the order in which clients expect them: JSON,
//! envelope, method, parameters. The version header is checked after these ([`crate::version::check_version`]).

use asp_json::{Json, Syntax, named, string};

use crate::bounds::MAX_RPC_ID;
use crate::error::{A2aError, A2aFailure, FieldViolation};
use crate::json::answer::{read_answer, read_stream_event, write_answer, write_stream_event};
use crate::json::request::{PathIds, read_operation, write_operation};
use crate::json::{Dialect, read_value, writer};
use crate::model::{A2aAnswer, OperationKind, Request, StreamEvent, Task};
use crate::version::Generation;

/// Methods of both versions.
const METHODS: [(&str, Generation, OperationKind); 21] = [
    ("SendMessage", Generation::V10, OperationKind::Send),
    ("SendStreamingMessage", Generation::V10, OperationKind::Stream),
    ("GetTask", Generation::V10, OperationKind::GetTask),
    ("ListTasks", Generation::V10, OperationKind::ListTasks),
    ("CancelTask", Generation::V10, OperationKind::CancelTask),
    ("SubscribeToTask", Generation::V10, OperationKind::Subscribe),
    ("CreateTaskPushNotificationConfig", Generation::V10, OperationKind::CreatePush),
    ("GetTaskPushNotificationConfig", Generation::V10, OperationKind::GetPush),
    ("ListTaskPushNotificationConfigs", Generation::V10, OperationKind::ListPush),
    ("DeleteTaskPushNotificationConfig", Generation::V10, OperationKind::DeletePush),
    ("GetExtendedAgentCard", Generation::V10, OperationKind::ExtendedCard),
    ("message/send", Generation::V03, OperationKind::Send),
    ("message/stream", Generation::V03, OperationKind::Stream),
    ("tasks/get", Generation::V03, OperationKind::GetTask),
    ("tasks/cancel", Generation::V03, OperationKind::CancelTask),
    ("tasks/resubscribe", Generation::V03, OperationKind::Subscribe),
    ("tasks/pushNotificationConfig/set", Generation::V03, OperationKind::CreatePush),
    ("tasks/pushNotificationConfig/get", Generation::V03, OperationKind::GetPush),
    ("tasks/pushNotificationConfig/list", Generation::V03, OperationKind::ListPush),
    ("tasks/pushNotificationConfig/delete", Generation::V03, OperationKind::DeletePush),
    ("agent/getAuthenticatedExtendedCard", Generation::V03, OperationKind::ExtendedCard),
];

/// Returns the version and the operation of a method.
pub fn find_method(name: &str) -> Option<(Generation, OperationKind)> {
    METHODS.iter().find(|(own, ..)| *own == name).map(|(_, generation, kind)| (*generation, *kind))
}

/// Returns the method of an operation; 0.3 lists no tasks.
pub fn method_name(generation: Generation, kind: OperationKind) -> Option<&'static str> {
    METHODS
        .iter()
        .find(|(_, own, operation)| (*own, *operation) == (generation, kind))
        .map(|(name, ..)| *name)
}

/// A request whose envelope is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcRequest<'a> {
    /// The id as JSON; none is answered with null.
    pub id: Option<&'a str>,
    pub generation: Generation,
    pub kind: OperationKind,
    params: Option<&'a str>,
}

/// A request that is refused for its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeFault<'a> {
    /// The id as JSON, if it could be read.
    pub id: Option<&'a str>,
    pub failure: A2aFailure,
}

/// Reads the envelope of a request.
pub fn read_envelope(body: &[u8]) -> Result<RpcRequest<'_>, EnvelopeFault<'_>> {
    let fault =
        |id, error: A2aError, message: &str| EnvelopeFault { id, failure: A2aFailure::new(error, message) };
    let text = std::str::from_utf8(body).unwrap_or_default();
    let Some([version, id, method, params]) = named(text, ["jsonrpc", "id", "method", "params"]) else {
        return Err(match Json::parse(body) {
            Ok(_) => {
                fault(None, A2aError::InvalidRequest, "a request is one object; batches are not supported")
            }
            Err(Syntax) => EnvelopeFault { id: None, failure: A2aError::Parse.into() },
        });
    };
    let id = id.filter(|id| *id != "null");
    if id.is_some_and(|id| !is_id(id)) {
        return Err(fault(None, A2aError::InvalidRequest, "id must be a string or an integer"));
    }
    if version.and_then(string).as_deref() != Some("2.0") {
        return Err(fault(id, A2aError::InvalidRequest, "jsonrpc must be 2.0"));
    }
    let Some(method) = method.and_then(string) else {
        return Err(fault(id, A2aError::InvalidRequest, "method must be a string"));
    };
    let Some((generation, kind)) = find_method(&method) else {
        return Err(EnvelopeFault { id, failure: A2aError::MethodNotFound.into() });
    };
    let params = params.filter(|params| *params != "null");
    Ok(RpcRequest { id, generation, kind, params })
}

fn is_id(id: &str) -> bool {
    id.len() <= MAX_RPC_ID && (id.starts_with('"') || asp_json::is_integer(id))
}

/// Reads the parameters of a request.
pub fn decode_request(request: &RpcRequest<'_>) -> Result<Request, A2aFailure> {
    let dialect = Dialect::of_jsonrpc(request.generation);
    let params = request.params.unwrap_or("{}");
    let (tenant, operation) = read_value(params, |object| {
        (object.id("tenant"), read_operation(request.kind, object, dialect, PathIds::default()))
    })
    .map_err(A2aFailure::invalid)?;
    Ok(Request { generation: request.generation, tenant, operation })
}

/// Writes a response with an answer; `id` is JSON.
pub fn encode_answer(id: Option<&str>, generation: Generation, answer: &A2aAnswer) -> String {
    response(id, "result", &write_answer(answer, Dialect::of_jsonrpc(generation)))
}

/// Writes a response with an event of a stream, on one line; `id` is JSON.
pub fn encode_event(id: Option<&str>, generation: Generation, event: &StreamEvent) -> String {
    response(id, "result", &write_stream_event(event, Dialect::of_jsonrpc(generation)))
}

/// Writes the body of a push notification: an event without an envelope, which is the bare task in 0.3.
pub fn encode_notification(generation: Generation, task: Task) -> String {
    write_stream_event(&StreamEvent::Task(task), Dialect::of_jsonrpc(generation))
}

/// Writes a response with an error, on one line; `id` is JSON. Both versions have one form.
pub fn encode_error(id: Option<&str>, failure: &A2aFailure) -> String {
    response(id, "error", failure.to_jsonrpc().text())
}

fn response(id: Option<&str>, name: &str, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"{name}":{text}}}"#, id.unwrap_or("null"))
}

/// Writes a request; `None` for an operation that its version lacks.
pub fn encode_request(id: u64, request: &Request) -> Option<String> {
    let method = method_name(request.generation, request.operation.kind())?;
    let dialect = Dialect::of_jsonrpc(request.generation);
    let params = writer::object(|writer| {
        if request.generation == Generation::V10 {
            writer.option("tenant", request.tenant.as_deref());
        }
        write_operation(writer, &request.operation, dialect, false);
    });
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
}

/// The reason why a client has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    #[error("the agent refused the request: {0}")]
    Refused(A2aFailure),
    #[error("the agent's answer does not conform to A2A{}", first(.0))]
    Invalid(Vec<FieldViolation>),
}

fn first(violations: &[FieldViolation]) -> String {
    violations.first().map(|violation| format!(": {violation}")).unwrap_or_default()
}

/// Reads the response to a request of ours.
pub fn decode_answer(
    kind: OperationKind,
    generation: Generation,
    body: &[u8],
) -> Result<A2aAnswer, AnswerFault> {
    let result = read_result(body)?;
    read_answer(kind, result, Dialect::of_jsonrpc(generation)).map_err(AnswerFault::Invalid)
}

/// Reads one event of a stream, which is a whole response.
pub fn decode_event(generation: Generation, body: &[u8]) -> Result<StreamEvent, AnswerFault> {
    let result = read_result(body)?;
    read_stream_event(result, Dialect::of_jsonrpc(generation)).map_err(AnswerFault::Invalid)
}

/// Returns the result of a response; null for none, as SDKs send it for a deletion.
fn read_result(body: &[u8]) -> Result<&str, AnswerFault> {
    let invalid = |description: &str| {
        AnswerFault::Invalid(vec![FieldViolation {
            field: "response".into(),
            description: description.into(),
        }])
    };
    let text = std::str::from_utf8(asp_json::unmarked(body)).map_err(|_| invalid("is not UTF-8"))?;
    let Some([result, error]) = named(text, ["result", "error"]) else {
        return Err(invalid("is not a JSON object"));
    };
    match error.filter(|error| *error != "null") {
        Some(error) => Err(AnswerFault::Refused(A2aFailure::read(error, None))),
        None => Ok(result.unwrap_or("null")),
    }
}

#[cfg(test)]
mod tests;
