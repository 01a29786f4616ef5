//! The operator's credentials by name, with which a gateway authenticates to services.
//!
//! Keeps true: a credential is sent only to its own origin, and only for the primitives that the operator lists with
//! it; none can be printed; a token of an OAuth client is fetched on demand and cached while it is valid.

use std::collections::HashMap;
use std::sync::Arc;

use asp_outbound::Outbound;
use asp_platform::operator_list;
use asp_platform::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::token_endpoint::{self, KeptToken, NoToken, TokenGrant};

/// One credential.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The only origin to which it is sent: `scheme://host[:port]`.
    pub origin: String,
    /// Primitives that may use it, in the form of `for` in an operator list. If empty, only the platform uses it.
    pub primitives: Vec<String>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Bearer token (RFC 6750).
    Bearer(Secret),
    /// Basic authentication (RFC 7617).
    Basic { user: String, password: Secret },
    /// A custom header of the service.
    Header { name: String, value: Secret },
    /// A token that an issuer gives to the platform itself.
    Client(OauthClient),
}

/// An OAuth client with a secret (RFC 6749 sections 2.3.1 and 4.4).
#[derive(Clone, Debug)]
pub struct OauthClient {
    pub token_url: String,
    pub id: String,
    pub secret: Secret,
    /// Requested scopes; if empty, the issuer decides.
    pub scopes: Vec<String>,
    /// Requested audience, if the issuer requires one.
    pub audience: Option<String>,
}

impl Credential {
    /// Checks that its patterns are valid.
    pub fn check(&self) -> Result<(), String> {
        operator_list::check(&self.primitives)
    }
}

/// A credential lease: the header with which a plugin's proxy authenticates requests.
pub struct CredentialLease {
    pub origin: String,
    pub header: HeaderName,
    pub value: HeaderValue,
    /// Time at which it must be requested again; `None` if it does not expire.
    pub until: Option<Instant>,
}

/// The user of a credential.
#[derive(Clone, Copy, Debug)]
pub enum User<'a> {
    /// The platform, in requests to an issuer.
    Platform,
    /// A call of the primitive at a server: the server's name and the primitive's id.
    Primitive(&'a str, &'a str),
}

/// Credentials by their names.
pub type NamedCredentials = HashMap<String, Credential>;

/// The credentials of a gateway.
pub struct Credentials {
    named: HashMap<String, HeldCredential>,
    outbound: Arc<Outbound>,
}

struct HeldCredential {
    credential: Credential,
    token: KeptToken,
}

/// The reason why a credential cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CredentialError {
    #[error("no credential has the name {0:?}: add it to the file that ASP_CREDENTIALS names")]
    Unknown(String),
    #[error("the credential {0:?} is for another origin")]
    Origin(String),
    #[error(
        "the credential {0:?} may not be used by {1}: if it should be, add that to its `for` in the file \
         that ASP_CREDENTIALS names"
    )]
    Primitive(String, String),
    #[error(
        "the credential {name:?} is for {origin}, which is not one of the plugin's hosts: list its host in \
         `security.allowedDomains` of the spec"
    )]
    Domain { name: String, origin: String },
    #[error("the credential {0:?} cannot be sent as a header: {1}")]
    Form(String, &'static str),
    #[error("the token endpoint of the credential {0:?}: {1}")]
    Token(String, NoToken),
}

impl Credentials {
    pub fn new(named: NamedCredentials, outbound: Arc<Outbound>) -> Credentials {
        let held = |credential| HeldCredential { credential, token: KeptToken::default() };
        Credentials { named: named.into_iter().map(|(name, one)| (name, held(one))).collect(), outbound }
    }

    /// Checks whether `user` may send the credential of this name to `url`.
    pub fn check(&self, name: &str, user: User<'_>, url: &Url) -> Result<(), CredentialError> {
        self.find(name, user, url).map(drop)
    }

    fn find(&self, name: &str, user: User<'_>, url: &Url) -> Result<&HeldCredential, CredentialError> {
        let held = self.named.get(name).ok_or_else(|| CredentialError::Unknown(name.to_owned()))?;
        let own = Url::parse(&held.credential.origin).map(|own| own.origin());
        if own.ok() != Some(url.origin()) {
            return Err(CredentialError::Origin(name.to_owned()));
        }
        if let User::Primitive(server, id) = user
            && !operator_list::allows(&held.credential.primitives, server, id)
        {
            return Err(CredentialError::Primitive(name.to_owned(), format!("{server}/{id}")));
        }
        Ok(held)
    }

    /// Returns the header that authenticates a request to `url`.
    pub async fn header(
        &self,
        name: &str,
        user: User<'_>,
        url: &Url,
    ) -> Result<(HeaderName, HeaderValue), CredentialError> {
        let HeldCredential { credential, token } = self.find(name, user, url)?;
        let (header, value) = match &credential.kind {
            Kind::Bearer(token) => (AUTHORIZATION, bearer(token)),
            Kind::Basic { user, password } => (AUTHORIZATION, basic(user, password.expose())),
            Kind::Header { name: header, value } => {
                let form = |_| CredentialError::Form(name.to_owned(), "its header name is not valid");
                (
                    HeaderName::try_from(header.as_str()).map_err(form)?,
                    HeaderValue::from_str(value.expose()).ok(),
                )
            }
            Kind::Client(client) => {
                // Boxed, so that the state of every request does not include this rare wait.
                let got = Box::pin(token.get(None, self.client_token(client))).await;
                let got = got.map_err(|fault| CredentialError::Token(name.to_owned(), fault))?;
                (AUTHORIZATION, bearer(&got))
            }
        };
        let mut value =
            value.ok_or_else(|| CredentialError::Form(name.to_owned(), "its text cannot be sent"))?;
        value.set_sensitive(true);
        Ok((header, value))
    }

    /// Leases a credential to the proxy of a plugin that may reach these `domains`.
    pub async fn lease(
        &self,
        name: &str,
        user: User<'_>,
        domains: &[String],
    ) -> Result<CredentialLease, CredentialError> {
        let held = self.named.get(name).ok_or_else(|| CredentialError::Unknown(name.to_owned()))?;
        let other = |_| CredentialError::Origin(name.to_owned());
        let url = Url::parse(&held.credential.origin).map_err(other)?;
        self.check(name, user, &url)?;
        let origin = url.origin().ascii_serialization();
        if !url
            .host_str()
            .is_some_and(|host| domains.iter().any(|domain| operator_list::names_host(domain, host)))
        {
            return Err(CredentialError::Domain { name: name.to_owned(), origin });
        }
        let (header, value) = self.header(name, user, &url).await?;
        let until = match &held.credential.kind {
            Kind::Client(_) => held.token.until().await,
            Kind::Bearer(_) | Kind::Basic { .. } | Kind::Header { .. } => None,
        };
        Ok(CredentialLease { origin, header, value, until })
    }

    /// Handles a service's rejection of [`Credentials::header`]; returns whether the next request gets another token.
    pub async fn refused(&self, name: &str) -> bool {
        match self.named.get(name) {
            Some(held) => held.token.forget().await,
            None => false,
        }
    }

    /// Returns the header that authenticates a gateway as an OAuth client at `url` (RFC 6749 section 2.3.1: both parts
    /// are form-encoded).
    pub(crate) async fn client_header(
        &self,
        name: &str,
        url: &Url,
    ) -> Result<(HeaderName, HeaderValue), CredentialError> {
        let plain = self.header(name, User::Platform, url).await?;
        let Some(Kind::Basic { user, password }) = self.named.get(name).map(|held| &held.credential.kind)
        else {
            return Ok(plain);
        };
        let mut value = basic(&encoded(user), &encoded(password.expose()))
            .ok_or_else(|| CredentialError::Form(name.to_owned(), "its text cannot be sent"))?;
        value.set_sensitive(true);
        Ok((AUTHORIZATION, value))
    }

    async fn client_token(&self, client: &OauthClient) -> Result<TokenGrant, NoToken> {
        let OauthClient { token_url, id, secret, scopes, audience } = client;
        // The URL is the operator's own setting.
        let destination = self.outbound.trusted(token_url);
        let destination = destination.map_err(|error| NoToken::Unavailable(error.to_string()))?;
        let request = destination.client.post(destination.url);
        let request = request.basic_auth(encoded(id), Some(encoded(secret.expose())));
        let scope = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        if let Some(audience) = audience {
            form.push(("audience", audience));
        }
        token_endpoint::ask(request, &form).await
    }
}

/// Returns the header with a bearer token; `None` if the token is not a valid header text.
pub fn bearer(token: &Secret) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kind: Kind, primitives: &[&str]) -> Credentials {
        let credential = Credential {
            origin: "https://login.example.com".into(),
            primitives: primitives.iter().map(|id| (*id).to_owned()).collect(),
            kind,
        };
        let outbound = Arc::new(Outbound::new().unwrap());
        Credentials::new(HashMap::from([("kc".to_owned(), credential)]), outbound)
    }

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn a_credential_goes_to_its_own_origin_and_is_not_printed() {
        let kind = Kind::Basic { user: "gw".into(), password: "s3cret".into() };
        assert!(!format!("{kind:?}").contains("s3cret"), "{kind:?}");
        let all = all(kind, &[]);
        let own = url("https://login.example.com:443/introspect");
        let (name, value) = all.header("kc", User::Platform, &own).await.unwrap();
        assert_eq!(name, AUTHORIZATION);
        assert!(value.is_sensitive() && !format!("{value:?}").contains("Basic"));
        for other in ["https://login.example.com:8443/", "http://login.example.com/", "https://example.com/"]
        {
            let refused = all.header("kc", User::Platform, &url(other)).await.unwrap_err();
            assert_eq!(refused, CredentialError::Origin("kc".into()), "{other}");
        }
        let refused = all.header("x", User::Platform, &url("https://a.b/")).await.unwrap_err();
        assert_eq!(refused, CredentialError::Unknown("x".into()));
    }

    #[tokio::test]
    async fn a_plugins_proxy_gets_it_for_a_host_that_the_plugin_may_reach() {
        let all = all(Kind::Bearer("t".into()), &["crm/find"]);
        for (domains, may) in [
            (&["login.example.com"][..], true),
            (&["*.example.com"][..], true),
            (&["other.example", "*.com"][..], true),
            (&[][..], false),
            (&["example.com"][..], false),
            (&["*.login.example.com"][..], false),
            (&["xlogin.example.com"][..], false),
        ] {
            let domains: Vec<String> = domains.iter().map(|domain| (*domain).to_owned()).collect();
            let got = all.lease("kc", User::Primitive("crm", "find"), &domains).await;
            assert_eq!(got.is_ok(), may, "{domains:?}");
            if let Ok(lease) = got {
                assert_eq!(
                    (lease.origin.as_str(), lease.header),
                    ("https://login.example.com", AUTHORIZATION)
                );
                assert!(lease.value.is_sensitive() && lease.until.is_none());
            }
            assert!(all.lease("kc", User::Primitive("other", "find"), &domains).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_spec_names_only_what_the_operator_gives_its_primitive() {
        let own = url("https://login.example.com/x");
        for (primitives, id, may) in [
            (&[][..], "find", false),
            (&["crm/find"][..], "find", true),
            (&["crm/fi*"][..], "find", true),
            (&["crm/*"][..], "find", true),
            (&["crm/find"][..], "find-all", false),
            // The same id at another team's server.
            (&["other/find", "other/*"][..], "find", false),
            (&["*"][..], "anything", true),
        ] {
            let all = all(Kind::Bearer("t".into()), primitives);
            let got = all.header("kc", User::Primitive("crm", id), &own).await;
            assert_eq!(got.is_ok(), may, "{primitives:?} {id}");
            assert!(all.header("kc", User::Platform, &own).await.is_ok());
        }
    }
}
