//! Clients that register themselves (RFC 7591): their id is their metadata, sealed.

use asp_call::clock::unix_seconds;
use asp_call::seal::Purpose;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{LoginRequest, answer, error, redirect};

/// Maximum number of redirects of one client.
const MAX_REDIRECTS: usize = 10;
/// Longest name, in characters.
const MAX_NAME: usize = 100;
/// Longest id, in bytes: it travels in URLs.
const MAX_ID: usize = 4_096;

/// Metadata that a client registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisteredClient {
    #[serde(rename = "n")]
    pub(super) name: String,
    #[serde(rename = "r")]
    pub(super) redirects: Vec<String>,
}

/// The members that matter here; others are ignored (RFC 7591 section 2).
#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    redirect_uris: Vec<String>,
    #[serde(default)]
    client_name: String,
    token_endpoint_auth_method: Option<String>,
}

/// Answers a registration.
pub(super) fn register(asked: &LoginRequest<'_>) -> Response {
    let refuse = |code, description| error(StatusCode::BAD_REQUEST, code, description);
    let Ok(request) = serde_json::from_slice::<Request>(asked.body) else {
        return refuse("invalid_client_metadata", "the body is not a JSON object with client metadata");
    };
    if request.token_endpoint_auth_method.is_some_and(|method| method != "none") {
        // RFC 7591 section 3.2.1: the server may register other values than those requested.
        tracing::debug!("client asked for a secret and is registered without one");
    }
    let mut redirects = request.redirect_uris;
    if redirects.is_empty() || redirects.len() > MAX_REDIRECTS {
        return refuse("invalid_redirect_uri", "redirect_uris must have 1 to 10 entries");
    }
    // RFC 7591 section 3.2.1: the answer lists the redirects that were registered.
    let first = redirects.first().cloned().unwrap_or_default();
    redirects.retain(|uri| redirect::is_listed(&asked.front.login.redirects, uri));
    if redirects.is_empty() {
        let bad = first;
        tracing::warn!(
            server = asked.front.name(), redirect = %bad.chars().take(200).collect::<String>(),
            "client registration refused: none of its redirects is listed in `login.redirects` of the issuer; add it there if it is legitimate"
        );
        return refuse("invalid_redirect_uri", "the operator allows none of the redirects");
    }
    let name: String = request.client_name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    let client = RegisteredClient { name, redirects };
    let Some(id) = asked.seal(Purpose::Client, &client).filter(|id| id.len() <= MAX_ID) else {
        return refuse("invalid_client_metadata", "the metadata is too long");
    };
    let registered: Value = json!({
        "client_id": id,
        "client_id_issued_at": unix_seconds(),
        "client_name": client.name,
        "redirect_uris": client.redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    answer(StatusCode::CREATED, &registered)
}
