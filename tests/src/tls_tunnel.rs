//! A local port that stands before a TLS server, with a certificate of the client's or without: lets a raw client, which
//! speaks no TLS, be one that shows a certificate.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A running tunnel; it ends when dropped.
pub struct TlsTunnel {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl TlsTunnel {
    /// To `server`, whose certificate for its IP address `authority` has signed; `own` is the client's chain and its key.
    /// A server that refuses the client ends the client's connection without an answer.
    pub async fn start(
        server: SocketAddr,
        authority: &Path,
        own: Option<(&Path, &Path)>,
    ) -> Result<TlsTunnel> {
        let connector = TlsConnector::from(Arc::new(config(authority, own)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connector = connector.clone();
                tokio::spawn(async move { drop(carry(client, server, connector).await) });
            }
        });
        Ok(TlsTunnel { address, task })
    }
}

impl Drop for TlsTunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, connector: TlsConnector) -> Result<()> {
    let stream = TcpStream::connect(server).await?;
    let mut stream = connector.connect(ServerName::from(server.ip()), stream).await?;
    copy_bidirectional(&mut client, &mut stream).await?;
    Ok(())
}

fn config(authority: &Path, own: Option<(&Path, &Path)>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(authority)?) {
        roots.add(certificate?)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some((chain, key)) = own else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(&fs::read(chain)?).collect::<Result<Vec<_>, _>>()?;
    Ok(builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&fs::read(key)?)?)?)
}
