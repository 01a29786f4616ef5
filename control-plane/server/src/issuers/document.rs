//! What is said of an issuer, in the operator's file and by the admin API: one form for both.
//!
//! Owns the members and their defaults. Refuses members that are not here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::patterns;

/// An issuer. Without `jwks` and `jwksUri` its keys are found by discovery (OpenID Connect Discovery 1.0, RFC 8414).
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    /// What `auth.issuers` of a `server.yaml` calls a client issuer. In the admin API the path says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The `iss` claim, compared byte by byte.
    pub iss: String,
    /// Its public keys (RFC 7517), where they are not fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<KeySet>,
    /// Where its keys are fetched, where discovery is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// Accepted algorithms; of fetched keys all that the platform knows, where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algs: Vec<String>,
    /// Accepted `typ` headers; `none` stands for a token without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub typ: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Audiences of a client issuer that servers may name in `auth.audiences`, by server (a name, `prefix*` or `*`). `{server}` stands for
    /// the server's name. Every server may name the public URL, its own URL and what is below.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_audiences: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
    /// What a token without the claim gets.
    #[serde(default, skip_serializing_if = "Defaults::is_empty")]
    pub defaults: Defaults,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lifetime_seconds: Option<u64>,
    /// The orgs it speaks for: names, `prefix*` or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orgs: Vec<String>,
    /// Of an admin issuer: the role that a group gives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    /// Roles that several claims of a token give together. For admin issuers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Of a client issuer: how gateways ask about opaque tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introspection: Option<Introspection>,
    /// Of a client issuer: how clients log in that are not registered there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// Of a client issuer: how gateways ask for tokens for services, on behalf of whoever calls (RFC 8693).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
}

/// A role for every token that has all of these claims with these values.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `platform`, `org:<id>`, `server:<name>` or `installer`, each with `:read` behind it or not.
    pub role: String,
    /// 1 to 16 names of claims, or JSON Pointers, each with the text, number or boolean that it must be.
    pub claims: BTreeMap<String, String>,
}

/// A key set (RFC 7517 section 5).
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct KeySet {
    #[schema(value_type = Vec<Object>)]
    pub keys: Vec<Value>,
}

/// Names of claims, or JSON Pointers into the token (`/realm_access/roles`); empty: the default.
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
    /// Of an admin issuer.
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

/// RFC 7662.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Introspection {
    /// What discovery says, where nothing is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The name of the operator's credential by which gateways prove themselves there.
    pub credential: String,
    /// Accepted `aud` values beside the server's own; `*`: whatever it says, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
}

/// RFC 8693.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Exchange {
    /// What discovery says is the token endpoint, where nothing is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The name of the operator's credential by which gateways prove themselves there.
    pub credential: String,
    /// The services for which tokens may be asked, as the issuer names them.
    pub audiences: BTreeMap<String, ExchangeAudience>,
}

/// The origins (`scheme://host[:port]`) that tokens for a service may be sent to, and the primitives that get them.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ExchangeAudience {
    /// The former form. It serves nobody, or in development everybody.
    Origins(Vec<String>),
    Listed(ListedAudience),
}

/// An audience that says which primitives get its tokens.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ListedAudience {
    pub origins: Vec<String>,
    /// `server/primitive`, `server/prefix*` or `*`; empty: nobody.
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

    /// `None`: it does not say.
    pub fn primitives(&self) -> Option<&[String]> {
        match self {
            ExchangeAudience::Origins(_) => None,
            ExchangeAudience::Listed(listed) => listed.primitives.as_deref(),
        }
    }
}

/// Login of clients as one public client that is registered at the issuer.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Login {
    /// The public client, with PKCE, whose redirect is `<public URL>/<server>/oauth/callback` of each server.
    pub client_id: String,
    /// What discovery says, where nothing is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint: Option<String>,
    /// Where a client may be sent back: exact, or `prefix*`; `http://127.0.0.1`, `http://localhost` and `http://[::1]`
    /// stand for every port. Where nothing is said: these three with every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<String>,
    /// Scopes that are asked for beside the client's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether the issuer is told for which server a token is (RFC 8707); some refuse to be told.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub resource: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Where what is fetched from an issuer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is written in the document.
    Written,
    Keys(String),
    Discovery(String),
}

impl Document {
    /// Whether a server may take tokens of this issuer that are for this audience.
    pub fn lets_accept(&self, server: &str, audience: &str) -> bool {
        let is_listed = |(pattern, list): (&String, &Vec<String>)| {
            patterns::matches(pattern, server)
                && list.iter().any(|listed| listed.replace("{server}", server) == audience)
        };
        self.audiences.iter().any(|listed| listed == audience) || self.server_audiences.iter().any(is_listed)
    }

    pub fn source(&self) -> Source {
        match (&self.jwks, &self.jwks_uri) {
            (Some(_), _) => Source::Written,
            (None, Some(uri)) => Source::Keys(uri.clone()),
            (None, None) => Source::Discovery(self.iss.clone()),
        }
    }
}

impl Source {
    /// How it is kept beside what was fetched; `None`: nothing is.
    pub fn url(&self) -> Option<&str> {
        match self {
            Source::Written => None,
            Source::Keys(url) | Source::Discovery(url) => Some(url),
        }
    }
}
