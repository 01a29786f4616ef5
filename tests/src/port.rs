//! Ports for programs that must be told one before they start.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::TcpSocket;

/// A loopback port that stays ours: the socket is bound with SO_REUSEPORT and never listens, so a program
/// that also sets SO_REUSEPORT (Envoy does) can listen on it and nothing else is given the number.
pub struct Reserved {
    _socket: TcpSocket,
    address: SocketAddr,
}

impl Reserved {
    pub fn new() -> Result<Reserved> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = socket.local_addr()?;
        Ok(Reserved { _socket: socket, address })
    }

    /// The same for programs that listen with SO_REUSEADDR, which servers set.
    pub fn of_server() -> Result<Reserved> {
        Reserved::again(0)
    }

    /// The port of such a program that has ended and starts again.
    pub fn again(port: u16) -> Result<Reserved> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).with_context(|| format!("keep port {port}"))?;
        let address = socket.local_addr()?;
        Ok(Reserved { _socket: socket, address })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
