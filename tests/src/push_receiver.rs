//! A receiver of push notifications on this machine.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use asp_e2e::wait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A notification.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    headers: HeaderMap,
    pub(crate) body: Value,
}

impl Notification {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

type Notifications = Arc<Mutex<Vec<Notification>>>;

/// A receiver that takes every notification; it ends when dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    notifications: Notifications,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start() -> Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let notifications = Notifications::default();
        let kept = Arc::clone(&notifications);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                let service = service_fn(move |request| take(request, Arc::clone(&kept)));
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A sender that goes away ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Receiver { url, notifications, task })
    }

    /// Waits for a notification whose body fits.
    pub(crate) async fn until(&self, fits: impl Fn(&Value) -> bool) -> Result<Notification> {
        let look = || async { self.notifications.lock().iter().find(|one| fits(&one.body)).cloned() };
        wait::until("a push notification", wait::CONVERGE, look).await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(
    request: Request<Incoming>,
    notifications: Notifications,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    notifications.lock().push(Notification { headers: head.headers, body });
    Ok(Response::new(Empty::new()))
}
