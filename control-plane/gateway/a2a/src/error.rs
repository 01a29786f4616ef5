//! Errors of A2A with their mappings to JSON-RPC, REST and gRPC.
//!
//! Keeps true: the mappings are those of 1.0.1 (section 5.4), which differ from those of 1.0.0 for REST and gRPC; a client gets
//! a message, fields and metadata that whoever refused chose, and nothing else.

use std::fmt;

use asp_json::{Json, Members, named, string};
use serde_json::Value;

use crate::bounds::{MAX_LISTED, MAX_NAME, MAX_VIOLATIONS};

/// Domain of the reasons of A2A's own errors.
pub const DOMAIN: &str = "a2a-protocol.org";
/// Domain of the reasons of errors that A2A does not define.
const PLATFORM_DOMAIN: &str = "asp";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
/// JSON-RPC code of the errors that A2A leaves to the binding.
const PLATFORM_CODE: i64 = -32000;
/// Maximum length of a message that is read from a server, in bytes.
const MAX_MESSAGE: usize = 4096;

/// Kind of error. Those from `TaskNotFound` to `VersionNotSupported` are A2A's own; the first five are JSON-RPC's; A2A leaves
/// the others to the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum A2aError {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    VersionNotSupported,
    Unauthenticated,
    PermissionDenied,
    RateLimited,
    Unavailable,
    DeadlineExceeded,
}

/// Code of a gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcCode {
    pub code: i32,
    pub name: &'static str,
}

const fn grpc(code: i32, name: &'static str) -> GrpcCode {
    GrpcCode { code, name }
}

const INVALID_ARGUMENT: GrpcCode = grpc(3, "INVALID_ARGUMENT");
const DEADLINE_EXCEEDED: GrpcCode = grpc(4, "DEADLINE_EXCEEDED");
const NOT_FOUND: GrpcCode = grpc(5, "NOT_FOUND");
const PERMISSION_DENIED: GrpcCode = grpc(7, "PERMISSION_DENIED");
const RESOURCE_EXHAUSTED: GrpcCode = grpc(8, "RESOURCE_EXHAUSTED");
const FAILED_PRECONDITION: GrpcCode = grpc(9, "FAILED_PRECONDITION");
const UNIMPLEMENTED: GrpcCode = grpc(12, "UNIMPLEMENTED");
const INTERNAL: GrpcCode = grpc(13, "INTERNAL");
const UNAVAILABLE: GrpcCode = grpc(14, "UNAVAILABLE");
const UNAUTHENTICATED: GrpcCode = grpc(16, "UNAUTHENTICATED");

/// Mappings of one error.
struct ErrorRow {
    error: A2aError,
    rpc: i32,
    http: u16,
    grpc: GrpcCode,
    reason: &'static str,
    message: &'static str,
}

const fn row(
    error: A2aError,
    (rpc, http, grpc): (i32, u16, GrpcCode),
    reason: &'static str,
    message: &'static str,
) -> ErrorRow {
    ErrorRow { error, rpc, http, grpc, reason, message }
}

/// One row for each error; of equal codes the first row is what a client reads.
#[rustfmt::skip]
static ROWS: [ErrorRow; 19] = [
    row(A2aError::Parse, (-32700, 400, INVALID_ARGUMENT), "PARSE_ERROR", "Invalid JSON payload"),
    row(A2aError::InvalidRequest, (-32600, 400, INVALID_ARGUMENT), "INVALID_REQUEST", "Request payload validation error"),
    row(A2aError::MethodNotFound, (-32601, 404, UNIMPLEMENTED), "METHOD_NOT_FOUND", "Method not found"),
    row(A2aError::InvalidParams, (-32602, 400, INVALID_ARGUMENT), "INVALID_PARAMS", "Invalid parameters"),
    row(A2aError::Internal, (-32603, 500, INTERNAL), "INTERNAL", "Internal error"),
    row(A2aError::TaskNotFound, (-32001, 404, NOT_FOUND), "TASK_NOT_FOUND", "Task not found"),
    row(A2aError::TaskNotCancelable, (-32002, 400, FAILED_PRECONDITION), "TASK_NOT_CANCELABLE", "Task cannot be canceled"),
    row(A2aError::PushNotificationNotSupported, (-32003, 400, FAILED_PRECONDITION), "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "Push notifications are not supported"),
    row(A2aError::UnsupportedOperation, (-32004, 400, FAILED_PRECONDITION), "UNSUPPORTED_OPERATION",
        "This operation is not supported"),
    row(A2aError::ContentTypeNotSupported, (-32005, 400, INVALID_ARGUMENT), "CONTENT_TYPE_NOT_SUPPORTED",
        "Incompatible content types"),
    row(A2aError::InvalidAgentResponse, (-32006, 500, INTERNAL), "INVALID_AGENT_RESPONSE", "Invalid agent response"),
    row(A2aError::ExtendedAgentCardNotConfigured, (-32007, 400, FAILED_PRECONDITION),
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED", "Extended agent card is not configured"),
    row(A2aError::ExtensionSupportRequired, (-32008, 400, FAILED_PRECONDITION), "EXTENSION_SUPPORT_REQUIRED",
        "A required extension is missing"),
    row(A2aError::VersionNotSupported, (-32009, 400, FAILED_PRECONDITION), "VERSION_NOT_SUPPORTED",
        "This version is not supported"),
    row(A2aError::Unavailable, (-32000, 503, UNAVAILABLE), "UNAVAILABLE", "The agent is temporarily unavailable"),
    row(A2aError::Unauthenticated, (-32000, 401, UNAUTHENTICATED), "UNAUTHENTICATED", "Authentication is required"),
    row(A2aError::PermissionDenied, (-32000, 403, PERMISSION_DENIED), "PERMISSION_DENIED", "Permission denied"),
    row(A2aError::RateLimited, (-32000, 429, RESOURCE_EXHAUSTED), "RATE_LIMITED", "Too many requests"),
    row(A2aError::DeadlineExceeded, (-32000, 504, DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED", "The deadline has passed"),
];

const INTERNAL_ROW: &ErrorRow =
    &row(A2aError::Internal, (-32603, 500, INTERNAL), "INTERNAL", "Internal error");

impl A2aError {
    fn row(self) -> &'static ErrorRow {
        // Every error has a row.
        ROWS.iter().find(|row| row.error == self).unwrap_or(INTERNAL_ROW)
    }

    pub fn jsonrpc_code(self) -> i32 {
        self.row().rpc
    }

    pub fn http_status(self) -> u16 {
        self.row().http
    }

    pub fn grpc_code(self) -> GrpcCode {
        self.row().grpc
    }

    /// Returns `ErrorInfo.reason`.
    pub fn reason(self) -> &'static str {
        self.row().reason
    }

    /// Returns the text that the specification gives the error.
    pub fn message(self) -> &'static str {
        self.row().message
    }

    /// Whether A2A defines the error, so that `ErrorInfo` is required.
    pub fn is_of_a2a(self) -> bool {
        (-32099..=-32001).contains(&self.jsonrpc_code())
    }

    fn domain(self) -> &'static str {
        if self.is_of_a2a() { DOMAIN } else { PLATFORM_DOMAIN }
    }

    /// Returns the error that a reason names.
    pub fn of_reason(reason: &str) -> Option<A2aError> {
        ROWS.iter().find(|row| row.reason == reason).map(|row| row.error)
    }

    fn of_rpc(code: i64) -> Option<A2aError> {
        ROWS.iter().find(|row| i64::from(row.rpc) == code).map(|row| row.error)
    }

    /// Returns the error that best fits an HTTP status without a reason.
    pub fn of_http(status: u16) -> A2aError {
        match status {
            400 | 409 | 413 | 415 | 422 => A2aError::InvalidParams,
            404 => A2aError::TaskNotFound,
            405 => A2aError::MethodNotFound,
            502..=503 => A2aError::Unavailable,
            status => ROWS.iter().find(|row| row.http == status).map_or(A2aError::Internal, |row| row.error),
        }
    }

    /// Returns the error that best fits a gRPC status without a reason.
    pub fn of_grpc(code: i32) -> A2aError {
        let fits = |row: &&ErrorRow| row.grpc.code == code;
        match code {
            3 => A2aError::InvalidParams,
            9 => A2aError::UnsupportedOperation,
            code if code == NOT_FOUND.code => A2aError::TaskNotFound,
            _ => ROWS.iter().find(fits).map_or(A2aError::Internal, |row| row.error),
        }
    }
}

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path from the parameters, such as `message.parts[0]`.
    pub field: String,
    pub description: String,
}

/// Description of a tenant beside that of its request.
pub(crate) const MISPLACED_TENANT: &str = "must be left out: the request itself names its tenant";

/// An error as it is reported: what a server answers, or what a client got.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct A2aFailure {
    pub error: A2aError,
    /// Safe to show to the client.
    pub message: String,
    pub violations: Vec<FieldViolation>,
    /// `ErrorInfo.metadata`, in order.
    pub metadata: Vec<(String, String)>,
}

impl From<A2aError> for A2aFailure {
    fn from(error: A2aError) -> A2aFailure {
        A2aFailure::new(error, error.message())
    }
}

impl A2aFailure {
    pub fn new(error: A2aError, message: impl Into<String>) -> A2aFailure {
        A2aFailure { error, message: message.into(), violations: Vec::new(), metadata: Vec::new() }
    }

    /// Returns the refusal of parameters, with the fields at fault.
    pub fn invalid(mut violations: Vec<FieldViolation>) -> A2aFailure {
        violations.truncate(MAX_VIOLATIONS);
        A2aFailure { violations, ..A2aError::InvalidParams.into() }
    }

    /// Returns the refusal of one field.
    pub fn invalid_field(field: impl Into<String>, description: impl Into<String>) -> A2aFailure {
        A2aFailure::invalid(vec![FieldViolation { field: field.into(), description: description.into() }])
    }

    /// Adds metadata.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> A2aFailure {
        self.metadata.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the task in question as not found: the same for an unknown task and a hidden one.
    pub fn task_not_found(task: &str) -> A2aFailure {
        A2aFailure::from(A2aError::TaskNotFound).with("taskId", task)
    }

    /// Whether `ErrorInfo` is among the details: JSON-RPC's own errors are known by their codes.
    pub(crate) fn has_info(&self) -> bool {
        self.error.jsonrpc_code() > -32600 || !self.metadata.is_empty()
    }

    pub(crate) fn domain(&self) -> &'static str {
        self.error.domain()
    }

    /// Returns the details as JSON objects with `@type`.
    fn details(&self) -> Vec<Json> {
        let mut details = Vec::new();
        if self.has_info() {
            let mut info = typed(ERROR_INFO);
            info.insert("reason", self.error.reason());
            info.insert("domain", self.domain());
            if !self.metadata.is_empty() {
                let metadata: Members =
                    self.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                info.insert("metadata", metadata.to_json());
            }
            details.push(info.to_json());
        }
        if !self.violations.is_empty() {
            let mut request = typed(BAD_REQUEST);
            request.insert("fieldViolations", array(self.violations.iter().map(FieldViolation::to_json)));
            details.push(request.to_json());
        }
        details
    }

    /// Returns the `error` member of a JSON-RPC response. `data` is an array, which 1.0 demands and 0.3 allows.
    pub fn to_jsonrpc(&self) -> Json {
        let mut error = Members::default();
        error.insert("code", Value::from(self.error.jsonrpc_code()));
        error.insert("message", self.message.as_str());
        let details = self.details();
        if !details.is_empty() {
            error.insert("data", array(details));
        }
        error.to_json()
    }

    /// Returns the body of an error over REST of 1.0.
    pub fn to_rest(&self) -> Json {
        self.to_rest_as(self.error.http_status())
    }

    /// Returns that body for a response with another HTTP status than the error has.
    pub(crate) fn to_rest_as(&self, status: u16) -> Json {
        let mut error = Members::default();
        error.insert("code", Value::from(status));
        error.insert("status", self.error.grpc_code().name);
        error.insert("message", self.message.as_str());
        let details = self.details();
        if !details.is_empty() {
            error.insert("details", array(details));
        }
        [("error", error.to_json())].into_iter().collect::<Members>().to_json()
    }

    /// Reads the `error` member of a JSON-RPC response, or the body of an error over REST of either version; `status` is the
    /// HTTP status of the latter. What cannot be read says nothing but its status.
    pub fn read(text: &str, status: Option<u16>) -> A2aFailure {
        let by_status = status.map_or(A2aError::Internal, A2aError::of_http);
        let inner = named(text, ["error"]).and_then(|[error]| error).unwrap_or(text);
        let Some([code, message, data, details, detail]) =
            named(inner, ["code", "message", "data", "details", "detail"])
        else {
            return by_status.into();
        };
        let code = code.and_then(|code| code.parse::<i64>().ok());
        // A status tells the errors of this code apart.
        let is_told_apart = code == Some(PLATFORM_CODE) && status.is_some_and(|status| status >= 400);
        let code = code.filter(|_| !is_told_apart).and_then(A2aError::of_rpc);
        let mut failure = A2aFailure::from(code.unwrap_or(by_status));
        if let Some(message) = message.or(detail).and_then(string) {
            failure.message = bounded(&message, MAX_MESSAGE);
        }
        for detail in
            data.or(details).and_then(|list| asp_json::first_elements(list, MAX_LISTED)).unwrap_or_default()
        {
            failure.read_detail(detail);
        }
        failure
    }

    fn read_detail(&mut self, text: &str) {
        let Some([reason, domain, metadata, violations]) =
            named(text, ["reason", "domain", "metadata", "fieldViolations"])
        else {
            return;
        };
        let is_known =
            domain.and_then(string).is_some_and(|domain| domain == DOMAIN || domain == PLATFORM_DOMAIN);
        if let Some(error) =
            reason.and_then(string).filter(|_| is_known).and_then(|text| A2aError::of_reason(&text))
        {
            self.error = error;
        }
        for (name, value) in
            metadata.and_then(asp_json::members).unwrap_or_default().into_iter().take(MAX_LISTED)
        {
            if let Some(value) = string(value) {
                self.metadata.push((bounded(&name, MAX_NAME), bounded(&value, MAX_MESSAGE)));
            }
        }
        let violations =
            violations.and_then(|list| asp_json::first_elements(list, MAX_VIOLATIONS)).unwrap_or_default();
        self.violations.extend(violations.into_iter().filter_map(FieldViolation::read));
    }
}

impl FieldViolation {
    fn to_json(&self) -> Json {
        let members = [("field", self.field.as_str()), ("description", self.description.as_str())];
        members.into_iter().collect::<Members>().to_json()
    }

    fn read(text: &str) -> Option<FieldViolation> {
        let [field, description] = named(text, ["field", "description"])?;
        let read = |text: Option<&str>| {
            text.and_then(string).map(|text| bounded(&text, MAX_NAME)).unwrap_or_default()
        };
        Some(FieldViolation { field: read(field), description: read(description) })
    }
}

impl fmt::Display for FieldViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.description)
    }
}

fn typed(name: &str) -> Members {
    [("@type", name)].into_iter().collect()
}

fn array(values: impl IntoIterator<Item = Json>) -> Json {
    let values: Vec<Json> = values.into_iter().collect();
    let texts: Vec<&str> = values.iter().map(Json::text).collect();
    Json::part(format!("[{}]", texts.join(",")))
}

/// Returns the text without control characters, cut at a length in bytes.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    let cut = text.floor_char_boundary(most);
    text.get(..cut).unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests;
