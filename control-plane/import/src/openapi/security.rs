//! The security of operations (Security Requirement Object of OpenAPI 3.1) as `runtime.auth` of their specs, and the entries
//! that the operator adds for it.
//!
//! Owns: which alternative of a requirement a call meets, and the names of credentials. Keeps true: no text contains a secret;
//! a document names no origin to which one is sent; an operation that may be called without authentication gets none.

use std::collections::{BTreeMap, BTreeSet};

use asp_registry::origin_of;
use reqwest::header::HeaderName;
use serde_json::{Map, Value, json};

use super::document::{DescribedOperation, OpenApiDocument};
use super::values::one_line;
use crate::args::ImportArgs;
use crate::files::Requirement;

/// Maximum length of a credential's name in bytes, and maximum number of scopes of a spec.
const MAX_NAME: usize = 63;
const MAX_SCOPES: usize = 64;

/// Security of an operation.
pub(super) enum OperationSecurity<'a> {
    /// Calls need no authentication.
    Open,
    /// Calls need one of the document's schemes.
    Scheme { name: &'a str, scheme: SecurityScheme<'a>, scopes: BTreeSet<&'a str> },
    /// No alternative is one that a call can meet.
    Unsupported,
}

/// A security scheme that a header of a request can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecurityScheme<'a> {
    Basic,
    Bearer,
    /// A key in the header of this name.
    Header(&'a str),
    /// A token that a client gets at this URL (RFC 6749 section 4.4).
    Client(&'a str),
}

/// Returns the security of an operation: the first alternative that a call can meet.
pub(super) fn of<'a>(document: &'a OpenApiDocument, found: &DescribedOperation<'a>) -> OperationSecurity<'a> {
    let written = found.operation.get("security").or(document.security()).and_then(Value::as_array);
    let alternatives: Vec<_> = written.into_iter().flatten().filter_map(Value::as_object).collect();
    if alternatives.is_empty() || alternatives.iter().any(|schemes| schemes.is_empty()) {
        return OperationSecurity::Open;
    }
    let alone = alternatives.into_iter().filter(|schemes| schemes.len() == 1).flatten();
    let mut met = alone.filter_map(|(name, scopes)| {
        let written = document.security_scheme(name)?;
        let scheme = SecurityScheme::of(written)?;
        // Other schemes list roles, which no token request can name.
        let has_scopes = ["oauth2", "openIdConnect"].contains(&text(written, "type"));
        let scopes = scopes.as_array().into_iter().flatten().filter(|_| has_scopes);
        let scopes = scopes.filter_map(Value::as_str).filter(|scope| is_scope(scope)).take(MAX_SCOPES);
        Some(OperationSecurity::Scheme { name, scheme, scopes: scopes.collect() })
    });
    met.next().unwrap_or(OperationSecurity::Unsupported)
}

impl<'a> SecurityScheme<'a> {
    /// Reads a security scheme; `None` if no header of a request can meet it.
    fn of(written: &'a Value) -> Option<SecurityScheme<'a>> {
        match (text(written, "type"), text(written, "in"), text(written, "scheme")) {
            ("apiKey", "header", _) => {
                let name = text(written, "name");
                HeaderName::from_bytes(name.as_bytes()).is_ok().then_some(SecurityScheme::Header(name))
            }
            ("http", _, scheme) if scheme.eq_ignore_ascii_case("basic") => Some(SecurityScheme::Basic),
            ("http", _, scheme) if scheme.eq_ignore_ascii_case("bearer") => Some(SecurityScheme::Bearer),
            ("oauth2", ..) => {
                let client = written.pointer("/flows/clientCredentials/tokenUrl").and_then(Value::as_str);
                let client = client.filter(|url| url.starts_with("https://"));
                Some(client.map_or(SecurityScheme::Bearer, SecurityScheme::Client))
            }
            ("openIdConnect", ..) => Some(SecurityScheme::Bearer),
            _ => None,
        }
    }

    /// Returns the scheme in words.
    fn words(self) -> String {
        match self {
            SecurityScheme::Basic => "a user and a password".into(),
            SecurityScheme::Bearer => "a bearer token".into(),
            SecurityScheme::Header(name) => format!("a key in the header {name}"),
            SecurityScheme::Client(_) => "a token for the platform as a client".into(),
        }
    }

    /// Returns the members of an entry of `ASP_CREDENTIALS` that hold the proof, with the secret in `file`.
    fn entry(self, file: &str, scopes: &BTreeSet<&str>) -> (&'static str, Value) {
        match self {
            SecurityScheme::Basic => ("basic", json!({"user": "USER", "passwordFile": file})),
            SecurityScheme::Bearer => ("bearerFile", file.into()),
            SecurityScheme::Header(name) => ("header", json!({"name": name, "valueFile": file})),
            SecurityScheme::Client(url) => (
                "oauthClient",
                json!({"tokenUrl": one_line(url), "clientId": "CLIENT", "clientSecretFile": file, "scopes": scopes}),
            ),
        }
    }
}

/// Authentication of an import: what each spec names, and what the operator adds.
pub(super) struct Authentication<'a> {
    args: &'a ImportArgs,
    origin: &'a str,
    /// Schemes of the imported operations by name, each with all scopes that operations need.
    schemes: BTreeMap<&'a str, (SecurityScheme<'a>, BTreeSet<&'a str>)>,
}

impl<'a> Authentication<'a> {
    /// Collects the schemes of `operations`, whose service is at `base`.
    pub(super) fn new(
        args: &'a ImportArgs,
        base: &'a str,
        operations: impl Iterator<Item = OperationSecurity<'a>>,
    ) -> Authentication<'a> {
        let mut schemes: BTreeMap<_, (SecurityScheme<'a>, BTreeSet<&'a str>)> = BTreeMap::new();
        for operation in operations {
            let OperationSecurity::Scheme { name, scheme, scopes } = operation else { continue };
            schemes.entry(name).or_insert_with(|| (scheme, BTreeSet::new())).1.extend(scopes);
        }
        Authentication { args, origin: origin_of(base), schemes }
    }

    /// Returns `runtime.auth` of an operation's spec; `None` if it needs none, or the operator's choice names it.
    pub(super) fn auth(&self, security: OperationSecurity<'_>) -> Option<Value> {
        let OperationSecurity::Scheme { name, scopes, .. } = security else { return None };
        if self.args.no_auth || self.args.credential.is_some() {
            return None;
        }
        Some(match &self.args.exchange {
            None => json!({"credential": self.credential(name)}),
            Some(audience) if scopes.is_empty() => json!({"exchange": {"audience": audience}}),
            Some(audience) => json!({"exchange": {"audience": audience, "scopes": scopes}}),
        })
    }

    /// Returns the entries that the operator adds for what specs name; none for a credential that the operator has chosen.
    pub(super) fn requirements(&self) -> Vec<Requirement> {
        if self.args.credential.is_some() {
            return Vec::new();
        }
        let users = json!([format!("{}/*", self.args.server)]);
        // Secrets are bound to the address that an entry of the operator stands for.
        let hint = match self.args.proxy_url {
            Some(_) => {
                " (if the host is the name of an entry of ASP_UPSTREAMS, with the origin of that entry)"
            }
            None => "",
        };
        if let Some(audience) = &self.args.exchange {
            let entry = json!({audience.as_str(): {"origins": [self.origin], "for": users}});
            let line = format!(
                "needs a token of the caller's issuer; add to its `exchange.audiences`: {entry}{hint}"
            );
            return vec![Requirement {
                place: "/runtime/auth/exchange/audience",
                name: audience.clone(),
                line,
            }];
        }
        let requirement = |(name, (scheme, scopes)): (&&str, &(SecurityScheme<'_>, BTreeSet<&str>))| {
            let credential = self.credential(name);
            let mut entry = Map::new();
            entry.insert("origin".into(), self.origin.into());
            entry.insert("for".into(), users.clone());
            let (member, proof) = scheme.entry(&format!("/run/secrets/{credential}"), scopes);
            entry.insert(member.into(), proof);
            let entry = json!({credential.as_str(): entry});
            let mut line = format!(
                "needs a credential: {} (`{}` of the document); add to ASP_CREDENTIALS: {entry}{hint}",
                scheme.words(),
                one_line(name)
            );
            if matches!(scheme, SecurityScheme::Bearer | SecurityScheme::Client(_)) {
                line.push_str(
                    ". To call the service as the caller instead, import with `--exchange AUDIENCE`",
                );
            }
            Requirement { place: "/runtime/auth/credential", name: credential, line }
        };
        self.schemes.iter().map(requirement).collect()
    }

    /// Returns the name of the credential for a scheme: that of the server, and of the scheme if there are several.
    fn credential(&self, scheme: &str) -> String {
        let server = &self.args.server;
        if self.schemes.len() == 1 {
            return server.clone();
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let plain = scheme.chars().map(|c| if fits(c) { c } else { '-' });
        format!("{server}-").chars().chain(plain).take(MAX_NAME).collect()
    }
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Whether it is a scope (RFC 6749 appendix A.4).
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
}

#[cfg(test)]
#[path = "security/tests.rs"]
mod tests;
