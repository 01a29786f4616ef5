//! Binds listeners and serves HTTP/1.1 and HTTP/2 (prior knowledge) on them.
//!
//! Owns: connection limits, header timeouts, keep-alive and the drain. Refuses: TLS, which Envoy ends.
//! Bounds: `MAX_CONNECTIONS` at once; a peer has `HEADER_TIMEOUT` to send its headers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const MAX_CONNECTIONS: usize = 10_000;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Envoy multiplexes all its requests over few connections.
const MAX_STREAMS_PER_CONNECTION: u32 = 10_000;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed accept (out of file descriptors): long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let builder = Arc::new(builder());
    let graceful = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            // Err: the semaphore is never closed.
            permit = Arc::clone(&connections).acquire_owned() => permit,
        };
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let service = router.clone().map_request(move |mut request: Request<_>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            request
        });
        let builder = Arc::clone(&builder);
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _permit = permit;
            let connection =
                builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%peer, %error, "connection broke");
            }
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(grace) => tracing::warn!("connections were still open after the grace period"),
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY is not set");
                }
                return (stream, peer);
            }
            // The peer's fault: it is gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn both_http_versions_are_served_and_an_open_request_finishes_before_the_end() {
        let (listener, address) = bind("127.0.0.1".parse().unwrap(), 0, "test").await.unwrap();
        let (started, mut running) = tokio::sync::mpsc::channel::<()>(1);
        let finish = Arc::new(tokio::sync::Notify::new());
        let gate = Arc::clone(&finish);
        let slow = move || async move {
            started.send(()).await.unwrap();
            gate.notified().await;
            "done"
        };
        let router = Router::new().route("/", get(|| async { "hello" })).route("/slow", get(slow));
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, router, stop.clone(), Duration::from_secs(20)));

        let plain = reqwest::Client::builder().http1_only().build().unwrap();
        let prior = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
        for client in [&plain, &prior] {
            let text = client.get(format!("http://{address}/")).send().await.unwrap().text().await.unwrap();
            assert_eq!(text, "hello");
        }
        let slow = tokio::spawn(plain.get(format!("http://{address}/slow")).send());
        running.recv().await.unwrap();
        stop.cancel();
        finish.notify_one();
        assert_eq!(slow.await.unwrap().unwrap().text().await.unwrap(), "done");
        server.await.unwrap();
        assert!(plain.get(format!("http://{address}/")).send().await.is_err(), "no new connection");
    }
}
