//! Binds listeners and serves HTTP/1.1 and HTTP/2 (prior knowledge) on them.
//!
//! Owns: connection limits, header timeouts, keep-alive and the drain. Refuses: TLS of clients, which Envoy terminates;
//! offers mutual TLS to the platform's own processes, and TLS to administrators. Bounds: [`ConnectionLimits`]. Keeps true: silent
//! connections cannot keep others out. A connection must send its first request in time, whichever HTTP version it
//! uses; if all permits are taken, the connection that has been idle longest is closed.

mod batch;
mod connections;
mod unread;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use anyhow::Context;
use asp_peer::{Identity, Peer, RevocableStream, Role, ServerCertificate, TlsStream};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use axum::http::Version;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use batch::{Batches, ReadTimeout, Stream};
use connections::{ConnectionPermit, Connections};
use unread::WhileRead;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent streams; Envoy multiplexes all its requests over few connections.
const MAX_STREAMS_PER_CONNECTION: u32 = 10_000;
/// Maximum number of bytes of one response that wait for a client that does not read; the rest is not requested from
/// the body.
const MAX_UNSENT: usize = 64 * 1024;
/// Maximum size of the part of a response that is handed on at once, over HTTP/2 and over HTTP/1.1: for the latter the
/// HTTP library takes sixteen parts before it waits for its client, whatever their size.
const PART: usize = 16 * 1024;
const PART_1: usize = MAX_UNSENT / 16;
/// Time limit for a client that reads nothing. Envoy stops reading if its own client does.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of one request's headers, over HTTP/2 and HTTP/1.1. It exceeds Envoy's limit (60 KiB, and what it
/// adds), so that the router writes the refusal in the caller's protocol. Beyond this bound the HTTP library answers by
/// itself: 431 (RFC 6585 section 5) with an empty body.
const MAX_HEADER_BYTES: u32 = 256 * 1024;
const MAX_HEADERS: usize = 512;
/// Units that a request takes of the budget that tokio grants a task before others run (128 at the time of writing).
const BUDGET: usize = 4;
/// File descriptors reserved for everything but connections: stores, upstreams, workers.
const SPARE_FILES: u64 = 512;

/// Most files that a process may open by [`raise_open_files`].
const MOST_FILES: u64 = 1 << 20;

/// Raises the number of files that this process may open to the number that its account allows. Each connection is one, and the
/// limit that accounts and services begin with is usually 1,024 (getrlimit(2), `RLIMIT_NOFILE`).
pub fn raise_open_files() {
    let resource = rustix::process::Resource::Nofile;
    let mut files = rustix::process::getrlimit(resource);
    let most = files.maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    if files.current.is_none_or(|current| current >= most) {
        return;
    }
    files.current = Some(most);
    if let Err(error) = rustix::process::setrlimit(resource, files) {
        tracing::warn!(%error, files = most, "limit of open files could not be raised; it bounds the connections");
    }
}

/// Bounds of a listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub connections: usize,
    /// Time from accept to the headers of the first request.
    pub first_request: Duration,
    /// Time for which a client may read nothing of an available response.
    pub unread: Duration,
}

impl ConnectionLimits {
    /// Allows 10,000 connections, or a quarter of the files that this process may open.
    fn of_process() -> ConnectionLimits {
        // One process may have four listeners.
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = files.map_or(u64::MAX, |files| files.saturating_sub(SPARE_FILES) / 4);
        let connections = usize::try_from(share.clamp(64, 10_000)).unwrap_or(10_000);
        ConnectionLimits { connections, first_request: HEADER_TIMEOUT, unread: UNREAD_TIMEOUT }
    }
}

/// Binds `port` on `address`; port 0 takes a free one.
pub async fn bind(address: IpAddr, port: u16, what: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((address, port))
        .await
        .with_context(|| format!("bind the {what} to {address}:{port}"))?;
    let bound = listener.local_addr().with_context(|| format!("read the address of the {what}"))?;
    Ok((listener, bound))
}

/// Serves `router` until `stop` is cancelled, then lets open requests finish for at most `grace`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken, grace: Duration) {
    serve_within(listener, router, stop, grace, ConnectionLimits::of_process()).await;
}

/// Serves like [`serve`], within other limits.
pub async fn serve_within(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    grace: Duration,
    limits: ConnectionLimits,
) {
    let listening = ListenerState::new(router, limits);
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Some(connection) = listening.admit(peer, &stop).await else { break };
        let (stream, batches) = batch::batched(stream);
        let (socket, narrowed) = (batches.socket(), Arc::new(Once::new()));
        let narrow = move || narrowed.call_once(|| socket.limit_send_buffer(MAX_UNSENT));
        tokio::spawn(connection.run(stream, batches, narrow, None));
    }
    drop(listener);
    listening.end(grace).await;
}

/// Serves `router` to processes of the platform whose certificate proves one of `roles`; each request has the
/// [`Identity`] of its connection among its extensions.
pub async fn serve_proved(
    listener: TcpListener,
    router: Router,
    (peer, roles): (Peer, &'static [Role]),
    stop: CancellationToken,
    grace: Duration,
) {
    let proved = asp_peer::incoming(listener, peer, roles);
    serve_secured(proved, router, |stream| identity(stream).map(Some), stop, grace).await;
}

/// Serves `router` over TLS to clients without certificates.
pub async fn serve_tls(
    listener: TcpListener,
    router: Router,
    certificate: ServerCertificate,
    stop: CancellationToken,
    grace: Duration,
) {
    let accepted = asp_peer::incoming_from_anybody(listener, certificate);
    serve_secured(accepted, router, |_| Some(None), stop, grace).await;
}

/// Serves accepted TLS connections. `who` returns the identity of a connection; if it returns nothing, the connection
/// is closed.
async fn serve_secured(
    mut accepted: ReceiverStream<io::Result<TlsStream<RevocableStream>>>,
    router: Router,
    who: impl Fn(&TlsStream<RevocableStream>) -> Option<Option<Identity>>,
    stop: CancellationToken,
    grace: Duration,
) {
    let listening = ListenerState::new(router, ConnectionLimits::of_process());
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => break,
            next = accepted.next() => next,
        };
        let Some(next) = next else { break };
        let Ok(stream) = next else { continue };
        let Some(identity) = who(&stream) else { continue };
        // Err: the peer is gone already.
        let Ok(address) = stream.get_ref().0.peer_addr() else { continue };
        let Some(connection) = listening.admit(address, &stop).await else { break };
        let (read, write) = tokio::io::split(stream);
        let (stream, batches) = batch::batched_halves(read, write);
        tokio::spawn(connection.run(stream, batches, || (), identity));
    }
    drop(accepted);
    listening.end(grace).await;
}

/// Returns the identity that the handshake of a connection proved.
fn identity(stream: &TlsStream<RevocableStream>) -> Option<Identity> {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| chain.first())?;
    Identity::of(certificate).ok()
}

/// State that the connections of one listener share.
struct ListenerState {
    router: Router,
    limits: ConnectionLimits,
    connections: Connections,
    builder: Arc<Builder<InPlace>>,
    graceful: GracefulShutdown,
}

impl ListenerState {
    fn new(router: Router, limits: ConnectionLimits) -> ListenerState {
        let builder = Arc::new(builder(limits));
        let connections = Connections::new(limits.connections);
        ListenerState { router, limits, connections, builder, graceful: GracefulShutdown::new() }
    }

    /// Acquires a permit for an accepted connection, so that an idle one is closed only for an actual connection.
    /// `None` if the listener stops.
    async fn admit(&self, peer: SocketAddr, stop: &CancellationToken) -> Option<ServerConnection> {
        let permit = stop.run_until_cancelled(self.connections.acquire()).await?;
        let (router, builder) = (self.router.clone(), Arc::clone(&self.builder));
        let watcher = self.graceful.watcher();
        Some(ServerConnection { peer, permit, limits: self.limits, watcher, builder, router })
    }

    /// Lets open requests finish for at most `grace`.
    async fn end(self, grace: Duration) {
        tokio::select! {
            () = self.graceful.shutdown() => {}
            () = tokio::time::sleep(grace) => tracing::warn!("open connections closed after the grace period"),
        }
    }
}

/// Accepted connection, ready to run.
struct ServerConnection {
    peer: SocketAddr,
    permit: ConnectionPermit,
    limits: ConnectionLimits,
    watcher: Watcher,
    builder: Arc<Builder<InPlace>>,
    router: Router,
}

impl ServerConnection {
    /// Runs the connection. `narrow` limits the kernel's send buffer; `identity` is the peer's proved one.
    async fn run<R, W>(
        self,
        stream: Stream<R, W>,
        batches: Batches<W>,
        narrow: impl Fn() + Clone + Send + 'static,
        identity: Option<Identity>,
    ) where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let ServerConnection { peer, permit, limits, watcher, builder, router } = self;
        let usage = permit.usage();
        let service = tower::service_fn(move |mut request: Request<_>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(identity) = &identity {
                request.extensions_mut().insert(identity.clone());
            }
            let largest = match request.version() {
                Version::HTTP_2 => PART,
                // HTTP/1.1 has one response at a time.
                _ => {
                    narrow();
                    PART_1
                }
            };
            let open = usage.begin();
            let router = router.clone();
            async move {
                // A router is always ready, and its error type has no values.
                let response = router.oneshot(request.map(Body::new)).await?;
                Ok::<_, std::convert::Infallible>(response.map(|body| open.hold_until_end(body, largest)))
            }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::select! {
            biased;
            ended = batches.of(watcher.watch(connection), limits.unread) => match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%peer, %error, "connection broke"),
                Err(ReadTimeout) => tracing::info!(
                    %peer,
                    seconds = limits.unread.as_secs(),
                    "connection closed because its client does not read"
                ),
            },
            () = permit.silent_for(limits.first_request) => {
                tracing::debug!(%peer, "connection closed because no request arrived in time");
            }
            () = permit.wait_until_wanted() => {
                tracing::debug!(%peer, "idle connection closed to make room for another one");
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY could not be set");
                }
                return (stream, peer);
            }
            Err(error) => asp_peer::pause_after_failed_accept(&error).await,
        }
    }
}

fn builder(limits: ConnectionLimits) -> Builder<InPlace> {
    let mut builder = Builder::new(InPlace { unread: limits.unread });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .max_send_buf_size(MAX_UNSENT)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    builder
}

/// Executor of HTTP/2 requests: each runs on the connection's task until it waits, then on a task of its own.
///
/// A task per request would cost a thread switch each way, and its answer would be sent in two parts. Keeps true: a
/// waiting request holds up no other one, one that panics ends alone, and a connection with many requests leaves those
/// beyond its share to other threads.
#[derive(Clone, Copy)]
struct InPlace {
    /// Time limit for a client that reads nothing of a response.
    unread: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for InPlace {
    fn execute(&self, request: F) {
        let mut request = Box::pin(WhileRead::new(request, self.unread));
        let mut context = task::Context::from_waker(Waker::noop());
        let has_time = (0..BUDGET).all(|_| take_one(&mut context));
        // The new task registers its waker as soon as it starts, which is at once. A finished request is dropped in
        // here as well.
        let begin = move || {
            let ended = has_time && request.as_mut().poll(&mut context).is_ready();
            (!ended).then_some(request)
        };
        if let Ok(Some(waits)) = catch_unwind(AssertUnwindSafe(begin)) {
            tokio::spawn(waits);
        }
    }
}

/// Takes one unit of the running task's budget; false if none is left.
fn take_one(context: &mut task::Context<'_>) -> bool {
    match coop::poll_proceed(context) {
        Poll::Ready(taken) => {
            taken.made_progress();
            true
        }
        Poll::Pending => false,
    }
}

#[cfg(test)]
mod tests;
