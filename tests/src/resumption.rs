//! A client whose connections break at random points of its streams, or whose gateway is lost, and that comes back to each
//! with `Last-Event-ID`.
//!
//! Keeps true: what it counts is exact: each message that it must get is known beforehand.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http1::{self, Request, encode, fill, parse_head};

/// Hang guard of one connection.
const CONNECTION: Duration = Duration::from_secs(30);
/// How far each call counts; an event of it is some 330 bytes.
const TO: u64 = 40;
/// Between two numbers, in milliseconds.
const DELAY: u64 = 3;
/// The same, where the call is to be under way for long.
const SLOW_DELAY: u64 = 500;
/// Most bytes of a connection's stream before it breaks.
const LONGEST: usize = 2_000;

/// What came of it.
#[derive(Debug, Default)]
pub struct Figures {
    pub calls: usize,
    pub cuts: usize,
    pub lost: usize,
    pub repeated: usize,
    /// Of messages that nobody was to get.
    pub foreign: usize,
}

/// Calls `count` of the server `demo` until its streams were cut so often. Each request goes to one of the `edges`.
pub async fn cut(edges: &[SocketAddr], token: &str, cuts: usize, seed: u64) -> Result<Figures> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut figures = Figures::default();
    for (n, revision) in ["2025-03-26", "2025-06-18", "2025-11-25"].into_iter().cycle().enumerate() {
        if figures.cuts >= cuts {
            return Ok(figures);
        }
        let client = Client::connect(edges, token, revision).await?;
        let messages = client.count(n, cuts - figures.cuts, &mut random, &mut figures.cuts).await;
        figures.calls += 1;
        figures.judge(&messages.with_context(|| format!("call {n}, {revision}, seed {seed}"))?, n);
    }
    Ok(figures)
}

impl Figures {
    fn judge(&mut self, messages: &[Value], call: usize) {
        let mut came = [0_usize; TO as usize + 1];
        for message in messages {
            let number = match message.get("id") {
                Some(id) if id == &json!(call + 2) => message
                    .pointer("/result/content/0/text")
                    .filter(|text| **text == counted())
                    .map(|_| TO + 1),
                Some(_) => None,
                None => message.pointer("/params/progress").and_then(Value::as_u64),
            };
            let place = number.and_then(|n| came.get_mut(usize::try_from(n).ok()?.checked_sub(1)?));
            match place {
                Some(times) => *times += 1,
                None => self.foreign += 1,
            }
        }
        self.lost += came.iter().filter(|times| **times == 0).count();
        self.repeated += came.iter().map(|times| times.saturating_sub(1)).sum::<usize>();
    }
}

fn counted() -> Value {
    Value::from(json!({"counted": TO}).to_string())
}

struct Client<'a> {
    edges: &'a [SocketAddr],
    headers: Vec<(String, Vec<u8>)>,
}

impl Client<'_> {
    async fn connect<'a>(edges: &'a [SocketAddr], token: &str, revision: &str) -> Result<Client<'a>> {
        let usual = [
            ("authorization", format!("Bearer {token}")),
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        let headers = usual.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect();
        let mut client = Client { edges, headers };
        let edge = *edges.first().context("an edge")?;
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "cut", "version": "1"}}});
        let answer = http1::send(edge, &client.request("POST", &hello.to_string())).await?;
        let session = answer.header("mcp-session-id").with_context(|| answer.text())?;
        client.headers.push(("mcp-session-id".into(), session.as_bytes().to_vec()));
        client.headers.push(("mcp-protocol-version".into(), revision.as_bytes().to_vec()));
        Ok(client)
    }

    fn request(&self, method: &str, body: &str) -> Request {
        let headers = self.headers.clone();
        Request { method: method.into(), target: "/demo/mcp".into(), headers, body: body.as_bytes().to_vec() }
    }

    /// Every message of one call, whose streams break at most `most` times.
    async fn count(
        &self,
        n: usize,
        most: usize,
        random: &mut StdRng,
        cuts: &mut usize,
    ) -> Result<Vec<Value>> {
        let mut request = self.call(n, DELAY);
        let mut messages = Vec::new();
        let mut broken = 0;
        loop {
            let longest = if broken < most { random.random_range(1..=LONGEST) } else { usize::MAX };
            let edge = *self.edges.choose(random).context("an edge")?;
            let part = read(edge, &request, longest).await?;
            messages.extend(part.messages);
            if part.is_whole {
                return Ok(messages);
            }
            broken += 1;
            *cuts += 1;
            // Without a new one it comes back to where it was; before the first one it cannot come back.
            if let Some(last) = part.last_id {
                request = self.come_back(last);
            }
        }
    }

    fn call(&self, n: usize, delay: u64) -> Request {
        let call = json!({"jsonrpc": "2.0", "id": n + 2, "method": "tools/call", "params": {"name": "count",
            "arguments": {"to": TO, "delayMs": delay}, "_meta": {"progressToken": "p"}}});
        self.request("POST", &call.to_string())
    }

    fn come_back(&self, last: String) -> Request {
        let mut request = self.request("GET", "");
        request.headers.push(("last-event-id".into(), last.into_bytes()));
        request
    }
}

/// A call whose gateway is lost before its end.
pub struct Loss {
    request: Request,
    came: Part,
    /// By which it comes back.
    first_id: String,
    last_id: String,
}

/// What a client has of such a call.
#[derive(Debug)]
pub struct Survived {
    /// The numbers that it was told before and after the loss.
    pub told: Vec<u64>,
    /// Those that it is told again where it comes back to the beginning.
    pub again: Vec<u64>,
    /// What it was told last, each time.
    pub ends: [Value; 2],
}

/// Begins a call at a gateway and has a random part of its stream.
pub async fn begin(gateway: SocketAddr, token: &str, seed: u64) -> Result<Loss> {
    let mut random = StdRng::seed_from_u64(seed);
    let edges = [gateway];
    let client = Client::connect(&edges, token, "2025-11-25").await?;
    let came = read(gateway, &client.call(0, SLOW_DELAY), random.random_range(1..=LONGEST)).await?;
    ensure!(!came.is_whole, "the call has ended by itself");
    let last_id = came.last_id.clone().context("an id")?;
    let first_id = came.first_id.clone().context("an id")?;
    Ok(Loss { request: client.come_back(String::new()), came, first_id, last_id })
}

impl Loss {
    /// The request by which its client comes back under another token.
    pub fn come_back(&self, token: &str) -> Request {
        let mut request = self.request.clone();
        request.headers.retain(|(name, _)| name != "last-event-id" && name != "authorization");
        request.headers.push(("last-event-id".into(), self.last_id.clone().into_bytes()));
        request.headers.push(("authorization".into(), format!("Bearer {token}").into_bytes()));
        request
    }

    /// Comes back at another gateway after the loss.
    pub async fn survive(self, gateway: SocketAddr) -> Result<Survived> {
        let come_back = |id: String| {
            let mut request = self.request.clone();
            request.headers.retain(|(name, _)| name != "last-event-id");
            request.headers.push(("last-event-id".into(), id.into_bytes()));
            request
        };
        let rest = read(gateway, &come_back(self.last_id), usize::MAX).await?;
        let again = read(gateway, &come_back(self.first_id), usize::MAX).await?;
        let end = |part: &Part| part.messages.last().cloned().unwrap_or_default();
        let told = [numbers(&self.came), numbers(&rest)].concat();
        Ok(Survived { told, again: numbers(&again), ends: [end(&rest), end(&again)] })
    }
}

impl Survived {
    /// Every event once, all of them again from the beginning, and the end of a call that only reads and that nobody goes
    /// on with.
    pub fn judge(&self) -> Result<()> {
        let whole: Vec<u64> = (1..).take(self.told.len()).collect();
        ensure!(self.told == whole, "a gap or a repetition: {self:?}");
        ensure!(self.again == whole, "not told again: {self:?}");
        for end in &self.ends {
            ensure!(end.to_string().contains("is gone, and no other can continue it: call again"), "{end}");
            ensure!(end["id"] == 2, "{end}");
        }
        Ok(())
    }
}

fn numbers(part: &Part) -> Vec<u64> {
    part.messages.iter().filter_map(|message| message.pointer("/params/progress")?.as_u64()).collect()
}

/// What a client has of a stream.
struct Part {
    messages: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    /// It ended by itself.
    is_whole: bool,
}

/// Reads the stream of a response until so many bytes of it have come, and breaks the connection; of a POST
/// not before an event has come with an id.
async fn read(edge: SocketAddr, request: &Request, mut longest: usize) -> Result<Part> {
    let reading = async {
        let mut stream = TcpStream::connect(edge).await?;
        stream.write_all(&encode(edge, request)).await?;
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                break parse_head(&String::from_utf8_lossy(&std::mem::replace(&mut bytes, rest)))?;
            }
            ensure!(fill(&mut stream, &mut bytes).await?, "no answer: {:?}", String::from_utf8_lossy(&bytes));
        };
        loop {
            let (body, ended) = dechunk(&bytes);
            let text = String::from_utf8_lossy(&body);
            if ended && head.header("content-type") != Some("text/event-stream") {
                bail!("status {}: {text}", head.status);
            }
            let is_whole = ended && text.len() <= longest;
            let come = part(text.get(..longest).unwrap_or(&text), is_whole)?;
            if is_whole || (text.len() >= longest && (come.last_id.is_some() || request.method == "GET")) {
                return Ok(come);
            }
            if text.len() >= longest {
                // Whoever has no id yet cannot come back.
                longest += 1;
                continue;
            }
            ensure!(fill(&mut stream, &mut bytes).await?, "the stream broke off by itself");
        }
    };
    timeout(CONNECTION, reading).await.context("a stream hangs")?
}

/// The events that came whole.
fn part(text: &str, is_whole: bool) -> Result<Part> {
    let mut part = Part { messages: Vec::new(), first_id: None, last_id: None, is_whole };
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    for event in whole.split("\n\n") {
        for line in event.lines() {
            match line.split_once(':') {
                Some(("id", id)) => {
                    let id = id.trim().to_owned();
                    part.first_id.get_or_insert_with(|| id.clone());
                    part.last_id = Some(id);
                }
                Some(("data", data)) if !data.trim().is_empty() => {
                    part.messages.push(serde_json::from_str(data).with_context(|| event.to_owned())?);
                }
                _ => {}
            }
        }
    }
    Ok(part)
}

/// The body as far as it has come, and whether that is all of it.
fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else { return (body, false) };
        let size = rest.get(..end).and_then(|size| std::str::from_utf8(size).ok());
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else {
            return (body, false);
        };
        if size == 0 {
            return (body, true);
        }
        let from = rest.get(end + 2..).unwrap_or_default();
        body.extend_from_slice(from.get(..size).unwrap_or(from));
        match from.get(size + 2..) {
            Some(next) => rest = next,
            None => return (body, false),
        }
    }
}
