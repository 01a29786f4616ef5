//! A raw HTTP/1.1 client: sends exactly the bytes it is given, so that a test can be as wrong as it
//! wants, and reads one response.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Hang guard of one exchange.
const EXCHANGE: Duration = Duration::from_secs(90);
/// Largest response kept.
const RESPONSE_BYTES: usize = 16 << 20;

/// A request; `target` and header values are sent as they are.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub target: String,
    /// In order; `host` and `content-length` are added when absent.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// A response, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; of an event stream, its last `data`.
    pub fn json(&self) -> Result<serde_json::Value> {
        let text = self.text();
        let event_stream =
            self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let data = if event_stream {
            text.lines().rev().find_map(|line| line.strip_prefix("data:")).unwrap_or_default()
        } else {
            &text
        };
        serde_json::from_str(data.trim()).with_context(|| format!("status {}, body {text:?}", self.status))
    }

    /// The stable reason of a refusal: `error.data.reason`, the end of a problem document's `type`, or in lower case the
    /// reason in the details of an error of A2A.
    pub fn reason(&self) -> Option<String> {
        let body = self.json().ok()?;
        let reason = body.pointer("/error/data/reason").and_then(|reason| reason.as_str());
        let problem =
            body.get("type").and_then(|kind| kind.as_str()).and_then(|kind| kind.rsplit(':').next());
        let details = ["/error/data/0/reason", "/error/details/0/reason", "/data/0/reason"];
        let of_a2a = details.into_iter().find_map(|pointer| body.pointer(pointer)?.as_str());
        reason.or(problem).map(String::from).or_else(|| of_a2a.map(str::to_ascii_lowercase))
    }
}

/// GET with headers.
pub async fn get(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Result<Response> {
    send(address, &request("GET", target, headers, Vec::new())).await
}

/// POST of a JSON text with headers.
pub async fn post(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Response> {
    let mut request = request("POST", target, headers, body.as_bytes().to_vec());
    if !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request.headers.push(("content-type".into(), b"application/json".to_vec()));
    }
    send(address, &request).await
}

/// Sends a request on a connection of its own and reads the response.
pub async fn send(address: SocketAddr, request: &Request) -> Result<Response> {
    exchange(address, &encode(address, request), request.method == "HEAD").await
}

/// Sends raw bytes on a connection of its own and reads the response.
pub async fn exchange(address: SocketAddr, bytes: &[u8], no_body: bool) -> Result<Response> {
    let work = async {
        let mut stream =
            TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        // A server may answer and close before it has read everything: the answer counts, not the write.
        let (mut reader, mut writer) = stream.split();
        let write = async {
            let _ = writer.write_all(bytes).await;
            std::future::pending::<()>().await
        };
        tokio::select! {
            response = read_response(&mut reader, no_body) => response,
            () = write => bail!("unreachable: the writer never ends"),
        }
    };
    match timeout(EXCHANGE, work).await {
        Ok(response) => response,
        Err(_) => bail!("{address} did not answer within {} s", EXCHANGE.as_secs()),
    }
}

/// A connection for one request after the other. The first request opens it, and so does one after a failure.
pub struct Connection {
    address: SocketAddr,
    /// The client's own address, where it matters.
    local: Option<IpAddr>,
    stream: Option<TcpStream>,
}

impl Connection {
    pub fn to(address: SocketAddr) -> Connection {
        Connection { address, local: None, stream: None }
    }

    /// The same from an address of this machine, such as any of 127.0.0.0/8.
    pub fn from(local: IpAddr, address: SocketAddr) -> Connection {
        Connection { local: Some(local), ..Connection::to(address) }
    }

    /// Sends a request and reads the response.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        let address = self.address;
        let local = self.local;
        let open = self.stream.take();
        let work = async {
            let mut stream = match open {
                Some(stream) => stream,
                None => connect(local, address).await.with_context(|| format!("connect to {address}"))?,
            };
            // The end of a long request does not wait for an acknowledgement.
            stream.set_nodelay(true)?;
            stream.write_all(&encode(address, request)).await.context("send the request")?;
            let response = read_response(&mut stream, request.method == "HEAD").await?;
            anyhow::Ok((stream, response))
        };
        let Ok(answered) = timeout(EXCHANGE, work).await else {
            bail!("{address} did not answer within {} s", EXCHANGE.as_secs());
        };
        let (stream, response) = answered?;
        let closes = response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        self.stream = (!closes).then_some(stream);
        Ok(response)
    }
}

async fn connect(local: Option<IpAddr>, address: SocketAddr) -> std::io::Result<TcpStream> {
    let Some(local) = local else { return TcpStream::connect(address).await };
    let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

/// A response that is still being sent.
pub struct Opened {
    stream: TcpStream,
    read: Vec<u8>,
}

/// Sends a request on a connection of its own and reads until `wanted` has come.
pub async fn open(address: SocketAddr, request: &Request, wanted: &str) -> Result<Opened> {
    let work = async {
        let mut stream =
            TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        stream.write_all(&encode(address, request)).await.context("send the request")?;
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(wanted) {
            if !fill(&mut stream, &mut read).await? {
                bail!("the response ends before {wanted:?}: {:?}", String::from_utf8_lossy(&read));
            }
        }
        Ok(Opened { stream, read })
    };
    match timeout(EXCHANGE, work).await {
        Ok(opened) => opened,
        Err(_) => bail!("{address} did not send {wanted:?} within {} s", EXCHANGE.as_secs()),
    }
}

impl Opened {
    /// Reads on until `wanted` has come, and forgets all up to there.
    pub async fn until(mut self, wanted: &str) -> Result<Opened> {
        let work = async {
            loop {
                let at = self.read.windows(wanted.len()).position(|window| window == wanted.as_bytes());
                if let Some(at) = at {
                    self.read.drain(..at + wanted.len());
                    return Ok(());
                }
                if !fill(&mut self.stream, &mut self.read).await? {
                    bail!("the response ends before {wanted:?}: {:?}", String::from_utf8_lossy(&self.read));
                }
            }
        };
        match timeout(EXCHANGE, work).await {
            Ok(found) => found.map(|()| self),
            Err(_) => bail!("{wanted:?} did not come within {} s", EXCHANGE.as_secs()),
        }
    }

    /// Reads on until an event with `wanted` in its data is whole; that data. What was read is kept.
    pub async fn event_with(mut self, wanted: &str) -> Result<(Opened, String)> {
        let work = async {
            loop {
                let text = String::from_utf8_lossy(&self.read).into_owned();
                // Without its last line, which may still grow.
                let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
                let mut events = whole.lines().filter_map(|line| line.strip_prefix("data: "));
                if let Some(found) = events.find(|data| data.contains(wanted)) {
                    return Ok(found.to_owned());
                }
                if !fill(&mut self.stream, &mut self.read).await? {
                    bail!("the response ends before {wanted:?}: {text:?}");
                }
            }
        };
        match timeout(EXCHANGE, work).await {
            Ok(found) => found.map(|data| (self, data)),
            Err(_) => bail!("{wanted:?} did not come within {} s", EXCHANGE.as_secs()),
        }
    }

    /// Reads on to the next event of a stream and returns its data; `None` at the end of the stream.
    pub async fn next_event(&mut self) -> Result<Option<String>> {
        let work = async {
            loop {
                while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.read.drain(..=end).collect();
                    let line = String::from_utf8_lossy(&line);
                    if let Some(data) = line.strip_prefix("data: ") {
                        return Ok(Some(data.trim_end().to_owned()));
                    }
                    // The last chunk.
                    if line.trim_end() == "0" {
                        return Ok(None);
                    }
                }
                if !fill(&mut self.stream, &mut self.read).await? {
                    return Ok(None);
                }
            }
        };
        match timeout(EXCHANGE, work).await {
            Ok(found) => found,
            Err(_) => bail!("no event came within {} s", EXCHANGE.as_secs()),
        }
    }

    /// What has come of the response within a time, and the response if it has come whole; whoever waits leaves then.
    pub async fn within(mut self, time: Duration) -> Result<(String, Option<Response>)> {
        let whole = timeout(time, async {
            loop {
                if let Ok(response) = read_response(&mut self.read.as_slice(), false).await {
                    return Ok(Some(response));
                }
                if !fill(&mut self.stream, &mut self.read).await? {
                    return anyhow::Ok(None);
                }
            }
        });
        let whole = whole.await.unwrap_or(Ok(None))?;
        Ok((String::from_utf8_lossy(&self.read).into_owned(), whole))
    }

    /// Reads what is left; the whole response.
    pub async fn finish(mut self) -> Result<Response> {
        let mut all = std::io::Cursor::new(std::mem::take(&mut self.read)).chain(&mut self.stream);
        match timeout(EXCHANGE, read_response(&mut all, false)).await {
            Ok(response) => response,
            Err(_) => bail!("the response did not end within {} s", EXCHANGE.as_secs()),
        }
    }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Request {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), value.as_bytes().to_vec())).collect();
    Request { method: method.into(), target: target.into(), headers, body }
}

pub(crate) fn encode(address: SocketAddr, request: &Request) -> Vec<u8> {
    let has = |wanted: &str| request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
    if !has("host") {
        bytes.extend_from_slice(format!("host: {address}\r\n").as_bytes());
    }
    let bare_get = request.body.is_empty() && request.method == "GET";
    let framed = has("content-length") || has("transfer-encoding") || bare_get;
    if !framed {
        bytes.extend_from_slice(format!("content-length: {}\r\n", request.body.len()).as_bytes());
    }
    for (name, value) in &request.headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&request.body);
    bytes
}

async fn read_response(stream: &mut (impl AsyncReadExt + Unpin), no_body: bool) -> Result<Response> {
    let mut buffer = Vec::new();
    loop {
        let (head, rest) = read_head(stream, buffer).await?;
        let mut response = parse_head(&head)?;
        // 100 Continue and its like come before the answer.
        if (100..200).contains(&response.status) {
            buffer = rest;
            continue;
        }
        if !no_body && response.status != 204 && response.status != 304 {
            response.body = read_body(stream, &response, rest).await?;
        }
        return Ok(response);
    }
}

async fn read_head(
    stream: &mut (impl AsyncReadExt + Unpin),
    mut buffer: Vec<u8>,
) -> Result<(String, Vec<u8>)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&buffer).into_owned(), rest));
        }
        if !fill(stream, &mut buffer).await? {
            bail!("the connection closed before a response ({} bytes)", buffer.len());
        }
    }
}

pub(crate) fn parse_head(head: &str) -> Result<Response> {
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    Ok(Response {
        status: status.with_context(|| format!("no status in {status_line:?}"))?,
        headers,
        body: Vec::new(),
    })
}

async fn read_body(
    stream: &mut (impl AsyncReadExt + Unpin),
    response: &Response,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>> {
    let chunked = response.header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    let length: Option<usize> = response.header("content-length").and_then(|value| value.parse().ok());
    loop {
        if chunked {
            if let Some(body) = dechunk(&buffer) {
                return Ok(body);
            }
        } else if let Some(length) = length
            && buffer.len() >= length
        {
            buffer.truncate(length);
            return Ok(buffer);
        }
        if !fill(stream, &mut buffer).await? {
            if chunked || length.is_some() {
                bail!("the connection closed within the body");
            }
            return Ok(buffer);
        }
    }
}

/// The body, once the final chunk is there.
fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(rest.get(..end)?).ok()?.split(';').next()?, 16).ok()?;
        rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

pub(crate) async fn fill(stream: &mut (impl AsyncReadExt + Unpin), buffer: &mut Vec<u8>) -> Result<bool> {
    if buffer.len() > RESPONSE_BYTES {
        bail!("the response is longer than {RESPONSE_BYTES} bytes");
    }
    Ok(stream.read_buf(buffer).await? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_joined_once_its_last_chunk_is_there() {
        assert_eq!(dechunk(b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"), Some(b"abcde".to_vec()));
        assert_eq!(dechunk(b"3\r\nabc\r\n2\r\nd"), None);
    }

    #[test]
    fn the_last_event_of_a_stream_is_its_json() {
        let headers = vec![("content-type".into(), "text/event-stream".into())];
        let body = b"id: 1\ndata: {\"a\":1}\n\ndata: {\"a\":2}\n\n".to_vec();
        let response = Response { status: 200, headers, body };
        assert_eq!(response.json().unwrap(), serde_json::json!({"a": 2}));
    }
}
