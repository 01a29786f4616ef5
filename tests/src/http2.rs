//! One HTTP/2 request with prior knowledge, whose body may end in trailers, as that of its response may.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http1::Response;

/// Hang guard of one exchange.
const EXCHANGE: Duration = Duration::from_secs(30);

/// Sends `request` over a connection of its own; with `trailers`, the last data frame does not end the
/// stream, the trailers do. Trailers of the response come after its headers.
pub async fn send(
    address: SocketAddr,
    request: Request<Vec<u8>>,
    trailers: &[(&str, &str)],
) -> Result<Response> {
    match timeout(EXCHANGE, exchange(address, request, trailers)).await {
        Ok(response) => response,
        Err(_) => bail!("{address} did not answer within {} s", EXCHANGE.as_secs()),
    }
}

async fn exchange(
    address: SocketAddr,
    request: Request<Vec<u8>>,
    trailers: &[(&str, &str)],
) -> Result<Response> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let (head, body) = request.into_parts();
    let mut frames = vec![Ok::<_, Infallible>(Frame::data(Bytes::from(body)))];
    if !trailers.is_empty() {
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            map.append(HeaderName::try_from(*name)?, HeaderValue::try_from(*value)?);
        }
        frames.push(Ok(Frame::trailers(map)));
    }
    let body = StreamBody::new(futures::stream::iter(frames));
    let response = sender.send_request(Request::from_parts(head, body)).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?;
    driver.abort();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let body = body.to_bytes().to_vec();
    let headers = head
        .headers
        .iter()
        .chain(&trailers)
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Ok(Response { status: head.status.as_u16(), headers, body })
}
