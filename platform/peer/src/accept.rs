//! The server's side: connections whose peer has proved a role that is taken here.
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
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::{Peer, Role};

const HANDSHAKE: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 4_096;
/// Connections that have proved themselves and wait for the server to take them.
const WAITING: usize = 16;
/// After a failed accept (out of file descriptors): long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of `listener` whose peers may act as one of `roles`, until the stream is dropped.
pub fn incoming(
    listener: TcpListener,
    peer: Peer,
    roles: &'static [Role],
) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
    let (proved, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::select! {
            () = proved.closed() => {}
            () = accept(listener, &peer, roles, &proved) => {}
        }
    });
    ReceiverStream::new(receiver)
}

type Proved = mpsc::Sender<io::Result<TlsStream<TcpStream>>>;

async fn accept(listener: TcpListener, peer: &Peer, roles: &'static [Role], proved: &Proved) {
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
        let peer = peer.clone();
        let proved = proved.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(stream) = prove(stream, address, &peer, roles).await {
                // Err: the server has ended.
                let _ = proved.send(Ok(stream)).await;
            }
        });
    }
}

async fn prove(
    stream: TcpStream,
    address: SocketAddr,
    peer: &Peer,
    roles: &[Role],
) -> Option<TlsStream<TcpStream>> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY is not set");
    }
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(peer.server()).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::info!(peer = %address, %error, "connection refused: no certificate of the platform's authority; give that process one, if it is the platform's");
            return None;
        }
        Err(_) => {
            tracing::debug!(peer = %address, "connection closed: no TLS handshake in time");
            return None;
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first())?;
    match peer.admit(certificate, roles) {
        Ok(_) => Some(stream),
        Err(reason) => {
            tracing::warn!(peer = %address, %reason, "connection refused: its certificate is not for this; give that process one whose role may connect here, or stop it");
            None
        }
    }
}
