//! The bytes of every refusal: JSON-RPC on the MCP and A2A paths, a problem document elsewhere.
//!
//! Owns the two body shapes, the bearer challenge and `Retry-After`. Refuses to disclose anything beyond [`Reason`]: no
//! detail of a token, a policy or a parser reaches the client (I-11, I-10).

use serde_json::{Value, json};

use crate::reason::{Era, Reason};
use crate::token::Cause;
use crate::trace::Trace;

/// Response headers that a browser client may read.
const EXPOSED: &str = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, etag, location, preference-applied, \
    a2a-extensions, asp-home-region";

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
    /// Trace of the request; `None` for a preflight, and for Envoy's own refusals.
    pub trace: Option<Trace>,
}

/// Builds a JSON-RPC refusal. `id` is JSON text; `None` leaves the member out. Only Envoy's own refusals have no trace.
pub fn refuse(reason: Reason, era: Era, id: Option<&str>, trace: Option<Trace>) -> Reply {
    let mut error = json!({
        "code": reason.jsonrpc_code(),
        "message": reason.message(),
        "data": {
            "reason": reason.as_str(),
            "code": reason.taxonomy(),
            "recovery_hint": reason.recovery_hint(),
        },
    });
    add(error.get_mut("data"), trace);
    let body = match id {
        Some(id) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#),
    };
    reply(reason, era, "application/json", body, trace)
}

/// Builds a refusal as a problem document (RFC 9457), for REST, well-known and root paths.
pub fn refuse_problem(reason: Reason, era: Era, trace: Option<Trace>) -> Reply {
    let mut body = problem(reason, reason.message(), reason.http_status(era));
    add(Some(&mut body), trace);
    reply(reason, era, "application/problem+json", body.to_string(), trace)
}

/// Builds the members that every problem document has.
pub fn problem(reason: Reason, title: &str, status: u16) -> Value {
    json!({
        "type": format!("urn:asp:reason:{}", reason.as_str()),
        "title": title,
        "status": status,
        "reason": reason.as_str(),
        "code": reason.taxonomy(),
        "recovery_hint": reason.recovery_hint(),
    })
}

/// Adds the trace id, which a client can quote to find its request in the logs.
fn add(object: Option<&mut Value>, trace: Option<Trace>) {
    if let (Some(object), Some(trace)) = (object.and_then(Value::as_object_mut), trace) {
        object.insert("traceId".into(), trace.to_string().into());
    }
}

fn reply(reason: Reason, era: Era, content_type: &str, body: String, trace: Option<Trace>) -> Reply {
    let headers = vec![("content-type", content_type.to_owned()), ("cache-control", "no-store".to_owned())];
    Reply {
        status: reason.http_status(era),
        headers,
        body: body.into_bytes(),
        reason: Some(reason),
        cause: None,
        trace,
    }
}

/// Returns the value of `WWW-Authenticate` (RFC 6750 section 3, RFC 9728 section 5.1).
///
/// `server` names the protected resource `<public_url>/<server>/mcp`; `scopes` are those that every caller needs.
pub fn challenge(reason: Reason, public_url: &str, server: &str, scopes: &[String]) -> String {
    let mut value = String::from("Bearer ");
    match reason {
        Reason::TokenMissing => {}
        Reason::InsufficientScope => value.push_str("error=\"insufficient_scope\", "),
        _ => value.push_str("error=\"invalid_token\", "),
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
    pub(crate) jsonrpc: bool,
    pub(crate) era: Era,
    /// Allowed Origin, echoed so that a browser client can read the refusal.
    pub(crate) origin: Option<String>,
    pub(crate) trace: Trace,
}

impl ErrorFormat {
    pub(crate) fn refuse(&self, reason: Reason) -> Reply {
        let mut reply = match self.jsonrpc {
            true => refuse(reason, self.era, None, Some(self.trace)),
            false => refuse_problem(reason, self.era, Some(self.trace)),
        };
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
            r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"a bearer token is required","data":{"reason":"token_missing","code":4001,"recovery_hint":"SEND_BEARER_TOKEN"}}}"#
        );
        let reply = refuse(Reason::UnknownMethod, Era::Modern, Some("\"a\\\"b\""), None);
        assert_eq!(reply.status, 404);
        assert!(reply.body.starts_with(br#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":-32601"#));
    }

    #[test]
    fn a_problem_document_names_the_reason_as_its_type() {
        let reply = refuse_problem(Reason::UnknownServer, Era::Legacy, None);
        assert_eq!((reply.status, reply.headers[0].1.as_str()), (404, "application/problem+json"));
        assert_eq!(
            String::from_utf8(reply.body).unwrap(),
            r#"{"type":"urn:asp:reason:unknown_server","title":"no such server","status":404,"reason":"unknown_server","code":6012,"recovery_hint":"CHECK_SERVER_NAME"}"#
        );
    }

    #[test]
    fn every_reason_gives_a_parsable_body_in_both_shapes() {
        for reason in Reason::ALL {
            for body in [
                refuse(reason, Era::Legacy, Some("7"), None).body,
                refuse_problem(reason, Era::Modern, None).body,
            ] {
                assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap().is_object());
            }
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
            r#"Bearer error="invalid_token", scope="a:read a:write", resource_metadata="https://h/.well-known/oauth-protected-resource/demo/mcp""#
        );
        assert!(
            challenge(Reason::InsufficientScope, "https://h", "demo", &scopes)
                .starts_with(r#"Bearer error="insufficient_scope", scope="a:read a:write", "#)
        );
    }
}
