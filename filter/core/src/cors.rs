//! Cross-origin answers for browser clients (the Fetch standard, section 3.2).
//!
//! Owns the preflight answer; the headers of other responses are in `reply`. Never allows credentials mode:
//! callers prove themselves by a bearer token, and the affinity cookie is only a hint.

use crate::reply::Reply;

/// Request headers that a browser client may send besides the safelisted ones.
const ALLOWED: [&str; 19] = [
    "accept",
    "authorization",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "prefer",
    "x-deadline-ms",
    "a2a-version",
    "a2a-extensions",
    "x-a2a-extensions",
    "traceparent",
    "tracestate",
    "baggage",
];
/// Prefix of tool parameters that clients of 2026-07-28 mirror in headers; the names differ per tool.
const ALLOWED_PREFIX: &str = "mcp-param-";
const METHODS: &str = "GET, POST, PUT, DELETE, OPTIONS";
/// Lifetime of a preflight answer: a change of the allow-list reaches browsers within ten minutes.
const MAX_AGE_SECONDS: &str = "600";
/// Maximum number of names read from one `Access-Control-Request-Headers`.
const MAX_REQUESTED: usize = 64;

/// Answers a preflight whose Origin is allowed. `requested` is `Access-Control-Request-Headers`.
pub(crate) fn preflight(origin: &str, requested: Option<&[u8]>) -> Reply {
    let mut allowed = ALLOWED.join(", ");
    let requested = requested.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
    for name in requested.split(',').take(MAX_REQUESTED) {
        let name = name.trim().to_ascii_lowercase();
        if name.starts_with(ALLOWED_PREFIX) && name.bytes().all(is_token_byte) {
            allowed.push_str(", ");
            allowed.push_str(&name);
        }
    }
    let headers = vec![
        ("access-control-allow-origin", origin.to_owned()),
        ("access-control-allow-methods", METHODS.to_owned()),
        ("access-control-allow-headers", allowed),
        ("access-control-max-age", MAX_AGE_SECONDS.to_owned()),
        ("vary", "origin, access-control-request-headers".to_owned()),
    ];
    Reply {
        status: 204,
        headers,
        body: Vec::new(),
        reason: None,
        cause: None,
        org: None,
        limited: None,
        trace: None,
    }
}

/// Whether `byte` is a lower-case `tchar` of RFC 9110 section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preflight_allows_the_known_headers_and_mirrored_parameters_only() {
        let reply = preflight("https://a", Some(b"Mcp-Param-Region, x-evil, mcp-param-\r\nset-cookie"));
        assert_eq!((reply.status, reply.reason), (204, None));
        let allowed =
            &reply.headers.iter().find(|(name, _)| *name == "access-control-allow-headers").unwrap().1;
        assert!(
            allowed.contains("authorization") && allowed.ends_with("baggage, mcp-param-region"),
            "{allowed}"
        );
    }
}
