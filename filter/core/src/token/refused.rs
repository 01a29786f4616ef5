//! Why a token is refused: the reason a client is told, and the claim at fault for the operator.

use crate::reason::Reason;

/// Why a token that a trusted issuer signed is no good, for the operator's log; the client learns the reason alone.
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

/// A token that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) cause: Option<Cause>,
    /// The issuer, by name, that may have signed it with a key newer than those that are known.
    pub(crate) unknown_key_of: Option<String>,
}

impl Refused {
    /// An issuer whose keys are fetched has none of this name, yet.
    pub(crate) fn unknown_key(issuer: String) -> Refused {
        Refused { reason: Reason::TokenInvalid, cause: None, unknown_key_of: Some(issuer) }
    }

    /// Evaluated before, with this cause.
    pub(crate) fn invalid(cause: Option<Cause>) -> Refused {
        Refused { reason: Reason::TokenInvalid, cause, unknown_key_of: None }
    }
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Refused {
        Refused { reason, cause: None, unknown_key_of: None }
    }
}

impl From<Cause> for Refused {
    fn from(cause: Cause) -> Refused {
        Refused::invalid(Some(cause))
    }
}
