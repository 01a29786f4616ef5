//! The server's side: connections whose peer proved an accepted role, or of any client where people connect.
//!
//! Bounds: `MAX_HANDSHAKES` at once, each for at most `HANDSHAKE`. A peer that is silent or refused costs only its own
//! connection.

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
use tokio_stream::{Stream, StreamExt};

use crate::{Peer, RevocableStream, Role, ServerCertificate};

const HANDSHAKE: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 4_096;
/// Maximum number of connections that completed the handshake and wait for the server.
const WAITING: usize = 16;
/// Pause after a failed accept (out of file descriptors): long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Remedy for a certificate whose role is not accepted.
const WRONG_ROLE: &str =
    "its certificate is not for this; give that process one whose role may connect here, or stop it";

/// Admission rule of a listener.
#[derive(Clone)]
enum Door {
    Proved(Peer, &'static [Role]),
    Anybody(ServerCertificate),
}

impl Door {
    fn settings(&self) -> Arc<ServerConfig> {
        match self {
            Door::Proved(peer, _) => peer.server(),
            Door::Anybody(certificate) => certificate.server(),
        }
    }
}

/// Returns the accepted connections, and pauses after each failed accept, which servers repeat at once.
pub fn paced<T>(accepted: impl Stream<Item = io::Result<T>>) -> impl Stream<Item = io::Result<T>> {
    accepted.then(|accepted| async move {
        if let Err(error) = &accepted {
            pause_after_failed_accept(error).await;
        }
        accepted
    })
}

/// Logs a failed accept and waits, unless the peer caused it by leaving.
pub async fn pause_after_failed_accept(error: &io::Error) {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    tracing::error!(%error, "connection could not be accepted, retrying; raise the limit on open files if it is reached");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Returns the connections of `listener` whose peers may act as one of `roles`; the listener closes when the stream is
/// dropped.
pub fn incoming(
    listener: TcpListener,
    peer: Peer,
    roles: &'static [Role],
) -> ReceiverStream<io::Result<TlsStream<RevocableStream>>> {
    connections(listener, Door::Proved(peer, roles))
}

/// Returns the connections of `listener`, whose peers have no certificate; the listener closes when the stream is
/// dropped.
pub fn incoming_from_anybody(
    listener: TcpListener,
    certificate: ServerCertificate,
) -> ReceiverStream<io::Result<TlsStream<RevocableStream>>> {
    connections(listener, Door::Anybody(certificate))
}

fn connections(listener: TcpListener, door: Door) -> ReceiverStream<io::Result<TlsStream<RevocableStream>>> {
    let (proved, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::select! {
            () = proved.closed() => {}
            () = accept(listener, &door, &proved) => {}
        }
    });
    ReceiverStream::new(receiver)
}

type StreamSender = mpsc::Sender<io::Result<TlsStream<RevocableStream>>>;

async fn accept(listener: TcpListener, door: &Door, proved: &StreamSender) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        // Err: the semaphore is never closed.
        let permit = Arc::clone(&handshakes).acquire_owned().await;
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after_failed_accept(&error).await;
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

async fn prove(stream: TcpStream, address: SocketAddr, door: &Door) -> Option<TlsStream<RevocableStream>> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let (stream, end) = RevocableStream::new(stream);
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(door.settings()).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Port probes do this every few seconds.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            tracing::debug!(peer = %address, "connection closed before its TLS handshake");
            return None;
        }
        Ok(Err(error)) => {
            tracing::info!(peer = %address, %error, remedy = remedy(&error), "connection refused");
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
            tracing::warn!(peer = %address, %reason, remedy = WRONG_ROLE, "connection refused");
            None
        }
    }
}

/// Returns the remedy for a failed handshake, if the other side belongs to the platform.
fn remedy(error: &io::Error) -> &'static str {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    match error {
        Some(Error::InvalidCertificate(CertificateError::Revoked)) => {
            "its certificate is revoked; give that process a new one, or stop it"
        }
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "its certificate has expired; renew it",
        Some(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)) => {
            "its authority has no list in the file of revoked certificates; add one, or give that process a certificate of \
             another authority"
        }
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => {
            "it has no certificate of the platform's authority; give it one if it belongs to the platform"
        }
        _ => {
            "the TLS handshake failed; the other side may not accept this process's certificate, or not use TLS"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::Instant;

    use super::*;

    /// Too many open files; tonic polls again at once after any error.
    #[tokio::test(start_paused = true)]
    async fn a_failed_accept_is_not_repeated_at_once_but_for_a_peer_that_left() {
        let scarce = io::Error::other("Too many open files");
        let left = io::Error::from(io::ErrorKind::ConnectionAborted);
        let mut accepted = pin!(paced(tokio_stream::iter([Err(left), Err(scarce), Ok("connection")])));
        let began = Instant::now();
        assert!(accepted.next().await.unwrap().is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(accepted.next().await.unwrap().is_err());
        assert!(began.elapsed() >= ACCEPT_PAUSE);
        assert_eq!(accepted.next().await.unwrap().unwrap(), "connection");
    }
}
