//! Errors as gRPC statuses with details.

use std::collections::BTreeMap;

use asp_proto::a2a::google::rpc::{BadRequest, ErrorInfo, Status, bad_request};
use prost::Message;
use prost_types::Any;

use crate::bounds::{MAX_LISTED, MAX_VIOLATIONS};
use crate::error::{A2aError, A2aFailure, FieldViolation};

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// Returns the code of an error, and the bytes of its `grpc-status-details-bin`.
pub fn encode_status(failure: &A2aFailure) -> (i32, Vec<u8>) {
    let code = failure.error.grpc_code().code;
    let mut details = Vec::new();
    if failure.has_info() {
        let info = ErrorInfo {
            reason: failure.error.reason().to_owned(),
            domain: failure.domain().to_owned(),
            metadata: failure.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
        };
        details.push(Any { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() });
    }
    if !failure.violations.is_empty() {
        let field_violations = failure.violations.iter().map(|violation| bad_request::FieldViolation {
            field: violation.field.clone(),
            description: violation.description.clone(),
        });
        let request = BadRequest { field_violations: field_violations.collect() };
        details.push(Any { type_url: BAD_REQUEST.to_owned(), value: request.encode_to_vec() });
    }
    (code, Status { code, message: failure.message.clone(), details }.encode_to_vec())
}

/// Reads a status with its details, which may be missing.
pub fn decode_status(code: i32, message: &str, details: &[u8]) -> A2aFailure {
    let mut failure = A2aFailure::new(A2aError::of_grpc(code), message);
    let status = Status::decode(details).unwrap_or_default();
    for detail in status.details.iter().take(MAX_LISTED) {
        match detail.type_url.as_str() {
            ERROR_INFO => {
                let info = ErrorInfo::decode(detail.value.as_slice()).unwrap_or_default();
                if let Some(error) = A2aError::of_reason(&info.reason) {
                    failure.error = error;
                }
                failure.metadata.extend(info.metadata.into_iter().take(MAX_LISTED));
            }
            BAD_REQUEST => {
                let request = BadRequest::decode(detail.value.as_slice()).unwrap_or_default();
                let read = |violation: bad_request::FieldViolation| FieldViolation {
                    field: violation.field,
                    description: violation.description,
                };
                failure
                    .violations
                    .extend(request.field_violations.into_iter().take(MAX_VIOLATIONS).map(read));
            }
            _ => {}
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_with_its_details() {
        for failure in [
            A2aFailure::task_not_found("t1"),
            A2aFailure::from(A2aError::VersionNotSupported),
            A2aFailure::invalid_field("message.parts", "must have at least one part"),
            A2aFailure::from(A2aError::RateLimited).with("retryAfterMs", "5"),
        ] {
            let (code, details) = encode_status(&failure);
            assert_eq!(code, failure.error.grpc_code().code);
            assert_eq!(decode_status(code, &failure.message, &details), failure);
        }
        let bare = decode_status(5, "no", b"\xff");
        assert_eq!((bare.error, bare.message.as_str()), (A2aError::TaskNotFound, "no"));
    }
}
