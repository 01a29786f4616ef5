//! The client's side: connections to a server that proved the wanted role.

use std::io;

use http::Uri;
use http::uri::{Parts, Scheme};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::Service;

use crate::{IdentityError, Peer, RevocableStream, Role};

const HTTPS: u16 = 443;

/// Failure to establish a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{0} has no host")]
    Host(Uri),
    #[error("connect to {address}: {source}")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("{address} has an unexpected identity: {source}")]
    Identity {
        address: String,
        #[source]
        source: IdentityError,
    },
    #[error("{0} presented no certificate")]
    Nobody(String),
}

/// Returns a connector for a gRPC channel that does TLS itself: give the channel [`endpoint_uri`]. `name` is the DNS
/// name or address in the server's certificate; the URL's host by default.
pub fn connector(
    peer: Peer,
    server: Role,
    name: Option<String>,
) -> impl Service<
    Uri,
    Response = TokioIo<TlsStream<RevocableStream>>,
    Error = ConnectError,
    Future = impl Future<Output = Result<TokioIo<TlsStream<RevocableStream>>, ConnectError>> + Send,
> + Clone
+ Send
+ 'static {
    tower::service_fn(move |uri: Uri| {
        let peer = peer.clone();
        let name = name.clone();
        async move { connect(&peer, server, name.as_deref(), &uri).await.map(TokioIo::new) }
    })
}

/// Returns the URL for the channel: with the scheme `https` the channel would do TLS a second time.
pub fn endpoint_uri(uri: &Uri) -> Uri {
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = uri.authority().map(|authority| {
        let with_port = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(HTTPS));
        with_port.parse().unwrap_or_else(|_| authority.clone())
    });
    parts.path_and_query = uri.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

async fn connect(
    peer: &Peer,
    server: Role,
    name: Option<&str>,
    uri: &Uri,
) -> Result<TlsStream<RevocableStream>, ConnectError> {
    let host = uri.host().ok_or_else(|| ConnectError::Host(uri.clone()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(HTTPS);
    let address = format!("{host}:{port}");
    let failed = |source| ConnectError::Connect { address: address.clone(), source };
    let wanted = ServerName::try_from(name.unwrap_or(host).to_owned())
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (stream, end) = RevocableStream::new(stream);
    let stream = TlsConnector::from(peer.client()).connect(wanted, stream).await.map_err(failed)?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().ok_or_else(|| ConnectError::Nobody(address.clone()))?;
    match peer.admit(certificate, &[server]) {
        Ok(_) => {
            peer.watch(chain, end);
            Ok(stream)
        }
        Err(source) => Err(ConnectError::Identity { address, source }),
    }
}
