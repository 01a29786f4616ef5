//! Public documents under `/.well-known/`: protected-resource metadata (RFC 9728), agent cards with the keys that sign them,
//! and the keys of the tokens by which calls authenticate to services.

use std::time::Duration;

use asp_identity::minting::FRESH;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::a2a::card::{self, ReaderCard};
use super::login;
use super::mcp::codec;
use super::public_issuers;
use super::rest::conditions;
use crate::replica::Replica;

const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// Path of the keys below the issuer of those tokens, which is the public URL.
pub const KEYS: &str = "/.well-known/jwks.json";
/// Path of cards for clients of A2A 0.2.
const OLDER_CARD: &str = "/.well-known/agent.json";
/// Time that clients may cache a document other than the keys.
const KEEP: Duration = Duration::from_secs(60);

/// Answers a GET; `None` if there is no such document.
pub async fn serve(gateway: &Replica, snapshot: &Snapshot, parts: &Parts) -> Option<Response> {
    let path = parts.uri.path();
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    let agent = agent(snapshot, parts);
    let (document, keep) = match path {
        // A request that gets no answer must not cause a read of the store.
        KEYS if is_read => (gateway.minter.keys.jwks().await.to_string(), FRESH),
        card::KEYS if is_read => (gateway.card_keys.jwks().await.to_string(), KEEP),
        KEYS | card::KEYS => (String::new(), FRESH),
        _ if agent.is_some() => (String::new(), KEEP),
        _ => (document(gateway, snapshot, path)?, KEEP),
    };
    if !is_read {
        return Some(codec::method_not_allowed("GET, HEAD"));
    }
    if let Some(agent) = agent {
        return agent_card(gateway, snapshot, agent, parts).await;
    }
    let keep = format!("max-age={}", keep.as_secs());
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CACHE_CONTROL, keep)];
    Some((headers, document).into_response())
}

/// Returns the server whose card is at the path of a request; at the root the one of the Host.
fn agent<'s>(snapshot: &'s Snapshot, parts: &Parts) -> Option<&'s VirtualServer> {
    let path = parts.uri.path();
    let place = path.strip_suffix(asp_a2a::card::PATH).or_else(|| path.strip_suffix(OLDER_CARD))?;
    let server = match place.strip_prefix('/') {
        Some(name) => discovered(snapshot, name)?,
        None => {
            let of_uri = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
            let of_header = || parts.headers.get(header::HOST).map(HeaderValue::as_bytes);
            discovered(snapshot, snapshot.edge.agent(of_uri.or_else(of_header))?)?
        }
    };
    Some(server).filter(|server| !server.message.a2a_card.is_empty())
}

/// Returns the agent's card as anybody sees it, or a 304 if the client has it.
async fn agent_card(
    gateway: &Replica,
    snapshot: &Snapshot,
    agent: &VirtualServer,
    parts: &Parts,
) -> Option<Response> {
    let card = ReaderCard::of(gateway, snapshot, agent, None).await?;
    let tag = card.tag();
    let known =
        parts.headers.get(header::IF_NONE_MATCH).and_then(|tags| conditions::tags(tags.to_str().ok()?));
    let keep = format!("public, max-age={}", KEEP.as_secs());
    let headers = [(header::CACHE_CONTROL, keep), (header::ETAG, format!("W/\"{tag}\""))];
    if known.is_some_and(|tags| tags.match_weakly(&tag)) {
        return Some((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let text = card.signed(gateway).text().to_owned();
    Some((headers, [(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn document(gateway: &Replica, snapshot: &Snapshot, path: &str) -> Option<String> {
    let server = match path.strip_prefix(RESOURCE)? {
        "" | "/" => None,
        rest => Some(discovered(snapshot, rest.strip_prefix('/')?.strip_suffix("/mcp")?)?),
    };
    Some(resource_metadata(gateway, snapshot, server).to_string())
}

/// Returns a server whose documents are public.
fn discovered<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s VirtualServer> {
    snapshot.server(name).map(|server| &**server).filter(|server| !server.message.undiscovered)
}

/// Returns the metadata of RFC 9728 section 2. An issuer that is not a URL, such as the development issuer, has no
/// metadata and cannot log anyone in, so it is left out. If no other remains, the optional member
/// `authorization_servers` is absent.
fn resource_metadata(gateway: &Replica, snapshot: &Snapshot, server: Option<&VirtualServer>) -> Value {
    let public_url = &gateway.config.public_url;
    let resource = match server {
        Some(server) => format!("{public_url}/{}/mcp", server.message.name),
        None => public_url.clone(),
    };
    let named = public_issuers::of(snapshot, server);
    let mut issuers: Vec<String> = snapshot
        .issuers
        .iter()
        .filter(|issuer| named.contains(issuer.name.as_str()) && is_url(&issuer.iss))
        .map(|issuer| issuer.iss.clone())
        .collect();
    issuers.dedup();
    if let Some(front) = server.and_then(|server| login::Front::of(public_url, snapshot, server)) {
        // The front replaces its own issuer; other issuers are listed unchanged.
        let upstream = front.upstream();
        issuers =
            [front.issuer()].into_iter().chain(issuers.into_iter().filter(|iss| iss != upstream)).collect();
    }
    let mut metadata = json!({
        "resource": resource,
        "bearer_methods_supported": ["header"],
    });
    if let Some(object) = metadata.as_object_mut()
        && !issuers.is_empty()
    {
        object.insert("authorization_servers".into(), json!(issuers));
    }
    if let (Some(object), Some(server)) = (metadata.as_object_mut(), server) {
        // The scopes that every caller needs. A client requests more when a challenge names the scopes of a primitive
        // (MCP 2025-11-25, "Scope Selection Strategy").
        let scopes = &server.edge.scopes;
        if !scopes.is_empty() {
            object.insert("scopes_supported".into(), json!(scopes));
        }
    }
    metadata
}

fn is_url(iss: &str) -> bool {
    iss.starts_with("https://") || iss.starts_with("http://")
}
