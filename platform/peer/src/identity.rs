//! The holder that a certificate names: one URI `spiffe://<trust domain>/asp/<role>/<name>`, and the addresses and DNS
//! names at which it may be reached (RFC 5280 section 4.2.1.6; SPIFFE X.509-SVID section 2).
//!
//! Keeps true: a certificate without such a URI, with two URIs or with an ambiguous one is refused.

use std::fmt;
use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Maximum length of a trust domain and of a name (SPIFFE-ID section 2.1; the length of a DNS name).
const MAX_PART: usize = 255;

/// Role of a process in the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves snapshots. One process may be control plane and gateway at once, so this role includes that of a gateway.
    Control,
    /// Subscribes to gateway snapshots, receives clients' requests, calls plugins.
    Gateway,
    /// Runs plugins.
    Runtime,
    /// Subscribes to the edge filter and to the gateways' addresses.
    Envoy,
}

impl Role {
    const ALL: [Role; 4] = [Role::Control, Role::Gateway, Role::Runtime, Role::Envoy];

    /// Returns the role as written in the certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Control => "control",
            Role::Gateway => "gateway",
            Role::Runtime => "runtime",
            Role::Envoy => "envoy",
        }
    }

    /// Whether a process of this role has the rights of `wanted`.
    pub fn may_act_as(self, wanted: Role) -> bool {
        self == wanted || (self == Role::Control && wanted == Role::Gateway)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reason why a certificate does not identify a process of the platform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "the certificate has {0} URIs among its subject alternative names; it needs one, \
         spiffe://<trust domain>/asp/<role>/<name>"
    )]
    Uris(usize),
    #[error(
        "the certificate's URI `{0}` is not spiffe://<trust domain>/asp/<control|gateway|runtime|envoy>/<name>"
    )]
    Malformed(String),
    #[error("the certificate `{uri}` belongs to another trust domain than this process (`{own}`)")]
    Domain { uri: String, own: String },
    #[error("the certificate `{uri}` names the role {found}; {wanted} is needed here")]
    Role { uri: String, found: Role, wanted: String },
}

/// Holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub domain: String,
    pub role: Role,
    pub name: String,
    addresses: Vec<IpAddr>,
    dns_names: Vec<String>,
}

impl Identity {
    /// Reads a certificate in DER. The handshake has already verified its authority.
    pub fn of(der: &[u8]) -> Result<Identity, IdentityError> {
        let unreadable = |error: &dyn fmt::Display| IdentityError::Unreadable(error.to_string());
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| unreadable(&error))?;
        if !rest.is_empty() {
            return Err(IdentityError::Unreadable("it is followed by further bytes".to_owned()));
        }
        let names = certificate.subject_alternative_name().map_err(|error| unreadable(&error))?;
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let mut uris = Vec::new();
        let mut addresses = Vec::new();
        let mut dns_names = Vec::new();
        for name in names {
            match name {
                GeneralName::URI(uri) => uris.push(*uri),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                GeneralName::Invalid(..) => {
                    return Err(IdentityError::Unreadable("a subject alternative name".to_owned()));
                }
                _ => {}
            }
        }
        let [uri] = uris.as_slice() else {
            return Err(IdentityError::Uris(uris.len()));
        };
        let (domain, role, name) = parts(uri).ok_or_else(|| IdentityError::Malformed(printable_uri(uri)))?;
        Ok(Identity { domain: domain.to_owned(), role, name: name.to_owned(), addresses, dns_names })
    }

    /// Whether the certificate names this address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }

    /// Returns the DNS names of the certificate, without wildcards.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(String::as_str).filter(|name| !name.contains('*'))
    }

    /// Returns the holder if it belongs to `domain` and may act as one of `roles`.
    pub fn admit(self, domain: &str, roles: &[Role]) -> Result<Identity, IdentityError> {
        if self.domain != domain {
            return Err(IdentityError::Domain { uri: self.to_string(), own: domain.to_owned() });
        }
        if !roles.iter().any(|wanted| self.role.may_act_as(*wanted)) {
            let wanted = roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ");
            return Err(IdentityError::Role { uri: self.to_string(), found: self.role, wanted });
        }
        Ok(self)
    }
}

/// Formats the certificate's URI.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/asp/{}/{}", self.domain, self.role, self.name)
    }
}

/// Splits a URI into trust domain, role and name. Only the characters of a SPIFFE ID are allowed: no percent encoding,
/// port, query or fragment, so that it can be read in one way only.
fn parts(uri: &str) -> Option<(&str, Role, &str)> {
    let mut segments = uri.strip_prefix("spiffe://")?.split('/');
    let domain = segments.next()?;
    let platform = segments.next()?;
    let role = segments.next()?;
    let name = segments.next()?;
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let good_domain = !domain.is_empty() && domain.len() <= MAX_PART && domain.bytes().all(lower);
    let good_name = !name.is_empty()
        && name.len() <= MAX_PART
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| lower(byte.to_ascii_lowercase()));
    if segments.next().is_some() || platform != "asp" || !good_domain || !good_name {
        return None;
    }
    let role = Role::ALL.into_iter().find(|known| known.as_str() == role)?;
    Some((domain, role, name))
}

/// Returns the URI for a message: bounded, without control characters.
fn printable_uri(uri: &str) -> String {
    uri.chars().filter(|character| !character.is_control()).take(MAX_PART).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(v4));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| IpAddr::from(v6).to_canonical())
}

#[cfg(test)]
mod tests;
