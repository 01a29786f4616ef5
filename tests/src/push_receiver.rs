//! A receiver of push notifications on this machine.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::wait;

/// A notification as it arrived.
#[derive(Clone, Debug)]
pub struct Notification {
    headers: HeaderMap,
    pub body: Value,
    /// The body as it was sent.
    pub bytes: Bytes,
    pub at: SystemTime,
}

impl Notification {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the time from the state of the task to its arrival in milliseconds, of a notification of 1.0.
    pub fn delay_ms(&self) -> Option<f64> {
        let stored = self.body.pointer("/task/status/timestamp")?.as_str()?;
        let stored = OffsetDateTime::parse(stored, &Rfc3339).ok()?;
        Some((OffsetDateTime::from(self.at) - stored).as_seconds_f64() * 1000.0)
    }
}

type Notifications = Arc<Mutex<Vec<Notification>>>;

/// A receiver; it ends when dropped.
pub struct Receiver {
    pub url: String,
    notifications: Notifications,
    task: JoinHandle<()>,
}

/// Behaviour of a receiver.
#[derive(Clone, Copy, Debug)]
enum Answers {
    AtOnce,
    Never,
}

impl Receiver {
    /// Starts a receiver that takes every notification.
    pub async fn start() -> Result<Receiver> {
        Receiver::answering(Answers::AtOnce).await
    }

    /// Starts a receiver that reads every notification and answers none.
    pub async fn start_silent() -> Result<Receiver> {
        Receiver::answering(Answers::Never).await
    }

    async fn answering(answers: Answers) -> Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let notifications = Notifications::default();
        let kept = Arc::clone(&notifications);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                let service = service_fn(move |request| take(request, Arc::clone(&kept), answers));
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A sender that goes away ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Receiver { url, notifications, task })
    }

    /// Returns what has arrived, in this order.
    pub fn notifications(&self) -> Vec<Notification> {
        self.notifications.lock().clone()
    }

    /// Waits for a notification whose body fits.
    pub async fn until(&self, fits: impl Fn(&Value) -> bool) -> Result<Notification> {
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
    answers: Answers,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let at = SystemTime::now();
    let headers = head.headers;
    let bytes = body;
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    notifications.lock().push(Notification { headers, body, bytes, at });
    match answers {
        Answers::AtOnce => Ok(Response::new(Empty::new())),
        Answers::Never => std::future::pending().await,
    }
}
