//! The refusal of a token: the reason for the client, and the claim at fault for the operator.

use crate::reason::Reason;
use crate::revocation::RevocationNotice;

/// Fault of a token that a trusted issuer signed, for the operator's log; the client learns only the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    pub claim: &'static str,
    pub fault: &'static str,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.claim, self.fault)
    }
}

/// Refusal of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRefusal {
    pub(crate) reason: Reason,
    pub(crate) cause: Option<Cause>,
    /// Name of the issuer that may have signed the token with a key newer than the known ones.
    pub(crate) unknown_key_of: Option<String>,
    /// Details of the revocation of a token whose signature and claims are good.
    pub(crate) notice: Option<RevocationNotice>,
    /// Seconds to wait, if the token was not checked because too many checks for its client failed.
    pub(crate) retry_after: Option<u64>,
    /// Org of a valid token that is revoked, or whose holder is blocked.
    pub(crate) org: Option<String>,
}

impl TokenRefusal {
    /// Refuses a token whose key an issuer with fetched keys does not have yet.
    pub(crate) fn unknown_key(issuer: String) -> TokenRefusal {
        TokenRefusal { unknown_key_of: Some(issuer), ..TokenRefusal::from(Reason::TokenInvalid) }
    }

    /// Refuses to check a token for this number of seconds.
    pub(crate) fn too_many(seconds: u64) -> TokenRefusal {
        TokenRefusal { retry_after: Some(seconds), ..TokenRefusal::from(Reason::RateLimited) }
    }

    /// Refuses an invalid token with this cause.
    pub(crate) fn invalid(cause: Option<Cause>) -> TokenRefusal {
        TokenRefusal { cause, ..TokenRefusal::from(Reason::TokenInvalid) }
    }
}

impl TokenRefusal {
    /// Refuses a token that is revoked, or whose holder is blocked.
    pub(crate) fn revoked(notice: RevocationNotice) -> TokenRefusal {
        let reason = notice.reason();
        TokenRefusal { notice: Some(notice), ..TokenRefusal::from(reason) }
    }
}

impl From<Reason> for TokenRefusal {
    fn from(reason: Reason) -> TokenRefusal {
        TokenRefusal { reason, cause: None, unknown_key_of: None, notice: None, retry_after: None, org: None }
    }
}

impl From<Cause> for TokenRefusal {
    fn from(cause: Cause) -> TokenRefusal {
        TokenRefusal::invalid(Some(cause))
    }
}
