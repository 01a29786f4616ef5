//! Refusals of the admin API: problem documents (RFC 9457) with a stable code.
//!
//! Keeps true: the detail is written for the admin; errors of a database or library go only to the log.

use asp_store::audit::AuditError;
use asp_store::control::StoreError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admission::AdmissionError;
use crate::catalog::budget::BudgetError;

/// Default `Retry-After`, in seconds: a queued request takes milliseconds.
const RETRY_AFTER: &str = "1";

/// Declares the codes, each with its HTTP status, name and title.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $status:ident, $name:literal, $title:literal;)+) => {
        /// Codes of refusals, a closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $($(#[$doc])* $code,)+
        }

        impl Code {
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)+
                }
            }

            const fn status(self) -> StatusCode {
                match self {
                    $(Code::$code => StatusCode::$status,)+
                }
            }

            const fn title(self) -> &'static str {
                match self {
                    $(Code::$code => $title,)+
                }
            }
        }
    };
}

codes! {
    TokenMissing = UNAUTHORIZED, "token_missing", "a bearer token is required";
    TokenInvalid = UNAUTHORIZED, "token_invalid", "the token is not valid here";
    TokenExpired = UNAUTHORIZED, "token_expired", "the token has expired";
    TokenRevoked = UNAUTHORIZED, "token_revoked", "the token has been revoked";
    Forbidden = FORBIDDEN, "forbidden", "the role does not allow this";
    HostDenied = FORBIDDEN, "host_denied", "this Host is not served";
    OriginDenied = FORBIDDEN, "origin_denied", "this Origin is not allowed";
    NotFound = NOT_FOUND, "not_found", "no such resource";
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method_not_allowed", "the resource has no such method";
    InvalidBody = BAD_REQUEST, "invalid_body", "the body is not valid for this resource";
    InvalidParams = BAD_REQUEST, "invalid_params", "a parameter is not valid";
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body_too_large", "the body is too large";
    UnsupportedMediaType = UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "a body of this type is not accepted here";
    InvalidPrimitives = UNPROCESSABLE_ENTITY, "invalid_primitives", "the primitives have faults";
    DigestMismatch = UNPROCESSABLE_ENTITY, "digest_mismatch", "the digest of the body differs from the path";
    ArtifactInUse = CONFLICT, "artifact_in_use", "the artifact is in use";
    IssuerInUse = CONFLICT, "issuer_in_use", "servers accept the issuer's tokens";
    CertificateInUse = CONFLICT, "certificate_in_use", "the certificate is registered for another machine";
    IssuerGiven = CONFLICT, "issuer_given", "the issuer is defined in the operator's file";
    OfferedByServer = CONFLICT, "offered_by_server", "the server's own file offers it";
    BreakingChange = CONFLICT, "breaking_change", "the change breaks callers without a new major version";
    PreconditionFailed = PRECONDITION_FAILED, "precondition_failed", "the resource has changed since";
    NotUndoable = CONFLICT, "not_undoable", "the change cannot be undone";
    NotOpen = CONFLICT, "not_open", "the request for approval is not open";
    ChangedSince = CONFLICT, "changed_since", "a later change touched the same entries";
    RestoresAccess = CONFLICT, "restores_access", "revoked tokens would become valid again";
    LimitReached = CONFLICT, "limit_reached", "a limit of the platform is reached";
    TooManyRequests = TOO_MANY_REQUESTS, "too_many_requests", "too many requests of the org at once";
    Overloaded = SERVICE_UNAVAILABLE, "overloaded", "too many requests at once";
    StoreUnavailable = SERVICE_UNAVAILABLE, "store_unavailable", "a store of the control plane is not available";
    /// A policy uses an unknown name.
    UnknownName = UNPROCESSABLE_ENTITY, "unknown_name", "it names something that is not known here";
    /// A policy allows something to a name that several issuers may issue.
    AmbiguousName = UNPROCESSABLE_ENTITY, "ambiguous_name", "several issuers may give this name to different callers";
    Internal = INTERNAL_SERVER_ERROR, "internal", "the control plane failed";
}

/// A refusal.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:asp:reason:<code>`
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    code: Code,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    /// Every fault, for `invalid_primitives`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    errors: Vec<asp_registry::Fault>,
    /// Every difference from the stored version, including harmless ones, for `breaking_change`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    changes: Vec<asp_registry::Change>,
    /// Seconds to wait before a retry, if the default does not apply.
    #[serde(skip)]
    retry_after: Option<u32>,
}

/// Result of a request of the admin API.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    /// Builds a refusal for too many requests, to be retried after so many seconds.
    pub fn too_many(detail: impl Into<String>, seconds: u64) -> Problem {
        let retry_after = Some(seconds.clamp(1, 3_600) as u32);
        Problem { retry_after, ..Problem::new(Code::TooManyRequests, detail) }
    }

    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:asp:reason:{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            code,
            detail: detail.into(),
            errors: Vec::new(),
            changes: Vec::new(),
            retry_after: None,
        }
    }

    pub fn not_found() -> Problem {
        Problem::new(Code::NotFound, "")
    }

    pub fn method_not_allowed() -> Problem {
        Problem::new(Code::MethodNotAllowed, "")
    }

    pub fn params(detail: impl Into<String>) -> Problem {
        Problem::new(Code::InvalidParams, detail)
    }

    pub fn primitives(errors: Vec<asp_registry::Fault>) -> Problem {
        let detail = format!("{} faults, all listed in `errors`", errors.len());
        Problem { errors, ..Problem::new(Code::InvalidPrimitives, detail) }
    }

    /// Builds the refusal of a new version that breaks callers of the stored one.
    pub fn breaking(changes: Vec<asp_registry::Change>) -> Problem {
        let count = changes.iter().filter(|change| change.breaks_callers()).count();
        let detail = format!(
            "{count} of the differences in `changes` break callers: raise the major version of each changed \
             primitive (of the server, if a primitive was removed), or apply it with --force (API: ?force=true)"
        );
        Problem { changes, ..Problem::new(Code::BreakingChange, detail) }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::NotFound => Problem::not_found(),
            StoreError::Conflict { current } => {
                let detail = match current {
                    Some(revision) => format!("it is at \"{revision}\" now"),
                    None => "it does not exist".to_owned(),
                };
                Problem::new(Code::PreconditionFailed, detail)
            }
            StoreError::Stale => Problem::new(
                Code::PreconditionFailed,
                "records that it depends on changed during its evaluation: send it again",
            ),
            StoreError::Full { .. } => Problem::new(Code::LimitReached, error.to_string()),
            StoreError::Taken { .. } => Problem::new(Code::CertificateInUse, error.to_string()),
            // The handler that stores servers reports the ids itself.
            StoreError::DeniedIds(_) => Problem::new(Code::InvalidPrimitives, error.to_string()),
            StoreError::DisabledByPlatform => Problem::new(
                Code::Forbidden,
                "an admin of the platform disabled it: only the platform's admins enable or delete it",
            ),
            StoreError::Busy(fault) | StoreError::Aborted(fault) => {
                tracing::warn!(
                    %fault,
                    "the control store was busy for too long and an admin's request was refused with 503; if this \
                     persists, check for clients that write too often and for locks in the database"
                );
                Problem::new(Code::Overloaded, "the store is busy with other writes; retry in a moment")
            }
            StoreError::Backend(fault) => {
                tracing::error!(
                    %fault,
                    "the control store failed and an admin's request got an internal error; check the database and its disk"
                );
                Problem::new(Code::Internal, "")
            }
        }
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Problem {
        tracing::error!(
            %error,
            "the audit log of calls cannot be read and an admin's request got an internal error; calls are not affected. \
             Check the audit file and its disk"
        );
        Problem::new(Code::Internal, "the audit log cannot be read at the moment")
    }
}

impl From<AdmissionError> for Problem {
    fn from(refusal: AdmissionError) -> Problem {
        match refusal {
            AdmissionError::OverBudget(error) => Problem::from(error),
            AdmissionError::Unpublishable(_) => Problem::params(refusal.to_string()),
            AdmissionError::NotOffered => Problem::not_found(),
            AdmissionError::Store(error) => Problem::from(error),
        }
    }
}

impl From<BudgetError> for Problem {
    fn from(error: BudgetError) -> Problem {
        Problem::new(Code::LimitReached, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = self.code;
        let status = code.status();
        let retry_after = self.retry_after.map(HeaderValue::from);
        let mut response = (status, Json(self)).into_response();
        // Read by the audit of refused writes.
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(code, Code::TooManyRequests | Code::Overloaded) {
            headers.insert(header::RETRY_AFTER, retry_after.unwrap_or(HeaderValue::from_static(RETRY_AFTER)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_the_store_busy_is_told_when_to_come_back() {
        let busy = Problem::from(StoreError::Busy("database is locked".into()));
        assert!(!busy.detail.contains("locked"), "what the database said is for the log");
        let response = busy.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER);
        let aborted = Problem::from(StoreError::Aborted("deadlock detected".into())).into_response();
        assert_eq!(aborted.status(), StatusCode::SERVICE_UNAVAILABLE);
        let failed = Problem::from(StoreError::Backend("disk I/O error".into())).into_response();
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
