//! What a certificate says of its holder: one URI `spiffe://<trust domain>/asp/<role>/<name>`, and the addresses
//! and DNS names at which it may be reached (RFC 5280 section 4.2.1.6; SPIFFE X.509-SVID section 2).
//!
//! Keeps true: a certificate with no such URI, with two URIs or with a URI that is read in two ways is refused.

use std::fmt;
use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Longest trust domain and longest name (SPIFFE-ID section 2.1; the length of a DNS name).
const MAX_PART: usize = 255;

/// What a process of the platform is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves snapshots. One process may be control plane and gateway at once: it may do what a gateway may.
    Control,
    /// Subscribes to gateway snapshots, is sent clients' requests, calls plugins.
    Gateway,
    /// Runs plugins.
    Runtime,
    /// Subscribes to the edge filter and to the gateways' addresses.
    Envoy,
}

impl Role {
    const ALL: [Role; 4] = [Role::Control, Role::Gateway, Role::Runtime, Role::Envoy];

    /// As it stands in the certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Control => "control",
            Role::Gateway => "gateway",
            Role::Runtime => "runtime",
            Role::Envoy => "envoy",
        }
    }

    /// Whether a process of this role may do what one of `wanted` may.
    pub fn may_act_as(self, wanted: Role) -> bool {
        self == wanted || (self == Role::Control && wanted == Role::Gateway)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a certificate names nobody whom the platform knows.
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
    #[error("the certificate `{uri}` is of another trust domain than this process, which is of `{own}`")]
    Domain { uri: String, own: String },
    #[error("the certificate `{uri}` names the role {found}; {wanted} is needed here")]
    Role { uri: String, found: Role, wanted: String },
}

/// Who holds a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub domain: String,
    pub role: Role,
    pub name: String,
    addresses: Vec<IpAddr>,
    dns_names: Vec<String>,
}

impl Identity {
    /// Reads a certificate in DER. Whether its authority is trusted has been judged by the handshake.
    pub fn of(der: &[u8]) -> Result<Identity, IdentityError> {
        let unreadable = |error: &dyn fmt::Display| IdentityError::Unreadable(error.to_string());
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| unreadable(&error))?;
        if !rest.is_empty() {
            return Err(IdentityError::Unreadable("bytes follow it".to_owned()));
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
        let (domain, role, name) = parts(uri).ok_or_else(|| IdentityError::Malformed(shown(uri)))?;
        Ok(Identity { domain: domain.to_owned(), role, name: name.to_owned(), addresses, dns_names })
    }

    /// Whether the certificate names this address itself.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }

    /// The DNS names of the certificate; wildcards are none.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(String::as_str).filter(|name| !name.contains('*'))
    }

    /// The holder, if it is of `domain` and may act as one of `roles`.
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

/// The URI of the certificate.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/asp/{}/{}", self.domain, self.role, self.name)
    }
}

/// Trust domain, role and name. The characters are those of a SPIFFE ID: no percent encoding, port, query or
/// fragment, so that there is one way to read it.
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

/// For a message: bounded, without control characters.
fn shown(uri: &str) -> String {
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
