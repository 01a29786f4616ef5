//! The egress proxy of one worker: the only network access of its sandbox, for the names its plugin lists.
//!
//! Owns `rules` (which names and which private addresses are allowed), `tcp` (services that are reached without HTTP), `names`
//! (concurrency of lookups), `rate_limit` (rate of requests), `credential_lease` (credentials of calls) and `proved` (plain requests, which the proxy sends itself, with
//! or without a credential).
//! Keeps true: a name is resolved once, its addresses are checked after resolution, and the connection goes to an
//! address that was checked; behind CONNECT there is TLS that asks for the checked name, or one plain request for it; a
//! connection of a worker carries one plain request, with a checked head and an unambiguous end, and nothing after it;
//! a credential is added only to plain requests for its own origin, never to TLS in a tunnel; every request leaves one
//! audit line. The proxy does not see inside TLS: such a tunnel is checked by its authority alone.
//! Source: RFC 9110 sections 7.1 (absolute form) and 9.3.6 (CONNECT), RFC 6066 section 3 (server name).

mod credential_lease;
mod head;
mod hello;
mod names;
mod proved;
mod rate_limit;
mod rules;
mod tcp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use credential_lease::{ActiveCredentials, BadCredential, CredentialLease, CredentialUse};
use head::{Head, MAX_HEAD};
use hello::Hello;
pub use names::Lookups;
use names::Names;
pub use proved::ServiceTrust;
use rate_limit::RateLimiter;
pub use rules::{EgressRules, PrivateRoute};
pub use tcp::{Destination, loopback_addresses};

/// Port of the forwarder inside a sandbox with egress.
pub const EGRESS_PORT: u16 = 3128;
const MAX_CONNECTIONS: usize = 64;
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";
/// Type of the record that begins a TLS connection (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 16;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection, which also ends with the worker; it bounds connections that a worker forgot.
const TUNNEL_WITHIN: Duration = Duration::from_secs(3600);

/// Reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denial {
    Malformed,
    Name,
    /// The name is listed, but not for this port.
    Port,
    Address,
    Unreachable,
    /// A credential cannot be added: the answer would repeat it, or the end of the body is ambiguous.
    UnsafeForCredential,
    /// The content behind CONNECT is not TLS, or asks for another name.
    ServerName,
}

/// The proxy of one worker.
#[derive(Debug)]
pub struct Proxy {
    rules: EgressRules,
    /// Named in the audit.
    plugin: String,
    worker: String,
    names: Names,
    rate_limit: RateLimiter,
    credentials: Arc<ActiveCredentials>,
    trust: ServiceTrust,
}

/// State shared by the proxies of all workers.
#[derive(Clone, Debug, Default)]
pub struct ProxyContext {
    lookups: Lookups,
    trust: ServiceTrust,
}

impl Proxy {
    pub fn new(rules: EgressRules, plugin: String, worker: String, shared: &ProxyContext) -> Proxy {
        let names = shared.lookups.of_worker();
        let (credentials, trust) = (Arc::default(), shared.trust.clone());
        Proxy { rules, plugin, worker, names, rate_limit: RateLimiter::new(), credentials, trust }
    }

    /// Returns the credentials in use by the worker's calls.
    pub fn credentials(&self) -> Arc<ActiveCredentials> {
        Arc::clone(&self.credentials)
    }
}

/// Serves `listener` until the task is dropped: as a proxy, or connections to one destination.
pub async fn serve(listener: UnixListener, proxy: Arc<Proxy>, to: Option<Destination>) {
    let to = Arc::new(to);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped with this task: no connection outlives the worker.
    let mut connections = JoinSet::new();
    // Err: impossible, the semaphore is never closed.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let stream = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => break stream,
                    // Out of file descriptors: waits until some are closed.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        };
        let proxy = Arc::clone(&proxy);
        let to = Arc::clone(&to);
        connections.spawn(async move {
            let _permit = permit;
            match &*to {
                None => proxy.carry(stream).await,
                Some(to) => proxy.carry_tcp(stream, to).await,
            }
        });
    }
}

impl Proxy {
    async fn carry(&self, mut stream: UnixStream) {
        let read = timeout(HEAD_WITHIN, read_head(&mut stream, Vec::new())).await.ok().flatten();
        let parsed = read.and_then(|(bytes, rest)| Some((Head::parse(&bytes)?, bytes, rest)));
        let Some((head, bytes, rest)) = parsed else { return refuse(&mut stream, Denial::Malformed).await };
        self.rate_limit.acquire().await;
        match head.is_connect() {
            true => self.tunnel(stream, head, rest).await,
            false => self.pass(stream, head, [bytes, rest].concat(), None).await,
        }
    }

    /// Handles the content behind CONNECT: TLS for the checked host, or one plain request, which some clients tunnel
    /// too. To the origin of a credential on a port other than that of TLS, only a plain request is accepted.
    async fn tunnel(&self, mut stream: UnixStream, head: Head, rest: Vec<u8>) {
        let lease = (head.port != rules::TLS).then(|| self.credentials.find(&head.host, head.port)).flatten();
        let upstream = match lease.is_none().then(|| self.connect(&head)) {
            None => None,
            Some(connecting) => match connecting.await {
                Ok(upstream) => Some(upstream),
                Err(denied) => {
                    self.audit(&head, "", Some(denied));
                    return refuse(&mut stream, denied).await;
                }
            },
        };
        let credential = lease.as_ref().map(|lease| lease.name.as_str()).unwrap_or_default();
        // A refusal sends no answer here: the client was told that it is connected.
        match tunnelled(&mut stream, &head, rest, lease.is_some()).await {
            Err(denied) => self.audit(&head, credential, Some(denied)),
            Ok(TunnelContent::Request(head, read)) => Box::pin(self.pass(stream, head, read, upstream)).await,
            Ok(TunnelContent::Tls(hello)) => {
                self.audit(&head, "", None);
                let Some(mut upstream) = upstream else { return };
                if upstream.write_all(&hello).await.is_ok() {
                    // Err: one side disconnected, which ends the other.
                    let _ = timeout(TUNNEL_WITHIN, copy_bidirectional(&mut stream, &mut upstream)).await;
                }
            }
        }
    }

    /// Sends one plain request, with a credential if a call brought one for its origin. `upstream` is an existing
    /// connection to its target.
    async fn pass(&self, mut stream: UnixStream, head: Head, read: Vec<u8>, upstream: Option<TcpStream>) {
        // Looked up here even if a tunnel was opened for it: the call that brought the credential may have ended since.
        let lease = self.credentials.find(&head.host, head.port);
        let credential = lease.as_ref().map(|lease| lease.name.clone()).unwrap_or_default();
        let connected = match &lease {
            Some(lease) => self.connect_with_credential(&head, lease).await,
            None => self.connect_plain(&head, upstream).await,
        };
        let service = match connected {
            Ok(service) => service,
            Err(denied) => {
                self.audit(&head, &credential, Some(denied));
                return refuse(&mut stream, denied).await;
            }
        };
        self.audit(&head, &credential, None);
        let credential =
            lease.map(|lease| proved::RequestCredential { credentials: self.credentials(), lease });
        let Ok(authority) = head.authority.parse() else { return };
        let forward = proved::ForwardRequest { path: head.path, authority, read, credential };
        let exchange = proved::exchange(stream, forward, service);
        // Err: one side disconnected, which ends the other.
        let _ = timeout(TUNNEL_WITHIN, Box::pin(exchange)).await;
    }

    async fn connect_plain(
        &self,
        head: &Head,
        upstream: Option<TcpStream>,
    ) -> Result<Box<dyn proved::Stream>, Denial> {
        if !proved::is_clear(head) {
            return Err(Denial::Malformed);
        }
        let stream = match upstream {
            Some(stream) => stream,
            None => self.connect(head).await?,
        };
        Ok(Box::new(stream))
    }

    async fn connect_with_credential(
        &self,
        head: &Head,
        lease: &CredentialLease,
    ) -> Result<Box<dyn proved::Stream>, Denial> {
        if !proved::is_clear(head) || proved::is_repeated(head) {
            return Err(Denial::UnsafeForCredential);
        }
        let origin = lease.origin();
        if !self.rules.allow_host(&origin.host) {
            return Err(Denial::Name);
        }
        let stream = self.reach(&origin.host, origin.port).await?;
        let service = timeout(CONNECT_WITHIN, proved::secure(stream, lease, &self.trust)).await;
        service.ok().flatten().ok_or(Denial::Unreachable)
    }

    fn audit(&self, head: &Head, credential: &str, denied: Option<Denial>) {
        let outcome = match denied {
            None => "allowed",
            Some(Denial::Malformed) => "malformed",
            Some(Denial::Name) => "name_denied",
            Some(Denial::Port) => "port_denied",
            Some(Denial::Address) => "address_denied",
            Some(Denial::Unreachable) => "unreachable",
            Some(Denial::UnsafeForCredential) => "not_proved",
            Some(Denial::ServerName) => "server_name_denied",
        };
        let Proxy { plugin, worker, .. } = self;
        let Head { method, host, port, .. } = head;
        tracing::info!(audit = true, plugin, worker, method, host, port, credential, outcome, "egress");
    }

    async fn connect(&self, head: &Head) -> Result<TcpStream, Denial> {
        if !self.rules.allow_host(&head.host) {
            return Err(Denial::Name);
        }
        if !self.rules.allow_port(head.port, head.is_connect()) {
            return Err(Denial::Port);
        }
        self.reach(&head.host, head.port).await
    }

    /// Connects to one of the addresses of an allowed name.
    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Denial> {
        let wanted = (host.to_owned(), port);
        let lookup = async move {
            let found = lookup_host(wanted).await;
            found.map(|addresses| addresses.take(MAX_ADDRESSES).collect::<Vec<SocketAddr>>())
        };
        let resolved = timeout(CONNECT_WITHIN, self.names.look_up(lookup)).await;
        let Ok(Some(Ok(addresses))) = resolved else { return Err(Denial::Unreachable) };
        // A name that resolves to both an allowed and a refused address is refused.
        if !addresses.iter().all(|address| self.rules.allow_address(host, address.ip())) {
            return Err(Denial::Address);
        }
        for address in addresses {
            if let Ok(Ok(stream)) = timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
                return Ok(stream);
            }
        }
        Err(Denial::Unreachable)
    }
}

/// The first content behind CONNECT.
#[derive(Debug, PartialEq, Eq)]
enum TunnelContent {
    /// A TLS hello for the host of the tunnel.
    Tls(Vec<u8>),
    /// A plain request for it, as if it had been sent to the proxy, and all bytes read so far.
    Request(Head, Vec<u8>),
}

/// Confirms the connection to the client, and reads its first message to the target.
///
/// On the port of plain HTTP (some clients tunnel that too) this is one request for that host; on the port of TLS it is
/// a TLS hello. On other ports, which are used in development and by credentials, the first byte decides, unless it
/// must be plain.
async fn tunnelled(
    stream: &mut UnixStream,
    to: &Head,
    mut rest: Vec<u8>,
    must_be_plain: bool,
) -> Result<TunnelContent, Denial> {
    let answered = stream.write_all(ESTABLISHED).await;
    answered.map_err(|_| Denial::ServerName)?;
    let is_plain = match to.port {
        rules::PLAIN => true,
        rules::TLS => false,
        _ if must_be_plain => true,
        _ => {
            let first = timeout(HEAD_WITHIN, first_byte(stream, &mut rest)).await;
            first.ok().flatten().ok_or(Denial::ServerName)? != TLS_HANDSHAKE
        }
    };
    if is_plain {
        let read = timeout(HEAD_WITHIN, read_head(stream, rest)).await;
        let Ok(Some((bytes, rest))) = read else { return Err(Denial::ServerName) };
        let head = Head::in_tunnel(&bytes, &to.host, to.port).ok_or(Denial::ServerName)?;
        return Ok(TunnelContent::Request(head, [bytes, rest].concat()));
    }
    match timeout(HEAD_WITHIN, Hello::read(stream, rest)).await {
        Ok(Some(hello)) if hello.is_for(&to.host) => Ok(TunnelContent::Tls(hello.bytes)),
        _ => Err(Denial::ServerName),
    }
}

/// Returns the first byte from the client, which also stays in `read`.
async fn first_byte(stream: &mut UnixStream, read: &mut Vec<u8>) -> Option<u8> {
    if read.is_empty() {
        stream.read_buf(read).await.ok()?;
    }
    read.first().copied()
}

/// Reads a head with its final empty line, and returns it with the bytes after it.
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

async fn refuse(stream: &mut UnixStream, denied: Denial) {
    let (status, word) = match denied {
        Denial::Malformed => ("400 Bad Request", "malformed"),
        Denial::Name | Denial::ServerName => ("403 Forbidden", "name not allowed"),
        Denial::Port => ("403 Forbidden", "port not allowed: 80, or 443 by TLS"),
        Denial::Address => ("403 Forbidden", "address not allowed"),
        Denial::Unreachable => ("502 Bad Gateway", "unreachable"),
        Denial::UnsafeForCredential => ("400 Bad Request", "such a request is not sent with a credential"),
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
