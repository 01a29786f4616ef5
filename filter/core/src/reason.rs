//! The closed set of reasons for refusing a request, and the representation of each in every protocol.
//!
//! A reason is the `error.data.reason` of a JSON-RPC error, the `reason` label of a metric and the last path segment of
//! a problem document's `type` (RFC 9457). Adding one is a contract change.

/// Era of the MCP revision that a request uses. A2A and REST requests count as [`Era::Legacy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2025-03-26, 2025-06-18 and 2025-11-25: handshake and sessions.
    Legacy,
    /// 2026-07-28: stateless.
    Modern,
}

/// Declares the reasons: name, JSON-RPC code, HTTP status, taxonomy code and remedy, then the sentence for clients.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $row:expr, $message:literal;)+) => {
        /// Reason for refusing a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $reason,)+
        }

        impl Reason {
            /// Every reason, in the order of the design's table.
            pub const ALL: [Reason; [$($message),+].len()] = [$(Reason::$reason),+];

            /// Returns the name, the JSON-RPC code, the HTTP status, the taxonomy code and the remedy.
            const fn row(self) -> (&'static str, i32, u16, u16, &'static str) {
                match self {
                    $(Reason::$reason => $row,)+
                }
            }

            /// Returns the sentence that a client shows. It reveals nothing that is hidden from the caller (I-10).
            pub const fn message(self) -> &'static str {
                match self {
                    $(Reason::$reason => $message,)+
                }
            }
        }
    };
}

reasons! {
    UnknownServer = ("unknown_server", -32001, 404, 6012, "CHECK_SERVER_NAME"), "no such server";
    OriginDenied = ("origin_denied", -32001, 403, 4006, "USE_ALLOWED_ORIGIN"),
        "this Origin may not call this server";
    HostDenied = ("host_denied", -32001, 403, 4007, "USE_ALLOWED_HOST"),
        "this Host does not serve this server";
    TokenMissing = ("token_missing", -32001, 401, 4001, "SEND_BEARER_TOKEN"), "a bearer token is required";
    TokenInvalid = ("token_invalid", -32001, 401, 4002, "OBTAIN_NEW_TOKEN"),
        "the bearer token is not valid here";
    TokenExpired = ("token_expired", -32001, 401, 4003, "OBTAIN_NEW_TOKEN"), "the bearer token has expired";
    TokenRevoked = ("token_revoked", -32001, 401, 4004, "OBTAIN_NEW_TOKEN"),
        "the bearer token has been revoked";
    InsufficientScope = ("insufficient_scope", -32001, 403, 4005, "REQUEST_SCOPES"),
        "the bearer token lacks a required scope";
    ParseError = ("parse_error", -32700, 400, 6001, "FIX_REQUEST"),
        "the body must be valid JSON, at most 127 levels deep, without a number beyond the range of a double";
    InvalidRequest = ("invalid_request", -32600, 400, 6002, "FIX_REQUEST"),
        "the body is not a valid JSON-RPC 2.0 message";
    BodyTooLarge = ("body_too_large", -32600, 413, 6003, "SEND_LESS"),
        "the body is larger than this server accepts";
    HeaderMismatch = ("header_mismatch", -32020, 400, 6004, "MATCH_HEADERS_TO_BODY"),
        "a header does not match the body";
    MissingCapability = ("missing_capability", -32021, 400, 6005, "DECLARE_CAPABILITY"),
        "a required client capability was not declared";
    UnsupportedVersion = ("unsupported_version", -32022, 400, 6006, "USE_SUPPORTED_VERSION"),
        "this protocol version is not supported";
    UnknownMethod = ("unknown_method", -32601, 404, 6007, "USE_SUPPORTED_METHOD"), "method not found";
    UnknownPrimitive = ("unknown_primitive", -32602, 200, 6008, "LIST_AGAIN"),
        "no such tool, prompt or resource";
    InvalidParams = ("invalid_params", -32602, 200, 6009, "FIX_REQUEST"), "the parameters are not valid";
    SessionMissing = ("session_missing", -32600, 400, 6010, "INITIALIZE_AGAIN"),
        "an Mcp-Session-Id header is required";
    SessionUnknown = ("session_unknown", -32600, 404, 6011, "INITIALIZE_AGAIN"), "no such session";
    /// Refusal by the edge's coarse limit; the gateway's exact limits answer in the caller's own protocol.
    RateLimited = ("rate_limited", -32000, 429, 5001, "RETRY_LATER"), "too many requests";
    UpstreamUnavailable = ("upstream_unavailable", -32000, 503, 7001, "RETRY_LATER"),
        "the service is not available";
    Deadline = ("deadline", -32000, 200, 1002, "ALLOW_MORE_TIME"), "the deadline has passed";
    OutcomeUnknown = ("outcome_unknown", -32000, 200, 1001, "CHECK_BEFORE_RETRY"),
        "the call may or may not have taken effect";
    Internal = ("internal", -32603, 200, 1003, "RETRY_LATER"), "internal error";
    /// Refusal by a rule about the arguments; only the gateway evaluates such rules.
    ContentRefused = ("content_refused", -32000, 200, 4008, "CHANGE_CONTENT"),
        "a rule does not allow this content";
    /// The caller's org is at home in another region. Misdirected Request (RFC 9110 section 15.5.20): that region
    /// answers it.
    WrongRegion = ("wrong_region", -32001, 421, 4009, "USE_HOME_REGION"),
        "the organisation is at home in another region";
    /// The caller's org is at home in a region that cannot be reached from here.
    UnknownRegion = ("unknown_region", -32001, 421, 4010, "USE_HOME_REGION"),
        "the organisation is at home in a region that cannot be reached from here";
    /// An admin blocked the user or its org: a new token does not help.
    Blocked = ("blocked", -32001, 403, 4011, "CONTACT_ADMIN"), "an admin has blocked this user or organisation";
}

impl Reason {
    /// Returns the stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the JSON-RPC error code (MCP 2026-07-28 reserves -32020…-32099 for its own).
    pub const fn jsonrpc_code(self) -> i32 {
        self.row().1
    }

    /// Returns the HTTP status of a refusal that is the whole response.
    ///
    /// `UpstreamUnavailable` is 503, the edge's answer; inside a call the gateway answers 200 with a JSON-RPC error and
    /// does not use this function.
    pub const fn http_status(self, era: Era) -> u16 {
        match (self, era) {
            (Reason::UnknownMethod, Era::Legacy) => 200,
            _ => self.row().2,
        }
    }

    /// Returns the taxonomy code of `error.data.code` (ADR 13): 1000 execution, 4000 authorization, 5000 rate and
    /// quota, 6000 request form, 7000 availability.
    pub const fn taxonomy(self) -> u16 {
        self.row().3
    }

    /// Returns the client's remedy (`error.data.recovery_hint`, ADR 13).
    pub const fn recovery_hint(self) -> &'static str {
        self.row().4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_taxonomy_codes_are_unique() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let codes: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.taxonomy()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        assert_eq!(codes.len(), Reason::ALL.len());
    }
}
