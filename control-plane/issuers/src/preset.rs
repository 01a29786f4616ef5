//! Presets: an issuer's document for each of the identity providers that companies use most.
//!
//! Owns, for each provider: the form of its `iss`, the claims of its access tokens, audiences, scopes, and what it refuses.
//! Keeps true: a proposal identifies users only by a claim that the provider gives to nobody else, and has no org that the
//! admin did not name. `docs/issuers` describes each provider.

mod remedy;

use crate::document::{Claims, Defaults, Document, Login};

/// An identity provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    Entra,
    Okta,
    Auth0,
    Google,
    Keycloak,
    Authentik,
}

/// Values that an admin gives for a provider.
#[derive(Clone, Debug)]
pub struct PresetValues {
    /// Tenant, domain or URL, as [`Preset::place`] describes it.
    pub place: String,
    /// Client that is registered at the provider.
    pub client: String,
    /// Org of the users.
    pub org: String,
    /// Audience of the tokens; `None` for the provider's usual one.
    pub audience: Option<String>,
}

/// An issuer's document for a provider, not yet tried.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub document: Document,
    /// Settings that the admin makes at the provider, one sentence each.
    pub notes: &'static [&'static str],
}

impl Preset {
    /// Names of all presets.
    pub const NAMES: [&'static str; 6] = ["entra", "okta", "auth0", "google", "keycloak", "authentik"];

    pub fn parse(name: &str) -> Option<Preset> {
        match name {
            "entra" => Some(Preset::Entra),
            "okta" => Some(Preset::Okta),
            "auth0" => Some(Preset::Auth0),
            "google" => Some(Preset::Google),
            "keycloak" => Some(Preset::Keycloak),
            "authentik" => Some(Preset::Authentik),
            _ => None,
        }
    }

    /// Returns what [`PresetValues::place`] is for this provider, with an example.
    pub fn place(self) -> &'static str {
        match self {
            Preset::Entra => "directory (tenant) ID, e.g. 11111111-2222-3333-4444-555555555555",
            Preset::Okta => "domain, or URL of an authorization server, e.g. acme.okta.com",
            Preset::Auth0 => "domain of the tenant, e.g. acme.eu.auth0.com",
            Preset::Google => "domain of the Workspace organization, e.g. acme.example",
            Preset::Keycloak => "URL of the realm, e.g. https://login.acme.example/realms/acme",
            Preset::Authentik => "URL of the application, e.g. https://auth.acme.example/application/o/asp/",
        }
    }

    /// Whether the users' org is the place itself.
    pub fn is_org_of_place(self) -> bool {
        self == Preset::Google
    }

    /// Whether the provider expects `audience` with a login (a parameter of its own).
    pub fn sends_audience(self) -> bool {
        self == Preset::Auth0
    }

    /// Returns the document for these values; the error names the fault of the place.
    pub fn propose(self, name: &str, given: &PresetValues) -> Result<Proposal, String> {
        let place = given.place.trim();
        let (org, default_org) = match self.is_org_of_place() {
            true => (place, ""),
            false => (given.org.as_str(), given.org.as_str()),
        };
        let document = Document {
            name: name.to_owned(),
            iss: self.iss(place)?,
            typ: owned(self.typ()),
            audiences: self.audience(given).into_iter().collect(),
            claims: self.claims(),
            defaults: Defaults { org: default_org.to_owned(), ..Defaults::default() },
            orgs: vec![org.to_owned()],
            login: self.login(&given.client),
            ..Document::default()
        };
        Ok(Proposal { document, notes: self.notes() })
    }

    /// Returns the `iss` of its tokens, byte by byte as it writes it.
    fn iss(self, place: &str) -> Result<String, String> {
        let url = if place.contains("://") { place.to_owned() } else { format!("https://{place}") };
        let plain = url.trim_end_matches('/');
        match self {
            Preset::Entra if is_guid(place) => {
                Ok(format!("https://login.microsoftonline.com/{}/v2.0", place.to_ascii_lowercase()))
            }
            Preset::Entra => Err(format!(
                "`{place}` is not a directory (tenant) ID: Entra's tokens name their tenant by its GUID, never by a domain or \
                 `common`"
            )),
            Preset::Okta if plain.contains("/oauth2/") => Ok(plain.to_owned()),
            Preset::Okta => Ok(format!("{plain}/oauth2/default")),
            Preset::Auth0 => Ok(format!("{plain}/")),
            Preset::Google => Ok("https://accounts.google.com".to_owned()),
            Preset::Keycloak if plain.contains("/realms/") => Ok(plain.to_owned()),
            Preset::Keycloak => Err(format!("`{place}` is not the URL of a realm: it ends in /realms/NAME")),
            Preset::Authentik if plain.contains("/application/o/") => Ok(format!("{plain}/")),
            Preset::Authentik => {
                Err(format!("`{place}` is not the URL of an application: it ends in /application/o/SLUG/"))
            }
        }
    }

    /// Returns the audience that servers do not accept by themselves.
    fn audience(self, given: &PresetValues) -> Option<String> {
        given.audience.clone().or_else(|| match self {
            Preset::Okta => Some("api://default".to_owned()),
            Preset::Keycloak => Some("asp".to_owned()),
            Preset::Entra | Preset::Google | Preset::Authentik => Some(given.client.clone()),
            // Its API has the platform's public URL as its identifier.
            Preset::Auth0 => None,
        })
    }

    fn typ(self) -> &'static [&'static str] {
        match self {
            Preset::Entra | Preset::Google | Preset::Keycloak => &["JWT"],
            Preset::Okta => &["none", "JWT"],
            Preset::Auth0 | Preset::Authentik => &["JWT", "at+jwt"],
        }
    }

    fn claims(self) -> Claims {
        let named = |org: &str, user: &str, groups: &str, scopes: &str, client: &str| Claims {
            org: org.to_owned(),
            user: user.to_owned(),
            groups: groups.to_owned(),
            scopes: scopes.to_owned(),
            client: client.to_owned(),
            role: String::new(),
        };
        match self {
            // `sub` is another one for each application; `oid` is the user's in the whole tenant.
            Preset::Entra => named("", "oid", "roles", "scp", ""),
            // `sub` is the login name, which admins may change and give to somebody else.
            Preset::Okta => named("", "uid", "", "scp", "cid"),
            Preset::Google => named("hd", "", "", "", ""),
            Preset::Keycloak => named("", "", "/realm_access/roles", "", ""),
            Preset::Auth0 | Preset::Authentik => Claims::default(),
        }
    }

    /// Returns the login of clients; `None` if the provider cannot log them in.
    fn login(self, client: &str) -> Option<Login> {
        let scopes = match self {
            Preset::Entra => vec![format!("{client}/.default"), "offline_access".to_owned()],
            Preset::Okta | Preset::Auth0 => owned(&["openid", "offline_access"]),
            Preset::Authentik => owned(&["openid", "profile", "offline_access"]),
            Preset::Keycloak => Vec::new(),
            Preset::Google => return None,
        };
        Some(Login {
            client_id: client.to_owned(),
            authorization_endpoint: None,
            token_endpoint: None,
            redirects: Vec::new(),
            scopes,
            // At the others the audience is fixed, and Entra rejects the parameter (AADSTS9010010).
            resource: self == Preset::Keycloak,
            // Entra rejects a renewal without scopes for a client that is its own audience (AADSTS90009), authentik one
            // without `offline_access`.
            scopes_on_refresh: matches!(self, Preset::Entra | Preset::Authentik),
        })
    }

    fn notes(self) -> &'static [&'static str] {
        match self {
            Preset::Entra => &[
                "set requestedAccessTokenVersion to 2 in the manifest of the app registration",
                "add each server's redirect under \"Mobile and desktop applications\", and allow public client flows",
                "groups are the app roles of the app registration; a user's own groups are GUIDs, and missing beyond 200",
            ],
            Preset::Okta => &[
                "the client is a native app with the grants Authorization Code, Refresh Token and Device Authorization",
                "add a claim `groups` to the access tokens of the authorization server if policy names groups",
                "tokens without a user (client credentials) have no uid and are refused",
            ],
            Preset::Auth0 => &[
                "create an API whose identifier is the platform's public URL, and make it the tenant's Default Audience",
                "allow offline access for that API, and the grants Refresh Token and Device Code for the native application",
            ],
            Preset::Google => &[
                "no client can log in at Google alone: its access tokens are opaque and for Google's own APIs",
                "accepted are ID tokens of \"Sign in with Google\" for this client, if they have neither nonce nor at_hash",
                "for MCP clients, put Keycloak, Auth0 or authentik in front of Google and use that preset",
            ],
            Preset::Keycloak => &[
                "add an audience mapper for this audience to a default client scope of the realm",
                "keep the client scope `basic`: without it tokens have no sub",
            ],
            Preset::Authentik => &[
                "choose a signing key for the provider: without one its tokens are signed with the client's secret",
                "keep the subject mode on the hashed or numeric user id: name, email and UPN can be given to somebody else",
            ],
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Whether this is a GUID in its usual form (RFC 9562 section 4).
fn is_guid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
