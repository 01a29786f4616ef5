//! A certificate for clients that show none: people and their programs, who prove themselves otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;

use crate::files::{self, PeerError, Renewed, certificates};

/// HTTP/2 and HTTP/1.1, as clients like.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What a server shows, read again when its files change. Clones share what was read.
#[derive(Clone)]
pub struct Shown {
    inner: Arc<Inner>,
}

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    current: Renewed<Arc<ServerConfig>>,
}

impl Shown {
    /// Reads PEM files: the certificate, then those of the authorities between it and one that clients trust; its key.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Shown, PeerError> {
        let both = vec![certificate.clone(), key.clone()];
        let current = Renewed::open(both, || load(&certificate, &key))?;
        Ok(Shown { inner: Arc::new(Inner { certificate, key, current }) })
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let Inner { certificate, key, current } = self.inner.as_ref();
        current.fresh(|| load(certificate, key))
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").field("certificate", &self.inner.certificate).finish_non_exhaustive()
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
