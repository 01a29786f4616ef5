//! This process's own certificate and the authority it trusts, read from files and read again when they change.
//!
//! Owns: the TLS settings of both sides. Keeps true: renewed files are used from the next connection on; files that are
//! broken, half written or belong to another process leave the previous ones in use; the private key is never
//! disclosed; the certificates of every connection are verified in full.

use std::path::PathBuf;
use std::sync::{Arc, Once, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::files::{FileCache, PeerError, certificates, fault, key};
use crate::open::{CloseHandle, LOOK, OpenConnections};
use crate::revoked::{self, RevocationLists};
use crate::{Identity, IdentityError, Role};

/// ALPN protocol: the platform's processes speak only HTTP/2 with each other.
const ALPN: &[u8] = b"h2";

/// Number of checks of the open connections after a change: a handshake that began before it may end this much later.
const JUDGED: u32 = 4;

/// PEM files of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// Certificate of the process, followed by those of intermediate authorities up to `authority`.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authority that signs every process's certificate.
    pub authority: PathBuf,
    /// The authority's certificate revocation list; `None` if nothing is revoked.
    pub revoked: Option<PathBuf>,
}

impl PeerFiles {
    fn all(&self) -> Vec<PathBuf> {
        let always = [&self.certificate, &self.key, &self.authority];
        always.into_iter().chain(&self.revoked).cloned().collect()
    }
}

/// This process, as the others know it. Clones share the loaded settings.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    files: PeerFiles,
    role: Role,
    domain: String,
    current: FileCache<Settings>,
    /// Due time of the overdue list that was reported last.
    told_late: Mutex<Option<SystemTime>>,
    open: OpenConnections,
    looking: Once,
}

#[derive(Clone)]
struct Settings {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// Time at which the list of revoked certificates is due for replacement.
    due: Option<SystemTime>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Peer {
    /// Reads the files. The certificate must name `role`; its trust domain becomes this process's.
    pub fn open(files: PeerFiles, role: Role) -> Result<Peer, PeerError> {
        let mut domain = String::new();
        let current = FileCache::open(files.all(), || {
            let (identity, settings) = load(&files)?;
            domain.clone_from(&identity.domain);
            admitted(identity, &domain, role, &files)?;
            Ok(settings)
        })?;
        let peer = Peer {
            inner: Arc::new(Inner {
                files,
                role,
                domain,
                current,
                told_late: Mutex::default(),
                open: OpenConnections::default(),
                looking: Once::new(),
            }),
        };
        peer.reload_if_changed();
        Ok(peer)
    }

    /// Checks the other side's certificate.
    pub fn admit(&self, der: &[u8], roles: &[Role]) -> Result<Identity, IdentityError> {
        Identity::of(der)?.admit(&self.inner.domain, roles)
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.reload_if_changed().server
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.reload_if_changed().client
    }

    /// Returns the settings, read again if a file has changed since.
    fn reload_if_changed(&self) -> Settings {
        let Inner { files, role, domain, current, .. } = self.inner.as_ref();
        let settings = current.reload_if_changed(|| {
            let (identity, settings) = load(files)?;
            admitted(identity, domain, *role, files)?;
            Ok(settings)
        });
        self.report_overdue(settings.due);
        settings
    }

    /// Closes the connection of `end` when a certificate of `chain`, shown by its other side, is revoked.
    pub(crate) fn watch(&self, chain: &[CertificateDer<'_>], end: CloseHandle) {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        self.inner.open.add(chain, end);
        self.inner.looking.call_once(|| {
            tokio::spawn(check_files(Arc::downgrade(&self.inner)));
        });
    }

    /// Reports each overdue list once.
    fn report_overdue(&self, due: Option<SystemTime>) {
        let (Some(due), Some(list)) = (due, &self.inner.files.revoked) else { return };
        if due > SystemTime::now() || self.inner.told_late.lock().replace(due) == Some(due) {
            return;
        }
        tracing::warn!(
            list = %list.display(),
            "the list of revoked certificates is past its next update; it stays in force without later \
             revocations: install the authority's newest list"
        );
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

/// Checks the files as long as the process has a `Peer`.
async fn check_files(inner: Weak<Inner>) {
    let mut before: Option<Settings> = None;
    let mut judging = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(inner) = inner.upgrade() else { return };
        let peer = Peer { inner };
        let settings = peer.reload_if_changed();
        peer.inner.open.remove_ended();
        // Also the first time: a list may be newer than the connection that started this task.
        if before.is_none_or(|before| !Arc::ptr_eq(&before.verifier, &settings.verifier)) {
            judging = JUDGED;
        }
        if judging > 0 {
            judging -= 1;
            peer.inner.open.end_revoked(&settings.verifier);
        }
        before = Some(settings);
    }
}

fn admitted(identity: Identity, domain: &str, role: Role, files: &PeerFiles) -> Result<(), PeerError> {
    match identity.admit(domain, &[role]) {
        Ok(_) => Ok(()),
        Err(source) => Err(PeerError::Identity { path: files.certificate.display().to_string(), source }),
    }
}

fn load(files: &PeerFiles) -> Result<(Identity, Settings), PeerError> {
    let chain = certificates(&files.certificate)?;
    let own = chain.first().ok_or_else(|| fault(&files.certificate, "it has no certificate"))?;
    let identity = Identity::of(own)
        .map_err(|source| PeerError::Identity { path: files.certificate.display().to_string(), source })?;
    let key = key(&files.key)?;
    let authorities = certificates(&files.authority)?;
    let lists = match &files.revoked {
        Some(path) => revoked::read(path, &authorities)?,
        None => RevocationLists { der: Vec::new(), due: None },
    };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| fault(&files.authority, error))?;
    }
    let roots = Arc::new(roots);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .with_crls(lists.der.clone())
        .build()
        .map_err(unfit)?;
    if let Some(path) = &files.revoked {
        revoked::check_chain(path, clients.as_ref(), &chain)?;
    }
    let verifier = Arc::clone(&clients);
    let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .with_crls(lists.der)
        .build()
        .map_err(unfit)?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unfit)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would reuse the certificate that was verified when it began, which may have expired since.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain, key)
        .map_err(unfit)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.resumption = Resumption::disabled();
    let settings = Settings { server: Arc::new(server), client: Arc::new(client), due: lists.due, verifier };
    Ok((identity, settings))
}

fn unfit(error: impl std::fmt::Display) -> PeerError {
    PeerError::Tls(error.to_string())
}

#[cfg(test)]
mod tests;
