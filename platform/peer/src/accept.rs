//! The server's side: connections whose peer has proved a role that is taken here, or of anybody where people come.
//!
//! Bounds: `MAX_HANDSHAKES` at once, each for at most `HANDSHAKE`. A peer that says nothing, or that is not
//! taken, costs its own connection only.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{CertificateError, Error, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::{Peer, Role, Shown, Watched};

const HANDSHAKE: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 4_096;
/// Connections that have proved themselves and wait for the server to take them.
const WAITING: usize = 16;
/// After a failed accept (out of file descriptors): long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is let in.
#[derive(Clone)]
enum Door {
    Proved(Peer, &'static [Role]),
    Anybody(Shown),
}

impl Door {
    fn settings(&self) -> Arc<ServerConfig> {
        match self {
            Door::Proved(peer, _) => peer.server(),
            Door::Anybody(shown) => shown.server(),
        }
    }
}

/// The connections of `listener` whose peers may act as one of `roles`, until the stream is dropped.
pub fn incoming(
    listener: TcpListener,
    peer: Peer,
    roles: &'static [Role],
) -> ReceiverStream<io::Result<TlsStream<Watched>>> {
    connections(listener, Door::Proved(peer, roles))
}

/// The connections of `listener`, whose peers show no certificate, until the stream is dropped.
pub fn incoming_from_anybody(
    listener: TcpListener,
    shown: Shown,
) -> ReceiverStream<io::Result<TlsStream<Watched>>> {
    connections(listener, Door::Anybody(shown))
}

fn connections(listener: TcpListener, door: Door) -> ReceiverStream<io::Result<TlsStream<Watched>>> {
    let (proved, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::select! {
            () = proved.closed() => {}
            () = accept(listener, &door, &proved) => {}
        }
    });
    ReceiverStream::new(receiver)
}

type Proved = mpsc::Sender<io::Result<TlsStream<Watched>>>;

async fn accept(listener: TcpListener, door: &Door, proved: &Proved) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        // Err: the semaphore is never closed.
        let permit = Arc::clone(&handshakes).acquire_owned().await;
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The peer's fault: it is gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted and the next try comes after a pause: if the limit on open files is reached, raise it");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let door = door.clone();
        let proved = proved.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(stream) = prove(stream, address, &door).await {
                // Err: the server has ended.
                let _ = proved.send(Ok(stream)).await;
            }
        });
    }
}

async fn prove(stream: TcpStream, address: SocketAddr, door: &Door) -> Option<TlsStream<Watched>> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY is not set");
    }
    let (stream, end) = Watched::new(stream);
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(door.settings()).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Probes of whoever looks only whether the port is open do so every few seconds.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            tracing::debug!(peer = %address, "connection closed before its TLS handshake");
            return None;
        }
        Ok(Err(error)) => {
            let way_out = way_out(&error);
            tracing::info!(peer = %address, %error, "connection refused: {way_out}");
            return None;
        }
        Err(_) => {
            tracing::debug!(peer = %address, "connection closed: no TLS handshake in time");
            return None;
        }
    };
    let Door::Proved(peer, roles) = door else { return Some(stream) };
    let chain = stream.get_ref().1.peer_certificates()?;
    match peer.admit(chain.first()?, roles) {
        Ok(_) => {
            peer.watch(chain, end);
            Some(stream)
        }
        Err(reason) => {
            tracing::warn!(peer = %address, %reason, "connection refused: its certificate is not for this; give that process one whose role may connect here, or stop it");
            None
        }
    }
}

/// What to do about a handshake that failed, if the other side is the platform's.
fn way_out(error: &io::Error) -> &'static str {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    match error {
        Some(Error::InvalidCertificate(CertificateError::Revoked)) => {
            "its certificate is revoked; give that process a new one, or stop it"
        }
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has expired; renew it",
        Some(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)) => {
            "its authority has no list in the file of revoked certificates; add that, or give that process a certificate of \
             another authority"
        }
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => {
            "no certificate of the platform's authority; give that process one, if it is the platform's"
        }
        _ => {
            "the TLS handshake failed; the other side may not take this process's certificate, or speak no TLS"
        }
    }
}
