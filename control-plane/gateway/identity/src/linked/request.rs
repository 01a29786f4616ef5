//! Requests of calls for tokens of linked accounts, and the reasons why there is none.

use asp_edge::{Caller, MACHINE_ISSUER};
use asp_proto::snapshot::LinkedToken;
use asp_store::linked_accounts::{LinkKey, bound_to_session, bound_to_token};
use reqwest::Url;

/// A request of a call to a service behind a linked account.
#[derive(Clone, Copy)]
pub struct LinkRequest<'a> {
    pub caller: &'a Caller,
    pub wanted: &'a LinkedToken,
    pub server: &'a str,
    pub primitive: &'a str,
    /// URL of the request; only its origin matters.
    pub url: &'a Url,
    /// Id of the call.
    pub call: [u8; 16],
    /// Session with which the link ends, empty for a call without one, whose link ends with its token; `None` for a lasting
    /// link.
    pub within: Option<&'a str>,
}

/// The reason why there is no token of a linked account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLink {
    #[error("this gateway has no store of linked accounts")]
    NotHere,
    #[error("no provider has the name {0:?}: add it with `asp link-provider add`")]
    UnknownProvider(String),
    #[error(
        "{primitive} may not use accounts at {provider:?}: if it should, add it to `for` of the provider"
    )]
    NotServed { provider: String, primitive: String },
    #[error(
        "users of the org {org:?} may not link accounts at {provider:?}: if they should, add it to `orgs` of the provider"
    )]
    Org { provider: String, org: String },
    #[error(
        "tokens of {provider:?} may not be sent to {to}: if they should, add it to `origins` of the provider"
    )]
    Origin { provider: String, to: String },
    /// The caller is a machine, or anonymous.
    #[error("only persons have linked accounts")]
    NoPerson,
    /// The caller has to link an account.
    #[error("the caller's account is not linked: {0}")]
    Missing(LinkReason),
    #[error("the vault: {0}")]
    Vault(String),
    /// The provider gave tokens for a link that could not be stored.
    #[error("the link could not be stored: {0}")]
    NotStored(String),
    /// Store or provider do not answer; a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
}

/// Reason why an account has to be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkReason {
    #[error("it has not been linked, or the link has ended")]
    Never,
    #[error("the service or its provider rejected the link")]
    Rejected,
    #[error("it was linked with fewer scopes")]
    Scopes,
    /// Its tokens were altered or moved, or the vault lost their key.
    #[error("its tokens do not open")]
    Unreadable,
}

impl LinkRequest<'_> {
    /// Returns the key of the caller's link; an error for callers that are no persons.
    pub(super) fn key(&self) -> Result<LinkKey, NoLink> {
        let Caller { org, user, issuer, .. } = self.caller;
        if issuer == MACHINE_ISSUER || [org, user, issuer].iter().any(|part| part.is_empty()) {
            return Err(NoLink::NoPerson);
        }
        Ok(LinkKey {
            org: org.clone(),
            issuer: issuer.clone(),
            subject: user.clone(),
            provider: self.wanted.provider.clone(),
            bound: match self.within {
                None => String::new(),
                Some("") => bound_to_token(&self.caller.wcit),
                Some(session) => bound_to_session(session),
            },
        })
    }
}
