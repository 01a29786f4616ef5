//! A proxy before a TCP or Unix socket that can be cut like a cable: bytes stop in both directions, and nobody is told.
//!
//! Keeps true: a connection that was cut passes no byte any more, whatever becomes of the cable.

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
    line: watch::Sender<Line>,
    task: JoinHandle<()>,
}

/// State of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Whole,
    /// It was cut and is whole again for new connections; those that it carried stay open and silent.
    Replaced,
    Cut,
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
        let (line, seen) = watch::channel(Line::Whole);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, target.clone(), seen.clone()));
            }
        });
        Ok(Cable { address, line, task })
    }

    /// From now on no byte passes, and connections are accepted as by a peer behind a broken route: never.
    pub fn cut(&self) {
        self.line.send_replace(Line::Cut);
    }

    /// New connections pass again; those that were cut end.
    pub fn mend(&self) {
        self.line.send_replace(Line::Whole);
    }

    /// New connections pass again; those that were cut stay open and silent, as those to a machine that is gone. Only for a
    /// cable that is cut.
    pub fn replace(&self) {
        self.line.send_replace(Line::Replaced);
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

async fn carry(client: TcpStream, target: Target, mut line: watch::Receiver<Line>) {
    if *line.borrow_and_update() == Line::Cut {
        let _ = line.wait_for(|line| *line == Line::Whole).await;
        return;
    }
    // One that is not there is told as such: the connection ends.
    match target {
        Target::Address(address) => {
            if let Ok(upstream) = TcpStream::connect(address).await {
                pass(client, upstream, line).await;
            }
        }
        Target::Socket(path) => {
            if let Ok(upstream) = UnixStream::connect(path).await {
                pass(client, upstream, line).await;
            }
        }
    }
}

async fn pass(
    mut client: TcpStream,
    mut upstream: impl AsyncRead + AsyncWrite + Unpin,
    mut line: watch::Receiver<Line>,
) {
    tokio::select! {
        // A connection that one side ends ends on the other.
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
        _ = line.changed() => {}
    }
    // Both sides stay open and silent while the cable is cut.
    let _ = line.wait_for(|line| *line == Line::Whole).await;
}
