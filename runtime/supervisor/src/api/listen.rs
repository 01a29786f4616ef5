//! Serves the API on a Unix socket and over mutual TLS, and shuts down in order.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_peer::{Peer, PeerFiles, Role};
use asp_proto::grace::DRAIN_LIMIT;
use asp_proto::supervisor::runtime_supervisor_server::RuntimeSupervisorServer;
use futures::StreamExt;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::api::Api;
use crate::api::callers::Callers;
use crate::pool::sampling;
use crate::ppp::MAX_FRAME;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::worker::process::Machine;

/// Time for the last frames to reach the gateways.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of tunnels of one gateway connection.
const MAX_STREAMS: u32 = 10_000;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Roles that may call plugins. Each certificate is checked before the first byte of a request is read.
const CALLERS: &[Role] = &[Role::Gateway];
/// Window of one tunnel's stream, which may be large; all tunnels share the connection.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Runs until SIGTERM or SIGINT, then lets running calls finish. `aside` runs work that must not delay calls.
pub async fn serve(settings: Settings, aside: Handle) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let socket = settings.socket.clone();
    let tls = settings.tls.clone().map(open).transpose()?;
    let runtime = Runtime::new(Machine::open(settings, aside.clone())?);
    let mut servers = JoinSet::new();
    let stop = CancellationToken::new();
    if let Some(path) = &socket {
        let mut callers = Callers::new(runtime.machine.probe.own_user);
        let judge = move |accepted: io::Result<UnixStream>| {
            ready(accepted.map(|stream| callers.admit(stream)).transpose())
        };
        let incoming = asp_peer::paced(UnixListenerStream::new(bind(path).await?)).filter_map(judge);
        servers
            .spawn(router(&runtime).serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned()));
    }
    if let Some((address, peer)) = tls {
        let listener = TcpListener::bind(address).await.context("bind the TLS listener")?;
        let address = listener.local_addr()?;
        let incoming = asp_peer::incoming(listener, peer, CALLERS);
        let router = router(&runtime);
        servers.spawn(router.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned()));
        tracing::info!(runtime = true, %address, "serving by mutual TLS");
    }
    let clockwork = tokio::spawn(Arc::clone(&runtime).tick());
    let sampled = Arc::clone(&runtime);
    let metrics = runtime.machine.metrics.clone();
    let samples = aside.spawn(sampling::run(metrics, move || sampled.all_pools()));
    let level = runtime.machine.level.number();
    let path = socket.as_ref().map(|path| path.display().to_string());
    tracing::info!(runtime = true, isolation_level = level, socket = path, "ready");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = servers.join_next() => {
            if let Some(ended) = ended {
                ended.context("run a listener")?.context("serve")?;
            }
        }
    }
    tracing::info!(
        runtime = true,
        "the runtime is shutting down: it admits no new calls and lets running ones finish or continue elsewhere"
    );
    // Gateways can still reach their tunnels during the drain.
    runtime.shut_down(DRAIN_LIMIT).await;
    stop.cancel();
    let closed = async { while servers.join_next().await.is_some() {} };
    if timeout(CLOSE_WITHIN, closed).await.is_err() {
        // A subscriber of the metrics stream stays until its connection is closed.
        servers.shutdown().await;
    }
    clockwork.abort();
    samples.abort();
    if let Some(path) = socket {
        // Err: the file has been removed already.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn router(runtime: &Arc<Runtime>) -> Router {
    let api = Api(Arc::clone(runtime));
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(RuntimeSupervisorServer::new(api).max_decoding_message_size(MAX_FRAME))
}

/// Returns a listener on `path` for this user alone. A socket that nobody listens on is replaced.
async fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            anyhow::bail!("{} exists and is not a socket", path.display());
        }
        if UnixStream::connect(path).await.is_ok() {
            anyhow::bail!("another process listens on {}", path.display());
        }
        std::fs::remove_file(path).with_context(|| format!("replace {}", path.display()))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("bind {}", path.display()))?;
    // Until this takes effect, and after it, other users are refused by their credentials (`Peer`).
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Opens the runtime's own certificate, which must name a runtime.
fn open((address, files): (SocketAddr, PeerFiles)) -> anyhow::Result<(SocketAddr, Peer)> {
    let peer = Peer::open(files, Role::Runtime).context("use the --tls files (docs/certificates.md)")?;
    Ok((address, peer))
}
