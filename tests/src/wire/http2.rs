//! A connection of HTTP/2 through a tap: its streams become streams of one connection to the server, and the messages of
//! gRPC on them come into the record.
//!
//! Its headers are compressed by those before them, so that its bytes cannot be read in passing. Keeps true: what a stream
//! carries is passed on as it came, frame by frame; a stream that one side ends is ended for the other.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DRAIN;
use super::a2a::STATUS;
use super::link::Link;
use super::record::{Exchange, Record};

/// Begin of a connection's first bytes (RFC 9113, section 3.4); no method of HTTP/1.1 begins so.
const PREFACE: [u8; 3] = *b"PRI";
/// Largest list of headers: more than Envoy takes.
const HEADER_BYTES: u32 = 512 << 10;
/// Largest message of gRPC that is read.
const MESSAGE_BYTES: usize = 17 << 20;
/// Length of a message's flag and length, in bytes.
const PREFIX: usize = 5;
const MEDIA_TYPE: &[u8] = b"application/grpc";

/// Whether a connection is of HTTP/2, by the first bytes of either side: its server may send settings at once, and a response of
/// HTTP/1.1 begins with `H`. A connection that ends without any is not.
pub(super) async fn is_spoken(client: &TcpStream, server: &TcpStream) -> bool {
    let mut start = [0; PREFACE.len()];
    let mut answer = [0];
    tokio::select! {
        length = client.peek(&mut start) => length.is_ok() && start == PREFACE,
        length = server.peek(&mut answer) => length.is_ok_and(|length| length > 0) && answer != *b"H",
    }
}

/// Carries the streams of a client's connection to a server, until one of both closes.
pub(super) async fn carry(client: TcpStream, server: TcpStream, link: Link, record: Arc<Record>) {
    let mut upwards = client::conn::http2::Builder::new(TokioExecutor::new());
    upwards.max_header_list_size(HEADER_BYTES);
    let Ok((sender, connection)) = upwards.handshake(TokioIo::new(server)).await else { return };
    let service = service_fn(move |request| pass(request, sender.clone(), link, record.clone()));
    let mut downwards = server::conn::http2::Builder::new(TokioExecutor::new());
    downwards.max_header_list_size(HEADER_BYTES).auto_date_header(false);
    let mut serving = pin!(downwards.serve_connection(TokioIo::new(client), service));
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = connection => {}
    }
    // The open streams have ended with the server's connection.
    serving.as_mut().graceful_shutdown();
    let _ = timeout(DRAIN, serving).await;
}

async fn pass(
    request: Request<Incoming>,
    mut sender: SendRequest<TappedBody>,
    link: Link,
    record: Arc<Record>,
) -> hyper::Result<Response<TappedBody>> {
    let call = Call::begin(&request, link, record);
    let request = request.map(|body| TappedBody { body, sender: Side::Client, call: call.clone() });
    let response = sender.send_request(request).await?;
    if let Some(call) = &call {
        call.lock().answer(response.headers());
    }
    Ok(response.map(|body| TappedBody { body, sender: Side::Server, call }))
}

/// A call of gRPC to an agent.
struct Call {
    record: Arc<Record>,
    /// `None` once its messages cannot be read any more.
    exchange: Option<Exchange>,
    sent: Messages,
    received: Messages,
}

type SharedCall = Arc<Mutex<Call>>;

impl Call {
    /// Returns the call that a request begins; `None` if it is of another kind, which is not read.
    fn begin(request: &Request<Incoming>, link: Link, record: Arc<Record>) -> Option<SharedCall> {
        let user_agent = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok());
        let exchange = match is_grpc(request.headers()) {
            true => record.called(link, request.uri().path(), user_agent),
            false => None,
        };
        if exchange.is_none() {
            record.unread();
            return None;
        }
        let sent = Messages::default();
        let received = Messages::default();
        Some(Arc::new(Mutex::new(Call { record, exchange, sent, received })))
    }

    /// Headers of the response.
    fn answer(&mut self, headers: &HeaderMap) {
        // A response without a message has the status among its headers.
        if headers.contains_key(STATUS) {
            self.end(Some(headers));
        } else if !is_grpc(headers) {
            self.end(None);
        }
    }

    fn frame(&mut self, sender: Side, frame: &Frame<Bytes>) {
        match (sender, frame.data_ref(), frame.trailers_ref()) {
            (_, Some(data), _) => self.data(sender, data),
            (Side::Server, _, Some(trailers)) => self.end(Some(trailers)),
            _ => {}
        }
    }

    fn data(&mut self, sender: Side, data: &[u8]) {
        let Some(exchange) = &mut self.exchange else { return };
        let messages = match sender {
            Side::Client => &mut self.sent,
            Side::Server => &mut self.received,
        };
        messages.0.extend_from_slice(data);
        loop {
            match (messages.next(), sender) {
                (Ok(None), _) => return,
                (Ok(Some(message)), Side::Client) => self.record.call_sends(exchange, &message),
                (Ok(Some(message)), Side::Server) => self.record.call_answers(exchange, &message),
                (Err(Unreadable), _) => break,
            }
        }
        self.record.unread();
        self.exchange = None;
    }

    /// End of the response; what comes after the first one counts for nothing.
    fn end(&mut self, status: Option<&HeaderMap>) {
        if let Some(exchange) = &mut self.exchange {
            self.record.call_ends(exchange, status);
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(MEDIA_TYPE))
}

/// Data of one direction of a call, cut into its messages.
#[derive(Default)]
struct Messages(BytesMut);

/// A message that is compressed, or too long.
struct Unreadable;

impl Messages {
    /// Returns the next message that has come whole.
    fn next(&mut self) -> Result<Option<Bytes>, Unreadable> {
        let Some(([flag, length @ ..], _)) = self.0.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if *flag != 0 || length > MESSAGE_BYTES {
            return Err(Unreadable);
        }
        if self.0.len() < PREFIX + length {
            return Ok(None);
        }
        self.0.advance(PREFIX);
        Ok(Some(self.0.split_to(length).freeze()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// The body of a request or a response; each frame is recorded before it is passed on.
struct TappedBody {
    body: Incoming,
    sender: Side,
    call: Option<SharedCall>,
}

impl Body for TappedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(call) = &self.call {
            let mut call = call.lock();
            if let Some(Ok(frame)) = &frame {
                call.frame(self.sender, frame);
            }
            let is_whole = frame.is_none() || self.body.is_end_stream();
            if is_whole && self.sender == Side::Server {
                call.end(None);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests;
