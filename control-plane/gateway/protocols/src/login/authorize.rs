//! The authorization endpoint (RFC 6749 section 4.1.1, with PKCE): asks for consent, then redirects the user to the
//! issuer; and the redirect back from there, with which the client gets the code or the error (section 4.1.2).

use std::collections::HashMap;

use asp_call::clock::unix_seconds;
use asp_call::seal::Purpose;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::client::RegisteredClient;
use super::{Front, LoginRequest, code, form, page, parameters, redirect};

/// Time limit for a login, here and at the issuer, in seconds.
const LIFE: u64 = 900;
/// Longest `state` and `scope` of a client, in bytes.
const MAX_STATE: usize = 2_048;
/// Length of a SHA-256 digest in base64url (RFC 7636 section 4.2).
const CHALLENGE: usize = 43;

/// A pending login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ticket {
    #[serde(rename = "r")]
    pub(super) redirect: String,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    #[serde(rename = "c")]
    pub(super) challenge: String,
    /// Hash of the client's id.
    #[serde(rename = "u")]
    pub(super) client: String,
    #[serde(rename = "p")]
    scope: String,
    /// Content of the cookie in the browser that began the login.
    #[serde(rename = "b")]
    browser: String,
    #[serde(rename = "e")]
    expires: u64,
    /// Whether the user has agreed.
    #[serde(rename = "a", default)]
    pub(super) agreed: bool,
}

impl Ticket {
    /// Opens a ticket that has not expired, in the browser that began it.
    pub(super) fn open(asked: &LoginRequest<'_>, sealed: &str) -> Option<Ticket> {
        let ticket: Ticket = asked.open(Purpose::Login, sealed)?;
        let browser = cookie(asked)?;
        (ticket.expires > unix_seconds() && ticket.browser == browser).then_some(ticket)
    }

    /// Redirects to the client with these parameters, its state and this issuer (RFC 9207).
    pub(super) fn back(&self, asked: &LoginRequest<'_>, answer: &[(&str, &str)]) -> Response {
        let Ok(mut url) = Url::parse(&self.redirect) else {
            return page::refusal("The client's address is not valid.");
        };
        {
            let mut query = url.query_pairs_mut();
            for (name, value) in answer {
                query.append_pair(name, value);
            }
            if let Some(state) = &self.state {
                query.append_pair("state", state);
            }
            query.append_pair("iss", &asked.front.issuer());
        }
        go_to(url.as_str())
    }
}

/// Size of the random value that identifies a browser, in bytes.
const BROWSER: usize = 16;

/// Returns the cookie's name. With TLS, its prefix keeps other hosts from setting it (RFC 6265bis section 4.1.3.2).
pub(super) fn cookie_name(asked: &LoginRequest<'_>) -> String {
    let prefix = if is_secure(asked) { "__Host-" } else { "" };
    format!("{prefix}asp-login-{}", asked.front.name())
}

pub(super) fn is_secure(asked: &LoginRequest<'_>) -> bool {
    asked.front.public_url.starts_with("https:")
}

/// Returns the cookie set here; `None` if there are two, as either may be forged.
pub(super) fn cookie<'a>(asked: &'a LoginRequest<'_>) -> Option<&'a str> {
    let value = named_cookie(asked.parts, &cookie_name(asked))?;
    let is_ours = URL_SAFE_NO_PAD.decode(value).is_ok_and(|bytes| bytes.len() == BROWSER);
    is_ours.then_some(value)
}

/// Returns the value of the one cookie of this name.
pub(super) fn named_cookie<'a>(parts: &'a Parts, wanted: &str) -> Option<&'a str> {
    let values = parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
    own.next().filter(|_| own.next().is_none())
}

/// Returns the value that identifies the browser of a request, and the header that sets its cookie for `life` seconds.
pub(super) fn browser(asked: &LoginRequest<'_>, life: u64) -> (String, Option<HeaderValue>) {
    // Concurrent logins of one browser share its cookie and have a ticket each.
    let value = cookie(asked).map_or_else(new_browser, str::to_owned);
    let secure = if is_secure(asked) { "; Secure" } else { "" };
    let name = cookie_name(asked);
    let cookie = format!("{name}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Lax{secure}");
    (value, HeaderValue::from_str(&cookie).ok())
}

fn new_browser() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; BROWSER]>())
}

/// Returns a redirect that the browser follows with GET and that is never cached.
pub(super) fn go_to(url: &str) -> Response {
    let Ok(location) = HeaderValue::from_str(url) else { return page::refusal("The address is not valid.") };
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::REFERRER_POLICY, "no-referrer")];
    (StatusCode::SEE_OTHER, headers, [(header::LOCATION, location)]).into_response()
}

/// Asks the user to let the client in.
pub(super) fn ask(asked: &LoginRequest<'_>) -> Response {
    let query = asked.parts.uri.query().unwrap_or_default();
    let Some(given) = parameters(query.as_bytes()) else {
        return page::refusal("A parameter is given twice.");
    };
    let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    // Nothing is redirected until client and redirect are known to belong together (RFC 6749 section 4.1.2.1).
    let Some(client) = asked.open::<RegisteredClient>(Purpose::Client, text("client_id")) else {
        return page::refusal("The client is not registered at this server: register it again.");
    };
    let redirect = match (text("redirect_uri"), client.redirects.as_slice()) {
        ("", [only]) => only.as_str(),
        (given, registered) if registered.iter().any(|own| redirect::is_registered(own, given)) => given,
        _ => return page::refusal("The client has not registered this redirect address."),
    };
    if !redirect::is_listed(&asked.front.login.redirects, redirect) {
        return page::refusal("This server does not allow the client's redirect address.");
    }
    let (browser, set_cookie) = browser(asked, LIFE);
    let ticket = Ticket {
        redirect: redirect.to_owned(),
        state: given.get("state").cloned(),
        challenge: text("code_challenge").to_owned(),
        client: code::hash(text("client_id")),
        scope: scope(asked, text("scope")),
        browser,
        expires: unix_seconds() + LIFE,
        agreed: false,
    };
    if let Some((code, description)) = fault(&given, &ticket) {
        return ticket.back(asked, &[("error", code), ("error_description", description)]);
    }
    let Some(sealed) = asked.seal(Purpose::Login, &ticket) else {
        return page::refusal("The request is too long.");
    };
    let mut response = page::consent(&page::Consent {
        client: &client.name,
        server: asked.front.name(),
        title: &asked.front.server.message.title,
        redirect,
        scope: &ticket.scope,
        ticket: &sealed,
    });
    if let Some(cookie) = set_cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Returns the client's scopes and those of every login, without duplicates.
fn scope(asked: &LoginRequest<'_>, wanted: &str) -> String {
    let mut scopes: Vec<&str> = wanted.split_ascii_whitespace().collect();
    scopes.extend(asked.front.login.scopes.iter().map(String::as_str));
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(*scope));
    scopes.join(" ")
}

/// Returns the error for a request of anything other than a code with PKCE.
fn fault(given: &HashMap<String, String>, ticket: &Ticket) -> Option<(&'static str, &'static str)> {
    let is = |name: &str, value: &str| given.get(name).is_some_and(|given| given == value);
    let is_challenge = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !is("response_type", "code") {
        return Some(("unsupported_response_type", "response_type must be code"));
    }
    if !is("code_challenge_method", "S256")
        || ticket.challenge.len() != CHALLENGE
        || !ticket.challenge.bytes().all(is_challenge)
    {
        return Some(("invalid_request", "a code_challenge of method S256 is needed"));
    }
    if ticket.state.as_ref().is_some_and(|state| state.len() > MAX_STATE) || ticket.scope.len() > MAX_STATE {
        return Some(("invalid_request", "state or scope is too long"));
    }
    None
}

/// Handles the user's decision.
pub(super) fn decided(asked: &LoginRequest<'_>) -> Response {
    // Another site's page cannot decide for the user: its Origin differs, and it does not know the ticket.
    let origin = asked.parts.headers.get(header::ORIGIN);
    if origin.is_some_and(|origin| origin.as_bytes() != asked.front.public_url.as_bytes()) {
        return page::refusal("The decision comes from another page.");
    }
    let given = form(asked).unwrap_or_default();
    let ticket = given.get("ticket").and_then(|sealed| Ticket::open(asked, sealed));
    let Some(ticket) = ticket else {
        return page::refusal("The login took too long or was started in another browser: start it again.");
    };
    if given.get("decision").map(String::as_str) != Some("allow") {
        return ticket
            .back(asked, &[("error", "access_denied"), ("error_description", "the user has declined")]);
    }
    to_issuer(asked, &ticket)
}

/// Redirects the user of a page of the platform to the issuer, without asking for consent: no client gets anything.
/// `challenge` is that of the page's verifier, `client` the hash of its client id.
pub(super) fn begin_for_page(
    asked: &LoginRequest<'_>,
    (redirect, state): (&str, String),
    challenge: String,
    client: String,
) -> Response {
    let (browser, set_cookie) = browser(asked, LIFE);
    let ticket = Ticket {
        redirect: redirect.to_owned(),
        state: Some(state),
        challenge,
        client,
        scope: asked.front.scopes().join(" "),
        browser,
        expires: unix_seconds() + LIFE,
        agreed: true,
    };
    let mut response = to_issuer(asked, &ticket);
    if let Some(cookie) = set_cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Redirects the user, who has agreed, to the issuer.
fn to_issuer(asked: &LoginRequest<'_>, ticket: &Ticket) -> Response {
    let Some(state) = asked.seal(Purpose::Login, &Ticket { agreed: true, ..ticket.clone() }) else {
        return page::refusal("The request is too long.");
    };
    match at_issuer(&asked.front, &state, &ticket.challenge, &ticket.scope) {
        Some(url) => go_to(url.as_str()),
        None => page::refusal("The issuer's address is not valid: inform the operator of this server."),
    }
}

/// Returns the address of the issuer's login for a request with PKCE; `None` if the issuer's endpoint is not a URL.
pub(super) fn at_issuer(front: &Front<'_>, state: &str, challenge: &str, scope: &str) -> Option<Url> {
    let mut url = Url::parse(&front.login.authorization_endpoint).ok()?;
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &front.login.client_id)
        .append_pair("redirect_uri", &front.callback())
        .append_pair("state", state)
        .append_pair("code_challenge", challenge)
        .append_pair("code_challenge_method", "S256");
    if !front.login.without_resource {
        let resource = format!("{}/{}/mcp", front.public_url, front.name());
        url.query_pairs_mut().append_pair("resource", &resource);
    }
    if !scope.is_empty() {
        url.query_pairs_mut().append_pair("scope", scope);
    }
    Some(url)
}

/// Longest code, in bytes.
const MAX_CODE: usize = 4_096;

pub(super) fn returned(asked: &LoginRequest<'_>) -> Response {
    let given = parameters(asked.parts.uri.query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let ticket = given.get("state").and_then(|sealed| Ticket::open(asked, sealed));
    let Some(ticket) = ticket.filter(|ticket| ticket.agreed) else {
        return page::refusal("The login took too long or was started in another browser: start it again.");
    };
    // An answer from another issuer does not belong to this request (RFC 9207 section 2.4).
    if !asked.front.has_sent(&given) {
        return page::refusal("The answer is from a different issuer than the one that was asked.");
    }
    if let Some(error) = given.get("error") {
        let plain =
            |text: &str| text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect();
        let code: String = plain(error);
        let description: String =
            plain(given.get("error_description").map(String::as_str).unwrap_or_default());
        return ticket.back(asked, &[("error", &code), ("error_description", &description)]);
    }
    let of_issuer = given.get("code").filter(|code| code.len() <= MAX_CODE);
    let begun = (ticket.client.as_str(), ticket.challenge.as_str(), ticket.redirect.as_str());
    match of_issuer.and_then(|of_issuer| code::seal(asked, of_issuer, begun)) {
        Some(code) => ticket.back(asked, &[("code", &code)]),
        None => {
            ticket.back(asked, &[("error", "server_error"), ("error_description", "the issuer sent no code")])
        }
    }
}
