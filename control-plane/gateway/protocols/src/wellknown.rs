//! Public documents under `/.well-known/`: protected-resource metadata (RFC 9728), agent cards, and the keys of the
//! tokens by which calls authenticate to services.

use std::collections::HashSet;
use std::time::Duration;

use asp_identity::minting::FRESH;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::login;
use super::mcp::codec;
use crate::replica::Replica;

const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// Path of the keys below the issuer of those tokens, which is the public URL.
pub const KEYS: &str = "/.well-known/jwks.json";
const CARD: &str = "/.well-known/agent-card.json";
/// Time that clients may cache a document other than the keys.
const KEEP: Duration = Duration::from_secs(60);

/// Answers a GET; `path` has no query. `None` if there is no such document.
pub async fn serve(gateway: &Replica, snapshot: &Snapshot, method: &Method, path: &str) -> Option<Response> {
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let (document, keep) = match path {
        // A request that gets no answer must not cause a read of the store.
        KEYS if is_read => (gateway.minter.keys.jwks().await.to_string(), FRESH),
        KEYS => (String::new(), FRESH),
        _ => (document(gateway, snapshot, path)?, KEEP),
    };
    if !is_read {
        return Some(codec::status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let keep = format!("max-age={}", keep.as_secs());
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CACHE_CONTROL, keep)];
    Some((headers, document).into_response())
}

fn document(gateway: &Replica, snapshot: &Snapshot, path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix(RESOURCE) {
        let server = match rest {
            "" | "/" => None,
            rest => Some(discovered(snapshot, rest.strip_prefix('/')?.strip_suffix("/mcp")?)?),
        };
        return Some(resource_metadata(gateway, snapshot, server).to_string());
    }
    let server = path.strip_suffix(CARD)?.strip_prefix('/')?;
    let card = &discovered(snapshot, server)?.message.a2a_card;
    (!card.is_empty()).then(|| card.replace("${public_url}", &gateway.config.public_url))
}

/// Returns a server whose documents are public.
fn discovered<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s VirtualServer> {
    snapshot.server(name).map(|server| &**server).filter(|server| !server.message.undiscovered)
}

/// Returns the metadata of RFC 9728 section 2. An issuer that is not a URL, such as the development issuer, has no
/// metadata and cannot log anyone in, so it is left out. If no other remains, the optional member
/// `authorization_servers` is absent.
///
/// The document of the whole platform names only the issuers of servers that are open to every org: those of the others
/// would reveal who the tenants are.
fn resource_metadata(gateway: &Replica, snapshot: &Snapshot, server: Option<&VirtualServer>) -> Value {
    let public_url = &gateway.config.public_url;
    let resource = match server {
        Some(server) => format!("{public_url}/{}/mcp", server.message.name),
        None => public_url.clone(),
    };
    let is_open = |server: &VirtualServer| server.edge.default_allow && !server.message.undiscovered;
    // One pass over the servers, however many issuers there are.
    let accepted: HashSet<&str> = match server {
        Some(server) => issuers_of(server).collect(),
        None => snapshot
            .servers()
            .filter(|server| is_open(server))
            .flat_map(|server| issuers_of(server))
            .collect(),
    };
    let mut issuers: Vec<String> = snapshot
        .issuers
        .iter()
        .filter(|issuer| accepted.contains(issuer.name.as_str()) && is_url(&issuer.iss))
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

/// Returns the names of the issuers whose tokens a server accepts.
fn issuers_of(server: &VirtualServer) -> impl Iterator<Item = &str> {
    server.edge.issuers.iter().map(String::as_str)
}

fn is_url(iss: &str) -> bool {
    iss.starts_with("https://") || iss.starts_with("http://")
}
