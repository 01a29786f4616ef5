//! JSON-RPC 2.0 as MCP uses it: lenient where the specification leaves room, strict where policy reads.
//!
//! Messages are plain JSON: unknown members pass through. The edge's scan has already checked the envelope.

use asp_call::call::remote::InputFault;
use asp_edge::{Reason, Trace, reason::Era};
use asp_json::{Json, Members, Syntax};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::refusal_mark::RefusalMark;

/// Capacity for a result of usual size, in bytes.
const USUAL_RESULT: usize = 512;

/// One incoming message.
#[derive(Debug, Default, Serialize)]
pub struct Message {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
    pub id: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_object")]
    params: Option<Members>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
    pub result: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
    pub error: Option<Json>,
}

fn as_object<S: Serializer>(members: &Option<Members>, serializer: S) -> Result<S::Ok, S::Error> {
    members.as_ref().map(Members::to_json).as_ref().map(Json::raw).serialize(serializer)
}

impl Message {
    /// Reads one message. The envelope is checked: none of its names is repeated.
    pub fn read(text: &[u8]) -> Result<Message, Syntax> {
        let text = std::str::from_utf8(text).map_err(|_| Syntax)?;
        Message::of(text)
    }

    /// Reads the messages of a batch.
    pub fn read_all(text: &[u8]) -> Result<Vec<Message>, Syntax> {
        let text = std::str::from_utf8(text).map_err(|_| Syntax)?;
        asp_json::elements(text).ok_or(Syntax)?.into_iter().map(Message::of).collect()
    }

    fn of(text: &str) -> Result<Message, Syntax> {
        let mut message = Message::default();
        for (name, text) in asp_json::members(text).ok_or(Syntax)? {
            // Null stands for an absent member (as serde reads an `Option`).
            if text == "null" {
                continue;
            }
            match name.as_ref() {
                "id" => message.id = Some(Json::part(text)),
                "method" => message.method = Some(asp_json::string(text).ok_or(Syntax)?.into_owned()),
                "params" => message.params = Some(Members::select(text, |_| true)),
                "result" => message.result = Some(Json::part(text)),
                "error" => message.error = Some(Json::part(text)),
                _ => {}
            }
        }
        Ok(message)
    }

    /// Returns a member of `params`.
    pub fn param(&self, name: &str) -> Option<&Value> {
        self.params.as_ref()?.get(name).map(Json::view)
    }

    /// Returns a member of `params` with its text.
    pub fn sent_param(&self, name: &str) -> Option<Json> {
        self.params.as_ref()?.get(name).cloned()
    }

    /// Returns `params` as one value; `None` without them.
    pub fn params(&self) -> Option<Json> {
        self.params.as_ref().map(Members::to_json)
    }

    /// Returns the same message for another tool, with its arguments; `None` leaves out the member.
    pub(super) fn for_tool(&self, name: &str, arguments: Option<Json>) -> Message {
        let mut params = self.params.clone().unwrap_or_default();
        params.insert("name", name);
        match arguments {
            Some(arguments) => params.insert("arguments", arguments),
            None => drop(params.remove("arguments")),
        }
        Message {
            id: self.id.clone(),
            method: self.method.clone(),
            params: Some(params),
            result: None,
            error: None,
        }
    }

    /// Returns a string member of `params`.
    pub fn text_param(&self, name: &str) -> Option<&str> {
        self.param(name)?.as_str()
    }

    /// Returns a member of `params._meta`.
    pub fn meta(&self, name: &str) -> Option<&Value> {
        self.param("_meta")?.get(name)
    }

    /// Returns the id as JSON text.
    pub fn id_text(&self) -> Option<&str> {
        self.id.as_ref().map(Json::text)
    }
}

/// A JSON-RPC error for the client.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcFailure {
    pub code: i32,
    pub message: String,
    pub data: Map<String, Value>,
    /// The upstream's own error, an unmodified member of `data`.
    pub upstream: Option<Json>,
    pub status: StatusCode,
    /// Value of `WWW-Authenticate`, for a missing scope.
    pub challenge: Option<String>,
    pub(super) reason: Reason,
    /// Whether the pipeline has logged it as the end of a call.
    pub(super) is_logged: bool,
}

impl RpcFailure {
    /// Returns the failure for `reason`, with the status of the legacy era.
    pub fn of(reason: Reason) -> RpcFailure {
        RpcFailure::with(reason, reason.message())
    }

    /// Returns the same with its own message.
    pub fn with(reason: Reason, message: &str) -> RpcFailure {
        let mut data = Map::new();
        data.insert("reason".into(), reason.as_str().into());
        data.insert("code".into(), reason.taxonomy().into());
        data.insert("recoveryHint".into(), reason.recovery_hint().into());
        // Former spelling.
        data.insert("recovery_hint".into(), reason.recovery_hint().into());
        RpcFailure {
            code: reason.jsonrpc_code(),
            message: message.into(),
            data,
            upstream: None,
            status: StatusCode::from_u16(reason.http_status(Era::Legacy)).unwrap_or(StatusCode::OK),
            challenge: None,
            reason,
            is_logged: false,
        }
    }

    /// Returns the failure for an answer or a cancel for a call at another gateway that was not stored.
    pub(super) fn of_input_fault(fault: InputFault) -> RpcFailure {
        let reason = match fault {
            InputFault::Unavailable | InputFault::Full => Reason::UpstreamUnavailable,
            InputFault::TooLarge => Reason::InvalidParams,
        };
        RpcFailure::with(reason, &fault.to_string())
    }

    /// Sets the status to 200, for legacy errors within a call: 404 would mean a dead session.
    pub fn in_call(mut self) -> RpcFailure {
        self.status = StatusCode::OK;
        self
    }

    pub fn status(mut self, status: StatusCode) -> RpcFailure {
        self.status = status;
        self
    }

    pub fn data(mut self, name: &str, value: Value) -> RpcFailure {
        self.data.insert(name.into(), value);
        self
    }

    /// Marks the failure as the end of a call, which the pipeline has logged.
    pub(super) fn of_call(mut self) -> RpcFailure {
        self.is_logged = true;
        self
    }

    pub fn is(&self, reason: Reason) -> bool {
        self.reason == reason
    }

    /// Returns the mark of a response with this failure; `None` if it ended a call.
    pub(super) fn mark(&self, trace: Trace) -> Option<RefusalMark> {
        let mark = RefusalMark { trace, reason: self.reason.as_str(), cause: None };
        (!self.is_logged).then_some(mark)
    }

    /// Returns the whole HTTP response; `id` is JSON text.
    pub fn respond(self, id: Option<&str>, trace: Trace) -> Response {
        let mut response = RpcResponse::failure(id, &self, trace).respond(self.status);
        if let Some(mark) = self.mark(trace) {
            mark.put(response.extensions_mut());
        }
        if let Some(challenge) = self.challenge.and_then(|text| HeaderValue::try_from(text).ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// A value that writes itself as JSON on one line.
pub trait WriteJson {
    /// Appends the text.
    fn write(&self, text: &mut Vec<u8>);
}

impl WriteJson for Json {
    fn write(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.text().as_bytes());
    }
}

impl WriteJson for Value {
    fn write(&self, text: &mut Vec<u8>) {
        // Every value has a text, and writing to memory does not fail.
        let _ = serde_json::to_writer(text, self);
    }
}

/// A JSON-RPC response, already encoded on one line.
pub struct RpcResponse {
    pub text: String,
}

impl RpcResponse {
    /// Encodes a result; `id` is JSON text.
    pub fn result(id: &str, result: &impl WriteJson) -> RpcResponse {
        let mut text = Vec::with_capacity(USUAL_RESULT);
        text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        text.extend_from_slice(id.as_bytes());
        text.extend_from_slice(br#","result":"#);
        result.write(&mut text);
        text.push(b'}');
        match String::from_utf8(text) {
            Ok(text) => RpcResponse { text },
            // Never happens, as every part is text.
            Err(_) => RpcResponse::error(Some(id), &RpcFailure::of(Reason::Internal), None),
        }
    }

    /// Encodes a failure; the member `id` is left out, not null, if none could be read.
    pub fn failure(id: Option<&str>, failure: &RpcFailure, trace: Trace) -> RpcResponse {
        RpcResponse::error(id, failure, Some(trace))
    }

    fn error(id: Option<&str>, failure: &RpcFailure, trace: Option<Trace>) -> RpcResponse {
        let error = error_object(failure, trace);
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        RpcResponse { text: format!(r#"{{"jsonrpc":"2.0",{id}"error":{error}}}"#) }
    }

    pub fn respond(self, status: StatusCode) -> Response {
        let kind = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, kind)], self.text).into_response()
    }
}

/// Returns the `error` member of a response.
pub fn error_object(failure: &RpcFailure, trace: Option<Trace>) -> Json {
    let mut data: Members = failure.data.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    if let Some(upstream) = &failure.upstream {
        data.insert("upstream", upstream.clone());
    }
    if let Some(trace) = trace {
        data.insert("traceId", trace.to_string());
    }
    let mut error = Members::default();
    error.insert("code", Value::from(failure.code));
    error.insert("message", failure.message.as_str());
    error.insert("data", data.to_json());
    error.to_json()
}

/// Returns the answer to an accepted notification or response.
pub fn accepted() -> Response {
    status(StatusCode::ACCEPTED)
}

/// Returns an empty response.
pub fn status(status: StatusCode) -> Response {
    status.into_response()
}

/// Returns a 405 that lists the `allowed` methods.
pub fn method_not_allowed(allowed: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allowed)]).into_response()
}

/// Returns a header's value if it is present and visible ASCII; OWS is trimmed.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Returns a JSON-RPC notification as text.
pub fn notification(method: &str, params: impl Into<Json>) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{}}}"#, Value::from(method), params.into())
}

/// Returns a JSON-RPC request from the server as text.
pub fn server_request(id: &str, (method, params): (&str, impl Into<Json>)) -> String {
    let (id, method, params) = (Value::from(id), Value::from(method), params.into());
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}
