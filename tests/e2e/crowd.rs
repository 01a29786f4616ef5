//! A thousand clients at once that all use the same JSON-RPC ids, and clients that do not read what they are sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request};
use asp_e2e::stack::{Options, Stack};
use bytes::Bytes;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::message::{initialize, legacy, modern};
use crate::trial::{Shared, trials};

const CLIENTS: usize = 1000;
/// Hang guard of a whole crowd.
const ALL: Duration = Duration::from_secs(180);
/// A hang guard: others do not wait until the streams that nobody reads are given up, after a minute.
const UNREAD: Duration = Duration::from_secs(20);
/// How many streams nobody reads.
const STALLED: usize = 200;
/// How many of them came before and left. Few: their memory is used again.
const BEFORE: usize = 20;
/// What one of them may hold in the gateway, in bytes: what waits to be sent, and what it costs that its call has run.
const MOST_HELD: u64 = (64 + 48) * 1024;

trials! { crowd:
    streams_that_nobody_reads_hold_little_and_hinder_nobody; in_each_era
}

fn in_each_era(shared: &Shared) -> Vec<Trial> {
    let trial = |era: &'static str| {
        let name = format!("crowd::a_thousand_{era}_clients_with_the_same_ids_get_their_own_nonces_alone");
        shared.trial(&name, async move |shared: &Shared| {
            let stack = shared.stack().await?;
            let token = stack.alice().await?;
            timeout(ALL, crowd(stack.edge(), &token, era)).await.context("the crowd hangs")?
        })
    };
    ["legacy", "modern"].map(trial).into()
}

async fn crowd(edge: SocketAddr, token: &str, era: &'static str) -> Result<()> {
    let barrier = Arc::new(Barrier::new(CLIENTS));
    let clients = (0..CLIENTS).map(|number| {
        let barrier = barrier.clone();
        async move {
            let client = Client::new(edge, token, era).await?;
            client.run(number, &barrier).await.with_context(|| format!("client {number}"))
        }
    });
    try_join_all(clients).await?;
    Ok(())
}

struct Client<'a> {
    edge: SocketAddr,
    token: &'a str,
    /// Of the handshake era.
    session: Option<String>,
}

impl<'a> Client<'a> {
    async fn new(edge: SocketAddr, token: &'a str, era: &str) -> Result<Client<'a>> {
        let session = match era {
            "legacy" => Some(initialize(edge, token).await?),
            _ => None,
        };
        Ok(Client { edge, token, session })
    }

    /// A request; every client numbers its own alike.
    fn request(&self, id: u64, params: Value) -> Result<Request> {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let meta = params.get("_meta").cloned();
        let mut request = match &self.session {
            Some(session) => legacy(self.token, "tools/call", params, &[("mcp-session-id", session)]),
            None => modern(self.token, "tools/call", params, &[("mcp-name", &name)]),
        };
        let mut body: Value = serde_json::from_slice(&request.body)?;
        body["id"] = id.into();
        if let Some(token) = meta.as_ref().and_then(|meta| meta.get("progressToken")) {
            body["params"]["_meta"]["progressToken"] = token.clone();
        }
        request.body = body.to_string().into_bytes();
        Ok(request)
    }

    /// While everybody's long call runs under id 7, each says its nonce under id 8, and hears of no other.
    async fn run(&self, number: usize, barrier: &Barrier) -> Result<()> {
        let nonce = format!("nonce-{number:04}-of-this-client");
        let count = json!({"name": "count", "arguments": {"to": 4, "delayMs": 1000},
                           "_meta": {"progressToken": nonce}});
        barrier.wait().await;
        let counting = http1::open(self.edge, &self.request(7, count)?, "notifications/progress").await?;
        let echo = json!({"name": "echo", "arguments": {"message": nonce}});
        let echoed = http1::send(self.edge, &self.request(8, echo)?).await?;
        let answer = echoed.json()?;
        ensure!(answer["id"] == 8 && answer["result"]["content"][0]["text"] == *nonce, "{answer}");
        let counted = counting.finish().await?;
        let answer = counted.json()?;
        ensure!(answer["id"] == 7, "{answer}");
        ensure!(answer["result"]["structuredContent"] == json!({"counted": 4}), "{answer}");
        let text = counted.text();
        let tokens = text.matches("\"progressToken\":").count();
        ensure!(tokens > 0 && text.matches("nonce-").count() == tokens, "{text}");
        ensure!(text.matches(&nonce).count() == tokens, "another one's progress: {text}");
        Ok(())
    }
}

/// Many ask for streams and read nothing of them, over one connection as Envoy has; the gateway holds little of each, and
/// serves the others on that connection.
async fn streams_that_nobody_reads_hold_little_and_hinder_nobody(_: &Shared) -> Result<()> {
    // A stack of its own: it is measured.
    let stack = Stack::start(Options::repository()?).await?;
    let token = stack.alice().await?;
    let mut gateway = connect(&stack).await?;
    // What is made once is there before it is measured.
    drop(open(&stack, &mut gateway, &token, BEFORE).await?);
    let before = stack.asp.resident()?;
    let silent = open(&stack, &mut gateway, &token, STALLED).await?;
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let quick = json!({"name": "echo", "arguments": {"message": "hi"}});
        let quick = modern(&token, "tools/call", quick, &[("mcp-name", "echo")]);
        let began = Instant::now();
        let answer = gateway.send_request(over_http2(&stack, quick)?).await?;
        let body = timeout(ALL, answer.into_body().collect()).await.context("another one hangs")??;
        ensure!(String::from_utf8_lossy(&body.to_bytes()).contains("\"hi\""), "an answer");
        slowest = slowest.max(began.elapsed());
    }
    let held = stack.asp.resident()?.saturating_sub(before) / STALLED as u64;
    eprintln!("{STALLED} streams that nobody reads: {held} bytes each; others wait {slowest:?} at most");
    ensure!(held <= MOST_HELD, "a stream that nobody reads costs {held} bytes");
    ensure!(slowest < UNREAD, "others wait {slowest:?}");
    drop(silent);
    stack.stop(&[]).await
}

type Gateway = SendRequest<Full<Bytes>>;

/// A connection whose streams each take no more than a window, and that as a whole takes any number of them.
async fn connect(stack: &Stack) -> Result<Gateway> {
    let stream = TcpStream::connect(stack.gateway()).await?;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(65_535).initial_connection_window_size(64 << 20);
    let (gateway, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(gateway)
}

/// Streams with a hundred events of 4 KiB each, of which the first has come.
async fn open(
    stack: &Stack,
    gateway: &mut Gateway,
    token: &str,
    streams: usize,
) -> Result<Vec<http::Response<Incoming>>> {
    let mut open = Vec::new();
    for _ in 0..streams {
        let count = json!({"name": "count", "arguments": {"to": 100, "delayMs": 1}});
        let mut call = modern(token, "tools/call", count, &[("mcp-name", "count")]);
        let mut body: Value = serde_json::from_slice(&call.body)?;
        // Each event says it.
        body["params"]["_meta"]["progressToken"] = "x".repeat(4 << 10).into();
        call.body = body.to_string().into_bytes();
        let answer = gateway.send_request(over_http2(stack, call)?).await?;
        ensure!(answer.headers()["content-type"] == "text/event-stream", "{:?}", answer.headers());
        open.push(answer);
    }
    Ok(open)
}

fn over_http2(stack: &Stack, request: Request) -> Result<http::Request<Full<Bytes>>> {
    let uri = format!("http://{}{}", stack.edge(), request.target);
    let mut made = http::Request::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in request.headers {
        made = made.header(name, value);
    }
    Ok(made.body(Full::new(Bytes::from(request.body)))?)
}
