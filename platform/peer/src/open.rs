//! Open connections, each of which ends when the other side's certificate is revoked.
//!
//! Subscriptions and tunnels last for days: refusing new connections alone would leave a stolen certificate its
//! existing ones. Keeps true: files are checked every [`LOOK`] while connections are open, so that unusable renewed
//! files are reported before the next connection. Bound: one entry per connection, removed at the next check after its
//! end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CertificateError, Error};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Interval between checks of the files.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// Socket that can be closed from elsewhere.
pub struct RevocableStream {
    stream: TcpStream,
    /// `None` if nothing can close it.
    ended: Option<oneshot::Receiver<()>>,
    revoked: bool,
}

/// Handle that closes a [`RevocableStream`].
pub(crate) struct CloseHandle(oneshot::Sender<()>);

impl RevocableStream {
    pub(crate) fn new(stream: TcpStream) -> (RevocableStream, CloseHandle) {
        let (end, ended) = oneshot::channel();
        (RevocableStream { stream, ended: Some(ended), revoked: false }, CloseHandle(end))
    }

    /// Returns the address of the other side; fails once it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    fn is_ended(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(told) = Pin::new(ended).poll(context)
        {
            // Err: the sender was dropped. The receiver must not be polled again.
            self.ended = None;
            self.revoked = told.is_ok();
        }
        self.revoked
    }
}

impl AsyncRead for RevocableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always waits for incoming data, so it learns of its end here.
        if self.is_ended(context) {
            let error =
                io::Error::new(io::ErrorKind::ConnectionAborted, "the other side's certificate is revoked");
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for RevocableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for RevocableStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

/// Open connections of a process.
#[derive(Default)]
pub(crate) struct OpenConnections {
    all: Mutex<Vec<(Vec<CertificateDer<'static>>, CloseHandle)>>,
}

impl OpenConnections {
    /// Adds a connection; `chain` is the other side's certificate chain.
    pub(crate) fn add(&self, chain: Vec<CertificateDer<'static>>, end: CloseHandle) {
        self.all.lock().push((chain, end));
    }

    /// Removes connections that have ended.
    pub(crate) fn remove_ended(&self) {
        self.all.lock().retain(|(_, CloseHandle(end))| !end.is_closed());
    }

    /// Closes the connections whose certificate `verifier` reports as revoked.
    pub(crate) fn end_revoked(&self, verifier: &Arc<dyn ClientCertVerifier>) {
        let mut all = self.all.lock();
        let (revoked, good): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *all).into_iter().partition(|(chain, _)| is_revoked(verifier, chain));
        *all = good;
        drop(all);
        let connections = revoked.len();
        // The owner of the connection sees this at its next read.
        for (_, CloseHandle(end)) in revoked {
            // Err: the connection has already ended.
            let _ = end.send(());
        }
        if connections > 0 {
            tracing::warn!(
                connections,
                "open connections are ended because their peers' certificates are revoked"
            );
        }
    }
}

fn is_revoked(verifier: &Arc<dyn ClientCertVerifier>, chain: &[CertificateDer<'static>]) -> bool {
    let Some((own, between)) = chain.split_first() else { return false };
    // A certificate that expired since, or whose authority was replaced, stays until its connection ends.
    let judged = verifier.verify_client_cert(own, between, UnixTime::now());
    matches!(judged, Err(Error::InvalidCertificate(CertificateError::Revoked)))
}
