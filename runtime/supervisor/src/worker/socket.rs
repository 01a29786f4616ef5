//! The socket on which a worker listens, and the single connection to it.
//!
//! At level 3 the worker creates it in a file system of its own (`runtime/launcher/src/mounts.rs`), which this process
//! accesses by the handle that `worker-init` passes to it; below, in a directory of the machine.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asp_launcher::{Level, Report};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::cause::Cause;

/// The socket's name in the run directory.
pub const NAME: &str = "s";
/// Flow-control window of a stream: unread data of one stream must not starve the other streams of the connection, and
/// the smallest messages that fit must be readable within a part of a grace, because another call's end waits behind
/// them.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Location of a worker's socket.
#[derive(Clone, Debug)]
pub enum WorkerSocket {
    Shared(PathBuf),
    /// Socket in the directory that `worker-init` reports once it exists.
    Reported(Arc<Report>),
}

impl WorkerSocket {
    /// Returns the socket of a worker whose run directory is `run_dir`.
    pub fn of(level: Level, run_dir: &Path, report: &Arc<Report>) -> WorkerSocket {
        match level {
            Level::L1 | Level::L2 => WorkerSocket::Shared(run_dir.join(NAME)),
            Level::L3 => WorkerSocket::Reported(Arc::clone(report)),
        }
    }

    /// Connects once the worker, which runs as the user `uid`, accepts; there is no second connection.
    pub async fn connect(&self, uid: u32) -> Result<Channel, Cause> {
        let mut pause = Duration::from_millis(1);
        let stream = loop {
            match self.try_connect().await {
                Ok(stream) => break stream,
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_millis(5));
        };
        if stream.peer_cred().map(|peer| peer.uid()).ok() != Some(uid) {
            return Err(Cause::Protocol("another user listens on the worker's socket"));
        }
        let mut stream = Some(TokioIo::new(stream));
        let once = tower::service_fn(move |_: Uri| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| io::Error::other("a worker is connected to once")) }
        });
        Endpoint::from_static("http://worker")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect_with_connector(once)
            .await
            .map_err(|error| {
                tracing::debug!(%error, "a worker's socket does not speak HTTP/2");
                Cause::Protocol("the socket does not speak HTTP/2")
            })
    }

    async fn try_connect(&self) -> io::Result<UnixStream> {
        match self {
            WorkerSocket::Shared(path) => UnixStream::connect(path).await,
            WorkerSocket::Reported(report) => {
                let directory = report.run_dir().ok_or(io::ErrorKind::NotFound)?;
                // There is no connectat(2); the link of a descriptor leads to that very directory (proc_pid_fd(5)).
                let path = format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd());
                UnixStream::connect(path).await
            }
        }
    }
}
