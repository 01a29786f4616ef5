//! The bytes of every refusal: JSON-RPC for MCP, the forms of A2A's bindings (`a2a`), a problem document elsewhere.
//!
//! Owns the choice of the form, the bearer challenge and `Retry-After`. Refuses to disclose anything beyond [`Reason`]: no
//! detail of a token, a policy or a parser reaches the client (I-11, I-10).

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::path::{self, PathKind};
use crate::reason::{Era, Reason};
use crate::revocation::RevocationNotice;
use crate::token::Cause;
use crate::trace::Trace;
use crate::unauthenticated::UnauthenticatedKind;

/// Response headers that a browser client may read.
const EXPOSED: &str = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, etag, location, preference-applied, \
    a2a-version, a2a-extensions, x-a2a-extensions, asp-home-region";

/// Message for a JSON-RPC body of another media type.
pub(crate) const JSON_ONLY: &str = "the body must be application/json";

/// Response that ends the evaluation, ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Reason of a refusal; `None` for other answers (a CORS preflight).
    pub reason: Option<Reason>,
    /// Fault of the token, for the operator's log; never sent.
    pub cause: Option<Cause>,
    /// Org of the caller of a refused request whose token was verified, for the operator's metrics; never sent.
    pub org: Option<String>,
    /// Kind of the limit of unauthenticated requests that refuses this one, for the operator's metrics; never sent.
    pub limited: Option<UnauthenticatedKind>,
    /// Trace of the request; `None` for a preflight, and for Envoy's own refusals.
    pub trace: Option<Trace>,
}

impl Reply {
    /// Adds the org of the caller, if there is one.
    pub(crate) fn of_caller(self, caller: Option<&Caller>) -> Reply {
        Reply { org: caller.map(|caller| caller.org.clone()), ..self }
    }
}

/// Builds a JSON-RPC refusal for MCP. `id` is JSON text; `None` leaves the member out. Only Envoy's own refusals have no
/// trace.
pub fn refuse(reason: Reason, era: Era, id: Option<&str>, trace: Option<Trace>) -> Reply {
    RefusalContent::new(reason, era, trace).into_jsonrpc(id)
}

/// Builds a refusal as a problem document (RFC 9457), for REST, well-known and root paths.
pub fn refuse_problem(reason: Reason, era: Era, trace: Option<Trace>) -> Reply {
    RefusalContent::new(reason, era, trace).into_problem()
}

/// Content of a refusal, before it has a form.
#[derive(Clone, Debug)]
pub(crate) struct RefusalContent {
    pub(crate) reason: Reason,
    /// HTTP status.
    pub(crate) status: u16,
    pub(crate) message: &'static str,
    pub(crate) trace: Option<Trace>,
    /// Details of the revocation that refuses a verified caller.
    pub(crate) notice: Option<RevocationNotice>,
}

impl RefusalContent {
    pub(crate) fn new(reason: Reason, era: Era, trace: Option<Trace>) -> RefusalContent {
        let status = reason.http_status(era);
        let message = reason.message();
        RefusalContent { reason, status, message, trace, notice: None }
    }

    fn into_jsonrpc(self, id: Option<&str>) -> Reply {
        let mut error = json!({
            "code": self.reason.jsonrpc_code(),
            "message": self.message,
            "data": {
                "reason": self.reason.as_str(),
                "code": self.reason.taxonomy(),
                "recoveryHint": self.reason.recovery_hint(),
                // Former spelling.
                "recovery_hint": self.reason.recovery_hint(),
            },
        });
        add(error.get_mut("data"), self.trace, self.notice.as_ref());
        let body = match id {
            Some(id) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
            None => format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#),
        };
        self.reply("application/json", body)
    }

    fn into_problem(self) -> Reply {
        let mut body = problem(self.reason, self.message, self.status);
        add(Some(&mut body), self.trace, self.notice.as_ref());
        self.reply("application/problem+json", body.to_string())
    }

    pub(crate) fn reply(self, content_type: &str, body: String) -> Reply {
        let headers =
            vec![("content-type", content_type.to_owned()), ("cache-control", "no-store".to_owned())];
        let RefusalContent { reason, status, trace, .. } = self;
        Reply {
            status,
            headers,
            body: body.into_bytes(),
            reason: Some(reason),
            cause: None,
            org: None,
            limited: None,
            trace,
        }
    }
}

/// Form of a refusal, by the protocol of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// JSON-RPC as MCP has it.
    Mcp,
    /// JSON-RPC as A2A has it.
    A2a,
    /// Error object of A2A's REST binding in 1.0.
    A2aRest,
    /// Error object of JSON-RPC, without an envelope, for A2A's REST binding in 0.3, which defines none.
    A2aRestV03,
    /// gRPC status without a body.
    Grpc,
    /// Problem document (RFC 9457).
    Problem,
}

impl ErrorForm {
    /// Returns the form for a request with this `:path` and `content-type`, however faulty it is.
    pub fn of(path: &[u8], content_type: Option<&[u8]>) -> ErrorForm {
        ErrorForm::choose(path::parse(path).map(|target| target.path_kind), path, content_type)
    }

    /// Returns the form for a request whose path is already parsed.
    pub(crate) fn choose(path_kind: Option<PathKind>, path: &[u8], content_type: Option<&[u8]>) -> ErrorForm {
        match path_kind.or_else(|| path::guess(path)) {
            // Envoy answers these with a gRPC status, whatever their path is.
            _ if is_grpc(content_type) => ErrorForm::Grpc,
            None | Some(PathKind::A2aGrpc) => ErrorForm::Problem,
            Some(path_kind) => ErrorForm::of_admitted(path_kind),
        }
    }

    /// Returns the form for a request that was admitted.
    pub(crate) fn of_admitted(path_kind: PathKind) -> ErrorForm {
        match path_kind {
            PathKind::Mcp => ErrorForm::Mcp,
            PathKind::A2a => ErrorForm::A2a,
            PathKind::A2aRest => ErrorForm::A2aRest,
            PathKind::A2aRestV03 => ErrorForm::A2aRestV03,
            PathKind::A2aGrpc => ErrorForm::Grpc,
            PathKind::Rest | PathKind::Public | PathKind::Health => ErrorForm::Problem,
        }
    }

    /// Builds a refusal. Only Envoy's own refusals have no trace.
    pub fn refuse(self, reason: Reason, era: Era, trace: Option<Trace>) -> Reply {
        self.write_with_status(RefusalContent::new(reason, era, trace))
    }

    /// Builds the refusal of a caller whose token is revoked, or who is blocked.
    pub(crate) fn refuse_revoked(self, notice: RevocationNotice, era: Era, trace: Option<Trace>) -> Reply {
        let refusal = RefusalContent::new(notice.reason(), era, trace);
        self.write_with_status(RefusalContent { notice: Some(notice), ..refusal })
    }

    fn write_with_status(self, refusal: RefusalContent) -> Reply {
        self.write(match self {
            ErrorForm::Mcp | ErrorForm::Problem => refusal,
            ErrorForm::A2a | ErrorForm::A2aRest | ErrorForm::A2aRestV03 | ErrorForm::Grpc => {
                refusal.with_a2a_status()
            }
        })
    }

    /// Builds the refusal of a request that is not valid HTTP here, with this HTTP status and message.
    pub fn refuse_http(self, status: u16, message: &'static str, trace: Trace) -> Reply {
        let reason = Reason::InvalidRequest;
        let trace = Some(trace);
        self.write(RefusalContent { reason, status, message, trace, notice: None })
    }

    fn write(self, refusal: RefusalContent) -> Reply {
        match self {
            ErrorForm::Mcp => refusal.into_jsonrpc(None),
            ErrorForm::A2a => refusal.into_a2a_jsonrpc(None),
            ErrorForm::A2aRest => refusal.into_a2a_rest(),
            ErrorForm::A2aRestV03 => refusal.into_a2a_rest_v03(),
            ErrorForm::Grpc => refusal.into_grpc(),
            ErrorForm::Problem => refusal.into_problem(),
        }
    }
}

/// Whether the media type is gRPC's, by Envoy's rule: `application/grpc-web` is another one.
pub(crate) fn is_grpc(content_type: Option<&[u8]>) -> bool {
    let rest = content_type.and_then(|media_type| media_type.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'+'))
}

/// Builds the members that every problem document has.
pub fn problem(reason: Reason, title: &str, status: u16) -> Value {
    json!({
        "type": format!("urn:asp:reason:{}", reason.as_str()),
        "title": title,
        "status": status,
        "reason": reason.as_str(),
        "code": reason.taxonomy(),
        "recoveryHint": reason.recovery_hint(),
        // Former spelling.
        "recovery_hint": reason.recovery_hint(),
    })
}

/// Adds the details of a revocation, and the trace id, which a client can quote to find its request in the logs.
fn add(object: Option<&mut Value>, trace: Option<Trace>, notice: Option<&RevocationNotice>) {
    let Some(object) = object.and_then(Value::as_object_mut) else { return };
    for (name, value) in notice.into_iter().flat_map(RevocationNotice::members) {
        object.insert(name.into(), value.into());
    }
    if let Some(trace) = trace {
        object.insert("traceId".into(), trace.to_string().into());
    }
}

/// Returns the value of `WWW-Authenticate` (RFC 6750 section 3, RFC 9728 section 5.1).
///
/// `server` names the protected resource `<public_url>/<server>/mcp`; `scopes` are those that every caller needs.
pub fn challenge(reason: Reason, public_url: &str, server: &str, scopes: &[String]) -> String {
    let mut value = String::from("Bearer ");
    let error = match reason {
        Reason::TokenMissing => None,
        Reason::InsufficientScope => Some("insufficient_scope"),
        _ => Some("invalid_token"),
    };
    if let Some(error) = error {
        // Clients show it to their users. No message has a quote or a backslash (RFC 6750 section 3).
        value.push_str(&format!("error=\"{error}\", error_description=\"{}\", ", reason.message()));
    }
    if !scopes.is_empty() {
        value.push_str("scope=\"");
        value.push_str(&scopes.join(" "));
        value.push_str("\", ");
    }
    value.push_str("resource_metadata=\"");
    value.push_str(public_url);
    value.push_str("/.well-known/oauth-protected-resource/");
    value.push_str(server);
    value.push_str("/mcp\"");
    value
}

/// Error format for one request: set while its headers are read, used by every later stage.
#[derive(Clone, Debug)]
pub(crate) struct ErrorFormat {
    pub(crate) form: ErrorForm,
    pub(crate) era: Era,
    /// Allowed Origin, echoed so that a browser client can read the refusal.
    pub(crate) origin: Option<String>,
    pub(crate) trace: Trace,
}

impl ErrorFormat {
    pub(crate) fn refuse(&self, reason: Reason) -> Reply {
        self.readable(self.form.refuse(reason, self.era, Some(self.trace)))
    }

    /// Builds the refusal of a caller whose token is revoked, or who is blocked.
    pub(crate) fn refuse_revoked(&self, notice: RevocationNotice) -> Reply {
        self.readable(self.form.refuse_revoked(notice, self.era, Some(self.trace)))
    }

    /// Builds the refusal of a JSON-RPC body. It repeats the id of the message, which is JSON text (MCP 2025-11-25, error
    /// responses; JSON-RPC 2.0 section 5).
    pub(crate) fn refuse_message(&self, reason: Reason, id: Option<&str>) -> Reply {
        match self.form {
            ErrorForm::Mcp => self.readable(refuse(reason, self.era, id, Some(self.trace))),
            ErrorForm::A2a => self.readable(self.of_a2a(reason).into_a2a_jsonrpc(id)),
            _ => self.refuse(reason),
        }
    }

    /// Builds the refusal of a JSON-RPC body that has another media type.
    pub(crate) fn refuse_media_type(&self) -> Reply {
        match self.form {
            ErrorForm::Mcp => {
                let refusal = RefusalContent::new(Reason::InvalidRequest, self.era, Some(self.trace));
                let refusal = RefusalContent { message: JSON_ONLY, ..refusal };
                self.readable(refusal.into_jsonrpc(None))
            }
            ErrorForm::A2a => self.readable(self.of_a2a(Reason::InvalidRequest).into_a2a_media_type()),
            _ => self.refuse(Reason::InvalidRequest),
        }
    }

    fn of_a2a(&self, reason: Reason) -> RefusalContent {
        RefusalContent::new(reason, self.era, Some(self.trace)).with_a2a_status()
    }

    /// Allows a browser client to read the refusal.
    fn readable(&self, mut reply: Reply) -> Reply {
        if let Some(origin) = &self.origin {
            reply.headers.extend(response_headers(origin));
        }
        reply
    }

    pub(crate) fn refuse_with(&self, reason: Reason, name: &'static str, value: String) -> Reply {
        let mut reply = self.refuse(reason);
        reply.headers.push((name, value));
        reply
    }
}

/// Returns the headers of every response to a request with an allowed Origin; the gateway adds them to its own
/// responses.
pub fn response_headers(origin: &str) -> [(&'static str, String); 3] {
    [
        ("access-control-allow-origin", origin.to_owned()),
        ("access-control-expose-headers", EXPOSED.to_owned()),
        ("vary", "origin".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jsonrpc_refusal_has_no_id_unless_one_is_given() {
        let reply = refuse(Reason::TokenMissing, Era::Legacy, None, None);
        assert_eq!(reply.status, 401);
        assert_eq!(
            String::from_utf8(reply.body).unwrap(),
            r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"a bearer token is required","data":{"reason":"token_missing","code":4001,"recoveryHint":"SEND_BEARER_TOKEN","recovery_hint":"SEND_BEARER_TOKEN"}}}"#
        );
        let reply = refuse(Reason::UnknownMethod, Era::Modern, Some("\"a\\\"b\""), None);
        assert_eq!(reply.status, 404);
        assert!(reply.body.starts_with(br#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":-32601"#));
    }

    #[test]
    fn the_refusal_of_a_blocked_caller_has_the_time_and_the_reason_in_every_form() {
        let refused = |form: ErrorForm| {
            let notice = RevocationNotice::new(1_000, "left \"acme\"", true);
            form.refuse_revoked(notice, Era::Legacy, None)
        };
        let body = |form: ErrorForm| serde_json::from_slice::<Value>(&refused(form).body).unwrap();
        let since = "1970-01-01T00:00:01Z";
        let mcp = body(ErrorForm::Mcp);
        let problem = body(ErrorForm::Problem);
        for found in [&mcp["error"]["data"], &problem] {
            assert_eq!((&found["reason"], &found["revokedSince"]), (&json!("blocked"), &json!(since)));
            assert_eq!(found["revokedReason"], "left \"acme\"");
        }
        let a2a = body(ErrorForm::A2a);
        let rest = body(ErrorForm::A2aRest);
        let rest_v03 = body(ErrorForm::A2aRestV03);
        for found in [&a2a["error"]["data"][0], &rest["error"]["details"][0], &rest_v03["data"][0]] {
            assert_eq!(
                (&found["reason"], &found["metadata"]["revokedSince"]),
                (&json!("BLOCKED"), &json!(since))
            );
        }
        let grpc = refused(ErrorForm::Grpc);
        assert!(grpc.headers.contains(&("grpc-status", "7".to_owned())), "{:?}", grpc.headers);
        assert!(grpc.headers.iter().all(|(name, _)| *name != "www-authenticate"));
        assert_eq!((refused(ErrorForm::Mcp).status, refused(ErrorForm::A2aRest).status), (403, 403));
    }

    #[test]
    fn a_problem_document_names_the_reason_as_its_type() {
        let reply = refuse_problem(Reason::UnknownServer, Era::Legacy, None);
        assert_eq!((reply.status, reply.headers[0].1.as_str()), (404, "application/problem+json"));
        assert_eq!(
            String::from_utf8(reply.body).unwrap(),
            r#"{"type":"urn:asp:reason:unknown_server","title":"no such server","status":404,"reason":"unknown_server","code":6012,"recoveryHint":"CHECK_SERVER_NAME","recovery_hint":"CHECK_SERVER_NAME"}"#
        );
    }

    #[test]
    fn every_reason_gives_a_parsable_body_in_every_form_that_has_one() {
        for reason in Reason::ALL {
            for form in [
                ErrorForm::Mcp,
                ErrorForm::A2a,
                ErrorForm::A2aRest,
                ErrorForm::A2aRestV03,
                ErrorForm::Problem,
            ] {
                let body = form.refuse(reason, Era::Modern, None).body;
                assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap().is_object());
            }
            let body = refuse(reason, Era::Legacy, Some("7"), None).body;
            assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap().is_object());
        }
    }

    #[test]
    fn the_form_follows_the_content_type_of_grpc_and_then_the_path() {
        let grpc = Some(b"application/grpc+proto".as_slice());
        let json = Some(b"application/json".as_slice());
        for (path, content_type, form) in [
            ("/demo/mcp", json, ErrorForm::Mcp),
            ("/demo/a2a", json, ErrorForm::A2a),
            ("/Demo/a2a", None, ErrorForm::A2a),
            ("/demo/a2a/v1/card", None, ErrorForm::A2aRestV03),
            ("/Demo/a2a/v1/card", None, ErrorForm::A2aRestV03),
            ("/demo/a2a/v1/card", grpc, ErrorForm::Grpc),
            ("/demo//a2a/tasks", None, ErrorForm::A2aRest),
            ("/demo/.well-known/agent-card.json", None, ErrorForm::Problem),
            ("/lf.a2a.v1.A2AService/GetTask", grpc, ErrorForm::Grpc),
            ("/lf.a2a.v1.A2AService/GetTask", Some(b"application/grpc"), ErrorForm::Grpc),
            ("/lf.a2a.v1.A2AService/GetTask", json, ErrorForm::Problem),
            ("/lf.a2a.v1.A2AService/GetTask", Some(b"application/grpc-web+proto"), ErrorForm::Problem),
            ("/grpc.health.v1.Health/Check", grpc, ErrorForm::Grpc),
            ("/demo/mcp", grpc, ErrorForm::Grpc),
        ] {
            assert_eq!(ErrorForm::of(path.as_bytes(), content_type), form, "{path}");
        }
    }

    #[test]
    fn a_request_that_is_no_valid_http_has_status_and_message_of_its_own() {
        let trace = Trace::new([7; 24]);
        for (form, status) in [
            (ErrorForm::Mcp, 431),
            (ErrorForm::A2a, 431),
            (ErrorForm::A2aRest, 431),
            (ErrorForm::A2aRestV03, 431),
            (ErrorForm::Problem, 431),
            (ErrorForm::Grpc, 200),
        ] {
            let reply = form.refuse_http(431, "too long", trace);
            assert_eq!(reply.status, status, "{form:?}");
            let text = format!("{:?}{}", reply.headers, String::from_utf8_lossy(&reply.body));
            assert!(text.contains("too long"), "{form:?}: {text}");
        }
    }

    #[test]
    fn the_challenge_follows_the_reason() {
        let scopes = ["a:read".to_owned(), "a:write".to_owned()];
        assert_eq!(
            challenge(Reason::TokenMissing, "https://h", "demo", &[]),
            r#"Bearer resource_metadata="https://h/.well-known/oauth-protected-resource/demo/mcp""#
        );
        assert_eq!(
            challenge(Reason::TokenRevoked, "https://h", "demo", &scopes),
            r#"Bearer error="invalid_token", error_description="the bearer token has been revoked", scope="a:read a:write", resource_metadata="https://h/.well-known/oauth-protected-resource/demo/mcp""#
        );
        assert!(
            challenge(Reason::InsufficientScope, "https://h", "demo", &scopes)
                .starts_with(
                    r#"Bearer error="insufficient_scope", error_description="the bearer token lacks a required scope", scope="a:read a:write", "#
                )
        );
    }
}
