//! Open connections, each of which ends when the certificate that its other side has shown is revoked.
//!
//! Subscriptions and tunnels last for days: to refuse new connections alone would leave a stolen certificate what it
//! has. Keeps true: files are looked at every [`LOOK`] while connections are open, so that renewed ones which cannot be
//! used are told of before somebody comes. Bound: one entry for each connection, gone at the next look after its end.

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

/// Between two looks at the files.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// A socket that can be ended from elsewhere.
pub struct Watched {
    stream: TcpStream,
    /// `None`: nobody will end it.
    ended: Option<oneshot::Receiver<()>>,
    revoked: bool,
}

/// Ends a [`Watched`].
pub(crate) struct End(oneshot::Sender<()>);

impl Watched {
    pub(crate) fn new(stream: TcpStream) -> (Watched, End) {
        let (end, ended) = oneshot::channel();
        (Watched { stream, ended: Some(ended), revoked: false }, End(end))
    }

    /// Where the other side is; an error once it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    fn is_ended(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(told) = Pin::new(ended).poll(context)
        {
            // Err: nobody will. It must not be polled again.
            self.ended = None;
            self.revoked = told.is_ok();
        }
        self.revoked
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always waits for what comes, so this is where it hears of its end.
        if self.is_ended(context) {
            let error =
                io::Error::new(io::ErrorKind::ConnectionAborted, "the other side's certificate is revoked");
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
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

impl Connected for Watched {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

/// The open connections of a process.
#[derive(Default)]
pub(crate) struct Open {
    all: Mutex<Vec<(Vec<CertificateDer<'static>>, End)>>,
}

impl Open {
    /// `chain` is what the other side has shown.
    pub(crate) fn add(&self, chain: Vec<CertificateDer<'static>>, end: End) {
        self.all.lock().push((chain, end));
    }

    /// Forgets those that are over.
    pub(crate) fn tidy(&self) {
        self.all.lock().retain(|(_, End(end))| !end.is_closed());
    }

    /// Ends those whose certificate is revoked, as `verifier` knows it.
    pub(crate) fn end_revoked(&self, verifier: &Arc<dyn ClientCertVerifier>) {
        let mut all = self.all.lock();
        let (revoked, good): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *all).into_iter().partition(|(chain, _)| is_revoked(verifier, chain));
        *all = good;
        drop(all);
        let connections = revoked.len();
        // Whoever carries one hears of it next.
        for (_, End(end)) in revoked {
            // Err: it is over already.
            let _ = end.send(());
        }
        if connections > 0 {
            tracing::warn!(
                connections,
                "open connections are ended: the certificates of their other sides are revoked"
            );
        }
    }
}

fn is_revoked(verifier: &Arc<dyn ClientCertVerifier>, chain: &[CertificateDer<'static>]) -> bool {
    let Some((own, between)) = chain.split_first() else { return false };
    // What has expired since, or is of an authority that was exchanged, stays until it ends by itself.
    let judged = verifier.verify_client_cert(own, between, UnixTime::now());
    matches!(judged, Err(Error::InvalidCertificate(CertificateError::Revoked)))
}
