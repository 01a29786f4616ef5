//! A service or an issuer that is no part of the platform: it keeps every request that reaches it, and answers as its
//! test says.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) method: String,
    /// As it is written: a proxy is asked for a whole URL, or for a host and a port.
    pub(super) target: String,
    /// Empty where there is none.
    pub(super) authorization: String,
    pub(super) body: String,
}

pub(super) enum Reply {
    /// 200 with this JSON.
    Says(Value),
    /// 307 to this URL.
    Refers(String),
    /// 403.
    Refuses,
    /// Nothing, ever.
    Hangs,
}

/// A running service; it takes no more connections when it is dropped.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub(super) async fn start(reply: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Result<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let (kept, reply) = (Arc::clone(&heard), Arc::new(reply));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
                    async move {
                        let heard = read(request).await;
                        let reply = reply(&heard);
                        kept.lock().push(heard);
                        answer(reply).await
                    }
                });
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A client that goes away ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Service { address, heard, task })
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests by now.
    pub(super) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().clone()
    }

    /// The number of requests for this target by now.
    pub(super) fn count(&self, target: &str) -> usize {
        self.heard.lock().iter().filter(|heard| heard.target == target).count()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(request: Request<Incoming>) -> Heard {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Heard {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        authorization: authorization(&head.headers),
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

fn authorization(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION);
    value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

async fn answer(reply: Reply) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::new()));
    match reply {
        Reply::Says(json) => {
            *response.body_mut() = Full::new(Bytes::from(json.to_string()));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        Reply::Refers(location) => {
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(header::LOCATION, location);
            }
        }
        Reply::Refuses => *response.status_mut() = StatusCode::FORBIDDEN,
        Reply::Hangs => std::future::pending().await,
    }
    Ok(response)
}
