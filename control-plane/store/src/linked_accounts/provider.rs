//! The document of a provider of linked accounts: one form for the admin API, the command line and the gateways.
//!
//! Owns the members, their defaults and their faults. Contains no secret.

use std::collections::BTreeMap;

use asp_platform::operator_list;
use serde::{Deserialize, Serialize};

/// Maximum number of origins, orgs, scopes and parameters, each.
const MAX_ENTRIES: usize = 64;
/// Maximum length of a URL, a name or a value, in bytes.
const MAX_TEXT: usize = 2_048;
/// Maximum life of a link in days.
const MAX_TTL_DAYS: u32 = 366;
/// Least life of an access token that the operator may assume in seconds: each shorter one would be renewed for every call.
const MIN_LIFE_SECONDS: u32 = 60;
/// Parameters of an authorization request that the platform itself sets.
const OWN_PARAMETERS: [&str; 7] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "state",
    "scope",
    "code_challenge",
    "code_challenge_method",
];

/// A service at which users link accounts, and the client that is registered there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LinkProvider {
    /// Name for users, e.g. `GitHub`.
    pub title: String,
    pub client_id: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    /// Revocation of tokens; without it they are only deleted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<Revocation>,
    /// Issuer identifier; an `iss` in its answers must equal it (RFC 9207).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Whether each of its authorization responses must have `iss`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub iss_parameter: bool,
    /// Authentication of the client at the token endpoint.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// Separator of scopes in a request.
    #[serde(default = "space", skip_serializing_if = "is_space")]
    pub scope_separator: String,
    /// Whether requests have a PKCE challenge (RFC 7636).
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub pkce: bool,
    /// Scopes that are requested in addition to those of the specs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Additional parameters of authorization requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Seconds after which a renewable access token is renewed if the provider names no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_life_seconds: Option<u32>,
    /// Origins (`scheme://host[:port]`) to which tokens may be sent.
    pub origins: Vec<String>,
    /// Primitives that may use it: `server/primitive`, `server/prefix*` or `*`; none if empty.
    #[serde(rename = "for", default)]
    pub primitives: Vec<String>,
    /// Orgs whose users may link accounts: names, `prefix*` or `*`; none if empty.
    #[serde(default = "every_org")]
    pub orgs: Vec<String>,
    /// Days after which a link ends and is asked for again.
    #[serde(default = "ninety")]
    pub ttl_days: u32,
}

/// Authentication of a client at the token endpoint (RFC 6749 section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// HTTP Basic.
    #[default]
    Basic,
    /// Parameters of the form.
    Post,
    /// A public client without a secret.
    None,
}

/// Revocation of tokens at a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Revocation {
    /// URL; `{client_id}` stands for the client's id.
    pub endpoint: String,
    #[serde(default)]
    pub style: RevocationStyle,
}

/// Form of a revocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RevocationStyle {
    /// RFC 7009.
    #[default]
    Rfc7009,
    /// `DELETE` with the access token as JSON and the client's Basic authentication (GitHub).
    Delete,
    /// `POST` authenticated by the access token itself (Slack).
    Bearer,
}

fn space() -> String {
    " ".to_owned()
}

fn is_space(text: &str) -> bool {
    text == " "
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_yes(value: &bool) -> bool {
    *value
}

fn every_org() -> Vec<String> {
    vec!["*".to_owned()]
}

fn ninety() -> u32 {
    90
}

impl LinkProvider {
    /// Returns what is wrong with the document; empty if it can be stored. URLs are only checked for their form.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let endpoints = [
            ("authorizationEndpoint", Some(&self.authorization_endpoint)),
            ("tokenEndpoint", Some(&self.token_endpoint)),
            ("revocation.endpoint", self.revocation.as_ref().map(|revocation| &revocation.endpoint)),
            ("issuer", self.issuer.as_ref()),
        ];
        for (name, url) in endpoints {
            if url.is_some_and(|url| !is_url(url)) {
                faults.push(format!("{name}: is not an http(s) URL of at most {MAX_TEXT} bytes"));
            }
        }
        for (name, text) in [("title", &self.title), ("clientId", &self.client_id)] {
            if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
                faults.push(format!("{name}: must have 1 to {MAX_TEXT} bytes without control characters"));
            }
        }
        if self.iss_parameter && self.issuer.is_none() {
            faults.push("issParameter: needs issuer, which the parameter must equal".into());
        }
        if !matches!(self.scope_separator.as_str(), " " | ",") {
            faults.push("scopeSeparator: must be a space or a comma".into());
        }
        if self.origins.is_empty() || !self.origins.iter().all(|origin| is_origin(origin)) {
            faults.push("origins: must be one or more of http(s)://host[:port]".into());
        }
        if !(1..=MAX_TTL_DAYS).contains(&self.ttl_days) {
            faults.push(format!("ttlDays: must be 1 to {MAX_TTL_DAYS}"));
        }
        if self.assumed_life_seconds.is_some_and(|life| life < MIN_LIFE_SECONDS) {
            faults.push(format!("assumedLifeSeconds: must be {MIN_LIFE_SECONDS} or more"));
        }
        faults.extend(operator_list::check(&self.primitives).err());
        faults.extend(self.list_faults());
        faults
    }

    fn list_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let lists = [("origins", &self.origins), ("orgs", &self.orgs), ("scopes", &self.scopes)];
        for (name, list) in lists {
            if list.len() > MAX_ENTRIES {
                faults.push(format!("{name}: has more than {MAX_ENTRIES} entries"));
            }
        }
        if !self.scopes.iter().all(|scope| is_scope(scope)) {
            faults.push("scopes: must be scopes of OAuth (RFC 6749 section 3.3)".into());
        }
        let is_pattern = |org: &String| {
            let name = org.strip_suffix('*').unwrap_or(org);
            org.len() <= MAX_TEXT
                && !org.is_empty()
                && !name.contains('*')
                && !name.chars().any(char::is_control)
        };
        if !self.orgs.iter().all(is_pattern) {
            faults.push("orgs: must be names, prefix* or *".into());
        }
        let is_own = |name: &String| OWN_PARAMETERS.contains(&name.as_str());
        if self.parameters.len() > MAX_ENTRIES || self.parameters.keys().any(is_own) {
            faults.push(format!("parameters: at most {MAX_ENTRIES}, and none that the platform sets"));
        }
        let is_long = |(name, value): (&String, &String)| name.len().max(value.len()) > MAX_TEXT;
        if self.parameters.iter().any(is_long) {
            faults.push(format!("parameters: at most {MAX_TEXT} bytes each"));
        }
        faults
    }

    /// Whether users of an org may link accounts here.
    pub fn serves_org(&self, org: &str) -> bool {
        self.orgs.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => org.starts_with(prefix),
            None => org == pattern,
        })
    }

    /// Whether a primitive of a server may use it.
    pub fn serves(&self, server: &str, primitive: &str) -> bool {
        operator_list::allows(&self.primitives, server, primitive)
    }
}

/// Whether a text is a scope (RFC 6749 section 3.3) without a comma, which some providers separate scopes with.
fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| (0x21..0x7f).contains(&byte) && !matches!(byte, b'"' | b'\\' | b',');
    !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(plain)
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |byte: u8| (0x21..0x7f).contains(&byte) && byte != b'\\';
    text.len() <= MAX_TEXT
        && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(plain))
        && !text.contains('#')
}

fn is_origin(text: &str) -> bool {
    let authority = text.split_once("://").map_or("", |(_, authority)| authority);
    is_url(text) && !authority.contains(['/', '?', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linked_accounts::PRESETS;

    fn provider() -> LinkProvider {
        LinkProvider {
            client_id: "c".into(),
            primitives: vec!["crm/*".into()],
            ..PRESETS[0].document.provider()
        }
    }

    #[test]
    fn each_fault_of_a_document_is_named() {
        type Edit = fn(&mut LinkProvider);
        assert_eq!(provider().faults(), Vec::<String>::new());
        let cases: [(&str, Edit); 18] = [
            ("title", |one| one.title.clear()),
            ("clientId", |one| one.client_id = "a\nb".into()),
            ("authorizationEndpoint", |one| one.authorization_endpoint = "javascript:alert(1)".into()),
            ("authorizationEndpoint", |one| one.authorization_endpoint = "https://a b/".into()),
            ("tokenEndpoint", |one| one.token_endpoint = "https:///x".into()),
            ("tokenEndpoint", |one| one.token_endpoint = format!("https://{}", "x".repeat(MAX_TEXT))),
            ("scopeSeparator", |one| one.scope_separator = ";".into()),
            ("origins", |one| one.origins.clear()),
            ("origins", |one| one.origins = vec!["https://a.example/path".into()]),
            ("origins", |one| one.origins = vec!["https://u@a.example".into()]),
            ("ttlDays", |one| one.ttl_days = 0),
            ("for", |one| one.primitives = vec!["*/x".into()]),
            ("orgs", |one| one.orgs = vec!["a*b".into()]),
            ("parameters", |one| drop(one.parameters.insert("state".into(), "x".into()))),
            ("parameters", |one| drop(one.parameters.insert("a".into(), "x".repeat(MAX_TEXT + 1)))),
            ("assumedLifeSeconds", |one| one.assumed_life_seconds = Some(MIN_LIFE_SECONDS - 1)),
            ("issuer", |one| one.issuer = Some("https://a.example/#x".into())),
            ("issParameter", |one| one.iss_parameter = true),
        ];
        for (name, change) in cases {
            let mut bad = provider();
            change(&mut bad);
            let faults = bad.faults();
            assert!(faults.iter().any(|fault| fault.starts_with(name)), "{name}: {faults:?}");
        }
    }

    #[test]
    fn an_empty_list_means_nobody() {
        let mut one = provider();
        assert!(one.serves("crm", "find") && !one.serves("other", "find") && one.serves_org("acme"));
        one.primitives.clear();
        one.orgs = vec!["ac*".into(), "globex".into()];
        assert!(!one.serves("crm", "find"));
        assert!(one.serves_org("acme") && one.serves_org("globex") && !one.serves_org("globex2"));
        one.orgs.clear();
        assert!(!one.serves_org("acme"));
    }
}
