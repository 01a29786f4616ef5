//! The document of an issuer: one form for the operator's file and the admin API.
//!
//! Owns the members and their defaults. Refuses unknown members.

use std::collections::BTreeMap;

use asp_edge::names;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Content of the operator's file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    pub clients: Vec<Document>,
    #[serde(default)]
    pub admins: Vec<Document>,
}

/// An issuer. Without `jwks` and `jwksUri` its keys are found by discovery (OpenID Connect Discovery 1.0, RFC 8414).
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    /// Name by which `auth.issuers` of a `server.yaml` refers to a client issuer. In the admin API it is in the path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Value of the `iss` claim, compared byte by byte.
    pub iss: String,
    /// Its public keys (RFC 7517), if they are not fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<KeySet>,
    /// URL of its keys, if they are not found by discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// Accepted algorithms; by default, for fetched keys, all that the platform knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algs: Vec<String>,
    /// Accepted `typ` headers; `none` stands for a token without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typ: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Audiences of a client issuer that servers may name in `auth.audiences`, by server (a name, `prefix*` or `*`).
    /// `{server}` stands for the server's name. Every server may name the public URL, its own URL and URLs below that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_audiences: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
    /// Values for a token without the claim.
    #[serde(default, skip_serializing_if = "Defaults::is_empty")]
    pub defaults: Defaults,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lifetime_seconds: Option<u64>,
    /// Orgs for which it may issue tokens: names, `prefix*` or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orgs: Vec<String>,
    /// Roles that groups give, by group. For admin issuers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    /// Roles that several claims of a token give together. For admin issuers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Introspection of opaque tokens by gateways. For client issuers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introspection: Option<Introspection>,
    /// Login of clients that are not registered at the issuer. For client issuers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// Token exchange of gateways, for tokens for services on behalf of the caller (RFC 8693). For client issuers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
}

/// A role for every token that has all of these claims with these values.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `platform`, `org:<id>`, `server:<name>` or `installer`, each optionally followed by `:read`; or `auditor`.
    pub role: String,
    /// 1 to 16 names of claims, or JSON Pointers, each with the required text, number or boolean.
    pub claims: BTreeMap<String, String>,
}

/// A key set (RFC 7517 section 5).
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct KeySet {
    #[schema(value_type = Vec<Object>)]
    pub keys: Vec<Value>,
}

/// Names of claims, or JSON Pointers into the token (`/realm_access/roles`); empty for the default.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub org: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub groups: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scopes: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// Claim that gives the role. For admin issuers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        *self == Claims::default()
    }

    pub(super) fn all(&self) -> [(&'static str, &String); 6] {
        [
            ("org", &self.org),
            ("user", &self.user),
            ("groups", &self.groups),
            ("scopes", &self.scopes),
            ("client", &self.client),
            ("role", &self.role),
        ]
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub org: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl Defaults {
    pub(super) fn is_empty(&self) -> bool {
        *self == Defaults::default()
    }
}

/// Token introspection (RFC 7662).
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Introspection {
    /// URL of the endpoint; by default the one found by discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Name of the operator's credential with which gateways authenticate there.
    pub credential: String,
    /// Accepted `aud` values in addition to the server's own; `*` accepts any value, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
}

/// Token exchange (RFC 8693).
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Exchange {
    /// URL of the token endpoint; by default the one found by discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Name of the operator's credential with which gateways authenticate there.
    pub credential: String,
    /// Services for which tokens may be requested, by the issuer's name for them.
    pub audiences: BTreeMap<String, ExchangeAudience>,
}

/// Origins (`scheme://host[:port]`) to which tokens for a service may be sent, and the primitives that get them.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ExchangeAudience {
    /// Former form, without primitives: serves none of them, or all in development.
    Origins(Vec<String>),
    Listed(ListedAudience),
}

/// An audience that names the primitives that get its tokens.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ListedAudience {
    pub origins: Vec<String>,
    /// `server/primitive`, `server/prefix*` or `*`; none if empty.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub primitives: Option<Vec<String>>,
}

impl ExchangeAudience {
    pub fn origins(&self) -> &[String] {
        match self {
            ExchangeAudience::Origins(origins) => origins,
            ExchangeAudience::Listed(listed) => &listed.origins,
        }
    }

    /// Returns the primitives; `None` if the audience does not name them.
    pub fn primitives(&self) -> Option<&[String]> {
        match self {
            ExchangeAudience::Origins(_) => None,
            ExchangeAudience::Listed(listed) => listed.primitives.as_deref(),
        }
    }
}

/// Login of clients through one public client that is registered at the issuer.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Login {
    /// Public client with PKCE. Its redirect URLs are `<public URL>/<server>/oauth/callback` of each server.
    pub client_id: String,
    /// URL of the endpoint; by default the one found by discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint: Option<String>,
    /// URLs to which a client may be redirected: exact, or `prefix*`; `http://127.0.0.1`, `http://localhost` and
    /// `http://[::1]` stand for every port. By default these three with every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<String>,
    /// Scopes that are requested in addition to the client's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether requests to the issuer name the server that a token is for (RFC 8707); some issuers reject that.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub resource: bool,
    /// Whether `scopes` are requested again when a client renews its token without naming any; some issuers reject the
    /// renewal otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scopes_on_refresh: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Source of an issuer's keys and endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The document itself.
    Written,
    Keys(String),
    Discovery(String),
}

impl Document {
    /// Whether a server may accept tokens of this issuer for this audience.
    pub fn allows_audience(&self, server: &str, audience: &str) -> bool {
        let is_listed = |(pattern, list): (&String, &Vec<String>)| {
            names::matches(pattern, server)
                && list.iter().any(|listed| listed.replace("{server}", server) == audience)
        };
        self.audiences.iter().any(|listed| listed == audience) || self.server_audiences.iter().any(is_listed)
    }

    pub fn source(&self) -> KeySource {
        match (&self.jwks, &self.jwks_uri) {
            (Some(_), _) => KeySource::Written,
            (None, Some(uri)) => KeySource::Keys(uri.clone()),
            (None, None) => KeySource::Discovery(self.iss.clone()),
        }
    }
}

impl KeySource {
    /// Returns the URL under which fetched data is stored; `None` if nothing is fetched.
    pub fn url(&self) -> Option<&str> {
        match self {
            KeySource::Written => None,
            KeySource::Keys(url) | KeySource::Discovery(url) => Some(url),
        }
    }
}
