//! An upstream that answers every request with the headers it came with: shows what Envoy sends on.
//!
//! Speaks HTTP/1.1 and HTTP/2 with prior knowledge, answers `/readyz` like a gateway, reads and forgets
//! bodies.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Marks an answer as the recorder's.
pub const MARK: &str = "recorded";

/// A running recorder; it ends when dropped.
pub struct Recorder {
    pub address: SocketAddr,
    /// It answers as a gateway does that does not reach the store.
    pub unserving: Arc<AtomicBool>,
    /// How many requests it has answered so.
    pub unserved: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub async fn start() -> Result<Recorder> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let unserving = Arc::new(AtomicBool::new(false));
        let unserved = Arc::new(AtomicUsize::new(0));
        let (refuses, refused) = (unserving.clone(), unserved.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (refuses, refused) = (refuses.clone(), refused.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let is_refused = refuses.load(Ordering::Acquire) && request.uri().path() != "/readyz";
                    if is_refused {
                        refused.fetch_add(1, Ordering::AcqRel);
                    }
                    async move { if is_refused { Ok(unserved_answer()) } else { answer(request).await } }
                });
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A client that goes away ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Recorder { address, unserving, unserved, task })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn unserved_answer() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from("not served")));
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert("x-asp-unserved", http::HeaderValue::from_static("1"));
    response
}

/// `{"recorded": {name: [values]}, "path": …, "bytes": body length, "trailers": bool}`.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut headers = Map::new();
    for (name, value) in &head.headers {
        let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(String::from_utf8_lossy(value.as_bytes()).into());
        }
    }
    let collected = body.collect().await.ok();
    let trailers = collected.as_ref().is_some_and(|body| body.trailers().is_some());
    let bytes = collected.map_or(0, |body| body.to_bytes().len());
    let answer = json!({ MARK: headers, "path": head.uri.path(), "bytes": bytes, "trailers": trailers });
    // Over HTTP/2 the server would send the body that an answer to HEAD has not.
    let body = if head.method == Method::HEAD { Bytes::new() } else { Bytes::from(answer.to_string()) };
    Ok(Response::new(Full::new(body)))
}
