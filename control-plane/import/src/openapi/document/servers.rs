//! The server of a document, and those of operations that are elsewhere.
//!
//! Refuses: servers without a host, unless the document was read from a URL, which they are relative to (OpenAPI 3.1, Server
//! Object). Keeps true: a relative server is at the place that the document came from.

use reqwest::Url;
use serde_json::Value;

use super::{DescribedOperation, OpenApiDocument};

impl OpenApiDocument {
    /// Resolves relative servers against the place that the document was read from, if it is a URL.
    pub(in super::super) fn at(self, place: &str) -> OpenApiDocument {
        let is_plain = |url: &Url| url.username().is_empty() && url.password().is_none();
        let location = Url::parse(place).ok();
        let location = location.filter(|url| matches!(url.scheme(), "http" | "https") && is_plain(url));
        OpenApiDocument { location, ..self }
    }

    /// Returns the URL of the document's first server; `None` if it is not known.
    pub(in super::super) fn server(&self) -> Option<String> {
        match self.root.get("servers").filter(|servers| servers.get(0).is_some()) {
            Some(servers) => self.first_url(servers),
            None => self.absolute_url("/"),
        }
    }

    /// Whether the server is only known from the place that the document was read from.
    pub(in super::super) fn has_relative_server(&self) -> bool {
        let url = self.root.get("servers").and_then(|servers| with_defaults(servers.get(0)?));
        url.is_none_or(|url| !is_absolute(&url))
    }

    /// Returns the server that an operation or its path names, if it is not the document's.
    pub(in super::super) fn other_server(&self, found: &DescribedOperation<'_>) -> Option<String> {
        let servers = found.servers?;
        let url = self.first_url(servers);
        if url.is_some() && url == self.server() {
            return None;
        }
        let written = || Some(servers.get(0)?.get("url")?.as_str()?.to_owned());
        Some(url.or_else(written).unwrap_or_default())
    }

    /// Returns the first server's URL; `None` if it has no host or a variable without a default.
    fn first_url(&self, servers: &Value) -> Option<String> {
        let url = with_defaults(servers.get(0)?).filter(|url| !url.contains(['{', '}']))?;
        self.absolute_url(&url)
    }

    fn absolute_url(&self, url: &str) -> Option<String> {
        if is_absolute(url) {
            return Some(url.trim_end_matches('/').to_owned());
        }
        let location = self.location.as_ref()?;
        let mut whole = location.join(url).ok().filter(|url| url.origin() == location.origin())?;
        whole.set_query(None);
        whole.set_fragment(None);
        Some(whole.as_str().trim_end_matches('/').to_owned())
    }
}

/// Returns a server's URL with the default values of its variables; `None` if one has none.
fn with_defaults(server: &Value) -> Option<String> {
    let mut url = server.get("url")?.as_str()?.trim().to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let default = match variable.get("default")? {
            Value::String(text) => text.clone(),
            // YAML reads a port without quotes so.
            number @ Value::Number(_) => number.to_string(),
            _ => return None,
        };
        url = url.replace(&format!("{{{name}}}"), &default);
    }
    Some(url)
}

fn is_absolute(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}
