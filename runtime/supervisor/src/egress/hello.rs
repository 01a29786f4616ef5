//! The TLS server name that a client asks for behind CONNECT (RFC 6066 section 3).
//!
//! Only reads: the bytes are forwarded unchanged. A ClientHello may arrive in any number of pieces and records.

use std::net::IpAddr;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio_rustls::rustls::server::Acceptor;

/// Maximum size of a ClientHello; with the largest keys and tickets in use it has some 4 KiB.
const MAX_HELLO: usize = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) server_name: Option<String>,
    /// All bytes read so far.
    pub(super) bytes: Vec<u8>,
}

impl Hello {
    /// Reads a ClientHello that begins with `bytes`. `None`: it is not one, or too long, or the client disconnected.
    pub(super) async fn read(stream: &mut UnixStream, mut bytes: Vec<u8>) -> Option<Hello> {
        let mut acceptor = Acceptor::default();
        let mut fed = 0;
        loop {
            let mut rest = bytes.get(fed..)?;
            fed = bytes.len();
            while !rest.is_empty() {
                acceptor.read_tls(&mut rest).ok()?;
                if let Some(accepted) = acceptor.accept().ok()? {
                    let server_name = accepted.client_hello().server_name().map(str::to_owned);
                    return Some(Hello { server_name, bytes });
                }
            }
            if bytes.len() > MAX_HELLO {
                return None;
            }
            let mut part = [0_u8; 4096];
            let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
            bytes.extend_from_slice(part.get(..length)?);
        }
    }

    /// Whether it asks for the checked host; for an IP address, no name is asked for.
    pub(super) fn is_for(&self, host: &str) -> bool {
        match &self.server_name {
            Some(name) => name.eq_ignore_ascii_case(host.strip_suffix('.').unwrap_or(host)),
            None => host.parse::<IpAddr>().is_ok(),
        }
    }
}
