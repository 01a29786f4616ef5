//! The network of a build: an HTTP proxy that reaches the registries of packages, and nothing else.
//!
//! Owns a listener on the loopback or at a socket, for as long as the build runs. Refuses every host and port that is no
//! registry of the account, and everything but tunnels (`CONNECT`) and requests to plain HTTP registries. Keeps true: the
//! number of connections, the size of a request's head and the time to connect are bounded; no byte within a tunnel is read.
//! Sources: RFC 9110 section 9.3.6, RFC 9112 section 3.2.2.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::registries::{Registries, RegistryAddress};

/// Maximum number of connections; npm opens 15 and Maven 5 to one host.
const MAX_CONNECTIONS: usize = 64;
/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of refused addresses that are reported.
const MAX_REFUSED: usize = 20;
/// Timeout of a connection to a registry.
const CONNECT: Duration = Duration::from_secs(15);
/// Time in which a client sends the head of its request.
const HEAD: Duration = Duration::from_secs(30);
/// Pause after a failed accept, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const FORBIDDEN: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\nX-Reason: no registry of the build\r\n\r\n";
const BAD_GATEWAY: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A running proxy; dropping it ends it.
pub(crate) struct RegistryProxy {
    place: ProxyPlace,
    shared: Arc<ProxyState>,
    accepting: Option<JoinHandle<()>>,
}

/// Location of the listener.
enum ProxyPlace {
    Loopback(SocketAddr),
    Socket(PathBuf),
}

struct ProxyState {
    registries: Registries,
    ends: AtomicBool,
    connections: AtomicUsize,
    refused: parking_lot::Mutex<BTreeSet<String>>,
}

enum ProxyListener {
    Loopback(TcpListener),
    Socket(UnixListener),
}

/// A connection from the build's tool.
enum ToolStream {
    Loopback(TcpStream),
    Socket(UnixStream),
}

/// Place in the count of connections.
struct ConnectionPermit(Arc<ProxyState>);

impl RegistryProxy {
    /// Listens on a free port of the loopback.
    pub(crate) fn on_loopback(registries: Registries) -> io::Result<RegistryProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let place = ProxyPlace::Loopback(listener.local_addr()?);
        RegistryProxy::start(place, ProxyListener::Loopback(listener), registries)
    }

    /// Listens at a socket.
    pub(crate) fn on_socket(path: &Path, registries: Registries) -> io::Result<RegistryProxy> {
        let listener = UnixListener::bind(path)?;
        let place = ProxyPlace::Socket(path.to_owned());
        RegistryProxy::start(place, ProxyListener::Socket(listener), registries)
    }

    fn start(
        place: ProxyPlace,
        listener: ProxyListener,
        registries: Registries,
    ) -> io::Result<RegistryProxy> {
        let shared = Arc::new(ProxyState {
            registries,
            ends: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            refused: parking_lot::Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let accepting = thread::Builder::new().spawn(move || accept(&listener, &accepting))?;
        Ok(RegistryProxy { place, shared, accepting: Some(accepting) })
    }

    /// Returns the URL for tools; empty for a socket.
    pub(crate) fn url(&self) -> String {
        match &self.place {
            ProxyPlace::Loopback(address) => format!("http://{address}"),
            ProxyPlace::Socket(_) => String::new(),
        }
    }

    /// Returns what was refused, and the setting that allows it; `None` if nothing was.
    pub(crate) fn refusals(&self) -> Option<String> {
        let refused = self.shared.refused.lock();
        let named = refused.iter().cloned().collect::<Vec<_>>().join(", ");
        (!refused.is_empty()).then(|| {
            format!(
                "the build was not allowed to reach {named}, which is not a registry of this account; name it in \
                 ASP_BUILD_REGISTRIES if it is one"
            )
        })
    }
}

impl Drop for RegistryProxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        // Wakes the listener. Err: it has ended.
        match &self.place {
            ProxyPlace::Loopback(address) => drop(TcpStream::connect(address)),
            ProxyPlace::Socket(path) => drop(UnixStream::connect(path)),
        }
        if let Some(accepting) = self.accepting.take() {
            // Err: it panicked, and is over, too.
            let _ = accepting.join();
        }
    }
}

impl ProxyListener {
    fn accept(&self) -> io::Result<ToolStream> {
        Ok(match self {
            ProxyListener::Loopback(listener) => ToolStream::Loopback(listener.accept()?.0),
            ProxyListener::Socket(listener) => ToolStream::Socket(listener.accept()?.0),
        })
    }
}

impl ToolStream {
    fn try_clone(&self) -> io::Result<ToolStream> {
        Ok(match self {
            ToolStream::Loopback(stream) => ToolStream::Loopback(stream.try_clone()?),
            ToolStream::Socket(stream) => ToolStream::Socket(stream.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) {
        // Err: the other side has closed it.
        let _ = match self {
            ToolStream::Loopback(stream) => stream.shutdown(how),
            ToolStream::Socket(stream) => stream.shutdown(how),
        };
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            ToolStream::Loopback(stream) => stream.set_read_timeout(limit),
            ToolStream::Socket(stream) => stream.set_read_timeout(limit),
        }
    }
}

impl Read for ToolStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ToolStream::Loopback(stream) => stream.read(buffer),
            ToolStream::Socket(stream) => stream.read(buffer),
        }
    }
}

impl Write for ToolStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ToolStream::Loopback(stream) => stream.write(bytes),
            ToolStream::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn accept(listener: &ProxyListener, shared: &Arc<ProxyState>) {
    loop {
        let accepted = listener.accept();
        if shared.ends.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = accepted else {
            thread::sleep(PAUSE);
            continue;
        };
        let permit = ConnectionPermit(Arc::clone(shared));
        if shared.connections.fetch_add(1, Ordering::AcqRel) < MAX_CONNECTIONS {
            // Err: no thread is left; the connection is closed.
            let _ = thread::Builder::new().spawn(move || serve(stream, &permit));
        }
    }
}

/// Serves one connection until both sides are done.
fn serve(mut tool: ToolStream, permit: &ConnectionPermit) {
    let shared = &permit.0;
    let answer = match open(&mut tool, shared) {
        Ok((registry, first)) => return exchange(tool, registry, &first),
        Err(answer) => answer,
    };
    // Err: the tool is gone.
    let _ = tool.write_all(answer);
    tool.shutdown(Shutdown::Both);
}

/// Reads a request and connects to its registry. Returns the bytes that the registry gets first; `Err` is the response.
fn open(tool: &mut ToolStream, shared: &ProxyState) -> Result<(TcpStream, Vec<u8>), &'static [u8]> {
    let (head, rest) = read_head(tool).ok_or(BAD_REQUEST)?;
    let request = ProxyRequest::parse(&head).ok_or(BAD_REQUEST)?;
    if !shared.registries.allow(&request.address) {
        let mut refused = shared.refused.lock();
        if refused.len() < MAX_REFUSED {
            refused.insert(request.address.to_string());
        }
        return Err(FORBIDDEN);
    }
    let registry = connect(&request.address).map_err(|_| BAD_GATEWAY)?;
    match request.head {
        None => {
            tool.write_all(ESTABLISHED).map_err(|_| BAD_GATEWAY)?;
            Ok((registry, rest))
        }
        Some(head) => Ok((registry, [head.into_bytes(), rest].concat())),
    }
}

/// Reads up to the end of a head; returns it, and the bytes after it.
fn read_head(tool: &mut ToolStream) -> Option<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    tool.set_read_timeout(Some(HEAD)).ok()?;
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        let count = tool.read(&mut buffer).ok().filter(|count| *count > 0)?;
        read.extend_from_slice(buffer.get(..count)?);
        if let Some(at) = read.windows(END.len()).position(|part| part == END) {
            break at + END.len();
        }
        if read.len() > MAX_HEAD {
            return None;
        }
    };
    tool.set_read_timeout(None).ok()?;
    let rest = read.split_off(end);
    Some((String::from_utf8(read).ok()?, rest))
}

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    address: RegistryAddress,
    /// Head for a plain HTTP registry; `None` for a tunnel.
    head: Option<String>,
}

impl ProxyRequest {
    fn parse(head: &str) -> Option<ProxyRequest> {
        let (line, fields) = head.split_once("\r\n")?;
        let mut words = line.split(' ');
        let method = words.next()?;
        let target = words.next()?;
        let version = words.next()?;
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            return Some(ProxyRequest { address: RegistryAddress::of_authority(target, None)?, head: None });
        }
        let (authority, path) = target.strip_prefix("http://")?.split_once('/')?;
        let address = RegistryAddress::of_authority(authority, Some(80))?;
        // One request for each connection: the next one may be for another host.
        let kept = fields.split("\r\n").filter(|field| !field.is_empty() && !is_of_hop(field));
        let mut text = format!("{method} /{path} HTTP/1.1\r\n");
        for field in kept {
            text.push_str(field);
            text.push_str("\r\n");
        }
        text.push_str("Connection: close\r\n\r\n");
        Some(ProxyRequest { address, head: Some(text) })
    }
}

/// Whether a field is for the proxy alone.
fn is_of_hop(field: &str) -> bool {
    let name = field.split(':').next().unwrap_or_default();
    ["connection", "proxy-connection", "proxy-authorization", "keep-alive"]
        .iter()
        .any(|hop| name.eq_ignore_ascii_case(hop))
}

fn connect(to: &RegistryAddress) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (to.host.as_str(), to.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Moves bytes in both directions until both are done.
fn exchange(tool: ToolStream, mut registry: TcpStream, first: &[u8]) {
    let (Ok(from_tool), Ok(to_registry)) = (tool.try_clone(), registry.try_clone()) else { return };
    if registry.write_all(first).is_err() {
        return tool.shutdown(Shutdown::Both);
    }
    let sending = thread::Builder::new().spawn(move || {
        let mut from_tool = from_tool;
        let mut to_registry = to_registry;
        // Err, here and below: one side has closed the connection.
        let _ = io::copy(&mut from_tool, &mut to_registry);
        let _ = to_registry.shutdown(Shutdown::Write);
    });
    let Ok(sending) = sending else { return tool.shutdown(Shutdown::Both) };
    let mut to_tool = tool;
    let _ = io::copy(&mut registry, &mut to_tool);
    to_tool.shutdown(Shutdown::Both);
    let _ = registry.shutdown(Shutdown::Both);
    let _ = sending.join();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_tunnel_or_a_plain_registry_and_nothing_else() {
        let address = |host: &str, port| RegistryAddress { host: host.to_owned(), port };
        let of = |text: &str| ProxyRequest::parse(text);
        let tunnel = of("CONNECT Registry.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(tunnel, ProxyRequest { address: address("registry.example.org", 443), head: None });
        let plain = of(
            "GET http://127.0.0.1:4873/lib?x=1 HTTP/1.1\r\nHost: 127.0.0.1:4873\r\nConnection: keep-alive\r\n\
             Proxy-Authorization: Basic x\r\nAccept: */*\r\n\r\n",
        )
        .unwrap();
        assert_eq!(plain.address, address("127.0.0.1", 4873));
        assert_eq!(
            plain.head.unwrap(),
            "GET /lib?x=1 HTTP/1.1\r\nHost: 127.0.0.1:4873\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        for bad in [
            "CONNECT registry.example.org HTTP/1.1\r\n\r\n",
            "CONNECT a:b:443 HTTP/1.1\r\n\r\n",
            "CONNECT a@b:443 HTTP/1.1\r\n\r\n",
            "CONNECT a:0 HTTP/1.1\r\n\r\n",
            "CONNECT a:443 HTTP/2\r\n\r\n",
            "GET /lib HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET https://a/lib HTTP/1.1\r\n\r\n",
            "GET ftp://a/lib HTTP/1.1\r\n\r\n",
            "GET http://a/lib b HTTP/1.1\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    /// Sends a request to the proxy; returns all that comes back.
    fn ask(proxy: &RegistryProxy, request: &str) -> String {
        let ProxyPlace::Loopback(address) = &proxy.place else { panic!("a socket") };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_registry_is_reached_by_a_tunnel_and_plainly_and_another_host_is_not() {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let serving = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = service.accept().unwrap();
                let mut request = String::new();
                stream.read_to_string(&mut request).unwrap();
                stream.write_all(format!("got {request}").as_bytes()).unwrap();
            }
        });
        let registries = Registries::of([format!("http://127.0.0.1:{port}").as_str()]);
        let proxy = RegistryProxy::on_loopback(registries).unwrap();
        let answer = ask(&proxy, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello"));
        assert_eq!(answer, format!("{}got hello", std::str::from_utf8(ESTABLISHED).unwrap()));
        let answer = ask(&proxy, &format!("GET http://127.0.0.1:{port}/a HTTP/1.1\r\n\r\n"));
        assert_eq!(answer, "got GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert_eq!(proxy.refusals(), None);
        serving.join().unwrap();

        let answer = ask(&proxy, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        let said = proxy.refusals().unwrap();
        assert!(said.contains("127.0.0.1:1") && said.contains("ASP_BUILD_REGISTRIES"), "{said}");
    }

    /// Invariant I-4: what a tool sends.
    #[test]
    fn a_head_without_an_end_is_not_read_for_ever() {
        let (mut tool, proxy) = UnixStream::pair().unwrap();
        tool.write_all(&vec![b'x'; 2 * MAX_HEAD]).unwrap();
        assert_eq!(read_head(&mut ToolStream::Socket(proxy)), None);
    }

    #[test]
    fn a_proxy_at_a_socket_ends_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.sock");
        let proxy =
            RegistryProxy::on_socket(&path, Registries::of(["https://registry.example.org"])).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        drop(proxy);
        assert!(UnixStream::connect(&path).is_err());
    }
}
