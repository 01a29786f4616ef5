//! Accounts that users link at other services: their providers, the sealed tokens, and those that wait for their revocation.
//!
//! Owns the [`LinkedAccounts`] port. Refuses: to read tokens and secrets, which the vault seals. Keeps true: a user has one
//! link at a provider; of all gateways one at a time refreshes a link, and stores its tokens only if the link is still the
//! one that it read; tokens of a removed or expired link wait for their revocation in the same transaction that ends it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::hex::hex;

mod preset;
mod provider;

pub use preset::{PRESETS, Preset};
pub use provider::{ClientAuth, LinkProvider, Revocation, RevocationStyle};

/// Random id of a link, which changes when its user links the account again.
pub type LinkId = [u8; 16];

/// Random id of a gateway that refreshes, or of one claim of removals.
pub type HolderId = [u8; 16];

/// Kind of the sealed tokens of a link, and of the sealed secret of a provider, whose row is its name and whose tenant is
/// empty.
pub const LINK_TABLE: &str = "linked_accounts";
pub const PROVIDER_TABLE: &str = "link_providers";

/// Returns the row of a link's sealed tokens: its id as hex digits.
pub fn link_row(id: LinkId) -> String {
    hex(&id)
}

/// Maximum number of providers.
pub const MAX_PROVIDERS: u32 = 256;

/// A provider as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRow {
    pub name: String,
    /// Document without a secret, in JSON.
    pub document: String,
    /// Rises with each change.
    pub revision: i64,
    /// Unix milliseconds of the last change.
    pub updated_ms: i64,
    /// Sealed secret of the client; empty for a public client.
    pub sealed: Bytes,
}

/// The user of a link and its provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    pub org: String,
    /// Name of the user's issuer.
    pub issuer: String,
    pub subject: String,
    pub provider: String,
    /// Session or token that the link ends with ([`bound_to_session`], [`bound_to_token`]); empty for a lasting link.
    pub bound: String,
}

/// Returns the `bound` of links that end with a session.
pub fn bound_to_session(session: &str) -> String {
    format!("session:{session}")
}

/// Returns the `bound` of links that end with a token, by its id.
pub fn bound_to_token(wcit: &str) -> String {
    format!("token:{wcit}")
}

/// Links of a user, an org or a provider: those that match every part that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFilter<'a> {
    pub org: &'a str,
    pub issuer: &'a str,
    pub subject: &'a str,
    pub provider: &'a str,
    pub bound: &'a str,
}

/// Tokens to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTokens {
    /// Random number above 0.
    pub version: i64,
    /// Granted scopes, separated by spaces.
    pub scopes: String,
    /// Whether there is a refresh token.
    pub renewable: bool,
    /// Remaining life of the access token; `None` if it does not expire.
    pub access_life: Option<Duration>,
    pub sealed: Bytes,
}

/// A link as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRow {
    pub id: LinkId,
    pub key: LinkKey,
    /// Whether the service accepted the tokens so far. A dead link is only shown, until it is linked again.
    pub is_live: bool,
    pub version: i64,
    pub scopes: String,
    pub renewable: bool,
    /// Remaining life of the access token by the store's clock; `None` if it does not expire.
    pub access_life: Option<Duration>,
    /// Unix milliseconds.
    pub created_ms: i64,
    /// Unix milliseconds; 0 if it was not used yet.
    pub used_ms: i64,
    /// Unix milliseconds at which it ends whether it is used or not.
    pub expires_ms: i64,
    /// Remaining life of the link by the store's clock.
    pub life: Duration,
    pub sealed: Bytes,
}

/// Tokens of a link that has ended, while they wait for their revocation at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedLink {
    pub id: LinkId,
    pub org: String,
    pub provider: String,
    /// Time since the end of the link.
    pub age: Duration,
    /// Number of attempts, with this one.
    pub attempts: u32,
    pub sealed: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum LinkedAccountsError {
    #[error("linked accounts are not available: {0}")]
    Unavailable(String),
}

/// Result of an operation on linked accounts.
pub type Result<T, E = LinkedAccountsError> = std::result::Result<T, E>;

/// Store of linked accounts and their providers. Data is durable once a method has returned `Ok`.
#[async_trait]
pub trait LinkedAccounts: Send + Sync {
    /// Stores a provider, or replaces the one of this name; returns false if there are [`MAX_PROVIDERS`] others.
    async fn put_provider(&self, name: &str, document: &str, sealed: &Bytes) -> Result<bool>;

    /// Returns the provider of this name.
    async fn provider(&self, name: &str) -> Result<Option<ProviderRow>>;

    /// Returns all providers by name.
    async fn providers(&self) -> Result<Vec<ProviderRow>>;

    /// Deletes a provider; returns whether there was one that no link and no token to revoke needs.
    async fn delete_provider(&self, name: &str) -> Result<bool>;

    /// Stores a link, in place of the user's former one at the provider. It ends after `keep`.
    async fn put_link(&self, id: LinkId, key: &LinkKey, tokens: &LinkTokens, keep: Duration) -> Result<()>;

    /// Returns the user's link at a provider, dead or alive, if it has not expired.
    async fn link(&self, key: &LinkKey) -> Result<Option<LinkRow>>;

    /// Returns at most `limit` links, newest first.
    async fn links(&self, filter: LinkFilter<'_>, limit: u32) -> Result<Vec<LinkRow>>;

    /// Notes that a link was used now, unless that was noted less than `every` ago.
    async fn note_use(&self, id: LinkId, every: Duration) -> Result<()>;

    /// Claims the refresh of a live link that still has this version, for `lease`; returns whether nobody else has it.
    async fn claim_refresh(&self, id: LinkId, version: i64, by: HolderId, lease: Duration) -> Result<bool>;

    /// Stores refreshed tokens of a claim, with which the link is alive, and ends the claim; returns false if the link is gone or
    /// has other tokens since.
    async fn end_refresh(&self, id: LinkId, version: i64, tokens: &LinkTokens) -> Result<bool>;

    /// Ends a claim without new tokens.
    async fn give_up_refresh(&self, id: LinkId, by: HolderId) -> Result<()>;

    /// Stores the tokens of a link sealed again, if it still has this version.
    async fn reseal(&self, id: LinkId, version: i64, sealed: &Bytes) -> Result<bool>;

    /// Marks a link dead that still has this version; returns whether it was alive.
    async fn mark_dead(&self, id: LinkId, version: i64) -> Result<bool>;

    /// Ends all links that match, at most those of the present; returns their number. Their tokens wait for their revocation.
    async fn remove_links(&self, filter: LinkFilter<'_>) -> Result<u64>;

    /// Ends expired links as [`LinkedAccounts::remove_links`] does, at most `limit`.
    async fn expire_links(&self, limit: u32) -> Result<u64>;

    /// Adds tokens that belong to no link to those that wait for their revocation. `id` is the place where they are sealed.
    async fn put_removed(&self, id: LinkId, org: &str, provider: &str, sealed: &Bytes) -> Result<()>;

    /// Claims at most `limit` due removals for `lease`.
    async fn claim_removed(&self, claim: HolderId, lease: Duration, limit: u32) -> Result<Vec<RemovedLink>>;

    /// Deletes a claimed removal whose tokens were revoked, or were given up.
    async fn end_removed(&self, id: LinkId, claim: HolderId) -> Result<bool>;

    /// Ends the claim of a removal, which is due again `after` this time.
    async fn retry_removed(&self, id: LinkId, claim: HolderId, after: Duration) -> Result<bool>;

    /// Records the use of a state, kept for `keep`; returns false if it was used before.
    async fn use_state(&self, state: [u8; 16], keep: Duration) -> Result<bool>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
