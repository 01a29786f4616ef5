//! Sign-in of a browser at the issuer of a server: the user gets the same access token as a client of the server, which is
//! evaluated by the edge's code and then forgotten.

use std::sync::Arc;
use std::time::Duration;

use asp_call::clock::{unix_ms, unix_seconds};
use asp_edge::{Caller, Edge, EdgeRole, Env, RequestFacts, Step, Trace, Verdict};
use asp_identity::linked::LinkTicket;
use asp_snapshot::Snapshot;
use axum::response::Response;
use http::header;
use reqwest::Url;
use tokio::time::Instant;

use super::authorize::go_to;
use super::link_state::{IssuerVisit, LIFE, LinkState, seal, verifier};
use super::link_texts as texts;
use super::token::{Parameters, ask_within_limits};
use super::{LoginRequest, code};

/// Paths below a server, of which every server has one.
const PATHS: [&str; 3] = ["mcp", "rest/account", "a2a"];
/// Time that a token waits for a newer key of its issuer.
const KEYS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends the browser to the issuer.
pub(super) fn begin(asked: &LoginRequest<'_>, ticket: Option<LinkTicket>, browser: String) -> Response {
    let verifier = verifier();
    let challenge = code::hash(&verifier);
    let state = IssuerVisit { ticket, verifier, browser, expires: unix_seconds() + LIFE };
    let state = seal(asked.gateway, asked.front.name(), &LinkState::SignIn(state));
    let url = Url::parse(&asked.front.login.authorization_endpoint);
    let (Some(state), Ok(mut url)) = (state, url) else { return texts::refusal(texts::FAILED) };
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &asked.front.login.client_id)
            .append_pair("redirect_uri", &asked.front.callback())
            .append_pair("state", &state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !asked.front.login.without_resource {
            let resource = format!("{}/{}/mcp", asked.front.public_url, asked.front.name());
            query.append_pair("resource", &resource);
        }
        let scopes = asked.front.scopes().join(" ");
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes);
        }
    }
    go_to(url.as_str())
}

/// Redeems the issuer's code and returns the user; the error is a text for the page.
pub(super) async fn end(
    asked: &LoginRequest<'_>,
    code: &str,
    verifier: &str,
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
    let answered = ask_within_limits(asked, "linked accounts", &sent).await;
    let (status, answer) = answered.map_err(|_| texts::FAILED)?;
    let token = answer.get("access_token").and_then(|token| token.as_str());
    let token = token.filter(|_| status.is_success()).ok_or(texts::NOT_SIGNED_IN)?;
    caller(asked, token).await.ok_or(texts::NO_ACCESS)
}

/// Evaluates a token as that of a request to the server.
async fn caller(asked: &LoginRequest<'_>, token: &str) -> Option<Arc<Caller>> {
    let facts = evaluated(asked, asked.snapshot, token)?;
    if let Some(issuer) = &facts.unknown_key_of {
        let newest = newest(asked, issuer).await?;
        return evaluated(asked, &newest, token)?.caller;
    }
    if !facts.unverified {
        return facts.caller;
    }
    let server = asked.snapshot.server(asked.front.name())?;
    let introspections = &asked.gateway.issuers.introspections;
    let caller = introspections.caller(asked.snapshot, server, token, asked.peer).await.ok()?;
    let edge = Edge::new(EdgeRole::Gateway);
    edge.admit(&asked.snapshot.edge, facts, caller, &env()).ok()?.caller
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
fn evaluated(asked: &LoginRequest<'_>, snapshot: &Snapshot, token: &str) -> Option<RequestFacts> {
    let edge = Edge::new(EdgeRole::Gateway);
    let host = asked.parts.headers.get(header::HOST).map(http::HeaderValue::as_bytes);
    let host = host.or_else(|| asked.parts.uri.authority().map(|authority| authority.as_str().as_bytes()));
    let authorization = format!("Bearer {token}");
    PATHS.iter().find_map(|path| {
        let path = format!("/{}/{path}", asked.front.name());
        let mut headers: Vec<(&str, &[u8])> =
            vec![(":method", b"GET".as_slice()), (":path", path.as_bytes())];
        headers.extend(host.map(|host| (":authority", host)));
        headers.push(("authorization", authorization.as_bytes()));
        match edge.on_headers(&snapshot.edge, &headers, true, &env()) {
            Step::Decided(Verdict::Forward(forward)) => Some(forward.admitted),
            Step::Decided(Verdict::Reply(_)) | Step::NeedBody(_) => None,
        }
    })
}
