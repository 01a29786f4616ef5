//! Login of MCP clients that are not registered at the company's issuer: a server acts as an OAuth authorization server
//! in front of its issuer, and admits every client as the one public client registered there.
//!
//! Owns the endpoints below `/<server>/oauth/` and their metadata (RFC 8414). Refuses: client secrets, grants other
//! than a code with PKCE and its refresh, redirects that the operator does not list. Keeps no state: client ids and
//! pending logins are sealed texts. Keeps true: users are sent to the issuer only after they have seen which client
//! asks and where they will be redirected (MCP security best practices, "Confused Deputy"); a login returns only to the
//! browser that began it; the issuer's tokens pass through and are not stored.

mod account;
mod authorize;
mod client;
mod code;
mod link_state;
mod link_texts;
pub mod linking;
mod page;
mod redirect;
pub(crate) mod sign_in;
mod token;

use std::collections::HashMap;

use asp_call::digest::PeerKey;
use asp_call::seal::Purpose;
use asp_proto::snapshot::{Issuer, Login};
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::public_issuers;
use crate::replica::Replica;

const METADATA: &str = "/.well-known/oauth-authorization-server/";
const OPENID: &str = "/.well-known/openid-configuration";

/// A server that acts as the authorization server in front of its issuer.
pub struct Front<'a> {
    public_url: &'a str,
    server: &'a VirtualServer,
    login: &'a Login,
    upstream: &'a Issuer,
}

impl<'a> Front<'a> {
    /// Returns the front of the first of the server's issuers that has a client for it.
    pub fn of(public_url: &'a str, snapshot: &'a Snapshot, server: &'a VirtualServer) -> Option<Front<'a>> {
        let named = public_issuers::of(snapshot, Some(server));
        let mut issuers = server.edge.issuers.iter().filter(|name| named.contains(name.as_str()));
        issuers.find_map(|name| {
            let login = snapshot.access(name)?.login.as_ref()?;
            let upstream = snapshot.issuers.iter().find(|issuer| issuer.name == *name)?;
            Some(Front { public_url, server, login, upstream })
        })
    }

    /// Returns the identifier of this authorization server.
    pub fn issuer(&self) -> String {
        format!("{}/{}/oauth", self.public_url, self.name())
    }

    /// Returns the identifier of the issuer behind this front.
    pub(super) fn upstream(&self) -> &str {
        &self.upstream.iss
    }

    fn name(&self) -> &str {
        &self.server.message.name
    }

    fn callback(&self) -> String {
        format!("{}/callback", self.issuer())
    }

    /// Returns the scopes that every caller needs here and those that every login requests.
    fn scopes(&self) -> Vec<String> {
        let all = self.server.edge.scopes.iter().chain(&self.login.scopes);
        let mut scopes: Vec<String> = all.cloned().collect();
        scopes.sort();
        scopes.dedup();
        scopes
    }

    /// Whether the parameters of an authorization response are those of the issuer behind this front.
    fn has_sent(&self, given: &HashMap<String, String>) -> bool {
        is_from(Some(self.upstream.iss.as_str()), self.login.iss_required, given)
    }

    /// Returns the metadata document (RFC 8414 section 2, RFC 9207 section 3).
    fn metadata(&self) -> Value {
        let issuer = self.issuer();
        let mut metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        });
        let scopes = self.scopes();
        // Clients without another hint request every scope listed here.
        if let (false, Some(metadata)) = (scopes.is_empty(), metadata.as_object_mut()) {
            metadata.insert("scopes_supported".into(), json!(scopes));
        }
        metadata
    }
}

/// One request to an endpoint.
struct LoginRequest<'a> {
    gateway: &'a Replica,
    snapshot: &'a Snapshot,
    front: Front<'a>,
    parts: &'a Parts,
    body: &'a Bytes,
    peer: &'a PeerKey,
}

impl LoginRequest<'_> {
    /// Seals a value for this server; `None` if it is too long.
    fn seal(&self, purpose: Purpose, value: &impl Serialize) -> Option<String> {
        let plain = serde_json::to_vec(value).ok()?;
        self.gateway.sealer.seal(purpose, self.front.name().as_bytes(), &plain).ok()
    }

    /// Opens a value that was sealed for this server.
    fn open<T: DeserializeOwned>(&self, purpose: Purpose, sealed: &str) -> Option<T> {
        let plain = self.gateway.sealer.open(purpose, self.front.name().as_bytes(), sealed)?;
        serde_json::from_slice(&plain).ok()
    }
}

/// Answers requests below a server's `/oauth/` and for its metadata; `None` if the path is neither, or the server has
/// no such front.
pub async fn serve(
    gateway: &Replica,
    snapshot: &Snapshot,
    (parts, body, peer): (&Parts, &Bytes, &PeerKey),
) -> Option<Response> {
    let path = parts.uri.path();
    let (server, endpoint) = place(path)?;
    let server = snapshot.server(server)?;
    let front = Front::of(&gateway.config.public_url, snapshot, server)?;
    let asked = LoginRequest { gateway, snapshot, front, parts, body, peer };
    let logins = &gateway.issuers.logins;
    let charged = match endpoint {
        "metadata" => logins.charge_document(peer),
        _ => logins.charge(peer),
    };
    if let Err(seconds) = charged {
        return Some(too_many(seconds));
    }
    Some(match (endpoint, &parts.method) {
        ("metadata", _) if asked.front.server.message.undiscovered => return None,
        ("metadata", &Method::GET) => answer(StatusCode::OK, &asked.front.metadata()),
        ("register", &Method::POST) => client::register(&asked),
        ("authorize", &Method::GET) => authorize::ask(&asked),
        ("consent", &Method::POST) => authorize::decided(&asked),
        // Boxed, so that the state of every request does not include this one's.
        ("callback", &Method::GET) => match Box::pin(linking::returned(&asked)).await {
            Some(response) => response,
            None => authorize::returned(&asked),
        },
        ("link", &Method::GET) if link_state::is_here(gateway) => linking::ask(&asked),
        ("link", &Method::POST) if link_state::is_here(gateway) => linking::decided(&asked),
        ("token", &Method::POST) => token::exchange(&asked).await,
        ("metadata" | "register" | "authorize" | "consent" | "callback" | "token", _) => {
            error(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", "another method is needed")
        }
        _ => return None,
    })
}

/// Returns the server and the endpoint of a path.
fn place(path: &str) -> Option<(&str, &str)> {
    // Clients look for the metadata of an issuer with a path in three places (RFC 8414 sections 3.1 and 5).
    let inserted = path.strip_prefix(METADATA).or_else(|| path.strip_prefix(OPENID)?.strip_prefix('/'));
    if let Some(issuer) = inserted {
        return Some((issuer.strip_suffix("/oauth")?, "metadata"));
    }
    let (server, rest) = path.strip_prefix('/')?.split_once("/oauth/")?;
    match rest {
        ".well-known/openid-configuration" | ".well-known/oauth-authorization-server" => {
            Some((server, "metadata"))
        }
        endpoint => Some((server, endpoint)),
    }
}

fn answer(status: StatusCode, body: &Value) -> Response {
    // RFC 6749 section 5.1: it is not cached.
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

/// Returns a 429 with `Retry-After` (RFC 6585 section 4).
fn too_many(seconds: u64) -> Response {
    let mut response =
        error(StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable", "too many requests: try again later");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Returns an error response (RFC 6749 section 5.2, RFC 7591 section 3.2.2).
fn error(status: StatusCode, code: &str, description: &str) -> Response {
    answer(status, &json!({ "error": code, "error_description": description }))
}

/// Returns the parameters of a query or a form; `None` if one is given twice (RFC 6749 section 3.1).
pub(crate) fn parameters(encoded: &[u8]) -> Option<HashMap<String, String>> {
    let mut found = HashMap::new();
    for (name, value) in form_urlencoded::parse(encoded) {
        if found.insert(name.into_owned(), value.into_owned()).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Whether an authorization response comes from the issuer that was asked (RFC 9207 section 2.4): `iss` equals its
/// identifier if it is sent, and is sent if that is `required`.
fn is_from(issuer: Option<&str>, required: bool, given: &HashMap<String, String>) -> bool {
    match (issuer, given.get("iss")) {
        (Some(issuer), Some(iss)) => iss == issuer,
        (None, Some(_)) | (_, None) => !required,
    }
}

/// Returns the parameters of the form in a request's body; `None` if the body is not a form.
fn form(asked: &LoginRequest<'_>) -> Option<HashMap<String, String>> {
    form_in(asked.parts, asked.body)
}

fn form_in(parts: &Parts, body: &Bytes) -> Option<HashMap<String, String>> {
    let kind = parts.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let is_form = kind.split(';').next()?.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded");
    if is_form { parameters(body) } else { None }
}

#[cfg(test)]
mod tests {
    use super::{is_from, parameters, place};

    #[test]
    fn metadata_is_where_clients_look_for_it() {
        for path in [
            "/.well-known/oauth-authorization-server/demo/oauth",
            "/.well-known/openid-configuration/demo/oauth",
            "/demo/oauth/.well-known/openid-configuration",
        ] {
            assert_eq!(place(path), Some(("demo", "metadata")), "{path}");
        }
        assert_eq!(place("/demo/oauth/token"), Some(("demo", "token")));
        assert_eq!(place("/.well-known/oauth-authorization-server/demo"), None);
        assert_eq!(place("/.well-known/oauth-protected-resource/demo/mcp"), None);
    }

    #[test]
    fn a_response_is_from_the_issuer_that_was_asked_or_names_none_if_none_is_required() {
        const ISSUER: &str = "https://login.example.com";
        for (issuer, required, query, expected) in [
            (Some(ISSUER), false, "code=c", true),
            (Some(ISSUER), false, "code=c&iss=https://login.example.com", true),
            (Some(ISSUER), true, "code=c&iss=https%3A%2F%2Flogin.example.com", true),
            (None, false, "code=c", true),
            (None, false, "code=c&iss=https://login.example.com", true),
            (Some(ISSUER), true, "code=c", false),
            (Some(ISSUER), true, "error=access_denied", false),
            (Some(ISSUER), true, "code=c&iss", false),
            (Some(ISSUER), true, "code=c&iss=", false),
            (Some(ISSUER), false, "code=c&iss=", false),
            (Some(ISSUER), true, "code=c&ISS=https://login.example.com", false),
            (Some(ISSUER), true, "code=c&iss=https://login.example.com/", false),
            (Some(ISSUER), true, "code=c&iss=https://LOGIN.example.com", false),
            (Some(ISSUER), true, "code=c&iss=http://login.example.com", false),
            (Some(ISSUER), true, "code=c&iss=https://login.example.com.evil.example", false),
            (Some(ISSUER), false, "code=c&iss=https://evil.example", false),
            (None, true, "code=c&iss=https://login.example.com", false),
            (None, true, "code=c", false),
        ] {
            let given = parameters(query.as_bytes()).unwrap();
            assert_eq!(is_from(issuer, required, &given), expected, "{issuer:?} {required} {query}");
        }
        assert!(parameters(b"iss=https://login.example.com&iss=https://evil.example").is_none());
    }

    #[test]
    fn a_parameter_that_is_given_twice_is_no_parameter() {
        assert_eq!(parameters(b"a=1&b=%20x").unwrap()["b"], " x");
        assert!(parameters(b"a=1&a=2").is_none());
    }
}
