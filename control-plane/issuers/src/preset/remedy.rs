//! Remedies for refused tokens, by provider: what to change there so that its tokens are accepted.

use serde_json::Value;

use super::Preset;
use crate::trial::TokenParts;

/// Application ID of Microsoft Graph in every tenant.
const GRAPH: &str = "00000003-0000-0000-c000-000000000000";

impl Preset {
    /// Returns what to change at the provider so that a token like this refused one is accepted, if that is known.
    /// `parts` is `None` for an opaque token.
    pub fn remedy(self, parts: Option<&TokenParts>) -> Option<&'static str> {
        match self {
            Preset::Entra => entra(parts?),
            Preset::Okta => okta(parts?),
            Preset::Auth0 => auth0(parts),
            Preset::Google => google(parts),
            Preset::Keycloak => keycloak(parts?),
            Preset::Authentik => authentik(parts?),
        }
    }
}

fn entra(parts: &TokenParts) -> Option<&'static str> {
    let audience = parts.text("aud");
    if audience == GRAPH || audience == "https://graph.microsoft.com" {
        return Some("the token is for Microsoft Graph: the login must request the scope CLIENT_ID/.default");
    }
    if parts.text("ver") == "1.0" {
        return Some(
            "the token has version 1.0: set requestedAccessTokenVersion to 2 in the app registration's manifest",
        );
    }
    if parts.claims.get("oid").is_none() {
        return Some("the token names no oid: it is not a token of a user or an application of this tenant");
    }
    None
}

fn okta(parts: &TokenParts) -> Option<&'static str> {
    if !parts.text("iss").contains("/oauth2/") {
        return Some(
            "the token is of Okta's org authorization server, which issues tokens for Okta alone: use a custom one, such as \
             /oauth2/default",
        );
    }
    if parts.claims.get("uid").is_none() {
        return Some(
            "the token has no user (client credentials): let the program log in as a user, or give it a machine key",
        );
    }
    None
}

fn auth0(parts: Option<&TokenParts>) -> Option<&'static str> {
    let Some(parts) = parts else {
        return Some(
            "Auth0 issues opaque tokens if a login names no API: make the API whose identifier is the platform's public URL \
             the tenant's Default Audience",
        );
    };
    let is_userinfo = parts.text("aud").ends_with("/userinfo");
    is_userinfo.then_some("the token is for Auth0's userinfo alone: set the tenant's Default Audience")
}

fn google(parts: Option<&TokenParts>) -> Option<&'static str> {
    let has = |parts: &TokenParts, claim: &str| parts.claims.get(claim).is_some();
    match parts {
        None => Some(
            "Google's access tokens are for Google's own APIs: put Keycloak, Auth0 or authentik in front of Google",
        ),
        Some(parts) if has(parts, "nonce") || has(parts, "at_hash") => Some(
            "the ID token is of a login with nonce or at_hash: put Keycloak, Auth0 or authentik in front of Google",
        ),
        Some(parts) if !has(parts, "hd") => {
            Some("the account does not belong to a Workspace organization, or is a service account")
        }
        Some(_) => None,
    }
}

fn keycloak(parts: &TokenParts) -> Option<&'static str> {
    if parts.claims.get("sub").is_none() {
        return Some("the token has no sub: give the client the client scope `basic`");
    }
    match parts.text("typ") {
        "" | "Bearer" => {}
        "ID" => return Some("this is an ID token: send the access token"),
        _ => return Some("this is not an access token of Keycloak (claim typ)"),
    }
    Some("if the audience is missing, add an audience mapper to a default client scope of the realm")
}

fn authentik(parts: &TokenParts) -> Option<&'static str> {
    if parts.header.get("alg").and_then(Value::as_str).is_some_and(|alg| alg.starts_with("HS")) {
        return Some("the provider signs with the client's secret: choose a signing key for it");
    }
    if parts.claims.get("nonce").is_some() {
        return Some("the client sent `nonce`, which authentik copies into access tokens: log in without it");
    }
    None
}
