//! Fetches an issuer's discovery document and key set.
//!
//! Keeps true: only https to public addresses, or an origin that the operator lists; redirects are not followed; a
//! response is read up to [`MAX_BODY`] and within [`WITHIN`]; a discovery document counts only for the issuer that it
//! names, which must be the requested one (OpenID Connect Discovery 1.0 section 4.3, RFC 8414 section 3.3).

use std::time::Duration;

use asp_outbound::{Outbound, body};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::document::{KeySet, KeySource};
use super::metadata::IssuerMetadata;

/// Largest document, in bytes.
const MAX_BODY: usize = 256 * 1024;
/// Timeout for all documents of an issuer.
const WITHIN: Duration = Duration::from_secs(10);
/// Maximum length of a URL in a discovery document, in bytes.
const MAX_URL: usize = 2_048;

/// Client for the documents of issuers.
pub struct Fetcher {
    outbound: Outbound,
    /// Origins that may be plain http or private.
    origins: Vec<String>,
}

/// Members of a discovery document that are used.
#[derive(Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    introspection_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    #[serde(
        default,
        rename = "authorization_response_iss_parameter_supported",
        deserialize_with = "is_true"
    )]
    iss_parameter: bool,
}

/// Endpoints that a provider of linked accounts names.
#[derive(Deserialize)]
pub struct ProviderEndpoints {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub revocation_endpoint: Option<String>,
    /// Whether its authorization responses name it (RFC 9207 section 3).
    #[serde(
        default,
        rename = "authorization_response_iss_parameter_supported",
        deserialize_with = "is_true"
    )]
    pub iss_parameter: bool,
}

/// Reads a member that counts only if it is `true`: one of another type makes no issuer unusable.
fn is_true<'de, D: Deserializer<'de>>(member: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(member)? == true)
}

impl Discovery {
    /// Combines the document with the keys from its `jwks_uri`.
    pub(super) fn with_keys(self, jwks: KeySet) -> IssuerMetadata {
        IssuerMetadata {
            jwks,
            introspection_endpoint: self.introspection_endpoint,
            authorization_endpoint: self.authorization_endpoint,
            token_endpoint: self.token_endpoint,
            device_authorization_endpoint: self.device_authorization_endpoint,
            iss_parameter: self.iss_parameter,
        }
    }
}

impl Fetcher {
    pub fn new(origins: Vec<String>) -> Result<Fetcher, asp_outbound::OutboundError> {
        Ok(Fetcher { outbound: Outbound::with_silence(WITHIN)?, origins })
    }

    /// Checks that a URL may be fetched; the error says why not.
    pub fn may_reach(&self, url: &str) -> Result<(), String> {
        match self.outbound.of_origins(url, &self.origins) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "{url}: {error}; it must be https at a public address, or its origin be listed in ASP_ISSUER_ORIGINS"
            )),
        }
    }

    /// Fetches the issuer's documents in their stored form; the error tells the operator what is wrong.
    pub(super) async fn fetch(&self, source: &KeySource) -> Result<IssuerMetadata, String> {
        let work = async {
            match source {
                KeySource::Written => Ok(IssuerMetadata::default()),
                KeySource::Keys(url) => {
                    Ok(IssuerMetadata { jwks: self.key_set(url).await?, ..IssuerMetadata::default() })
                }
                KeySource::Discovery(iss) => self.discover(iss).await,
            }
        };
        let late = || format!("it did not answer within {} s", WITHIN.as_secs());
        tokio::time::timeout(WITHIN, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// Fetches the endpoints of a provider of linked accounts; the error tells the operator what is wrong.
    pub async fn endpoints(&self, iss: &str) -> Result<ProviderEndpoints, String> {
        let work = async {
            let mut first = String::new();
            for url in locations(iss) {
                let found = match self.get::<ProviderEndpoints>(&url).await {
                    Ok(found) => found,
                    Err(fault) => {
                        first = if first.is_empty() { fault } else { first };
                        continue;
                    }
                };
                if found.issuer != iss {
                    return Err(format!(
                        "{url}: its issuer is {:?}, not {iss:?}",
                        escape_for_log(&found.issuer)
                    ));
                }
                let named = [Some(&found.token_endpoint), found.revocation_endpoint.as_ref()];
                let fault = named.into_iter().flatten().find_map(|named| self.may_name(iss, named).err());
                return match fault {
                    Some(fault) => Err(format!("{url}: it names {fault}")),
                    None => Ok(found),
                };
            }
            Err(first)
        };
        let late = || format!("it did not answer within {} s", WITHIN.as_secs());
        tokio::time::timeout(WITHIN, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn discover(&self, iss: &str) -> Result<IssuerMetadata, String> {
        let mut first = String::new();
        for url in locations(iss) {
            let found = match self.get::<Discovery>(&url).await {
                Ok(found) => found,
                Err(fault) => {
                    first = if first.is_empty() { fault } else { first };
                    continue;
                }
            };
            if found.issuer != iss {
                return Err(format!("{url}: its issuer is {:?}, not {iss:?}", escape_for_log(&found.issuer)));
            }
            let asked =
                [&found.token_endpoint, &found.introspection_endpoint, &found.device_authorization_endpoint];
            let asked = asked.into_iter().flatten().chain([&found.jwks_uri]);
            if let Some(fault) = asked.filter_map(|named| self.may_name(iss, named).err()).next() {
                return Err(format!("{url}: it names {fault}"));
            }
            if found.authorization_endpoint.as_ref().is_some_and(|url| url.len() > MAX_URL) {
                return Err(format!("{url}: it names a URL of more than {MAX_URL} bytes"));
            }
            let jwks = self.key_set(&found.jwks_uri).await?;
            return Ok(found.with_keys(jwks));
        }
        Err(first)
    }

    /// Checks that an issuer may name `url` as an endpoint: a public address or, among the listed origins, only its
    /// own.
    fn may_name(&self, iss: &str, url: &str) -> Result<(), String> {
        if url.len() > MAX_URL {
            return Err(format!("a URL of more than {MAX_URL} bytes"));
        }
        let own: Vec<String> = self.origins.iter().filter(|origin| is_below(iss, origin)).cloned().collect();
        self.outbound
            .of_origins(url, &own)
            .map(drop)
            .map_err(|error| format!("{}: {error}", escape_for_log(url)))
    }

    async fn key_set(&self, url: &str) -> Result<KeySet, String> {
        let set: KeySet = self.get(url).await?;
        match set.keys.is_empty() {
            true => Err(format!("{}: it has no keys", escape_for_log(url))),
            false => Ok(set),
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let at = |fault: &dyn std::fmt::Display| format!("{}: {fault}", escape_for_log(url));
        self.may_reach(url)?;
        let destination = self.outbound.of_origins(url, &self.origins).map_err(|error| at(&error))?;
        let request = destination.client.get(destination.url).header("accept", "application/json");
        let response = request.send().await.map_err(|error| at(&cause(&error)))?;
        if response.status() != 200 {
            return Err(at(&format!("it answers with status {}", response.status().as_u16())));
        }
        let body = body(response, MAX_BODY).await.map_err(|fault| at(&fault))?;
        serde_json::from_slice(&body).map_err(|error| at(&format!("it has an invalid form: {error}")))
    }
}

/// Whether a URL has this origin.
fn is_below(url: &str, origin: &str) -> bool {
    let of = |text: &str| reqwest::Url::parse(text).map(|url| url.origin()).ok();
    of(url).is_some() && of(url) == of(origin)
}

/// Returns the possible URLs of an issuer's metadata: OpenID Connect Discovery 1.0 section 4, RFC 8414 section 3.1.
fn locations(iss: &str) -> Vec<String> {
    let base = iss.trim_end_matches('/');
    let mut urls = vec![format!("{base}/.well-known/openid-configuration")];
    if let Some((scheme, rest)) = base.split_once("://") {
        let (authority, path) = rest
            .split_once('/')
            .map_or((rest, String::new()), |(authority, path)| (authority, format!("/{path}")));
        urls.push(format!("{scheme}://{authority}/.well-known/oauth-authorization-server{path}"));
    }
    urls
}

/// Shortens and escapes a foreign text for a log line.
fn escape_for_log(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

/// Returns the innermost cause: the outer ones only say that a request failed.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::locations;

    #[test]
    fn metadata_is_looked_for_where_both_standards_put_it() {
        assert_eq!(
            locations("https://login.example.com/realms/acme"),
            [
                "https://login.example.com/realms/acme/.well-known/openid-configuration",
                "https://login.example.com/.well-known/oauth-authorization-server/realms/acme"
            ]
        );
        assert_eq!(
            locations("https://login.example.com/"),
            [
                "https://login.example.com/.well-known/openid-configuration",
                "https://login.example.com/.well-known/oauth-authorization-server"
            ]
        );
    }
}
