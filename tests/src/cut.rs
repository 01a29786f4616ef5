//! A TCP proxy that can be cut like a cable: bytes stop in both directions, and nobody is told.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
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
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (whole, seen) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, target, seen.clone()));
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

async fn carry(mut client: TcpStream, target: SocketAddr, mut whole: watch::Receiver<bool>) {
    if *whole.borrow_and_update()
        && let Ok(mut upstream) = TcpStream::connect(target).await
    {
        tokio::select! {
            // A connection that one side ends ends on the other.
            _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
            _ = whole.changed() => {}
        }
        // Both sides stay open and silent while the cable is cut.
        let _ = whole.wait_for(|whole| *whole).await;
        return;
    }
    let _ = whole.wait_for(|whole| *whole).await;
}
