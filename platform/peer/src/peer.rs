//! This process's own certificate and the authority it trusts, read from files and read again when they change.
//!
//! Owns: the TLS settings of both sides. Keeps true: files that were renewed are used from the next connection
//! on; files that are broken, half written or of somebody else leave the previous ones in use; the private key is
//! never shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{Identity, IdentityError, Role};

/// HTTP/2 is all that is spoken between the platform's processes.
const ALPN: &[u8] = b"h2";

/// PEM files of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// The certificate, then those of the authorities between it and `authority`.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authority that signs every process's certificate.
    pub authority: PathBuf,
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("{path}: {fault}")]
    File { path: String, fault: String },
    #[error("{path}: {source}")]
    Identity {
        path: String,
        #[source]
        source: IdentityError,
    },
    #[error("certificate, key and authority do not fit together: {0}")]
    Tls(String),
}

/// This process, as the others know it. Clones share what was read.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    files: PeerFiles,
    role: Role,
    domain: String,
    current: Mutex<Current>,
}

struct Current {
    stamps: Stamps,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// When each file was written; a mounted secret is exchanged by exchanging the file.
type Stamps = [Option<SystemTime>; 3];

impl Peer {
    /// Reads the files. The certificate must name `role`; its trust domain is this process's.
    pub fn open(files: PeerFiles, role: Role) -> Result<Peer, PeerError> {
        let stamps = stamps(&files);
        let (identity, settings) = load(&files)?;
        let domain = identity.domain.clone();
        admitted(identity, &domain, role, &files)?;
        let current = Mutex::new(Current { stamps, settings });
        Ok(Peer { inner: Arc::new(Inner { files, role, domain, current }) })
    }

    /// Judges the other side's certificate.
    pub fn admit(&self, der: &[u8], roles: &[Role]) -> Result<Identity, IdentityError> {
        Identity::of(der)?.admit(&self.inner.domain, roles)
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.fresh().server
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.fresh().client
    }

    /// The settings, read again if a file has changed since.
    fn fresh(&self) -> Settings {
        let Inner { files, role, domain, current } = self.inner.as_ref();
        let mut current = current.lock();
        let stamps = stamps(files);
        if stamps != current.stamps {
            // Files that are unusable are told once and looked at again when they change again.
            current.stamps = stamps;
            match load(files).and_then(|(identity, settings)| {
                admitted(identity, domain, *role, files)?;
                Ok(settings)
            }) {
                Ok(settings) => {
                    current.settings = settings;
                    tracing::info!(certificate = %files.certificate.display(), "the renewed certificate is in use");
                }
                Err(error) => tracing::warn!(
                    %error,
                    "the renewed certificate cannot be used and the previous one stays in use until it expires: mend its files"
                ),
            }
        }
        current.settings.clone()
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { files, role, domain, .. } = self.inner.as_ref();
        f.debug_struct("Peer")
            .field("files", files)
            .field("role", role)
            .field("domain", domain)
            .finish_non_exhaustive()
    }
}

fn admitted(identity: Identity, domain: &str, role: Role, files: &PeerFiles) -> Result<(), PeerError> {
    match identity.admit(domain, &[role]) {
        Ok(_) => Ok(()),
        Err(source) => Err(PeerError::Identity { path: files.certificate.display().to_string(), source }),
    }
}

fn stamps(files: &PeerFiles) -> Stamps {
    [&files.certificate, &files.key, &files.authority]
        .map(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
}

fn load(files: &PeerFiles) -> Result<(Identity, Settings), PeerError> {
    let chain = certificates(&files.certificate)?;
    let own = chain.first().ok_or_else(|| fault(&files.certificate, "no certificate in it"))?;
    let identity = Identity::of(own)
        .map_err(|source| PeerError::Identity { path: files.certificate.display().to_string(), source })?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| fault(&files.key, error))?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authority)? {
        roots.add(authority).map_err(|error| fault(&files.authority, error))?;
    }
    let roots = Arc::new(roots);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let unfit = |error: &dyn std::fmt::Display| PeerError::Tls(error.to_string());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(|error| unfit(&error))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(|error| unfit(&error))?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| unfit(&error))?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    Ok((identity, Settings { server: Arc::new(server), client: Arc::new(client) }))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PeerError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| fault(path, error))?;
    read.collect::<Result<Vec<_>, _>>().map_err(|error| fault(path, error))
}

fn fault(path: &Path, fault: impl std::fmt::Display) -> PeerError {
    PeerError::File { path: path.display().to_string(), fault: fault.to_string() }
}
