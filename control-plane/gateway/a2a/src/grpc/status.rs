//! Errors as gRPC statuses with details.
//!
//! Keeps true: a status fits in the 8 KiB of header fields that clients accept.

use std::collections::BTreeMap;

use asp_proto::a2a::google::rpc::{BadRequest, ErrorInfo, Status, bad_request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use prost_types::Any;

use crate::bounds::{MAX_LISTED, MAX_VIOLATIONS};
use crate::error::{A2aError, A2aFailure, FieldViolation, bounded};

/// Maximum length of a status's message, in bytes.
const MAX_MESSAGE: usize = 512;
/// Maximum size of the field violations of a status, in bytes; those beyond it are left out.
const MAX_VIOLATION_BYTES: usize = 2048;
/// Bytes of a message that are escaped besides those outside ASCII ("gRPC over HTTP2", `Status-Message`).
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// Returns the code of an error, and the bytes of its `grpc-status-details-bin`.
pub fn encode_status(failure: &A2aFailure) -> (i32, Vec<u8>) {
    let code = failure.error.grpc_code().code;
    let message = bounded(&failure.message, MAX_MESSAGE);
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
        let mut room = MAX_VIOLATION_BYTES;
        let fitting = failure.violations.iter().map_while(|FieldViolation { field, description }| {
            room = room.checked_sub(field.len() + description.len())?;
            Some(bad_request::FieldViolation { field: field.clone(), description: description.clone() })
        });
        let request = BadRequest { field_violations: fitting.collect() };
        details.push(Any { type_url: BAD_REQUEST.to_owned(), value: request.encode_to_vec() });
    }
    (code, Status { code, message, details }.encode_to_vec())
}

/// Returns the fields of a response's headers or trailers that report an error.
pub fn status_fields(failure: &A2aFailure) -> [(&'static str, String); 3] {
    let (code, details) = encode_status(failure);
    let message = bounded(&failure.message, MAX_MESSAGE);
    [
        ("grpc-status", code.to_string()),
        ("grpc-message", utf8_percent_encode(&message, ESCAPED).to_string()),
        ("grpc-status-details-bin", STANDARD_NO_PAD.encode(details)),
    ]
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

    #[test]
    fn a_status_is_three_fields_of_bounded_size() {
        let failure = A2aFailure::invalid_field("message.parts", "größer als 5 %");
        let failure = A2aFailure { message: "zu groß: 100%".into(), ..failure };
        let [code, message, details] = status_fields(&failure);
        assert_eq!(code, ("grpc-status", "3".to_owned()));
        assert_eq!(message, ("grpc-message", "zu gro%C3%9F: 100%25".to_owned()));
        let bytes = STANDARD_NO_PAD.decode(details.1).unwrap();
        assert_eq!(decode_status(3, &failure.message, &bytes), failure);

        let long = |field: &str| FieldViolation { field: field.into(), description: "ß".repeat(400) };
        let violations = ["a", "b", "c", "d"].map(long).to_vec();
        let failure = A2aFailure { message: "ß".repeat(5_000), ..A2aFailure::invalid(violations) };
        let fields = status_fields(&failure.with("traceId", "0".repeat(32)));
        assert!(fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() < 8 << 10);
        let bytes = STANDARD_NO_PAD.decode(&fields[2].1).unwrap();
        assert_eq!(decode_status(3, "", &bytes).violations.len(), 2);
    }
}
