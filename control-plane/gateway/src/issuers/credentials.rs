//! The operator's credentials, by name: how a gateway proves itself to a service.
//!
//! Keeps true: a credential goes to its own origin only; none can be printed.

use std::collections::HashMap;

use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};

/// One credential.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The only origin it goes to: `scheme://host[:port]`.
    pub origin: String,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// RFC 6750.
    Bearer(SecretString),
    /// RFC 7617; of an OAuth client RFC 6749 section 2.3.1.
    Basic { user: String, password: SecretString },
    /// A header of the service's own.
    Header { name: String, value: SecretString },
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    named: HashMap<String, Credential>,
}

/// Why a credential is not used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CredentialError {
    #[error("no credential has the name {0:?}: add it to the file that ASP_CREDENTIALS names")]
    Unknown(String),
    #[error("the credential {0:?} is for another origin")]
    Origin(String),
}

impl Credentials {
    pub fn new(named: HashMap<String, Credential>) -> Credentials {
        Credentials { named }
    }

    /// Adds a credential to a request to `url`.
    pub(crate) fn apply(
        &self,
        name: &str,
        url: &reqwest::Url,
        request: RequestBuilder,
    ) -> Result<RequestBuilder, CredentialError> {
        let credential = self.named.get(name).ok_or_else(|| CredentialError::Unknown(name.to_owned()))?;
        let own = reqwest::Url::parse(&credential.origin).map(|own| own.origin());
        if own.ok() != Some(url.origin()) {
            return Err(CredentialError::Origin(name.to_owned()));
        }
        Ok(match &credential.kind {
            Kind::Bearer(token) => request.bearer_auth(token.expose_secret()),
            Kind::Basic { user, password } => request.basic_auth(user, Some(password.expose_secret())),
            Kind::Header { name, value } => request.header(name, value.expose_secret()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_goes_to_its_own_origin_and_is_not_printed() {
        let kind = Kind::Basic { user: "gw".into(), password: "s3cret".into() };
        let credential = Credential { origin: "https://login.example.com".into(), kind };
        let all = Credentials::new(HashMap::from([("kc".to_owned(), credential)]));
        assert!(!format!("{all:?}").contains("s3cret"), "{all:?}");
        let client = reqwest::Client::new();
        let apply = |name: &str, url: &str| {
            let url: reqwest::Url = url.parse().unwrap();
            all.apply(name, &url, client.get(url.clone())).map(|request| request.build().unwrap())
        };
        let sent = apply("kc", "https://login.example.com:443/introspect").unwrap();
        assert!(sent.headers().contains_key("authorization"));
        for url in ["https://login.example.com:8443/", "http://login.example.com/", "https://example.com/"] {
            assert_eq!(apply("kc", url).unwrap_err(), CredentialError::Origin("kc".into()), "{url}");
        }
        assert_eq!(apply("x", "https://a.b/").unwrap_err(), CredentialError::Unknown("x".into()));
    }
}
