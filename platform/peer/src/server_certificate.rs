//! A server certificate for clients without one: people and their programs, who authenticate otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;

use crate::files::{self, FileCache, PeerError, certificates};

/// ALPN protocols: HTTP/2 and HTTP/1.1, whichever the client prefers.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Certificate of a server, read again when its files change. Clones share the loaded settings.
#[derive(Clone)]
pub struct ServerCertificate {
    inner: Arc<Inner>,
}

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    current: FileCache<Arc<ServerConfig>>,
}

impl ServerCertificate {
    /// Reads PEM files: the certificate, followed by intermediate authorities up to one that clients trust; and its
    /// key.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<ServerCertificate, PeerError> {
        let both = vec![certificate.clone(), key.clone()];
        let current = FileCache::open(both, || load(&certificate, &key))?;
        Ok(ServerCertificate { inner: Arc::new(Inner { certificate, key, current }) })
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let Inner { certificate, key, current } = self.inner.as_ref();
        current.reload_if_changed(|| load(certificate, key))
    }
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerCertificate")
            .field("certificate", &self.inner.certificate)
            .finish_non_exhaustive()
    }
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, PeerError> {
    let chain = certificates(certificate)?;
    let key = files::key(key)?;
    let unfit = |error: &dyn std::fmt::Display| PeerError::Tls(error.to_string());
    let mut server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unfit(&error))?;
    server.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(server))
}
