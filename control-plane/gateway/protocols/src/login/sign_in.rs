//! Sign-in of a person's browser at the issuer of a server, for the pages of the platform: linked accounts and approvals.
//!
//! Refuses: to keep tokens; only the caller that a token proves is returned. Keeps true: the user gets the same access token
//! as a client of the server, through the same client, redirect and budgets; the edge's code evaluates all of it as that of a
//! request to the server (issuer, audience, time, revocation, exposure, scopes), and a token whose key is not known yet waits
//! for newer keys; a code is redeemed only with the verifier of the browser that began, and that of a page only by the page.

use std::sync::Arc;
use std::time::Duration;

use asp_call::clock::{unix_ms, unix_seconds};
use asp_call::digest::PeerKey;
use asp_edge::{Caller, Edge, EdgeRole, Env, Reason, RequestFacts, Step, Trace, Verdict};
use asp_identity::linked::LinkTicket;
use asp_platform::secret::Secret;
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::Value;
use tokio::time::Instant;

use super::authorize::{self, go_to};
use super::code::{self, Redemption};
use super::link_state::{IssuerVisit, LIFE, LinkState, seal, verifier};
use super::link_texts as texts;
use super::token::{Parameters, ask_within_limits};
use super::{Front, LoginRequest};
use crate::replica::Replica;

/// Paths below a server, of which every server has one.
const PATHS: [&str; 3] = ["mcp", "rest/account", "a2a"];
/// Time that a token waits for a newer key of its issuer.
const KEYS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Client id of the pages that get a code of their own. No client has it, because their ids are sealed texts.
const PAGES: &str = "asp:pages";
/// Client id to which the exchanges of linked accounts are charged.
const LINKS: &str = "asp:links";

static NO_BODY: Bytes = Bytes::new();

/// A request of a page whose user signs in.
pub(crate) struct PageRequest<'a> {
    pub(crate) gateway: &'a Replica,
    pub(crate) snapshot: &'a Snapshot,
    /// Server at whose issuer the user signs in.
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

/// Sends the browser to the issuer, for a page below the server's `/oauth/` or for `/account`.
pub(super) fn begin(asked: &LoginRequest<'_>, ticket: Option<LinkTicket>, browser: String) -> Response {
    let verifier = verifier();
    let challenge = code::hash(&verifier);
    let visit = IssuerVisit { ticket, verifier, browser, expires: unix_seconds() + LIFE };
    let state = seal(asked.gateway, asked.front.name(), &LinkState::SignIn(visit));
    let scope = asked.front.scopes().join(" ");
    let url = state.and_then(|state| authorize::at_issuer(&asked.front, &state, &challenge, &scope));
    url.map_or_else(|| texts::refusal(texts::FAILED), |url| go_to(url.as_str()))
}

/// Redeems the issuer's code of a sign-in that [`begin`] began, and returns the user; the error is a text for the page.
pub(super) async fn end(
    asked: &LoginRequest<'_>,
    code: &str,
    verifier: &str,
) -> Result<Arc<Caller>, &'static str> {
    redeem(asked, LINKS, (code, verifier)).await
}

/// Sends the browser to the issuer, and from there to `redirect` with a code and `state`; `None` if the server has no
/// issuer with a login.
pub(crate) fn begin_for_page(
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

/// Redeems the code of a sign-in that [`begin_for_page`] began, and returns the user; the error is a text for the page.
pub(crate) async fn end_for_page(
    page: &PageRequest<'_>,
    redirect: &str,
    code: &str,
    verifier: &str,
) -> Result<Arc<Caller>, &'static str> {
    let asked = page.login_request().ok_or(texts::INVALID_LOGIN)?;
    let shown = Redemption { code, verifier, client_id: PAGES, redirect: Some(redirect) };
    let of_issuer = code::redeem(&asked, &shown).map_err(|_| texts::INVALID_LOGIN)?;
    redeem(&asked, PAGES, (&of_issuer, verifier)).await
}

/// Exchanges the issuer's code for an access token, within the budgets of `client`, and returns the user whom it proves.
async fn redeem(
    asked: &LoginRequest<'_>,
    client: &str,
    (code, verifier): (&str, &str),
) -> Result<Arc<Caller>, &'static str> {
    let callback = asked.front.callback();
    let client_id = asked.front.login.client_id.as_str();
    let sent: Parameters<'_> = vec![
        ("client_id", client_id.into()),
        ("grant_type", "authorization_code".into()),
        ("code", code.into()),
        ("code_verifier", verifier.into()),
        ("redirect_uri", callback.as_str().into()),
    ];
    let answered = ask_within_limits(asked, client, &sent).await;
    let (status, answer) = answered.map_err(|refusal| match refusal.status() {
        StatusCode::BAD_GATEWAY => texts::FAILED,
        _ => texts::TOO_MANY,
    })?;
    let token = answer.get("access_token").and_then(Value::as_str).filter(|_| status.is_success());
    let token = token.map(Secret::from).ok_or(texts::NOT_SIGNED_IN)?;
    prove_caller(asked, &token).await
}

/// Evaluates a token as that of a request to the server.
async fn prove_caller(asked: &LoginRequest<'_>, token: &Secret) -> Result<Arc<Caller>, &'static str> {
    let facts = evaluated(asked, asked.snapshot, token).ok_or(texts::NO_ACCESS)?;
    if let Some(issuer) = &facts.unknown_key_of {
        let newest = newest(asked, issuer).await.ok_or(texts::FAILED)?;
        let facts = evaluated(asked, &newest, token).ok_or(texts::NO_ACCESS)?;
        return check_revocation(asked, &newest, facts.caller);
    }
    if !facts.unverified {
        return check_revocation(asked, asked.snapshot, facts.caller);
    }
    if !asked.front.server.accepts(AuthScheme::Opaque) {
        return Err(texts::NO_ACCESS);
    }
    let introspections = &asked.gateway.issuers.introspections;
    let found = introspections.caller(asked.snapshot, asked.front.server, token.expose(), asked.peer).await;
    let caller = found.map_err(|_| texts::NO_ACCESS)?;
    let admitted = Edge::new(EdgeRole::Gateway).admit(&asked.snapshot.edge, facts, caller, &env());
    let admitted = admitted.map_err(|_| texts::NO_ACCESS)?;
    check_revocation(asked, asked.snapshot, admitted.caller)
}

/// Returns the caller of an evaluation, unless its credential has been revoked in the snapshot.
fn check_revocation(
    asked: &LoginRequest<'_>,
    snapshot: &Snapshot,
    caller: Option<Arc<Caller>>,
) -> Result<Arc<Caller>, &'static str> {
    let caller = caller.ok_or(texts::NO_ACCESS)?;
    if snapshot.revoked(&caller) {
        tracing::info!(
            server = asked.front.name(),
            org = caller.org,
            "browser sign-in refused: the login is revoked"
        );
        return Err(texts::REVOKED);
    }
    Ok(caller)
}

/// Returns the snapshot with the newest keys of an issuer.
async fn newest(asked: &LoginRequest<'_>, issuer: &str) -> Option<Arc<Snapshot>> {
    let revision = asked.gateway.issuers.fresh_keys.of(issuer).await?;
    let until = Instant::now() + KEYS_WITHIN;
    loop {
        let snapshot = asked.gateway.snapshot()?;
        if snapshot.revision >= revision || Instant::now() >= until {
            return Some(snapshot);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn env() -> Env {
    Env { now_ms: unix_ms(), random: [0; 8], trace: Trace::new(rand::random()) }
}

/// Returns the facts of a request with the token, if the edge's code does not refuse it.
fn evaluated(asked: &LoginRequest<'_>, snapshot: &Snapshot, token: &Secret) -> Option<RequestFacts> {
    let edge = Edge::new(EdgeRole::Gateway);
    let host = asked.parts.headers.get(header::HOST).map(http::HeaderValue::as_bytes);
    let host = host.or_else(|| asked.parts.uri.authority().map(|authority| authority.as_str().as_bytes()));
    let authorization = format!("Bearer {}", token.expose());
    let mut refusal = (None, None);
    for path in PATHS {
        let path = format!("/{}/{path}", asked.front.name());
        let mut headers: Vec<(&str, &[u8])> =
            vec![(":method", b"GET".as_slice()), (":path", path.as_bytes())];
        headers.extend(host.map(|host| (":authority", host)));
        headers.push(("authorization", authorization.as_bytes()));
        match edge.on_headers(&snapshot.edge, &headers, true, &env()) {
            Step::Decided(Verdict::Forward(forward)) => return Some(forward.admitted),
            // The server does not have the protocol of this path.
            Step::Decided(Verdict::Reply(reply)) if reply.reason == Some(Reason::UnknownServer) => {}
            Step::Decided(Verdict::Reply(reply)) => refusal = (reply.reason, reply.cause),
            Step::NeedBody(_) => {}
        }
    }
    let (reason, cause) = refusal;
    tracing::warn!(
        server = asked.front.name(),
        reason = reason.map(|reason| reason.as_str()),
        claim = cause.map(|cause| cause.claim),
        fault = cause.map(|cause| cause.fault),
        "browser sign-in refused: the issuer's token is not valid at the server"
    );
    None
}
