//! An HTTP CONNECT proxy that sends one name to one address: lets an unchanged client, told nothing but
//! `HTTPS_PROXY`, reach a public name on this machine. Every other name is refused.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longest request head read.
const HEAD: usize = 8 << 10;

/// A running proxy; it ends when dropped.
pub struct ConnectProxy {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    /// `authority` is `host:port` as the client asks for it.
    pub async fn start(authority: &str, target: SocketAddr) -> Result<ConnectProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let wanted = format!("CONNECT {authority} ");
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that goes away ends its tunnel with an error that concerns nobody.
                let wanted = wanted.clone();
                tokio::spawn(async move { drop(tunnel(client, &wanted, target).await) });
            }
        });
        Ok(ConnectProxy { address, task })
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(mut client: TcpStream, wanted: &str, target: SocketAddr) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        head.push(client.read_u8().await?);
    }
    if !String::from_utf8_lossy(&head).starts_with(wanted) {
        client.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await?;
        return Ok(());
    }
    let mut upstream = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}
