//! A model behind an OpenAI-compatible endpoint: answers by a script, and remembers what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One request: the `authorization` header and the body.
#[derive(Clone, Debug)]
pub struct Question {
    pub authorization: String,
    pub body: Value,
}

/// Answer of a model.
pub struct Reply {
    pub message: Value,
    /// Tokens in and out.
    pub tokens: (u64, u64),
}

type Script = dyn Fn(&Value) -> Reply + Send + Sync;

/// A running model; it ends when dropped.
pub struct Model {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Question>>>,
    task: JoinHandle<()>,
}

impl Model {
    /// Starts a model that says one thing to everybody.
    pub async fn start(says: &str) -> Result<Model> {
        let message = json!({"role": "assistant", "content": says});
        Model::scripted(move |_| Reply { message: message.clone(), tokens: (10, 2) }).await
    }

    /// Starts a model that answers each request by `script`, which gets its body.
    pub async fn scripted(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Result<Model> {
        let script: Arc<Script> = Arc::new(script);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<Question>>> = Arc::default();
        let record = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = script.clone();
                let record = record.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, script.clone(), record.clone()));
                    let builder = Builder::new(TokioExecutor::new());
                    // A client that goes away ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Model { address, asked, task })
    }

    /// The base of the endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What it was asked since the last time.
    pub fn take(&self) -> Vec<Question> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<Question>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Full::default());
    if head.uri.path() != "/v1/chat/completions" {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let authorization =
        head.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Reply { message, tokens: (tokens_in, tokens_out) } = script(&body);
    asked.lock().push(Question { authorization: authorization.to_owned(), body });
    let finish_reason = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
    let said = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "test",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
        "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out,
                  "total_tokens": tokens_in + tokens_out}});
    *response.body_mut() = Full::new(Bytes::from(said.to_string()));
    Ok(response)
}
