use serde_json::json;

use super::*;

#[test]
fn each_error_has_the_mappings_of_1_0_1() {
    // Interop bug 2. Columns: JSON-RPC, HTTP, gRPC, reason (section 5.4 of 1.0.1).
    for (error, rpc, http, grpc, reason) in [
        (A2aError::TaskNotFound, -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (A2aError::TaskNotCancelable, -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        (
            A2aError::PushNotificationNotSupported,
            -32003,
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (A2aError::UnsupportedOperation, -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        (A2aError::ContentTypeNotSupported, -32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
        (A2aError::InvalidAgentResponse, -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
        (
            A2aError::ExtendedAgentCardNotConfigured,
            -32007,
            400,
            "FAILED_PRECONDITION",
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        ),
        (
            A2aError::ExtensionSupportRequired,
            -32008,
            400,
            "FAILED_PRECONDITION",
            "EXTENSION_SUPPORT_REQUIRED",
        ),
        (A2aError::VersionNotSupported, -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    ] {
        assert_eq!((error.jsonrpc_code(), error.http_status()), (rpc, http), "{error:?}");
        assert_eq!((error.grpc_code().name, error.reason()), (grpc, reason), "{error:?}");
        assert!(error.is_of_a2a());
        assert_eq!(A2aError::of_reason(reason), Some(error));
    }
    for (error, rpc, http, grpc) in [
        (A2aError::Parse, -32700, 400, "INVALID_ARGUMENT"),
        (A2aError::InvalidRequest, -32600, 400, "INVALID_ARGUMENT"),
        (A2aError::MethodNotFound, -32601, 404, "UNIMPLEMENTED"),
        (A2aError::InvalidParams, -32602, 400, "INVALID_ARGUMENT"),
        (A2aError::Internal, -32603, 500, "INTERNAL"),
    ] {
        assert_eq!((error.jsonrpc_code(), error.http_status()), (rpc, http), "{error:?}");
        assert_eq!(error.grpc_code().name, grpc, "{error:?}");
        assert!(!error.is_of_a2a());
    }
    for row in &ROWS {
        assert_eq!(row.error.reason(), row.reason, "one row for {:?}", row.error);
    }
}

#[test]
fn details_are_a_list_in_json_rpc() {
    // Interop bug 19.
    let failure = A2aFailure::task_not_found("t1");
    let expected = json!({"code": -32001, "message": "Task not found", "data": [{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org", "metadata": {"taskId": "t1"}
    }]});
    assert_eq!(failure.to_jsonrpc().view(), &expected);
    let invalid = A2aFailure::invalid_field("message.parts", "At least one part is required");
    let expected = json!({"code": -32602, "message": "Invalid parameters", "data": [{
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "At least one part is required"}]
    }]});
    assert_eq!(invalid.to_jsonrpc().view(), &expected);
    let bare = A2aFailure::from(A2aError::Parse);
    assert_eq!(bare.to_jsonrpc().view(), &json!({"code": -32700, "message": "Invalid JSON payload"}));
}

#[test]
fn rest_has_a_status_with_details() {
    let expected = json!({"error": {
        "code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": [{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND",
            "domain": "a2a-protocol.org", "metadata": {"taskId": "t1"}
        }]
    }});
    assert_eq!(A2aFailure::task_not_found("t1").to_rest().view(), &expected);
}

#[test]
fn a_client_reads_what_a_server_writes() {
    for row in &ROWS {
        for failure in [
            A2aFailure::from(row.error),
            A2aFailure::from(row.error).with("a", "b"),
            A2aFailure {
                violations: vec![FieldViolation { field: "f".into(), description: "d".into() }],
                ..row.error.into()
            },
        ] {
            let read = A2aFailure::read(failure.to_jsonrpc().text(), None);
            assert_eq!(read, failure);
            let read = A2aFailure::read(failure.to_rest().text(), Some(row.http));
            // Without a reason, only the status says what was wrong.
            if failure.has_info() {
                assert_eq!(read, failure);
            } else {
                assert_eq!(read.error.http_status(), row.http);
            }
        }
    }
}

#[test]
fn errors_of_other_forms_are_read_by_their_status() {
    for (text, status, error, message) in [
        (r#"{"detail":"nope"}"#, 404, A2aError::TaskNotFound, "nope"),
        (r#"{"message":"no\ntask","code":-32001}"#, 404, A2aError::TaskNotFound, "notask"),
        ("<html>", 502, A2aError::Unavailable, "The agent is temporarily unavailable"),
        ("", 401, A2aError::Unauthenticated, "Authentication is required"),
        (
            r#"{"error":{"code":400,"message":"m","details":[{"reason":"TASK_NOT_FOUND","domain":"other"}]}}"#,
            400,
            A2aError::InvalidParams,
            "m",
        ),
        (r#"{"error":{"code":-32000,"message":"m"}}"#, 401, A2aError::Unauthenticated, "m"),
        (r#"{"error":{"code":-32000,"message":"m"}}"#, 200, A2aError::Unavailable, "m"),
        (r#"{"error":"text"}"#, 429, A2aError::RateLimited, "Too many requests"),
    ] {
        let failure = A2aFailure::read(text, Some(status));
        assert_eq!((failure.error, failure.message.as_str()), (error, message), "{text}");
    }
    let long = A2aFailure::read(&format!(r#"{{"message":"{}"}}"#, "ä".repeat(9000)), Some(400));
    assert!(long.message.len() <= MAX_MESSAGE);
    let many = format!(
        r#"{{"code":-32602,"data":[{{"fieldViolations":[{}]}}]}}"#,
        vec![r#"{"field":"f"}"#; 99].join(",")
    );
    assert_eq!(A2aFailure::read(&many, None).violations.len(), MAX_VIOLATIONS);
}
