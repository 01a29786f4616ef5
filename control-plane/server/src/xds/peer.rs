//! Who may subscribe: processes with a certificate of the platform's own authority (mutual TLS).
//!
//! A subscriber learns every policy, and one that claims to be a gateway is sent clients' requests: beyond
//! one machine both sides prove themselves. Keeps true: the private key prints as `***`.

use std::path::Path;

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::settings::PeerSection;

/// A file is missing.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct PeerError {
    path: String,
    source: std::io::Error,
}

/// This process's certificate, and the authority whose certificates it takes.
#[derive(Clone)]
pub struct Peer {
    identity: Identity,
    authority: Certificate,
    /// The name in the control plane's certificate; the host of its URL by default.
    name: Option<String>,
}

impl Peer {
    /// Reads the PEM files.
    pub fn read(section: &PeerSection) -> Result<Peer, PeerError> {
        let (certificate, key) = (pem(&section.certificate)?, pem(&section.key)?);
        Ok(Peer {
            identity: Identity::from_pem(certificate, key),
            authority: Certificate::from_pem(pem(&section.authority)?),
            name: section.name.clone(),
        })
    }

    /// For the server: clients without a certificate are refused.
    pub fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.identity.clone()).client_ca_root(self.authority.clone())
    }

    /// For a subscriber.
    pub fn client(&self) -> ClientTlsConfig {
        let config =
            ClientTlsConfig::new().identity(self.identity.clone()).ca_certificate(self.authority.clone());
        match &self.name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Peer(***)")
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, PeerError> {
    std::fs::read(path).map_err(|source| PeerError { path: path.display().to_string(), source })
}
