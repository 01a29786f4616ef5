//! Pages on which a person approves a call: `/approvals/<address>`, where the address is sealed.
//!
//! Owns the pages, and the login of an approver at the issuer of the request's server. Refuses: a decision by GET, from
//! another page or by a program's token. Keeps no state: address, login and session are sealed texts, and a session is for
//! one request and for what its token proved. Keeps true: only somebody who may decide sees a request, or decides
//! (the store refuses others); a session ends with its token and with a revocation; the arguments are shown without secrets.

mod address;
pub mod notices;
mod page;
mod session;

use asp_call::clock::unix_seconds;
use asp_call::digest::PeerKey;
use asp_edge::{Caller, MACHINE_ISSUER};
use asp_pipeline::pipeline::approvals::{
    Approval, ApprovalDecision, ApprovalId, ApprovalState, Approver, MAX_REASON, check_approver,
};
use asp_snapshot::Snapshot;
use axum::body::Bytes;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};

use crate::login::sign_in::{self, PageRequest};
use crate::replica::Replica;
use session::{ApproverSession, PendingLogin};

/// Path below which the pages are.
const PATH: &str = "/approvals/";
/// Last segment of the address to which a login returns.
const CALLBACK: &str = "callback";
/// Longest code of a login in bytes.
const MAX_CODE: usize = 8 * 1024;

/// A request to one of the pages.
struct ApprovalPage<'a> {
    gateway: &'a Replica,
    snapshot: &'a Snapshot,
    parts: &'a Parts,
    body: &'a Bytes,
    peer: &'a PeerKey,
}

/// Answers requests below `/approvals/`; `None` for any other path, and if there are no approvals.
pub async fn serve(
    gateway: &Replica,
    snapshot: &Snapshot,
    (parts, body, peer): (&Parts, &Bytes, &PeerKey),
) -> Option<Response> {
    // A server of this name has paths below its own.
    let segment = parts.uri.path().strip_prefix(PATH).filter(|segment| !segment.contains('/'))?;
    gateway.pipeline.approvals().store()?;
    if let Err(seconds) = gateway.issuers.logins.charge(peer) {
        return Some(too_many(seconds));
    }
    let asked = ApprovalPage { gateway, snapshot, parts, body, peer };
    Some(match (segment, &parts.method) {
        (CALLBACK, &Method::GET) => asked.complete_login().await,
        (sealed, &Method::GET | &Method::HEAD) => asked.show(sealed).await,
        (sealed, &Method::POST) if sealed != CALLBACK => asked.decide(sealed).await,
        _ => page::refusal(StatusCode::METHOD_NOT_ALLOWED, "This page is read, or its form is sent."),
    })
}

/// Returns the address of the page of a request; `None` if it cannot be sealed.
pub(crate) fn address_of(gateway: &Replica, id: ApprovalId, expires_ms: i64) -> Option<String> {
    let sealed = address::seal(&gateway.sealer, id, expires_ms)?;
    Some(format!("{}{PATH}{sealed}", gateway.config.public_url))
}

fn too_many(seconds: u64) -> Response {
    let mut response =
        page::refusal(StatusCode::TOO_MANY_REQUESTS, "There are too many requests: try again later.");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

impl ApprovalPage<'_> {
    /// Shows a request to an approver; anybody else logs in first.
    async fn show(&self, sealed: &str) -> Response {
        let approval = match self.find(sealed).await {
            Ok(approval) => approval,
            Err(refusal) => return *refusal,
        };
        let Some(session) = self.session(&approval) else { return self.log_in(sealed, &approval) };
        if let Err(refusal) = self.check(&approval, &session.caller) {
            return *refusal;
        }
        if approval.state != ApprovalState::Pending {
            return page::ended(&approval);
        }
        match session.form(&self.gateway.sealer) {
            Some(ticket) => page::request(&approval, &session.caller, &ticket),
            None => page::refusal(StatusCode::INTERNAL_SERVER_ERROR, "The form cannot be made: try again."),
        }
    }

    /// Stores the decision of the form.
    async fn decide(&self, sealed: &str) -> Response {
        let approval = match self.find(sealed).await {
            Ok(approval) => approval,
            Err(refusal) => return *refusal,
        };
        // Another site's page cannot decide: its Origin differs, it has no cookie, and it does not know the ticket.
        let origin = self.parts.headers.get(header::ORIGIN);
        if origin.is_some_and(|origin| origin.as_bytes() != self.gateway.config.public_url.as_bytes()) {
            return page::refusal(StatusCode::FORBIDDEN, "The decision comes from another page.");
        }
        let Some(session) = self.session(&approval) else { return self.log_in(sealed, &approval) };
        let given = self.form().unwrap_or_default();
        let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
        if !session.is_own_form(&self.gateway.sealer, text("ticket")) {
            return page::refusal(StatusCode::FORBIDDEN, "The form is not valid: open the page again.");
        }
        if let Err(refusal) = self.check(&approval, &session.caller) {
            return *refusal;
        }
        let approved = match text("decision") {
            "approve" => true,
            "deny" => false,
            _ => return page::refusal(StatusCode::BAD_REQUEST, "The form has no decision."),
        };
        let reason: String = text("reason").chars().filter(|char| !char.is_control()).collect();
        if reason.len() > MAX_REASON {
            return page::refusal(StatusCode::BAD_REQUEST, "The reason is too long.");
        }
        let Caller { user, issuer, org, .. } = &session.caller;
        let decision = ApprovalDecision { approved, by: format!("{issuer}:{user}@{org}"), reason };
        match self.gateway.pipeline.decide_approval(&approval.request, &decision).await {
            Ok(true) => page::decided(&approval, approved),
            Ok(false) => page::refusal(
                StatusCode::CONFLICT,
                "The request is not open any more: it was decided, used or withdrawn, or has expired.",
            ),
            Err(error) => unavailable(&error.to_string()),
        }
    }

    /// Completes a login, and returns to the page that began it.
    async fn complete_login(&self) -> Response {
        let invalid = || {
            let words = "The login took too long or was started in another browser: open the page again.";
            page::refusal(StatusCode::BAD_REQUEST, words)
        };
        let query = self.parts.uri.query().unwrap_or_default();
        let given = crate::login::parameters(query.as_bytes()).unwrap_or_default();
        let text = |name: &str| given.get(name).map(String::as_str);
        let pending = text("state").and_then(|sealed| PendingLogin::open(&self.gateway.sealer, sealed));
        let Some(pending) =
            pending.filter(|pending| self.cookie(session::LOGIN) == Some(pending.browser.as_str()))
        else {
            return invalid();
        };
        if text("error").is_some() {
            return page::refusal(StatusCode::FORBIDDEN, "The issuer has refused the login.");
        }
        let Some(code) = text("code").filter(|code| code.len() <= MAX_CODE) else { return invalid() };
        let Some(server) = self.snapshot.server(&pending.server) else { return invalid() };
        let page = self.page_request(server);
        let callback = self.callback();
        // Boxed, so that the state of every request does not include this one's.
        let ended = Box::pin(sign_in::end_for_page(&page, &callback, code, &pending.verifier)).await;
        let caller = match ended {
            Ok(caller) => caller,
            Err(words) => return page::refusal(StatusCode::FORBIDDEN, words),
        };
        let Some(cookie) = ApproverSession::cookie(&self.gateway.sealer, &pending, &caller) else {
            return invalid();
        };
        let mut response = redirect(&format!("{PATH}{}", pending.address));
        self.set_cookie(&mut response, session::SESSION, &cookie, session::LIFE);
        self.set_cookie(&mut response, session::LOGIN, "", 0);
        response
    }

    /// Sends the user to the issuer of the request's server.
    fn log_in(&self, sealed: &str, approval: &Approval) -> Response {
        if self.parts.method == Method::HEAD {
            return page::refusal(StatusCode::UNAUTHORIZED, "The page needs a login.");
        }
        let pending = PendingLogin::new(sealed, &approval.request);
        let server = self.snapshot.server(&approval.request.scope.server);
        let begun = server.zip(pending.seal(&self.gateway.sealer)).and_then(|(server, state)| {
            sign_in::begin_for_page(&self.page_request(server), &self.callback(), state, &pending.verifier)
        });
        let Some(mut response) = begun else {
            let words = "The issuer of this server has no login for persons: decide with asp approvals.";
            return page::refusal(StatusCode::FORBIDDEN, words);
        };
        self.set_cookie(&mut response, session::LOGIN, &pending.browser, session::LOGIN_LIFE);
        response
    }

    /// Finds the request of an address.
    async fn find(&self, sealed: &str) -> Result<Approval, Box<Response>> {
        let unknown = || {
            let words = "The address is not valid, or has expired.";
            Box::new(page::refusal(StatusCode::NOT_FOUND, words))
        };
        let id = address::open(&self.gateway.sealer, sealed).ok_or_else(unknown)?;
        let found = self.gateway.pipeline.find_approval(id).await;
        found.map_err(|error| Box::new(unavailable(&error.to_string())))?.ok_or_else(unknown)
    }

    /// Returns the session of this browser for a request, if its token is still valid.
    fn session(&self, approval: &Approval) -> Option<ApproverSession> {
        let session = ApproverSession::open(&self.gateway.sealer, self.cookie(session::SESSION)?)?;
        let is_valid = session.approval == approval.request.id
            && session.caller.expires_at > unix_seconds()
            && !self.snapshot.revoked(&session.caller);
        is_valid.then_some(session)
    }

    /// Refuses somebody who may not decide.
    fn check(&self, approval: &Approval, caller: &Caller) -> Result<(), Box<Response>> {
        let issuer = self.snapshot.issuers.iter().find(|issuer| issuer.name == caller.issuer);
        let iss = issuer.map(|issuer| issuer.iss.clone());
        let is_of_client = !caller.client.is_empty() && caller.client == caller.user;
        let approver = Approver {
            org: caller.org.clone(),
            names: vec![caller.user.clone()],
            iss: iss.unwrap_or_default(),
            groups: caller.groups.clone(),
            is_machine: caller.issuer == MACHINE_ISSUER || is_of_client,
        };
        check_approver(&approval.request, &approver).map_err(|why| {
            let words = format!("You may not decide: {why}.");
            Box::new(page::refusal(StatusCode::FORBIDDEN, &words))
        })
    }

    fn page_request<'b>(&'b self, server: &'b asp_snapshot::VirtualServer) -> PageRequest<'b> {
        PageRequest {
            gateway: self.gateway,
            snapshot: self.snapshot,
            server,
            parts: self.parts,
            peer: self.peer,
        }
    }

    fn callback(&self) -> String {
        format!("{}{PATH}{CALLBACK}", self.gateway.config.public_url)
    }

    fn form(&self) -> Option<std::collections::HashMap<String, String>> {
        let kind = self.parts.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next()?.trim();
        let is_form = kind.eq_ignore_ascii_case("application/x-www-form-urlencoded");
        if is_form { crate::login::parameters(self.body) } else { None }
    }

    fn is_secure(&self) -> bool {
        self.gateway.config.public_url.starts_with("https:")
    }

    /// Returns the name of a cookie. With TLS, its prefix keeps other hosts from setting it (RFC 6265bis section 4.1.3.2).
    fn cookie_name(&self, name: &str) -> String {
        let prefix = if self.is_secure() { "__Host-" } else { "" };
        format!("{prefix}{name}")
    }

    /// Returns a cookie; `None` if there are two, as either may be forged.
    fn cookie(&self, name: &str) -> Option<&str> {
        let wanted = self.cookie_name(name);
        let values =
            self.parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut own = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
        own.next().filter(|value| !value.is_empty() && own.next().is_none())
    }

    fn set_cookie(&self, response: &mut Response, name: &str, value: &str, life: u64) {
        let secure = if self.is_secure() { "; Secure" } else { "" };
        let name = self.cookie_name(name);
        let cookie = format!("{name}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Lax{secure}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
}

/// Returns a random value for an address or a cookie.
fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

fn unavailable(error: &str) -> Response {
    tracing::warn!(%error, "page of an approval cannot be shown: check the store");
    page::refusal(StatusCode::SERVICE_UNAVAILABLE, "Approvals cannot be read or decided at the moment.")
}

/// Returns a redirect within the platform that is never cached.
fn redirect(path: &str) -> Response {
    let mut response = page::refusal(StatusCode::SEE_OTHER, "Continue.");
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests;
