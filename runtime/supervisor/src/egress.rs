//! The egress proxy of one worker: the only way out of its sandbox, for the names its plugin lists.
//!
//! Owns `rules` (which names are allowed) and `private` (which addresses that are not public an operator allows).
//! Keeps true: a name is resolved once, judged after resolution by its address, and the connection goes to the very address that was judged; every request leaves one
//! audit line.
//! Source: RFC 9110 sections 7.1 (absolute form) and 9.3.6 (CONNECT).

mod head;
mod private;
mod rules;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use asp_platform::address::is_public;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use head::{Head, MAX_HEAD};
pub use private::{Network, NetworkError};
pub use rules::Rules;

const MAX_CONNECTIONS: usize = 64;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
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
}

/// Serves `listener` until the task is dropped.
pub async fn serve(listener: UnixListener, rules: Rules, plugin: String, worker: String) {
    let context = Arc::new((rules, plugin, worker));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped with this task: no connection outlives the worker.
    let mut connections = JoinSet::new();
    // Err: the semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
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
        let context = Arc::clone(&context);
        connections.spawn(async move {
            let _place = place;
            carry(stream, &context.0, &context.1, &context.2).await;
        });
    }
}

async fn carry(mut stream: UnixStream, rules: &Rules, plugin: &str, worker: &str) {
    let (head, rest) = match timeout(HEAD_WITHIN, read_head(&mut stream)).await {
        Ok(Some(read)) => read,
        _ => return refuse(&mut stream, Denied::Malformed).await,
    };
    let (host, port) = (head.host.clone(), head.port);
    let method = head.method.clone();
    let connected = connect(&head, rules).await;
    let outcome = match &connected {
        Ok(_) => "allowed",
        Err(Denied::Malformed) => "malformed",
        Err(Denied::Name) => "name_denied",
        Err(Denied::Address) => "address_denied",
        Err(Denied::Unreachable) => "unreachable",
    };
    tracing::info!(audit = true, plugin, worker, method, host, port, outcome, "egress");
    let mut upstream = match connected {
        Ok(upstream) => upstream,
        Err(denied) => return refuse(&mut stream, denied).await,
    };
    let greeting = match head.forwarded() {
        Some(request) => upstream.write_all(&[request.as_slice(), &rest].concat()).await,
        None => match stream.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await {
            Ok(()) => upstream.write_all(&rest).await,
            failed => failed,
        },
    };
    if greeting.is_ok() {
        // Err: one side broke off, which ends the other.
        let _ = timeout(TUNNEL_WITHIN, copy_bidirectional(&mut stream, &mut upstream)).await;
    }
}

async fn read_head(stream: &mut UnixStream) -> Option<(Head, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let mut part = [0_u8; 2048];
        let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(part.get(..length)?);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Some((Head::parse(&bytes)?, rest));
        }
        if bytes.len() > MAX_HEAD {
            return None;
        }
    }
}

async fn connect(head: &Head, rules: &Rules) -> Result<TcpStream, Denied> {
    if !rules.allow(&head.host, head.port) {
        return Err(Denied::Name);
    }
    let resolved = timeout(CONNECT_WITHIN, lookup_host((head.host.as_str(), head.port))).await;
    let addresses: Vec<SocketAddr> = match resolved {
        Ok(Ok(addresses)) => addresses.take(16).collect(),
        _ => return Err(Denied::Unreachable),
    };
    // A name that leads to an allowed and a refused address at once is refused whole.
    let allowed = |address: IpAddr| is_public(address) || rules.allow_private(address);
    if !addresses.iter().all(|address| allowed(address.ip())) {
        return Err(Denied::Address);
    }
    for address in addresses {
        if let Ok(Ok(stream)) = timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    Err(Denied::Unreachable)
}

async fn refuse(stream: &mut UnixStream, denied: Denied) {
    let (status, word) = match denied {
        Denied::Malformed => ("400 Bad Request", "malformed"),
        Denied::Name => ("403 Forbidden", "name not allowed"),
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
