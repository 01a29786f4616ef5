//! The login of an approver in one browser: pending, and done.
//!
//! Keeps true: a session is for one request and has no token; of the groups it has only the one that may decide, so that a
//! cookie is small and worth nothing elsewhere.

use asp_call::clock::unix_seconds;
use asp_call::seal::{Purpose, Sealer};
use asp_edge::Caller;
use asp_pipeline::pipeline::approvals::{ApprovalId, ApprovalRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::random_text;

/// Names of the cookies.
pub(super) const LOGIN: &str = "asp-approval-login";
pub(super) const SESSION: &str = "asp-approval";
/// Time limit for a login, in seconds.
pub(super) const LOGIN_LIFE: u64 = 900;
/// Longest life of a session, in seconds.
pub(super) const LIFE: u64 = 900;

/// A login that was begun.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingLogin {
    /// Sealed address of the page.
    #[serde(rename = "a")]
    pub(super) address: String,
    #[serde(rename = "i")]
    approval: ApprovalId,
    #[serde(rename = "g")]
    group: String,
    #[serde(rename = "s")]
    pub(super) server: String,
    /// Verifier of PKCE (RFC 7636 section 4.1).
    #[serde(rename = "v")]
    pub(super) verifier: String,
    /// Content of the cookie in the browser that began the login.
    #[serde(rename = "b")]
    pub(super) browser: String,
    #[serde(rename = "e")]
    expires: u64,
}

impl PendingLogin {
    pub(super) fn new(address: &str, request: &ApprovalRequest) -> PendingLogin {
        PendingLogin {
            address: address.to_owned(),
            approval: request.id,
            group: request.scope.approvers.clone(),
            server: request.scope.server.clone(),
            verifier: random_text(),
            browser: random_text(),
            expires: unix_seconds() + LOGIN_LIFE,
        }
    }

    pub(super) fn seal(&self, sealer: &Sealer) -> Option<String> {
        seal(sealer, b"login", self)
    }

    pub(super) fn open(sealer: &Sealer, sealed: &str) -> Option<PendingLogin> {
        let pending: PendingLogin = open(sealer, b"login", sealed)?;
        (pending.expires > unix_seconds()).then_some(pending)
    }
}

/// An approver who has logged in for one request.
#[derive(Serialize, Deserialize)]
pub(super) struct ApproverSession {
    #[serde(rename = "i")]
    pub(super) approval: ApprovalId,
    #[serde(rename = "c")]
    pub(super) caller: Caller,
    /// Random id, for forms.
    #[serde(rename = "n")]
    id: String,
    #[serde(rename = "e")]
    expires: u64,
}

/// The hidden field of a form.
#[derive(Serialize, Deserialize)]
struct FormTicket {
    #[serde(rename = "n")]
    session: String,
    #[serde(rename = "i")]
    approval: ApprovalId,
}

impl ApproverSession {
    /// Returns the cookie of a session for the request of a login.
    pub(super) fn cookie(sealer: &Sealer, pending: &PendingLogin, caller: &Caller) -> Option<String> {
        let mut caller = caller.clone();
        caller.groups.retain(|group| *group == pending.group);
        caller.scopes.clear();
        let approval = pending.approval;
        let expires = unix_seconds() + LIFE;
        seal(sealer, b"session", &ApproverSession { approval, caller, id: random_text(), expires })
    }

    pub(super) fn open(sealer: &Sealer, cookie: &str) -> Option<ApproverSession> {
        let session: ApproverSession = open(sealer, b"session", cookie)?;
        (session.expires > unix_seconds()).then_some(session)
    }

    /// Returns the hidden field of a form of this session.
    pub(super) fn form(&self, sealer: &Sealer) -> Option<String> {
        seal(sealer, b"form", &FormTicket { session: self.id.clone(), approval: self.approval })
    }

    /// Whether the hidden field is of a form of this session.
    pub(super) fn is_own_form(&self, sealer: &Sealer, sealed: &str) -> bool {
        let ticket: Option<FormTicket> = open(sealer, b"form", sealed);
        ticket.is_some_and(|ticket| ticket.session == self.id && ticket.approval == self.approval)
    }
}

fn seal(sealer: &Sealer, context: &[u8], value: &impl Serialize) -> Option<String> {
    sealer.seal(Purpose::Approval, context, &serde_json::to_vec(value).ok()?).ok()
}

fn open<T: DeserializeOwned>(sealer: &Sealer, context: &[u8], sealed: &str) -> Option<T> {
    serde_json::from_slice(&sealer.open(Purpose::Approval, context, sealed)?).ok()
}
