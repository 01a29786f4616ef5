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

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    UnknownServer,
    OriginDenied,
    HostDenied,
    TokenMissing,
    TokenInvalid,
    TokenExpired,
    TokenRevoked,
    InsufficientScope,
    ParseError,
    InvalidRequest,
    BodyTooLarge,
    HeaderMismatch,
    MissingCapability,
    UnsupportedVersion,
    UnknownMethod,
    UnknownPrimitive,
    InvalidParams,
    SessionMissing,
    SessionUnknown,
    /// Refusal by the edge's coarse limit; the gateway's exact limits answer in the caller's own protocol.
    RateLimited,
    UpstreamUnavailable,
    Deadline,
    OutcomeUnknown,
    Internal,
    /// Refusal by a rule about the arguments; only the gateway evaluates such rules.
    ContentRefused,
    /// The caller's org is at home in another region.
    WrongRegion,
    /// The caller's org is at home in a region that cannot be reached from here.
    UnknownRegion,
}

impl Reason {
    /// Every reason, in the order of the design's table.
    pub const ALL: [Reason; 27] = [
        Reason::UnknownServer,
        Reason::OriginDenied,
        Reason::HostDenied,
        Reason::TokenMissing,
        Reason::TokenInvalid,
        Reason::TokenExpired,
        Reason::TokenRevoked,
        Reason::InsufficientScope,
        Reason::ParseError,
        Reason::InvalidRequest,
        Reason::BodyTooLarge,
        Reason::HeaderMismatch,
        Reason::MissingCapability,
        Reason::UnsupportedVersion,
        Reason::UnknownMethod,
        Reason::UnknownPrimitive,
        Reason::InvalidParams,
        Reason::SessionMissing,
        Reason::SessionUnknown,
        Reason::RateLimited,
        Reason::UpstreamUnavailable,
        Reason::Deadline,
        Reason::OutcomeUnknown,
        Reason::Internal,
        Reason::ContentRefused,
        Reason::WrongRegion,
        Reason::UnknownRegion,
    ];

    /// Returns the stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::UnknownServer => "unknown_server",
            Reason::OriginDenied => "origin_denied",
            Reason::HostDenied => "host_denied",
            Reason::TokenMissing => "token_missing",
            Reason::TokenInvalid => "token_invalid",
            Reason::TokenExpired => "token_expired",
            Reason::TokenRevoked => "token_revoked",
            Reason::InsufficientScope => "insufficient_scope",
            Reason::ParseError => "parse_error",
            Reason::InvalidRequest => "invalid_request",
            Reason::BodyTooLarge => "body_too_large",
            Reason::HeaderMismatch => "header_mismatch",
            Reason::MissingCapability => "missing_capability",
            Reason::UnsupportedVersion => "unsupported_version",
            Reason::UnknownMethod => "unknown_method",
            Reason::UnknownPrimitive => "unknown_primitive",
            Reason::InvalidParams => "invalid_params",
            Reason::SessionMissing => "session_missing",
            Reason::SessionUnknown => "session_unknown",
            Reason::RateLimited => "rate_limited",
            Reason::UpstreamUnavailable => "upstream_unavailable",
            Reason::Deadline => "deadline",
            Reason::OutcomeUnknown => "outcome_unknown",
            Reason::Internal => "internal",
            Reason::ContentRefused => "content_refused",
            Reason::WrongRegion => "wrong_region",
            Reason::UnknownRegion => "unknown_region",
        }
    }

    /// Returns the JSON-RPC error code (MCP 2026-07-28 reserves -32020…-32099 for its own).
    pub const fn jsonrpc_code(self) -> i32 {
        match self {
            Reason::UnknownServer
            | Reason::OriginDenied
            | Reason::HostDenied
            | Reason::TokenMissing
            | Reason::TokenInvalid
            | Reason::TokenExpired
            | Reason::TokenRevoked
            | Reason::InsufficientScope
            | Reason::WrongRegion
            | Reason::UnknownRegion => -32001,
            Reason::ParseError => -32700,
            Reason::InvalidRequest
            | Reason::BodyTooLarge
            | Reason::SessionMissing
            | Reason::SessionUnknown => -32600,
            Reason::HeaderMismatch => -32020,
            Reason::MissingCapability => -32021,
            Reason::UnsupportedVersion => -32022,
            Reason::UnknownMethod => -32601,
            Reason::UnknownPrimitive | Reason::InvalidParams => -32602,
            Reason::RateLimited | Reason::UpstreamUnavailable | Reason::Deadline | Reason::OutcomeUnknown => {
                -32000
            }
            Reason::Internal => -32603,
            Reason::ContentRefused => -32000,
        }
    }

    /// Returns the HTTP status of a refusal that is the whole response.
    ///
    /// `UpstreamUnavailable` is 503, the edge's answer; inside a call the gateway answers 200 with a JSON-RPC error and
    /// does not use this function.
    pub const fn http_status(self, era: Era) -> u16 {
        match self {
            Reason::UnknownServer | Reason::SessionUnknown => 404,
            Reason::OriginDenied | Reason::HostDenied | Reason::InsufficientScope => 403,
            Reason::TokenMissing | Reason::TokenInvalid | Reason::TokenExpired | Reason::TokenRevoked => 401,
            Reason::ParseError
            | Reason::InvalidRequest
            | Reason::SessionMissing
            | Reason::HeaderMismatch
            | Reason::MissingCapability
            | Reason::UnsupportedVersion => 400,
            Reason::BodyTooLarge => 413,
            // Misdirected Request (RFC 9110 section 15.5.20): another region answers it.
            Reason::WrongRegion | Reason::UnknownRegion => 421,
            Reason::UnknownMethod => match era {
                Era::Modern => 404,
                Era::Legacy => 200,
            },
            Reason::RateLimited => 429,
            Reason::UpstreamUnavailable => 503,
            Reason::UnknownPrimitive
            | Reason::InvalidParams
            | Reason::Deadline
            | Reason::OutcomeUnknown
            | Reason::Internal
            | Reason::ContentRefused => 200,
        }
    }

    /// Returns the taxonomy code of `error.data.code` (ADR 13): 1000 execution, 4000 authorization, 5000 rate and
    /// quota, 6000 request form, 7000 availability.
    pub const fn taxonomy(self) -> u16 {
        match self {
            Reason::OutcomeUnknown => 1001,
            Reason::Deadline => 1002,
            Reason::Internal => 1003,
            Reason::TokenMissing => 4001,
            Reason::TokenInvalid => 4002,
            Reason::TokenExpired => 4003,
            Reason::TokenRevoked => 4004,
            Reason::InsufficientScope => 4005,
            Reason::OriginDenied => 4006,
            Reason::HostDenied => 4007,
            Reason::ContentRefused => 4008,
            Reason::WrongRegion => 4009,
            Reason::UnknownRegion => 4010,
            Reason::RateLimited => 5001,
            Reason::ParseError => 6001,
            Reason::InvalidRequest => 6002,
            Reason::BodyTooLarge => 6003,
            Reason::HeaderMismatch => 6004,
            Reason::MissingCapability => 6005,
            Reason::UnsupportedVersion => 6006,
            Reason::UnknownMethod => 6007,
            Reason::UnknownPrimitive => 6008,
            Reason::InvalidParams => 6009,
            Reason::SessionMissing => 6010,
            Reason::SessionUnknown => 6011,
            Reason::UnknownServer => 6012,
            Reason::UpstreamUnavailable => 7001,
        }
    }

    /// Returns the client's remedy (`error.data.recovery_hint`, ADR 13).
    pub const fn recovery_hint(self) -> &'static str {
        match self {
            Reason::UnknownServer => "CHECK_SERVER_NAME",
            Reason::OriginDenied => "USE_ALLOWED_ORIGIN",
            Reason::HostDenied => "USE_ALLOWED_HOST",
            Reason::TokenMissing => "SEND_BEARER_TOKEN",
            Reason::TokenInvalid | Reason::TokenExpired | Reason::TokenRevoked => "OBTAIN_NEW_TOKEN",
            Reason::InsufficientScope => "REQUEST_SCOPES",
            Reason::ParseError | Reason::InvalidRequest | Reason::InvalidParams => "FIX_REQUEST",
            Reason::BodyTooLarge => "SEND_LESS",
            Reason::HeaderMismatch => "MATCH_HEADERS_TO_BODY",
            Reason::MissingCapability => "DECLARE_CAPABILITY",
            Reason::UnsupportedVersion => "USE_SUPPORTED_VERSION",
            Reason::UnknownMethod => "USE_SUPPORTED_METHOD",
            Reason::UnknownPrimitive => "LIST_AGAIN",
            Reason::SessionMissing | Reason::SessionUnknown => "INITIALIZE_AGAIN",
            Reason::RateLimited => "RETRY_LATER",
            Reason::UpstreamUnavailable | Reason::Internal => "RETRY_LATER",
            Reason::Deadline => "ALLOW_MORE_TIME",
            Reason::OutcomeUnknown => "CHECK_BEFORE_RETRY",
            Reason::ContentRefused => "CHANGE_CONTENT",
            Reason::WrongRegion | Reason::UnknownRegion => "USE_HOME_REGION",
        }
    }

    /// Returns the sentence that a client shows. It reveals nothing that is hidden from the caller (I-10).
    pub const fn message(self) -> &'static str {
        match self {
            Reason::UnknownServer => "no such server",
            Reason::OriginDenied => "this Origin may not call this server",
            Reason::HostDenied => "this Host does not serve this server",
            Reason::TokenMissing => "a bearer token is required",
            Reason::TokenInvalid => "the bearer token is not valid here",
            Reason::TokenExpired => "the bearer token has expired",
            Reason::TokenRevoked => "the bearer token has been revoked",
            Reason::InsufficientScope => "the bearer token lacks a required scope",
            Reason::ParseError => {
                "the body must be valid JSON, at most 127 levels deep, without a number beyond the range of a double"
            }
            Reason::InvalidRequest => "the body is not a valid JSON-RPC 2.0 message",
            Reason::BodyTooLarge => "the body is larger than this server accepts",
            Reason::HeaderMismatch => "a header does not match the body",
            Reason::MissingCapability => "a required client capability was not declared",
            Reason::UnsupportedVersion => "this protocol version is not supported",
            Reason::UnknownMethod => "method not found",
            Reason::UnknownPrimitive => "no such tool, prompt or resource",
            Reason::InvalidParams => "the parameters are not valid",
            Reason::SessionMissing => "an Mcp-Session-Id header is required",
            Reason::SessionUnknown => "no such session",
            Reason::RateLimited => "too many requests",
            Reason::UpstreamUnavailable => "the service is not available",
            Reason::Deadline => "the deadline has passed",
            Reason::OutcomeUnknown => "the call may or may not have taken effect",
            Reason::Internal => "internal error",
            Reason::ContentRefused => "a rule does not allow this content",
            Reason::WrongRegion => "the organisation is at home in another region",
            Reason::UnknownRegion => {
                "the organisation is at home in a region that cannot be reached from here"
            }
        }
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
