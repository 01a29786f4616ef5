//! Compiles an issuer's document and keys to the form for edges, gateways and the admin API.

use std::sync::Arc;

use asp_edge::names;
use asp_platform::operator_list::{self, EVERY_PRIMITIVE};
use asp_proto::snapshot;
use serde::Serialize;
use utoipa::ToSchema;

use super::document::{Document, Exchange, ExchangeAudience, Grant, Introspection, Login};
use super::keys::{ALGS, Key};
use super::metadata::IssuerMetadata;
use crate::admin_role::AdminRole;
use crate::trusted_issuer::{BREAK_GLASS_ISS, IssuerRules, MAX_TTL, RoleGrant, TrustedIssuer};

/// Maximum length of a URL in a document, in bytes.
const MAX_URL: usize = 2_048;
/// Maximum number of entries in a list of a document.
const MAX_LIST: usize = 256;
/// Maximum number of claims in a grant.
const MAX_GRANT_CLAIMS: usize = 16;

/// Login of admins at an issuer from a machine without a browser (RFC 8628).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminLogin {
    pub name: String,
    pub iss: String,
    pub client_id: String,
    pub scopes: Vec<String>,
    pub device_authorization_endpoint: String,
    pub token_endpoint: String,
}

/// Compiles a client issuer with these keys; without keys, the gateway introspects its tokens.
pub(super) fn client(document: &Document, keys: &[Key]) -> Result<snapshot::Issuer, String> {
    if !document.claims.role.is_empty() || !document.roles.is_empty() || !document.grants.is_empty() {
        return Err("claims.role, roles and grants are for admin issuers".into());
    }
    check(document)?;
    let (claims, defaults) = (&document.claims, &document.defaults);
    Ok(snapshot::Issuer {
        name: document.name.clone(),
        iss: document.iss.clone(),
        keys: keys.iter().map(Key::message).collect(),
        typ: document.typ.iter().map(|typ| typ.to_ascii_lowercase()).collect(),
        audiences: document.audiences.clone(),
        claims: Some(snapshot::ClaimNames {
            org: claims.org.clone(),
            user: claims.user.clone(),
            groups: claims.groups.clone(),
            scopes: claims.scopes.clone(),
            client: claims.client.clone(),
            org_default: defaults.org.clone(),
            groups_default: defaults.groups.clone(),
            scopes_default: defaults.scopes.clone(),
        }),
        max_lifetime_seconds: lifetime(document)?,
        orgs: orgs(document)?,
        keys_refreshed: document.source().url().is_some(),
    })
}

/// Compiles the services of an issuer that gateways use in addition to verifying its tokens; `None` if there are none.
pub(super) fn access(
    document: &Document,
    fetched: Option<&IssuerMetadata>,
    serves_all: bool,
) -> Result<Option<snapshot::IssuerAccess>, String> {
    let said = |own: &Option<String>, found: fn(&IssuerMetadata) -> Option<&String>, what: &str| {
        let found = own.as_ref().or_else(|| fetched.and_then(found));
        found.cloned().ok_or_else(|| format!("its discovery document has no {what}: set it in the issuer"))
    };
    let introspection = |given: &Introspection| -> Result<_, String> {
        Ok(snapshot::Introspection {
            url: said(
                &given.url,
                |fetched| fetched.introspection_endpoint.as_ref(),
                "introspection_endpoint",
            )?,
            credential: given.credential.clone(),
            audiences: given.audiences.clone(),
        })
    };
    let login = |given: &Login| -> Result<_, String> {
        Ok(snapshot::Login {
            client_id: given.client_id.clone(),
            authorization_endpoint: said(
                &given.authorization_endpoint,
                |fetched| fetched.authorization_endpoint.as_ref(),
                "authorization_endpoint",
            )?,
            token_endpoint: said(
                &given.token_endpoint,
                |fetched| fetched.token_endpoint.as_ref(),
                "token_endpoint",
            )?,
            redirects: given.redirects.clone(),
            without_resource: !given.resource,
            scopes_on_refresh: given.scopes_on_refresh,
            iss_required: fetched.is_some_and(|fetched| fetched.iss_parameter),
            scopes: given.scopes.clone(),
        })
    };
    let exchange = |given: &Exchange| -> Result<_, String> {
        let url = said(&given.url, |fetched| fetched.token_endpoint.as_ref(), "token_endpoint")?;
        let audiences = given.audiences.iter().map(|(name, audience)| snapshot::ServiceAudience {
            name: name.clone(),
            origins: audience.origins().to_vec(),
            primitives: match audience.primitives() {
                Some(patterns) => patterns.to_vec(),
                None if serves_all => vec![EVERY_PRIMITIVE.to_owned()],
                None => Vec::new(),
            },
        });
        let audiences = audiences.collect();
        let credential = given.credential.clone();
        Ok(snapshot::TokenExchange { url, credential, audiences })
    };
    let access = snapshot::IssuerAccess {
        issuer: document.name.clone(),
        introspection: document.introspection.as_ref().map(introspection).transpose()?,
        login: document.login.as_ref().map(login).transpose()?,
        exchange: document.exchange.as_ref().map(exchange).transpose()?,
    };
    let says_something =
        access.introspection.is_some() || access.login.is_some() || access.exchange.is_some();
    Ok(says_something.then_some(access))
}

/// Compiles an admin issuer to one entry for each of its keys.
pub(super) fn admin(document: &Document, keys: &[Key]) -> Result<Vec<TrustedIssuer>, String> {
    let claims = &document.claims;
    if [&claims.org, &claims.scopes, &claims.client].iter().any(|name| !name.is_empty())
        || !document.defaults.is_empty()
        || !document.server_audiences.is_empty()
        || document.introspection.is_some()
        || document.exchange.is_some()
    {
        return Err(
            "an admin token has a name, a role or groups: of claims only user, role and groups can be set, \
                    and neither defaults, introspection nor exchange"
                .into(),
        );
    }
    check(document)?;
    let or = |text: &str, default: String| if text.is_empty() { default } else { text.to_owned() };
    let mut rules = IssuerRules::of(&document.iss);
    if !document.typ.is_empty() {
        rules.typ = document.typ.iter().map(|typ| typ.to_ascii_lowercase()).collect();
    }
    rules.audiences.extend(document.audiences.iter().cloned());
    rules.user_claim = or(&claims.user, rules.user_claim);
    // If groups or grants give roles, a claim gives one only if the operator names it: users may be able to set other
    // claims.
    let is_given = !document.roles.is_empty() || !document.grants.is_empty();
    let role_claim = if is_given { String::new() } else { rules.role_claim };
    rules.role_claim = or(&claims.role, role_claim);
    rules.groups_claim = or(&claims.groups, rules.groups_claim);
    rules.max_lifetime = lifetime(document)?;
    rules.orgs = orgs(document)?;
    for (group, role) in &document.roles {
        let parsed =
            AdminRole::parse(role).ok_or_else(|| format!("roles: `{role}` of {group:?} is not a role"))?;
        rules.roles.push((group.clone(), parsed));
    }
    for grant in &document.grants {
        rules.grants.push(self::grant(grant)?);
    }
    let rules = Arc::new(rules);
    let trusted = |key: &Key| TrustedIssuer {
        kid: key.kid.clone(),
        algorithm: key.algorithm,
        key: key.decoding.clone(),
        rules: Arc::clone(&rules),
    };
    Ok(keys.iter().map(trusted).collect())
}

fn grant(grant: &Grant) -> Result<RoleGrant, String> {
    let Grant { role, claims } = grant;
    let parsed = AdminRole::parse(role).ok_or_else(|| format!("grants: `{role}` is not a role"))?;
    if claims.is_empty() || claims.len() > MAX_GRANT_CLAIMS {
        return Err(format!("grants: {role} needs 1 to {MAX_GRANT_CLAIMS} claims"));
    }
    let is_plain =
        |text: &String| !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control);
    if let Some((claim, _)) = claims.iter().find(|(claim, value)| !is_plain(claim) || !is_plain(value)) {
        return Err(format!(
            "grants: claim {claim:?} of {role} and its value need 1 to 256 bytes without control characters"
        ));
    }
    Ok(RoleGrant { role: parsed, claims: claims.clone().into_iter().collect() })
}

/// Returns the admin login of an issuer, once its endpoints are known; `None` if it has none.
pub(super) fn admin_login(document: &Document, fetched: Option<&IssuerMetadata>) -> Option<AdminLogin> {
    let login = document.login.as_ref()?;
    let fetched = fetched?;
    Some(AdminLogin {
        name: document.name.clone(),
        iss: document.iss.clone(),
        client_id: login.client_id.clone(),
        scopes: login.scopes.clone(),
        device_authorization_endpoint: fetched.device_authorization_endpoint.clone()?,
        token_endpoint: login.token_endpoint.clone().or_else(|| fetched.token_endpoint.clone())?,
    })
}

/// Checks the rules for both kinds of issuers.
fn check(document: &Document) -> Result<(), String> {
    if document.name.is_empty() || document.iss.is_empty() {
        return Err("name and iss must not be empty".into());
    }
    if document.name.len() > 63
        || !document.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    {
        return Err(format!("name: {:?} is not 1 to 63 of the characters A-Z a-z 0-9 - _ .", document.name));
    }
    if document.iss == BREAK_GLASS_ISS {
        return Err(format!("iss: {BREAK_GLASS_ISS} is the platform's own"));
    }
    if document.jwks.is_some() && document.jwks_uri.is_some() {
        return Err("jwks and jwksUri exclude each other".into());
    }
    let unknown = document.algs.iter().find(|alg| ALGS.iter().all(|(known, _)| known != alg));
    if let Some(alg) = unknown {
        return Err(format!("alg {alg} is not supported"));
    }
    for (claim, path) in document.claims.all() {
        if path.len() > 256 || path.chars().any(char::is_control) {
            return Err(format!("claims.{claim} is longer than 256 bytes, or contains a control character"));
        }
    }
    let org = &document.defaults.org;
    if let Some(fault) = (!org.is_empty()).then(|| names::fault(org)).flatten() {
        return Err(format!("defaults.org: `{org}` {fault}"));
    }
    let defaults = &document.defaults;
    check_server_audiences(document)?;
    let lists = [&document.typ, &document.audiences, &document.orgs, &defaults.groups, &defaults.scopes];
    if lists.iter().any(|list| list.len() > MAX_LIST)
        || document.roles.len() > MAX_LIST
        || document.grants.len() > MAX_LIST
    {
        return Err(format!("a list has more than {MAX_LIST} entries"));
    }
    if let Some(group) = defaults.groups.iter().find(|group| !names::is_name(group)) {
        return Err(format!("defaults.groups: `{group}` is not a valid name of a group"));
    }
    check_urls(document)?;
    if document
        .login
        .as_ref()
        .is_some_and(|login| login.client_id.is_empty() || login.redirects.len() > MAX_LIST)
    {
        return Err("login needs a clientId, and at most 256 redirects".into());
    }
    if document.introspection.as_ref().is_some_and(|given| given.credential.is_empty()) {
        return Err("introspection.credential must name a credential of the operator".into());
    }
    document.exchange.as_ref().map_or(Ok(()), check_exchange)?;
    Ok(())
}

fn check_server_audiences(document: &Document) -> Result<(), String> {
    for (server, audiences) in &document.server_audiences {
        if names::pattern_fault(server).is_some() || audiences.iter().any(String::is_empty) {
            return Err(format!(
                "serverAudiences: `{server}` is a server's name, prefix* or *, with audiences"
            ));
        }
    }
    let in_lists = document.server_audiences.values().map(Vec::len).sum::<usize>();
    if document.server_audiences.len() > MAX_LIST || in_lists > MAX_LIST {
        return Err(format!("serverAudiences has more than {MAX_LIST} entries"));
    }
    Ok(())
}

fn check_exchange(given: &Exchange) -> Result<(), String> {
    if given.credential.is_empty() {
        return Err("exchange.credential must name a credential of the operator".into());
    }
    let lists = given.audiences.values().map(ExchangeAudience::origins);
    if given.audiences.is_empty()
        || given.audiences.len() > MAX_LIST
        || lists.clone().any(|list| list.len() > MAX_LIST)
    {
        return Err(format!(
            "exchange.audiences names 1 to {MAX_LIST} services, each with at most {MAX_LIST} origins"
        ));
    }
    let is_visible = |name: &String| {
        !name.is_empty() && name.len() <= 2048 && name.bytes().all(|b| (0x21..0x7f).contains(&b))
    };
    if let Some(name) = given.audiences.keys().find(|name| !is_visible(name)) {
        return Err(format!("exchange.audiences: {name:?} is not an audience in visible ASCII"));
    }
    let is_origin = |text: &String| {
        let uri: Option<http::Uri> = text.parse().ok();
        let has_host = |uri: &http::Uri| uri.authority().is_some_and(|at| !at.as_str().contains('@'));
        text.len() <= 2048
            && !text.ends_with('/')
            && uri.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("https" | "http"))
                    && has_host(&uri)
                    && uri.path() == "/"
                    && uri.query().is_none()
            })
    };
    if let Some(origin) = lists.flatten().find(|origin| !is_origin(origin)) {
        return Err(format!("exchange.audiences: {origin:?} is not an origin http(s)://host[:port]"));
    }
    let mut patterns = given.audiences.values().filter_map(ExchangeAudience::primitives);
    patterns.try_for_each(operator_list::check).map_err(|fault| format!("exchange.audiences: {fault}"))
}

/// Checks that they are URLs. Whether they may be reached is checked on use.
fn check_urls(document: &Document) -> Result<(), String> {
    let login = document.login.as_ref();
    let urls = [
        ("jwksUri", document.jwks_uri.as_ref()),
        ("introspection.url", document.introspection.as_ref().and_then(|given| given.url.as_ref())),
        ("exchange.url", document.exchange.as_ref().and_then(|given| given.url.as_ref())),
        ("login.authorizationEndpoint", login.and_then(|login| login.authorization_endpoint.as_ref())),
        ("login.tokenEndpoint", login.and_then(|login| login.token_endpoint.as_ref())),
    ];
    let discovered = document.source() == super::document::KeySource::Discovery(document.iss.clone());
    let iss = [("iss, which is used for discovery,", discovered.then_some(&document.iss))];
    for (member, url) in urls.into_iter().chain(iss) {
        let Some(url) = url else { continue };
        let uri: Option<http::Uri> = url.parse().ok();
        let is_http =
            uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if !is_http || url.len() > MAX_URL || url.contains('#') {
            return Err(format!("{member} must be an absolute http(s) URL, not {url:?}"));
        }
    }
    Ok(())
}

fn lifetime(document: &Document) -> Result<u64, String> {
    let lifetime = document.max_lifetime_seconds.unwrap_or(MAX_TTL.as_secs());
    if lifetime == 0 || lifetime > MAX_TTL.as_secs() {
        return Err(format!("maxLifetimeSeconds must be from 1 to {}", MAX_TTL.as_secs()));
    }
    Ok(lifetime)
}

fn orgs(document: &Document) -> Result<Vec<String>, String> {
    let fault = |org: &String| names::pattern_fault(org).map(|fault| format!("orgs: `{org}` {fault}"));
    match document.orgs.iter().find_map(fault) {
        Some(fault) => Err(fault),
        None => Ok(document.orgs.clone()),
    }
}
