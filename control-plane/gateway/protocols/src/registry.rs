//! Publicly listed servers, for clients whose users pick one: the read-only part of the MCP registry API v0.1
//! (modelcontextprotocol/registry, OpenAPI of 2025-12-01; `docs/clients.md`).
//!
//! Keeps true: a server is listed only if it speaks MCP and is exposed to every org by default; each has one version,
//! the one being served; pages are bounded.

use std::net::IpAddr;
use std::sync::Arc;

use asp_call::clock::rfc3339;
use asp_platform::time::from_rfc3339;
use asp_proto::snapshot::Protocol;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri, header};
use reqwest::Url;
use serde_json::{Value, json};

use super::mcp::codec;
use crate::replica::Replica;

const ROOT: &str = "/v0.1/";
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";
const DEFAULT_LIMIT: usize = 30;
const MAX_LIMIT: usize = 100;
/// Maximum length of a title or description in a `server.json`, in characters.
const MAX_TEXT: usize = 100;

/// Answers a request below `/v0.1/`; `None` for other paths, and if the operator has not enabled the registry.
pub fn serve(gateway: &Replica, snapshot: &Snapshot, method: &Method, uri: &Uri) -> Option<Response> {
    let path = uri.path().strip_prefix(ROOT).filter(|_| gateway.config.registry)?;
    if *method != Method::GET && *method != Method::HEAD {
        return Some(codec::status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let registry = Registry { namespace: namespace(&gateway.config.public_url), gateway, snapshot };
    let (status, body) = match registry.answer(path, uri) {
        Ok(body) => (StatusCode::OK, body),
        Err((status, error)) => (status, json!({"error": error})),
    };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "max-age=60")];
    Some((status, headers, body.to_string()).into_response())
}

/// The filters of a list.
#[derive(Default)]
struct Query {
    limit: Option<usize>,
    /// Name of the last server on the previous page.
    after: Option<String>,
    /// Search text in lower case.
    search: Option<String>,
    version: Option<String>,
    /// Time of the earliest update, in Unix milliseconds.
    updated_since: Option<i128>,
}

type RegistryError = (StatusCode, String);

fn invalid(error: String) -> RegistryError {
    (StatusCode::BAD_REQUEST, error)
}

impl Query {
    /// Reads the query. Unknown parameters are ignored; if one is repeated, the last one counts.
    fn read(uri: &Uri) -> Result<Query, RegistryError> {
        let mut query = Query::default();
        // Only the query of this URL is read.
        let url = Url::parse(&format!("http://registry/?{}", uri.query().unwrap_or_default()));
        let url = url.map_err(|_| invalid("the query cannot be read".into()))?;
        for (name, value) in url.query_pairs().filter(|(_, value)| !value.is_empty()) {
            match &*name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    let error = || invalid(format!("limit must be a number from 1 to {MAX_LIMIT}"));
                    query.limit = Some(limit.ok_or_else(error)?);
                }
                "cursor" => query.after = Some(value.into_owned()),
                "search" => query.search = Some(value.to_lowercase()),
                "version" => query.version = Some(value.into_owned()),
                "updated_since" => {
                    let error = || invalid("updated_since must be a time in RFC 3339 format".into());
                    query.updated_since = Some(from_rfc3339(&value).ok_or_else(error)?);
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

struct Registry<'a> {
    namespace: String,
    gateway: &'a Replica,
    snapshot: &'a Snapshot,
}

impl Registry<'_> {
    fn answer(&self, path: &str, uri: &Uri) -> Result<Value, RegistryError> {
        if path == "servers" {
            return Ok(self.list(&Query::read(uri)?));
        }
        let not_found = || (StatusCode::NOT_FOUND, "Server not found".to_owned());
        // The edge lets only these escapes through.
        let path = path.replace("%2F", "/").replace("%2f", "/").replace("%2B", "+").replace("%2b", "+");
        let path = path.strip_prefix("servers/").and_then(|path| path.strip_prefix(&self.namespace));
        let (name, rest) =
            path.and_then(|path| path.strip_prefix('/')?.split_once('/')).ok_or_else(not_found)?;
        let server = self.snapshot.server(name).filter(|server| self.lists(server)).ok_or_else(not_found)?;
        match rest.strip_prefix("versions").ok_or_else(not_found)? {
            "" => Ok(json!({"servers": [self.entry(server)], "metadata": {"count": 1}})),
            version => {
                let version = version.strip_prefix('/').ok_or_else(not_found)?;
                if has_version(server, version) { Ok(self.entry(server)) } else { Err(not_found()) }
            }
        }
    }

    fn list(&self, query: &Query) -> Value {
        let mut servers: Vec<&Arc<VirtualServer>> = self
            .snapshot
            .servers()
            .filter(|server| self.lists(server) && self.matches(server, query))
            .collect();
        servers.sort_unstable_by(|one, other| one.message.name.cmp(&other.message.name));
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
        let has_more = servers.len() > limit;
        servers.truncate(limit);
        let mut metadata = json!({"count": servers.len()});
        if let (true, Some(last), Some(metadata)) = (has_more, servers.last(), metadata.as_object_mut()) {
            metadata.insert("nextCursor".into(), last.message.name.as_str().into());
        }
        let servers: Vec<Value> = servers.iter().map(|server| self.entry(server)).collect();
        json!({"servers": servers, "metadata": metadata})
    }

    /// Whether anyone may know the server. The one that stands for all others is none of them.
    fn lists(&self, server: &VirtualServer) -> bool {
        is_listed(server) && !self.snapshot.edge.is_all_servers(&server.message.name)
    }

    fn matches(&self, server: &VirtualServer, query: &Query) -> bool {
        let message = &server.message;
        query.after.as_ref().is_none_or(|last| message.name > *last)
            && query.search.as_ref().is_none_or(|part| self.name(server).to_lowercase().contains(part))
            && query.version.as_ref().is_none_or(|version| has_version(server, version))
            && query.updated_since.is_none_or(|since| i128::from(message.updated_unix_ms) >= since)
    }

    fn name(&self, server: &VirtualServer) -> String {
        format!("{}/{}", self.namespace, server.message.name)
    }

    /// Returns a `ServerResponse` of the API.
    fn entry(&self, server: &VirtualServer) -> Value {
        let message = &server.message;
        let description = if message.description.is_empty() { &message.title } else { &message.description };
        let description = if description.is_empty() { &message.name } else { description };
        let mut detail = json!({
            "$schema": SCHEMA,
            "name": self.name(server),
            "description": shortened(description),
            "version": message.version,
            "remotes": [{
                "type": "streamable-http",
                "url": format!("{}/{}/mcp", self.gateway.config.public_url, message.name),
            }],
        });
        if let Some(detail) = detail.as_object_mut().filter(|_| !message.title.is_empty()) {
            detail.insert("title".into(), shortened(&message.title).into());
        }
        let mut official = json!({"status": "active", "isLatest": true});
        if let Some(official) = official.as_object_mut().filter(|_| message.updated_unix_ms > 0) {
            official.insert("updatedAt".into(), rfc3339(message.updated_unix_ms).into());
        }
        json!({"server": detail, "_meta": {"io.modelcontextprotocol.registry/official": official}})
    }
}

/// Whether a server is in the list.
pub(crate) fn is_listed(server: &VirtualServer) -> bool {
    server.edge.default_allow
        && !server.message.undiscovered
        && server.edge.protocols().any(|protocol| protocol == Protocol::Mcp)
}

fn has_version(server: &VirtualServer, version: &str) -> bool {
    version == "latest" || version == server.message.version
}

/// Returns the host reversed, as names in registries begin. An IP address keeps its order, without the characters that
/// such names may not contain.
fn namespace(public_url: &str) -> String {
    let url = Url::parse(public_url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or("localhost").trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(_) => host.replace(':', "-"),
        Err(_) => host.trim_end_matches('.').rsplit('.').collect::<Vec<_>>().join("."),
    }
}

/// Shortens a text to the length allowed in a `server.json`.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT - 1) {
        Some((end, _)) if text.chars().count() > MAX_TEXT => format!("{}…", text[..end].trim_end()),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_host_in_reverse() {
        for (url, expected) in [
            ("https://mcp.example.com", "com.example.mcp"),
            ("https://mcp.example.com.:8443", "com.example.mcp"),
            ("http://localhost:8080", "localhost"),
            ("http://127.0.0.1:8080", "127.0.0.1"),
            ("http://[::1]:8080", "--1"),
        ] {
            assert_eq!(namespace(url), expected);
        }
    }

    #[test]
    fn texts_are_as_long_as_a_server_json_may_have_them() {
        assert_eq!(shortened(&"ü".repeat(100)), "ü".repeat(100));
        assert_eq!(shortened(&"ü".repeat(101)), format!("{}…", "ü".repeat(99)));
        assert_eq!(shortened(""), "");
    }

    #[test]
    fn a_query_is_read_leniently_but_for_what_it_means() {
        let read = |query: &str| Query::read(&format!("/v0.1/servers?{query}").parse().unwrap());
        let query = read(
            "limit=1&limit=100&search=D%45mo&version=&other=x&updated_since=1970-01-01T01:00:01%2B01:00",
        );
        let query = query.ok().unwrap();
        assert_eq!((query.limit, query.search.as_deref()), (Some(100), Some("demo")));
        assert_eq!((query.version, query.updated_since), (None, Some(1000)));
        for bad in [
            "limit=0",
            "limit=101",
            "limit=x",
            "updated_since=yesterday",
            "updated_since=2026-02-30T00:00:00Z",
        ] {
            assert!(read(bad).is_err_and(|(status, _)| status == StatusCode::BAD_REQUEST), "{bad}");
        }
    }
}
