//! The egress proxy of one worker: the only way out of its sandbox, for the names its plugin lists.
//!
//! Owns `rules` (which names are allowed, and which private addresses), `names` (how many lookups run) and `rate_limit`
//! (how fast requests are taken).
//! Keeps true: a name is resolved once, judged after resolution by its address, and the connection goes to the very
//! address that was judged; behind CONNECT is TLS that asks for the name that was judged, and plain HTTP is sent with
//! that name as its host; every request leaves one audit line.
//! Source: RFC 9110 sections 7.1 (absolute form) and 9.3.6 (CONNECT), RFC 6066 section 3 (server name).

mod head;
mod hello;
mod names;
mod rate_limit;
mod rules;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use head::{Head, MAX_HEAD};
use hello::Hello;
pub use names::Lookups;
use names::Names;
use rate_limit::RateLimit;
pub use rules::Rules;

const MAX_CONNECTIONS: usize = 64;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Of a name; what it has beyond is not tried.
const MAX_ADDRESSES: usize = 16;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A connection that carries nothing is a worker's forgotten one; it ends with the worker or after this.
const TUNNEL_WITHIN: Duration = Duration::from_secs(3600);

/// Why a request was not let out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Malformed,
    Name,
    Address,
    Unreachable,
    /// What came behind CONNECT is no TLS, or asks for another name.
    ServerName,
}

/// What one worker may reach.
#[derive(Debug)]
pub struct Proxy {
    rules: Rules,
    /// For the audit.
    plugin: String,
    worker: String,
    names: Names,
    rate_limit: RateLimit,
}

impl Proxy {
    pub fn new(rules: Rules, plugin: String, worker: String, lookups: &Lookups) -> Proxy {
        Proxy { rules, plugin, worker, names: lookups.of_worker(), rate_limit: RateLimit::new() }
    }
}

/// Serves `listener` until the task is dropped.
pub async fn serve(listener: UnixListener, proxy: Proxy) {
    let proxy = Arc::new(proxy);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped with this task: no connection outlives the worker.
    let mut connections = JoinSet::new();
    // Err: the semaphore is never closed.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let stream = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => break stream,
                    // Out of file descriptors: until some are closed.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        };
        let proxy = Arc::clone(&proxy);
        connections.spawn(async move {
            let _permit = permit;
            proxy.carry(stream).await;
        });
    }
}

impl Proxy {
    async fn carry(&self, mut stream: UnixStream) {
        let read = timeout(HEAD_WITHIN, read_head(&mut stream, Vec::new())).await.ok().flatten();
        let parsed = read.and_then(|(head, rest)| Some((Head::parse(&head)?, rest)));
        let Some((head, rest)) = parsed else { return refuse(&mut stream, Denied::Malformed).await };
        self.rate_limit.acquire().await;
        let mut upstream = match self.connect(&head).await {
            Ok(upstream) => upstream,
            Err(denied) => {
                self.audit(&head, Some(denied));
                return refuse(&mut stream, denied).await;
            }
        };
        let first = match head.forwarded() {
            Some(request) => Ok([request.as_slice(), &rest].concat()),
            None => tunnelled(&mut stream, (&head.host, head.port), rest).await,
        };
        self.audit(&head, first.as_ref().err().copied());
        // Without a word: the client was told that it is connected.
        let Ok(first) = first else { return };
        if upstream.write_all(&first).await.is_ok() {
            // Err: one side broke off, which ends the other.
            let _ = timeout(TUNNEL_WITHIN, copy_bidirectional(&mut stream, &mut upstream)).await;
        }
    }

    fn audit(&self, head: &Head, denied: Option<Denied>) {
        let outcome = match denied {
            None => "allowed",
            Some(Denied::Malformed) => "malformed",
            Some(Denied::Name) => "name_denied",
            Some(Denied::Address) => "address_denied",
            Some(Denied::Unreachable) => "unreachable",
            Some(Denied::ServerName) => "server_name_denied",
        };
        let Proxy { plugin, worker, .. } = self;
        let Head { method, host, port, .. } = head;
        tracing::info!(audit = true, plugin, worker, method, host, port, outcome, "egress");
    }

    async fn connect(&self, head: &Head) -> Result<TcpStream, Denied> {
        if !self.rules.allow(&head.host, head.port, head.is_connect()) {
            return Err(Denied::Name);
        }
        let wanted = (head.host.clone(), head.port);
        let lookup = async move {
            let found = lookup_host(wanted).await;
            found.map(|addresses| addresses.take(MAX_ADDRESSES).collect::<Vec<SocketAddr>>())
        };
        let resolved = timeout(CONNECT_WITHIN, self.names.look_up(lookup)).await;
        let Ok(Some(Ok(addresses))) = resolved else { return Err(Denied::Unreachable) };
        // A name that leads to an allowed and a refused address at once is refused whole.
        if !addresses.iter().all(|address| self.rules.allow_address(address.ip())) {
            return Err(Denied::Address);
        }
        for address in addresses {
            if let Ok(Ok(stream)) = timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
                return Ok(stream);
            }
        }
        Err(Denied::Unreachable)
    }
}

/// Tells the client that it is connected, and returns the first it says to a server called `host`.
///
/// On the port of plain HTTP (some clients tunnel that too) this is one request for that host, on the other a TLS hello.
async fn tunnelled(
    stream: &mut UnixStream,
    (host, port): (&str, u16),
    rest: Vec<u8>,
) -> Result<Vec<u8>, Denied> {
    let answered = stream.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await;
    answered.map_err(|_| Denied::ServerName)?;
    if port == rules::PLAIN {
        let read = timeout(HEAD_WITHIN, read_head(stream, rest)).await;
        let Ok(Some((head, rest))) = read else { return Err(Denied::ServerName) };
        let request = Head::within_tunnel(&head, host).ok_or(Denied::ServerName)?;
        return Ok([request, rest].concat());
    }
    match timeout(HEAD_WITHIN, Hello::read(stream, rest)).await {
        Ok(Some(hello)) if hello.is_for(host) => Ok(hello.bytes),
        _ => Err(Denied::ServerName),
    }
}

/// A head with its final empty line, and what came after it.
async fn read_head(stream: &mut UnixStream, mut bytes: Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Some((bytes, rest));
        }
        if bytes.len() > MAX_HEAD {
            return None;
        }
        let mut part = [0_u8; 2048];
        let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(part.get(..length)?);
    }
}

async fn refuse(stream: &mut UnixStream, denied: Denied) {
    let (status, word) = match denied {
        Denied::Malformed => ("400 Bad Request", "malformed"),
        Denied::Name | Denied::ServerName => ("403 Forbidden", "name not allowed"),
        Denied::Address => ("403 Forbidden", "address not allowed"),
        Denied::Unreachable => ("502 Bad Gateway", "unreachable"),
    };
    let length = word.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{word}"
    );
    // Err: the worker did not wait for the answer.
    let _ = stream.write_all(answer.as_bytes()).await;
}

#[cfg(test)]
mod tests;
