//! A proxy before a TCP or Unix socket that can be cut like a cable: bytes stop in both directions, and nobody is told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A running proxy; it ends when dropped.
pub struct Cable {
    pub address: SocketAddr,
    whole: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Cable {
    pub async fn start(target: SocketAddr) -> Result<Cable> {
        Cable::to(Target::Address(target)).await
    }

    /// The same, to a Unix socket.
    pub async fn to_socket(target: &Path) -> Result<Cable> {
        Cable::to(Target::Socket(target.to_owned())).await
    }

    async fn to(target: Target) -> Result<Cable> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (whole, seen) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, target.clone(), seen.clone()));
            }
        });
        Ok(Cable { address, whole, task })
    }

    /// From now on no byte passes, and connections are accepted as by a peer behind a broken route: never.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// New connections pass again; those that were cut end.
    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is behind it.
#[derive(Clone)]
enum Target {
    Address(SocketAddr),
    Socket(PathBuf),
}

async fn carry(client: TcpStream, target: Target, mut whole: watch::Receiver<bool>) {
    if !*whole.borrow_and_update() {
        let _ = whole.wait_for(|whole| *whole).await;
        return;
    }
    // One that is not there is told as such: the connection ends.
    match target {
        Target::Address(address) => {
            if let Ok(upstream) = TcpStream::connect(address).await {
                pass(client, upstream, whole).await;
            }
        }
        Target::Socket(path) => {
            if let Ok(upstream) = UnixStream::connect(path).await {
                pass(client, upstream, whole).await;
            }
        }
    }
}

async fn pass(
    mut client: TcpStream,
    mut upstream: impl AsyncRead + AsyncWrite + Unpin,
    mut whole: watch::Receiver<bool>,
) {
    tokio::select! {
        // A connection that one side ends ends on the other.
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
        _ = whole.changed() => {}
    }
    // Both sides stay open and silent while the cable is cut.
    let _ = whole.wait_for(|whole| *whole).await;
}
