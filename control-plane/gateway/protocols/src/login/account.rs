//! The page of a user's linked accounts.
//!
//! Keeps true: it shows the links of the user who signed in, for [`LIFE`] seconds, until the token ends or is revoked; a link is
//! removed only by a form of this page: its origin is checked, its cookie is not sent by other sites, and it has a tag that
//! only this page knows.

use std::sync::Arc;

use asp_call::clock::unix_seconds;
use asp_edge::{Caller, names};
use asp_identity::linked::{LinkedTokens, NoLink};
use asp_pipeline::pipeline::Pipeline;
use asp_pipeline::pipeline::links::LinkFact;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};

use super::authorize::{browser, go_to, named_cookie};
use super::link_state::{PublicRequest, is_from_here, links, open, seal};
use super::link_texts::{self as texts, IssuerChoice, ShownLink};
use super::{Front, LoginRequest, form_in, sign_in};
use crate::replica::Replica;

/// Life of a session in seconds.
const LIFE: u64 = 900;
/// Maximum number of issuers to choose from.
const MAX_ISSUERS: usize = 50;
/// Place of the sealed session; no server has this name.
const SESSION: &str = ":account";
/// Context of the tags in forms.
const TAG: &[u8] = b"account";

/// A user who has signed in.
#[derive(Serialize, Deserialize)]
struct AccountSession {
    /// Caller that the token proved, without groups and scopes: a cookie is small.
    #[serde(rename = "c")]
    caller: Caller,
    #[serde(rename = "n")]
    id: [u8; 16],
    #[serde(rename = "e")]
    expires: u64,
}

fn is_secure(gateway: &Replica) -> bool {
    gateway.config.public_url.starts_with("https:")
}

fn cookie_name(gateway: &Replica) -> &'static str {
    if is_secure(gateway) { "__Host-asp-account" } else { "asp-account" }
}

/// Returns the session of a browser, if its token is still valid.
fn session(gateway: &Replica, snapshot: &Snapshot, parts: &Parts) -> Option<AccountSession> {
    let session: AccountSession = open(gateway, SESSION, named_cookie(parts, cookie_name(gateway))?)?;
    let now = unix_seconds();
    let is_valid =
        session.expires > now && session.caller.expires_at > now && !snapshot.revoked(&session.caller);
    is_valid.then_some(session)
}

/// Opens a session for a user who has signed in.
pub(super) fn open_session(asked: &LoginRequest<'_>, caller: &Caller) -> Response {
    let caller = Caller { groups: Vec::new(), scopes: Vec::new(), ..caller.clone() };
    let session = AccountSession { caller, id: rand::random(), expires: unix_seconds() + LIFE };
    let gateway = asked.gateway;
    let secure = if is_secure(gateway) { "; Secure" } else { "" };
    let cookie = seal(gateway, SESSION, &session).map(|sealed| {
        format!("{}={sealed}; Path=/; Max-Age={LIFE}; HttpOnly; SameSite=Lax{secure}", cookie_name(gateway))
    });
    let cookie = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok());
    let Some(cookie) = cookie else { return texts::refusal(texts::FAILED) };
    let mut response = go_to(&format!("{}/account", gateway.config.public_url));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

/// Shows the user's links, or how to sign in.
pub(super) async fn show(gateway: &Replica, snapshot: &Snapshot, parts: &Parts) -> Response {
    let Some(session) = session(gateway, snapshot, parts) else {
        return texts::choose(&choices(gateway, snapshot));
    };
    let Some(links) = links(gateway) else { return texts::refusal(texts::FAILED) };
    let Caller { org, issuer, user, .. } = &session.caller;
    let found = match links.links_of(org, issuer, user).await {
        Ok(found) => found,
        Err(fault) => {
            tracing::warn!(%fault, "a user's linked accounts could not be read");
            return texts::refusal(texts::FAILED);
        }
    };
    let mut shown = Vec::with_capacity(found.len());
    for link in found {
        let title = links.provider(&link.key.provider).await;
        let title = title.map_or_else(|_| link.key.provider.clone(), |known| known.document.title.clone());
        let tag = gateway.sealer.tag(TAG, &tagged(&session, &link.key.provider));
        shown.push(ShownLink { title, tag, link });
    }
    texts::account(user, &shown)
}

fn tagged(session: &AccountSession, provider: &str) -> String {
    format!("{:032x} {provider}", u128::from_be_bytes(session.id))
}

/// Returns the issuers at which users can sign in, each with the first of its servers. The one that stands for all others comes
/// last: its redirect may not be registered at an issuer that knows the others'.
fn choices(gateway: &Replica, snapshot: &Snapshot) -> Vec<IssuerChoice> {
    let mut servers: Vec<&VirtualServer> = snapshot.servers().map(|server| &**server).collect();
    servers.sort_by(|one, other| {
        let one = &one.message.name;
        let other = &other.message.name;
        (one == names::ALL_SERVERS, one).cmp(&(other == names::ALL_SERVERS, other))
    });
    let mut choices: Vec<IssuerChoice> = Vec::new();
    for server in servers.into_iter().filter(|server| !server.message.undiscovered) {
        let Some(front) = Front::of(&gateway.config.public_url, snapshot, server) else { continue };
        let issuer = front.upstream.name.clone();
        if choices.len() < MAX_ISSUERS && choices.iter().all(|choice| choice.issuer != issuer) {
            choices.push(IssuerChoice { issuer, server: server.message.name.clone() });
        }
    }
    choices
}

/// Sends the browser to the issuer of a server.
pub(super) fn sign_in(
    gateway: &Replica,
    snapshot: &Snapshot,
    (parts, body, peer): PublicRequest<'_>,
) -> Response {
    if !is_from_here(&gateway.config.public_url, parts) {
        return texts::refusal(texts::FOREIGN);
    }
    let given = form_in(parts, body).unwrap_or_default();
    let server = given.get("server").and_then(|name| snapshot.server(name));
    let server = server.filter(|server| !server.message.undiscovered);
    let front = server.and_then(|server| Front::of(&gateway.config.public_url, snapshot, server));
    let Some(front) = front else { return texts::refusal(texts::EXPIRED) };
    let asked = LoginRequest { gateway, snapshot, front, parts, body, peer };
    let (browser, set_cookie) = browser(&asked, LIFE);
    let mut response = sign_in::begin(&asked, None, browser);
    if let Some(cookie) = set_cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Removes a link of a user and records that, in a task of its own: if the browser leaves, the link may be removed nevertheless.
async fn remove_link(
    pipeline: Arc<Pipeline>,
    links: Arc<LinkedTokens>,
    caller: Caller,
    provider: &str,
) -> Result<bool, NoLink> {
    let provider = provider.to_owned();
    let removing = tokio::spawn(async move {
        let Caller { org, issuer, user, .. } = &caller;
        let done = links.remove((org, issuer, user), &provider).await;
        let (outcome, reason) = if done.is_ok() { ("completed", "ok") } else { ("failed", "unavailable") };
        let fact = LinkFact {
            event: "link.remove",
            org,
            user,
            issuer,
            provider: &provider,
            server: "",
            primitive: "",
            outcome,
            reason,
        };
        // A form that was sent twice changes nothing.
        if !matches!(done, Ok(false)) {
            pipeline.record_link(&fact).await;
        }
        done
    });
    removing.await.unwrap_or_else(|_| Err(NoLink::Unavailable("the removal was interrupted".into())))
}

/// Removes a link of the user.
pub(super) async fn remove(
    gateway: &Replica,
    snapshot: &Snapshot,
    (parts, body, _): PublicRequest<'_>,
) -> Response {
    if !is_from_here(&gateway.config.public_url, parts) {
        return texts::refusal(texts::FOREIGN);
    }
    let given = form_in(parts, body).unwrap_or_default();
    let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let provider = text("provider");
    let Some(session) = session(gateway, snapshot, parts) else { return texts::refusal(texts::EXPIRED) };
    if !gateway.sealer.has_tag(TAG, &tagged(&session, provider), text("tag")) {
        return texts::refusal(texts::FOREIGN);
    }
    let Some(links) = links(gateway) else { return texts::refusal(texts::FAILED) };
    let org = session.caller.org.clone();
    let removing = remove_link(Arc::clone(&gateway.pipeline), Arc::clone(links), session.caller, provider);
    let done = removing.await;
    match done {
        Ok(removed) => {
            tracing::info!(provider, org, removed, "linked account removed by its user");
            go_to(&format!("{}/account", gateway.config.public_url))
        }
        Err(fault) => {
            tracing::warn!(provider, org, %fault, "linked account could not be removed by its user");
            texts::refusal(texts::FAILED)
        }
    }
}
