//! Pages on which users link accounts at other services, and see and remove their links.
//!
//! Owns: `/<server>/oauth/link`, `/account` and what is below it, and the returns from issuer and provider that belong to them.
//! Refuses: a link for anyone but the user who called, whoever got the address of the page. Keeps true: the browser is signed
//! in at the issuer of the server, and its user compared with the caller, before it is sent to a provider; each return is bound
//! to the browser that began, and a provider's return is used once; all states are sealed, and redirect URLs are fixed. The
//! issuer's tokens are only evaluated, and not stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_call::clock::unix_seconds;
use asp_edge::Caller;
use asp_identity::linked::{KnownProvider, LinkReason, LinkTicket, LinkedTokens, NewLink, NoLink};
use asp_pipeline::pipeline::Pipeline;
use asp_pipeline::pipeline::links::LinkFact;
use asp_platform::secret::Secret;
use asp_snapshot::Snapshot;
use axum::response::Response;
use http::{Method, StatusCode, header};
use reqwest::Url;

use super::authorize::{browser, cookie, go_to};
use super::link_state::{
    Consent, LIFE, LinkState, PublicRequest, is_from_here, is_here, links, open, seal, verifier,
};
use super::link_texts as texts;
use super::{Front, LoginRequest, account, code, form, is_from, parameters, sign_in, too_many};
use crate::replica::Replica;

/// Longest code of an issuer or a provider, in bytes.
const MAX_CODE: usize = 4_096;

/// Opens the ticket of a linking page that has not expired.
fn ticket(asked: &LoginRequest<'_>, sealed: &str) -> Option<LinkTicket> {
    let ticket: LinkTicket = open(asked.gateway, asked.front.name(), sealed)?;
    (ticket.server == asked.front.name() && !ticket.has_expired()).then_some(ticket)
}

/// Shows what is to be linked, before anything leaves the platform.
pub(super) fn ask(asked: &LoginRequest<'_>) -> Response {
    let given = parameters(asked.parts.uri.query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let Some((sealed, ticket)) =
        given.get("ticket").and_then(|sealed| Some((sealed, ticket(asked, sealed)?)))
    else {
        return texts::refusal(texts::EXPIRED);
    };
    let (_, set_cookie) = browser(asked, LIFE);
    let mut response = texts::ask(asked.front.name(), &ticket, sealed);
    if let Some(cookie) = set_cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Sends the user who wants to link an account to the issuer.
pub(super) fn decided(asked: &LoginRequest<'_>) -> Response {
    if !is_from_here(&asked.gateway.config.public_url, asked.parts) {
        return texts::refusal(texts::FOREIGN);
    }
    let given = form(asked).unwrap_or_default();
    let ticket = given.get("ticket").and_then(|sealed| ticket(asked, sealed));
    let (Some(ticket), Some(browser)) = (ticket, cookie(asked)) else {
        return texts::refusal(texts::EXPIRED);
    };
    sign_in::begin(asked, Some(ticket), browser.to_owned())
}

/// Handles the return from the issuer; `None` if it belongs to the login of a client.
pub(super) async fn returned(asked: &LoginRequest<'_>) -> Option<Response> {
    let links = links(asked.gateway)?;
    let given = parameters(asked.parts.uri.query()?.as_bytes())?;
    let state: LinkState = open(asked.gateway, asked.front.name(), given.get("state")?)?;
    let LinkState::SignIn(state) = state else { return None };
    if state.expires <= unix_seconds() || cookie(asked) != Some(state.browser.as_str()) {
        return Some(texts::refusal(texts::EXPIRED));
    }
    if !asked.front.has_sent(&given) {
        return Some(texts::refusal(texts::OTHER_ISSUER));
    }
    let Some(code) = given.get("code").filter(|code| code.len() <= MAX_CODE) else {
        return Some(texts::refusal(texts::NOT_SIGNED_IN));
    };
    let caller = match sign_in::end(asked, code, &state.verifier).await {
        Ok(caller) => caller,
        Err(why) => return Some(texts::refusal(why)),
    };
    Some(match state.ticket {
        None => account::open_session(asked, &caller),
        Some(ticket) if !is_user(&ticket, &caller) => {
            tracing::info!(
                server = asked.front.name(),
                org = ticket.org,
                "linked account refused: another user signed in than the one who called"
            );
            record(
                &asked.gateway.pipeline,
                &ticket,
                Some(&LinkRefusal::rejected("other_user", texts::OTHER_USER)),
            )
            .await;
            texts::page(StatusCode::FORBIDDEN, texts::OTHER_USER)
        }
        Some(ticket) => consent(asked, links, ticket, state.browser).await,
    })
}

fn is_user(ticket: &LinkTicket, caller: &Caller) -> bool {
    ticket.org == caller.org && ticket.issuer == caller.issuer && ticket.user == caller.user
}

/// Sends the user to the provider.
async fn consent(
    asked: &LoginRequest<'_>,
    links: &LinkedTokens,
    ticket: LinkTicket,
    browser: String,
) -> Response {
    let found = links.provider(&ticket.provider).await;
    let requested = links.scopes_to_request(&ticket).await;
    let (known, scopes) = match (found, requested) {
        (Ok(known), Ok(scopes)) => (known, scopes),
        (Err(fault), _) | (_, Err(fault)) => return texts::refusal(failed(&ticket, &fault)),
    };
    let provider = &known.document;
    if !provider.serves_org(&ticket.org) {
        record(&asked.gateway.pipeline, &ticket, Some(&LinkRefusal::rejected("denied", texts::NOT_ALLOWED)))
            .await;
        return texts::refusal(texts::NOT_ALLOWED);
    }
    let Ok(mut url) = Url::parse(&provider.authorization_endpoint) else {
        return texts::refusal(texts::FAILED);
    };
    let verifier = verifier();
    let challenge = code::hash(&verifier);
    let id = rand::random();
    let expires = unix_seconds() + LIFE;
    let state = Consent { ticket, scopes: scopes.clone(), verifier, browser, id, expires };
    let Some(state) = seal(asked.gateway, "", &LinkState::Consent(state)) else {
        return texts::refusal(texts::FAILED);
    };
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &provider.client_id)
            .append_pair("redirect_uri", &links.redirect())
            .append_pair("state", &state);
        if provider.pkce {
            query.append_pair("code_challenge", &challenge).append_pair("code_challenge_method", "S256");
        }
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes.join(provider.scope_separator.as_str()));
        }
        for (name, value) in &provider.parameters {
            query.append_pair(name, value);
        }
    }
    go_to(url.as_str())
}

/// Logs why a link failed and returns the text for its user.
fn failed(ticket: &LinkTicket, fault: &NoLink) -> &'static str {
    match fault {
        NoLink::Missing(LinkReason::Rejected) => texts::REJECTED,
        NoLink::UnknownProvider(_) => texts::NOT_ALLOWED,
        NoLink::NotStored(_) => {
            tracing::warn!(provider = ticket.provider, org = ticket.org, %fault, "account could not be linked");
            texts::NOT_STORED
        }
        _ => {
            tracing::warn!(provider = ticket.provider, org = ticket.org, %fault, "account could not be linked");
            texts::FAILED
        }
    }
}

/// Returns the user of a ticket who signed in at this time (Unix seconds), for a look at the revocations since.
fn signed_in(ticket: &LinkTicket, at: u64) -> Caller {
    Caller {
        org: ticket.org.clone(),
        user: ticket.user.clone(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: String::new(),
        digest: [0; 32],
        issuer: ticket.issuer.clone(),
        issued_at: at,
        expires_at: ticket.expires,
    }
}

/// The reason why an account was not linked.
struct LinkRefusal {
    /// Outcome and reason in the audit.
    outcome: &'static str,
    reason: &'static str,
    /// Text for the user.
    text: &'static str,
}

impl LinkRefusal {
    fn rejected(reason: &'static str, text: &'static str) -> LinkRefusal {
        LinkRefusal { outcome: "rejected", reason, text }
    }

    fn of(ticket: &LinkTicket, fault: &NoLink) -> LinkRefusal {
        let text = failed(ticket, fault);
        match fault {
            NoLink::Missing(_) => LinkRefusal::rejected("provider_rejected", text),
            NoLink::UnknownProvider(_)
            | NoLink::NotServed { .. }
            | NoLink::Org { .. }
            | NoLink::Origin { .. }
            | NoLink::NoPerson => LinkRefusal::rejected("denied", text),
            NoLink::NotStored(_) => LinkRefusal { outcome: "failed", reason: "not_stored", text },
            NoLink::NotHere | NoLink::Vault(_) | NoLink::Unavailable(_) => {
                LinkRefusal { outcome: "failed", reason: "unavailable", text }
            }
        }
    }
}

/// Records that the user of a ticket has linked the account, or why not.
async fn record(pipeline: &Pipeline, ticket: &LinkTicket, refused: Option<&LinkRefusal>) {
    let (outcome, reason) = refused.map_or(("completed", "ok"), |refused| (refused.outcome, refused.reason));
    let fact = LinkFact {
        event: "link.add",
        org: &ticket.org,
        user: &ticket.user,
        issuer: &ticket.issuer,
        provider: &ticket.provider,
        server: &ticket.server,
        primitive: &ticket.primitive,
        outcome,
        reason,
    };
    pipeline.record_link(&fact).await;
}

/// Handles the return from a provider.
async fn linked(gateway: &Replica, snapshot: &Snapshot, (parts, body, peer): PublicRequest<'_>) -> Response {
    let given = parameters(parts.uri.query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let state = given.get("state").and_then(|sealed| open::<LinkState>(gateway, "", sealed));
    let (Some(LinkState::Consent(state)), Some(links)) = (state, links(gateway)) else {
        return texts::refusal(texts::EXPIRED);
    };
    let server = snapshot.server(&state.ticket.server);
    let front = server.and_then(|server| Front::of(&gateway.config.public_url, snapshot, server));
    let Some(front) = front else { return texts::refusal(texts::EXPIRED) };
    let asked = LoginRequest { gateway, snapshot, front, parts, body, peer };
    if state.expires <= unix_seconds() || cookie(&asked) != Some(state.browser.as_str()) {
        return texts::refusal(texts::EXPIRED);
    }
    let ticket = state.ticket.clone();
    match links.use_state(state.id, Duration::from_secs(LIFE)).await {
        Ok(true) => {}
        Ok(false) => return texts::refusal(texts::EXPIRED),
        Err(fault) => return texts::refusal(failed(&ticket, &fault)),
    }
    let known = match links.provider(&ticket.provider).await {
        Ok(known) => known,
        Err(fault) => return texts::refusal(failed(&ticket, &fault)),
    };
    let done = match checked(&asked, &known, (state, &given)) {
        Ok(new) => link(Arc::clone(&gateway.pipeline), Arc::clone(links), new).await,
        Err(refused) => {
            record(&gateway.pipeline, &ticket, Some(&refused)).await;
            Err(refused)
        }
    };
    match done {
        Ok(()) => {
            tracing::info!(provider = ticket.provider, org = ticket.org, "account linked");
            texts::linked(&known.document.title)
        }
        Err(refused) => texts::refusal(refused.text),
    }
}

/// Returns the link to make from a provider's response, whose state was used for the first time.
fn checked(
    asked: &LoginRequest<'_>,
    known: &KnownProvider,
    (state, given): (Consent, &HashMap<String, String>),
) -> Result<NewLink, LinkRefusal> {
    let Consent { ticket, scopes, verifier, expires, .. } = state;
    // RFC 9207 section 2.4.
    let provider = &known.document;
    if !is_from(provider.issuer.as_deref(), provider.iss_parameter, given) {
        return Err(LinkRefusal::rejected("other_issuer", texts::OTHER_ISSUER));
    }
    let code = given.get("code").filter(|code| code.len() <= MAX_CODE);
    let code = code.ok_or_else(|| LinkRefusal::rejected("no_consent", texts::NO_CONSENT))?;
    if asked.snapshot.revoked(&signed_in(&ticket, expires.saturating_sub(LIFE))) {
        return Err(LinkRefusal::rejected("revoked", texts::NO_ACCESS));
    }
    let code = Secret::from(code.as_str());
    Ok(NewLink { ticket, scopes, code, verifier: verifier.into() })
}

/// Links an account and records that, in a task of its own: if the browser leaves, the account is linked nevertheless.
async fn link(pipeline: Arc<Pipeline>, links: Arc<LinkedTokens>, new: NewLink) -> Result<(), LinkRefusal> {
    let linking = tokio::spawn(async move {
        let ticket = new.ticket.clone();
        let done = links.link(new).await.map_err(|fault| LinkRefusal::of(&ticket, &fault));
        record(&pipeline, &ticket, done.as_ref().err()).await;
        done
    });
    let lost = |_| Err(LinkRefusal { outcome: "failed", reason: "unavailable", text: texts::FAILED });
    linking.await.unwrap_or_else(lost)
}

/// Answers requests to `/account` and below; `None` if the path is neither, or this gateway has no linked accounts.
pub async fn serve_account(
    gateway: &Replica,
    snapshot: &Snapshot,
    request: PublicRequest<'_>,
) -> Option<Response> {
    let (parts, _, peer) = request;
    let page = parts.uri.path().strip_prefix("/account").filter(|_| is_here(gateway))?;
    if !matches!(page, "" | "/callback" | "/sign-in" | "/remove") {
        return None;
    }
    if let Err(seconds) = gateway.issuers.logins.charge(peer) {
        return Some(too_many(seconds));
    }
    Some(match (page, &parts.method) {
        ("", &Method::GET) => account::show(gateway, snapshot, parts).await,
        ("/callback", &Method::GET) => linked(gateway, snapshot, request).await,
        ("/sign-in", &Method::POST) => account::sign_in(gateway, snapshot, request),
        ("/remove", &Method::POST) => account::remove(gateway, snapshot, request).await,
        _ => texts::page(StatusCode::METHOD_NOT_ALLOWED, texts::EXPIRED),
    })
}

#[cfg(test)]
mod tests {
    use super::super::link_state::IssuerVisit;
    use super::*;

    fn ticket() -> LinkTicket {
        LinkTicket {
            provider: "github".into(),
            scopes: vec!["repo".into()],
            org: "acme".into(),
            issuer: "dev".into(),
            user: "alice".into(),
            server: "demo".into(),
            primitive: "find".into(),
            expires: 1,
            bound: String::new(),
            until: 0,
        }
    }

    #[test]
    fn only_the_user_who_called_links_an_account() {
        let caller = Caller {
            org: "acme".into(),
            user: "alice".into(),
            groups: Vec::new(),
            scopes: Vec::new(),
            client: "cli".into(),
            wcit: "t".into(),
            digest: [0; 32],
            issuer: "dev".into(),
            issued_at: 0,
            expires_at: 1,
        };
        assert!(is_user(&ticket(), &caller));
        for other in [
            Caller { org: "globex".into(), ..caller.clone() },
            Caller { user: "bob".into(), ..caller.clone() },
            Caller { issuer: "other".into(), ..caller.clone() },
        ] {
            assert!(!is_user(&ticket(), &other), "{other:?}");
        }
    }

    #[test]
    fn a_ticket_is_no_state_and_a_state_no_ticket() {
        let text = serde_json::to_string(&ticket()).unwrap();
        assert!(serde_json::from_str::<LinkState>(&text).is_err());
        let state = LinkState::SignIn(IssuerVisit {
            ticket: Some(ticket()),
            verifier: verifier(),
            browser: "b".into(),
            expires: 1,
        });
        let text = serde_json::to_string(&state).unwrap();
        assert!(serde_json::from_str::<LinkTicket>(&text).is_err());
        assert!(matches!(serde_json::from_str(&text).unwrap(), LinkState::SignIn(_)));
    }
}
