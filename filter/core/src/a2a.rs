//! Refusals of requests over A2A, in the error form of each binding (A2A 1.0.1, sections 5.4, 9.5, 10.6 and 11.6).
//!
//! Keeps true: the details name the reason that every other protocol names, as `ErrorInfo.reason` in upper case, and no
//! code is one that A2A gives to an error of its own. The only exception is a body of another media type, for which A2A has
//! an error.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;
use serde_json::json;

use crate::reason::Reason;
use crate::reply::{JSON_ONLY, RefusalContent, Reply};
use crate::revocation::RevocationNotice;

/// Domain of the reasons that the platform defines.
const DOMAIN: &str = "asp";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// JSON-RPC code for errors of the implementation.
const PLATFORM_ERROR: i32 = -32000;
/// JSON-RPC code, and the reason with its domain, of A2A's `ContentTypeNotSupportedError`.
const CONTENT_TYPE_NOT_SUPPORTED: i32 = -32005;
const CONTENT_TYPE: (&str, &str) = ("CONTENT_TYPE_NOT_SUPPORTED", "a2a-protocol.org");
/// gRPC code for a service that is not here.
const UNIMPLEMENTED: i32 = 12;

/// Returns the HTTP status over REST, and the number and name of the gRPC code (`google.rpc.Code`).
const fn status(reason: Reason) -> (u16, i32, &'static str) {
    match reason {
        Reason::TokenMissing | Reason::TokenInvalid | Reason::TokenExpired | Reason::TokenRevoked => {
            (401, 16, "UNAUTHENTICATED")
        }
        Reason::OriginDenied
        | Reason::HostDenied
        | Reason::InsufficientScope
        | Reason::ContentRefused
        | Reason::Blocked => (403, 7, "PERMISSION_DENIED"),
        Reason::UnknownServer | Reason::UnknownMethod | Reason::UnknownPrimitive | Reason::SessionUnknown => {
            (404, 5, "NOT_FOUND")
        }
        Reason::ParseError
        | Reason::InvalidRequest
        | Reason::InvalidParams
        | Reason::HeaderMismatch
        | Reason::MissingCapability
        | Reason::UnsupportedVersion
        | Reason::SessionMissing => (400, 3, "INVALID_ARGUMENT"),
        Reason::Deadline => (408, 4, "DEADLINE_EXCEEDED"),
        Reason::BodyTooLarge => (413, 8, "RESOURCE_EXHAUSTED"),
        Reason::WrongRegion | Reason::UnknownRegion => (421, 9, "FAILED_PRECONDITION"),
        Reason::RateLimited => (429, 8, "RESOURCE_EXHAUSTED"),
        Reason::Internal => (500, 13, "INTERNAL"),
        Reason::OutcomeUnknown => (500, 2, "UNKNOWN"),
        Reason::UpstreamUnavailable => (503, 14, "UNAVAILABLE"),
    }
}

impl RefusalContent {
    /// Returns the refusal with the status that A2A's REST binding gives it.
    pub(crate) fn with_a2a_status(self) -> RefusalContent {
        RefusalContent { status: status(self.reason).0, ..self }
    }

    /// Builds the refusal for the JSON-RPC binding; `id` is that of the message, as JSON text.
    pub(crate) fn into_a2a_jsonrpc(self, id: Option<&str>) -> Reply {
        let (code, details) = (self.a2a_code(), self.details());
        self.into_a2a_error(id, code, &details)
    }

    /// Returns the JSON-RPC code, which is none that A2A gives to an error of its own.
    fn a2a_code(&self) -> i32 {
        match self.reason.jsonrpc_code() {
            // -32001 means that a task was not found.
            -32099..=-32001 => PLATFORM_ERROR,
            code => code,
        }
    }

    /// Builds the refusal of a body whose media type is not that of JSON-RPC, which is an error of A2A.
    pub(crate) fn into_a2a_media_type(self) -> Reply {
        let refusal = RefusalContent { message: JSON_ONLY, ..self };
        let (reason, domain) = CONTENT_TYPE;
        let info = refusal.info(reason, domain);
        refusal.into_a2a_error(None, CONTENT_TYPE_NOT_SUPPORTED, &info)
    }

    /// Builds a JSON-RPC error. Clients read it only from a response with status 200, so a faulty message gets that; every
    /// other refusal has its HTTP status.
    fn into_a2a_error(self, id: Option<&str>, code: i32, details: &serde_json::Value) -> Reply {
        let error = json!({ "code": code, "message": self.message, "data": [details] });
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.unwrap_or("null"));
        let status = if self.status == 400 { 200 } else { self.status };
        RefusalContent { status, ..self }.reply("application/json", body)
    }

    /// Builds the refusal for the REST binding of 0.3.
    pub(crate) fn into_a2a_rest_v03(self) -> Reply {
        let body = json!({ "code": self.a2a_code(), "message": self.message, "data": [self.details()] });
        self.reply("application/json", body.to_string())
    }

    /// Builds the refusal for the REST binding of 1.0.
    pub(crate) fn into_a2a_rest(self) -> Reply {
        let (_, _, name) = status(self.reason);
        let body = json!({
            "error": { "code": self.status, "status": name, "message": self.message, "details": [self.details()] },
        });
        self.reply("application/json", body.to_string())
    }

    /// Builds the refusal for gRPC: a status without a body (`Trailers-Only`), which Envoy sends as it is.
    pub(crate) fn into_grpc(self) -> Reply {
        let code = match self.reason {
            Reason::UnknownServer => UNIMPLEMENTED,
            reason => status(reason).1,
        };
        let info = ErrorInfo {
            reason: self.reason.as_str().to_ascii_uppercase(),
            domain: DOMAIN.to_owned(),
            metadata: self.metadata(),
        };
        let details = vec![Detail { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() }];
        let status = RpcStatus { code, message: self.message.to_owned(), details };
        // No message has a byte that gRPC would escape.
        let headers = vec![
            ("content-type", "application/grpc".to_owned()),
            ("grpc-status", code.to_string()),
            ("grpc-message", self.message.to_owned()),
            ("grpc-status-details-bin", STANDARD_NO_PAD.encode(status.encode_to_vec())),
        ];
        Reply {
            status: 200,
            headers,
            body: Vec::new(),
            reason: Some(self.reason),
            cause: None,
            org: None,
            limited: None,
            trace: self.trace,
        }
    }

    /// Returns the `google.rpc.ErrorInfo` of the refusal as ProtoJSON.
    fn details(&self) -> serde_json::Value {
        self.info(&self.reason.as_str().to_ascii_uppercase(), DOMAIN)
    }

    fn info(&self, reason: &str, domain: &str) -> serde_json::Value {
        json!({ "@type": ERROR_INFO, "reason": reason, "domain": domain, "metadata": self.metadata() })
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let code = ("code", self.reason.taxonomy().to_string());
        let hint = ("recovery_hint", self.reason.recovery_hint().to_owned());
        let trace = self.trace.map(|trace| ("traceId", trace.to_string()));
        let revoked = self.notice.iter().flat_map(RevocationNotice::members);
        let all = [code, hint].into_iter().chain(trace).chain(revoked);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Detail>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Detail {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(string, tag = "2")]
    pub(crate) domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) metadata: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Era;
    use crate::reply::ErrorForm;

    fn refusal(form: ErrorForm, reason: Reason) -> Reply {
        form.refuse(reason, Era::Legacy, None)
    }

    fn text(reply: Reply) -> String {
        String::from_utf8(reply.body).unwrap()
    }

    #[test]
    fn a_json_rpc_refusal_has_an_id_an_array_of_details_and_no_code_of_a2a() {
        let reply = refusal(ErrorForm::A2a, Reason::TokenMissing);
        assert_eq!(reply.status, 401);
        assert_eq!(
            text(reply),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"a bearer token is required","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TOKEN_MISSING","domain":"asp","metadata":{"code":"4001","recovery_hint":"SEND_BEARER_TOKEN"}}]}}"#
        );
        for reason in Reason::ALL {
            let body: serde_json::Value =
                serde_json::from_slice(&refusal(ErrorForm::A2a, reason).body).unwrap();
            let code = body["error"]["code"].as_i64().unwrap();
            assert!(!(-32099..=-32001).contains(&code), "{reason:?}");
        }
    }

    #[test]
    fn a_body_of_another_media_type_is_an_error_of_a2a() {
        let refusal = RefusalContent::new(Reason::InvalidRequest, Era::Legacy, None);
        let reply = refusal.with_a2a_status().into_a2a_media_type();
        assert_eq!((reply.status, reply.reason), (200, Some(Reason::InvalidRequest)));
        assert_eq!(
            text(reply),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"the body must be application/json","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONTENT_TYPE_NOT_SUPPORTED","domain":"a2a-protocol.org","metadata":{"code":"6002","recovery_hint":"FIX_REQUEST"}}]}}"#
        );
    }

    #[test]
    fn a_faulty_message_is_answered_where_json_rpc_clients_look() {
        for (reason, status, code) in [
            (Reason::ParseError, 200, "-32700"),
            (Reason::InvalidRequest, 200, "-32600"),
            (Reason::BodyTooLarge, 413, "-32600"),
            (Reason::UnknownServer, 404, "-32000"),
            (Reason::UpstreamUnavailable, 503, "-32000"),
        ] {
            let reply = refusal(ErrorForm::A2a, reason);
            assert_eq!(reply.status, status, "{reason:?}");
            assert!(text(reply).contains(&format!(r#""code":{code},"#)), "{reason:?}");
        }
    }

    #[test]
    fn a_rest_refusal_repeats_its_status() {
        let reply = refusal(ErrorForm::A2aRest, Reason::UnknownServer);
        assert_eq!(reply.status, 404);
        assert_eq!(
            text(reply),
            r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such server","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UNKNOWN_SERVER","domain":"asp","metadata":{"code":"6012","recovery_hint":"CHECK_SERVER_NAME"}}]}}"#
        );
        for reason in Reason::ALL {
            let reply = refusal(ErrorForm::A2aRest, reason);
            let status = reply.status;
            assert!(status >= 400, "{reason:?}");
            assert!(text(reply).starts_with(&format!(r#"{{"error":{{"code":{status},"#)), "{reason:?}");
        }
    }

    #[test]
    fn a_rest_refusal_of_0_3_is_the_error_of_json_rpc_with_a_status_of_http() {
        let reply = refusal(ErrorForm::A2aRestV03, Reason::UnknownServer);
        assert_eq!(reply.status, 404);
        assert_eq!(
            text(reply),
            r#"{"code":-32000,"message":"no such server","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UNKNOWN_SERVER","domain":"asp","metadata":{"code":"6012","recovery_hint":"CHECK_SERVER_NAME"}}]}"#
        );
        for reason in Reason::ALL {
            let reply = refusal(ErrorForm::A2aRestV03, reason);
            assert_eq!(reply.status, refusal(ErrorForm::A2aRest, reason).status, "{reason:?}");
            let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            let code = body["code"].as_i64().unwrap();
            assert!((-32768..=-32000).contains(&code), "{reason:?}");
            assert!(!(-32099..=-32001).contains(&code), "{reason:?}");
            assert!(body.get("error").is_none(), "{reason:?}");
        }
    }

    #[test]
    fn a_grpc_refusal_is_a_status_with_details() {
        for (reason, code) in [
            (Reason::UnknownServer, 12),
            (Reason::TokenExpired, 16),
            (Reason::OriginDenied, 7),
            (Reason::InvalidRequest, 3),
            (Reason::RateLimited, 8),
            (Reason::UpstreamUnavailable, 14),
        ] {
            let reply = refusal(ErrorForm::Grpc, reason);
            assert_eq!((reply.status, reply.body.len()), (200, 0));
            let header = |wanted: &str| {
                reply.headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
            };
            assert_eq!(header("content-type"), Some("application/grpc"));
            assert_eq!(header("grpc-status"), Some(code.to_string().as_str()), "{reason:?}");
            let bytes = STANDARD_NO_PAD.decode(header("grpc-status-details-bin").unwrap()).unwrap();
            let status = RpcStatus::decode(bytes.as_slice()).unwrap();
            assert_eq!((status.code, status.message.as_str()), (code, reason.message()));
            assert_eq!(status.details[0].type_url, ERROR_INFO);
            let info = ErrorInfo::decode(status.details[0].value.as_slice()).unwrap();
            assert_eq!(info.reason, reason.as_str().to_ascii_uppercase());
            assert_eq!(info.metadata["recovery_hint"], reason.recovery_hint());
        }
    }

    /// The specification of gRPC over HTTP/2 escapes the others in `grpc-message`.
    #[test]
    fn every_message_is_one_that_grpc_sends_as_it_is() {
        for reason in Reason::ALL {
            let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'%';
            assert!(reason.message().bytes().all(plain), "{reason:?}");
        }
    }
}
