//! States of linking an account, sealed while they travel through the browser, and checks that its pages share.

use std::sync::Arc;

use asp_call::digest::PeerKey;
use asp_call::seal::Purpose;
use asp_identity::linked::{LinkTicket, LinkedTokens, link_context};
use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header;
use http::request::Parts;
use serde::{Deserialize, Serialize};

use crate::replica::Replica;

/// Time limit for signing in and for the provider's consent, each, in seconds.
pub(super) const LIFE: u64 = 900;

/// Head, body and peer of a request that needs no caller.
pub(super) type PublicRequest<'a> = (&'a Parts, &'a Bytes, &'a PeerKey);

/// A state that travels through the browser, sealed.
#[derive(Serialize, Deserialize)]
pub(super) enum LinkState {
    /// The browser signs in at the issuer.
    #[serde(rename = "s")]
    SignIn(IssuerVisit),
    /// The browser is at the provider.
    #[serde(rename = "l")]
    Consent(Consent),
}

/// A sign-in at the issuer of a server.
#[derive(Serialize, Deserialize)]
pub(super) struct IssuerVisit {
    /// The account to link; without one the user wants to see the links.
    #[serde(rename = "t")]
    pub(super) ticket: Option<LinkTicket>,
    #[serde(rename = "v")]
    pub(super) verifier: String,
    /// Content of the cookie in the browser that began.
    #[serde(rename = "b")]
    pub(super) browser: String,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A consent at a provider.
#[derive(Serialize, Deserialize)]
pub(super) struct Consent {
    #[serde(rename = "t")]
    pub(super) ticket: LinkTicket,
    /// Requested scopes.
    #[serde(rename = "s")]
    pub(super) scopes: Vec<String>,
    #[serde(rename = "v")]
    pub(super) verifier: String,
    #[serde(rename = "b")]
    pub(super) browser: String,
    /// Id by which the state is used once.
    #[serde(rename = "n")]
    pub(super) id: [u8; 16],
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// Whether this gateway has linked accounts.
pub(super) fn is_here(gateway: &Replica) -> bool {
    gateway.issuers.links.is_some()
}

pub(super) fn links(gateway: &Replica) -> Option<&Arc<LinkedTokens>> {
    gateway.issuers.links.as_ref()
}

/// Seals a state for a server, or for no server; `None` if it is too long.
pub(super) fn seal(gateway: &Replica, server: &str, value: &impl Serialize) -> Option<String> {
    let plain = serde_json::to_vec(value).ok()?;
    gateway.sealer.seal(Purpose::Login, &link_context(server), &plain).ok()
}

pub(super) fn open<T: for<'de> Deserialize<'de>>(gateway: &Replica, server: &str, sealed: &str) -> Option<T> {
    let plain = gateway.sealer.open(Purpose::Login, &link_context(server), sealed)?;
    serde_json::from_slice(&plain).ok()
}

/// Returns a verifier of PKCE (RFC 7636 section 4.1).
pub(super) fn verifier() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Whether a form was sent by a page of this origin; browsers send `Origin` with every POST.
pub(super) fn is_from_here(public_url: &str, parts: &Parts) -> bool {
    let origin = parts.headers.get(header::ORIGIN);
    origin.is_none_or(|origin| origin.as_bytes() == public_url.as_bytes())
}
