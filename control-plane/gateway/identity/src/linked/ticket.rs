//! The sealed ticket in the address of a linking page: who links which account, and until when.

use asp_call::clock::unix_seconds;
use asp_store::linked_accounts::LinkKey;
use serde::{Deserialize, Serialize};

use super::request::LinkRequest;

/// Life of a ticket in seconds: a client without pages shows its user the address of an error.
const LIFE: u64 = 3_600;

/// The content of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTicket {
    #[serde(rename = "p")]
    pub provider: String,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    #[serde(rename = "o")]
    pub org: String,
    /// Name of the user's issuer.
    #[serde(rename = "i")]
    pub issuer: String,
    #[serde(rename = "u")]
    pub user: String,
    /// Name of the server at which the user called.
    #[serde(rename = "v")]
    pub server: String,
    /// Primitive that needs the account.
    #[serde(rename = "m")]
    pub primitive: String,
    /// Unix seconds.
    #[serde(rename = "e")]
    pub expires: u64,
    /// Session or token that the link ends with; empty for a lasting link.
    #[serde(rename = "b", default, skip_serializing_if = "String::is_empty")]
    pub bound: String,
    /// Unix seconds at which a bound link ends at the latest; 0 for a lasting link.
    #[serde(rename = "l", default, skip_serializing_if = "is_zero")]
    pub until: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the context of texts that are sealed for linking at a server. No name of a server has a colon.
pub fn context(server: &str) -> Vec<u8> {
    [b"link:".as_slice(), server.as_bytes()].concat()
}

impl LinkTicket {
    pub(super) fn of(request: &LinkRequest<'_>) -> Option<LinkTicket> {
        let key = request.key().ok()?;
        Some(LinkTicket {
            provider: key.provider,
            scopes: request.wanted.scopes.clone(),
            org: key.org,
            issuer: key.issuer,
            user: key.subject,
            server: request.server.to_owned(),
            primitive: request.primitive.to_owned(),
            expires: unix_seconds() + LIFE,
            until: if key.bound.is_empty() { 0 } else { request.caller.expires_at.max(1) },
            bound: key.bound,
        })
    }

    /// Returns the key of the link that the ticket is for.
    pub fn key(&self) -> LinkKey {
        LinkKey {
            org: self.org.clone(),
            issuer: self.issuer.clone(),
            subject: self.user.clone(),
            provider: self.provider.clone(),
            bound: self.bound.clone(),
        }
    }

    pub fn has_expired(&self) -> bool {
        self.expires <= unix_seconds()
    }
}
