//! Certificates and keys for the connections of the edge and of the admin API, and those between the platform's own processes.

use std::path::PathBuf;

use super::source::{Reader, absolute};

pub const ENV_TLS_CERT: &str = "ASP_TLS_CERT";
pub const ENV_TLS_KEY: &str = "ASP_TLS_KEY";
pub const ENV_ADMIN_TLS_CERT: &str = "ASP_ADMIN_TLS_CERT";
pub const ENV_ADMIN_TLS_KEY: &str = "ASP_ADMIN_TLS_KEY";
pub const ENV_PEER_CERT: &str = "ASP_PEER_CERT";
pub const ENV_PEER_KEY: &str = "ASP_PEER_KEY";
pub const ENV_PEER_CA: &str = "ASP_PEER_CA";
pub const ENV_PEER_CRL: &str = "ASP_PEER_CRL";
pub const ENV_PEER_NAME: &str = "ASP_PEER_NAME";
pub const ENV_PEER_PLAINTEXT: &str = "ASP_PEER_PLAINTEXT";

/// Certificate and key (PEM files) of a listener whose clients present no certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Mutual TLS between the platform's own processes: PEM files.
#[derive(Clone, Debug)]
pub struct PeerSection {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authority that signed both sides' certificates.
    pub authority: PathBuf,
    /// Revocation list of that authority.
    pub revoked: Option<PathBuf>,
    pub name: Option<String>,
}

pub(super) fn edge(reader: &mut Reader<'_>) -> Option<Tls> {
    pair(reader, ENV_TLS_CERT, ENV_TLS_KEY)
}

pub(super) fn admin(reader: &mut Reader<'_>) -> Option<Tls> {
    pair(reader, ENV_ADMIN_TLS_CERT, ENV_ADMIN_TLS_KEY)
}

fn pair(reader: &mut Reader<'_>, certificate: &str, key: &str) -> Option<Tls> {
    match (reader.optional(certificate), reader.optional(key)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: absolute(certificate.into()), key: absolute(key.into()) })
        }
        (Some(_), None) => {
            reader.fault(key, format!("is required with {certificate}"));
            None
        }
        (None, Some(_)) => {
            reader.fault(certificate, format!("is required with {key}"));
            None
        }
    }
}

pub(super) fn peer(reader: &mut Reader<'_>) -> Option<PeerSection> {
    let names = [ENV_PEER_CERT, ENV_PEER_KEY, ENV_PEER_CA];
    let values = names.map(|name| reader.optional(name).map(PathBuf::from));
    let revoked = reader.optional(ENV_PEER_CRL).map(PathBuf::from);
    let name = reader.optional(ENV_PEER_NAME);
    match values {
        [Some(certificate), Some(key), Some(authority)] => {
            Some(PeerSection { certificate, key, authority, revoked, name })
        }
        [None, None, None] if revoked.is_some() => {
            reader.fault(ENV_PEER_CRL, format!("needs {ENV_PEER_CERT}, {ENV_PEER_KEY} and {ENV_PEER_CA}"));
            None
        }
        [None, None, None] => None,
        values => {
            for (name, value) in names.iter().zip(values) {
                if value.is_none() {
                    reader.fault(name, "is required: certificate, key and authority come together");
                }
            }
            None
        }
    }
}

pub(super) fn mesh(reader: &mut Reader<'_>) -> bool {
    match reader.optional(ENV_PEER_PLAINTEXT).as_deref() {
        None => false,
        Some("mesh") => true,
        Some(other) => {
            reader.fault(ENV_PEER_PLAINTEXT, format!("must be mesh or unset, not `{other}`"));
            false
        }
    }
}
