//! Login of a person to a page of the platform, at the issuer of a server.
//!
//! Refuses: to keep tokens; only the caller that a token proves is returned. Keeps true: the login uses the same client,
//! redirect and budgets as that of MCP clients, and a code for a page is redeemed only by the page that began the login.

use std::sync::Arc;

use asp_call::clock::unix_seconds;
use asp_call::digest::PeerKey;
use asp_edge::Caller;
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use axum::response::Response;
use http::request::Parts;

use super::code::{self, Redemption};
use super::{Front, LoginRequest, authorize, token};
use crate::replica::Replica;

/// Client id of the pages. No client has it, because their ids are sealed texts.
const PAGES: &str = "asp:pages";
const REFUSED: &str = "The login is not valid, or has expired: start it again.";

static NO_BODY: Bytes = Bytes::new();

/// A request of a page whose user logs in.
pub(crate) struct PageRequest<'a> {
    pub(crate) gateway: &'a Replica,
    pub(crate) snapshot: &'a Snapshot,
    /// Server at whose issuer the user logs in.
    pub(crate) server: &'a VirtualServer,
    pub(crate) parts: &'a Parts,
    pub(crate) peer: &'a PeerKey,
}

impl PageRequest<'_> {
    fn login_request(&self) -> Option<LoginRequest<'_>> {
        let front = Front::of(&self.gateway.config.public_url, self.snapshot, self.server)?;
        Some(LoginRequest {
            gateway: self.gateway,
            snapshot: self.snapshot,
            front,
            parts: self.parts,
            body: &NO_BODY,
            peer: self.peer,
        })
    }
}

/// Redirects the user to the issuer, and from there to `redirect` with a code and `state`; `None` if the server has no
/// issuer with a login.
pub(crate) fn begin(
    page: &PageRequest<'_>,
    redirect: &str,
    state: String,
    verifier: &str,
) -> Option<Response> {
    let asked = page.login_request()?;
    let challenge = code::hash(verifier);
    let client = code::hash(PAGES);
    Some(authorize::begin_for_page(&asked, (redirect, state), challenge, client))
}

/// Returns the caller who has logged in; the error is for the user.
pub(crate) async fn complete(
    page: &PageRequest<'_>,
    redirect: &str,
    code: &str,
    verifier: &str,
) -> Result<Arc<Caller>, &'static str> {
    let asked = page.login_request().ok_or(REFUSED)?;
    let shown = Redemption { code, verifier, client_id: PAGES, redirect: Some(redirect) };
    let of_issuer = code::redeem(&asked, &shown).map_err(|_| REFUSED)?;
    let token = token::redeem(&asked, of_issuer, verifier, PAGES).await?;
    let snapshot = page.snapshot;
    let server = page.server;
    let verified = snapshot.edge.verified(&server.message.name, token.expose(), unix_seconds());
    let caller = match verified {
        Ok(caller) => Arc::new(caller),
        Err(_) if server.accepts(AuthScheme::Opaque) => {
            let introspections = &page.gateway.issuers.introspections;
            let found = introspections.caller(snapshot, server, token.expose(), page.peer).await;
            found.map_err(|_| "The issuer's token is not valid here.")?
        }
        Err((reason, cause)) => {
            tracing::warn!(
                server = %server.message.name, reason = reason.as_str(),
                claim = cause.map(|cause| cause.claim), fault = cause.map(|cause| cause.fault),
                "login at a page failed: the issuer's token is not valid at the server"
            );
            return Err("The issuer's token is not valid here.");
        }
    };
    if snapshot.revoked(&caller) { Err("The login has been revoked.") } else { Ok(caller) }
}
