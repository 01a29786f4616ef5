//! A minimal Streamable HTTP client of the legacy era: handshake, one request at a time per POST, JSON or
//! event stream. Lenient in what it reads: unknown members and events are skipped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_platform::event_stream::Frames;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::event::{Event, LogLevel};
use crate::executors::outbound::refused::retry_after;
use crate::executors::outbound::said::shown;

/// The revision offered upstream.
const REVISION: &str = "2025-11-25";
/// Largest JSON response and event stream in bytes.
const MAX_RESPONSE: usize = 16 << 20;
const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// Longest time of a farewell: a cancel, the end of a session, or the rest of a handshake that was given up.
const FAREWELL: Duration = Duration::from_secs(2);
/// Most farewells and handshakes at a time; an upstream that is not told finds out by itself.
const MOST_FAREWELLS: usize = 4096;

/// An upstream endpoint.
#[derive(Clone)]
pub struct Client {
    pub http: reqwest::Client,
    pub url: Url,
    /// What is still to be said when nobody waits for it any more.
    pub farewells: TaskTracker,
}

/// An open upstream session. Dropped, it is ended at its server too, if that keeps any.
pub struct Session {
    client: Client,
    at: At,
    /// The server ended it first.
    is_over: AtomicBool,
}

/// What a request of a session carries; `id` is absent when the server keeps none.
#[derive(Clone)]
struct At {
    id: Option<HeaderValue>,
    revision: HeaderValue,
}

/// One request and who hears of its progress.
pub struct Exchange<'a> {
    pub id: u64,
    pub method: &'a str,
    pub params: Value,
    /// Gets the progress and the logs of this request.
    pub heard: &'a (dyn Fn(Event) + Send + Sync),
    /// Cancels the request upstream.
    pub cancelled: &'a CancellationToken,
}

/// Why a request got no result.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// 404: the session is gone and nothing was executed.
    #[error("the service ended its session")]
    SessionEnded,
    /// The upstream's own JSON-RPC error.
    #[error("{message} ({code})")]
    Error { code: i64, message: String },
    /// The answer is a status of HTTP without a word of JSON-RPC.
    #[error("the service answered {}", status.as_u16())]
    Refused { status: StatusCode, wait: Option<Duration> },
    /// The request was certainly not delivered.
    #[error("the service could not be reached")]
    NotDelivered,
    /// The request may have been delivered and got no usable answer.
    #[error("{0}")]
    Lost(String),
    #[error("cancelled")]
    Cancelled,
}

impl Client {
    /// The handshake. Given up, it goes on for a moment, because the session that the server has made by then has to be
    /// ended there.
    pub async fn initialize(&self, id: u64) -> Result<Session, Fault> {
        if self.farewells.len() >= MOST_FAREWELLS {
            return Err(Fault::NotDelivered);
        }
        let client = self.clone();
        let (mut sender, opened) = oneshot::channel();
        self.farewells.spawn(async move {
            let opened = tokio::select! {
                opened = client.handshake(id) => opened,
                () = given_up(&mut sender) => return,
            };
            // Where nobody waits any more, it is ended by being dropped.
            drop(sender.send(opened));
        });
        opened.await.unwrap_or_else(|_| Err(Fault::Lost("the handshake broke off".into())))
    }

    async fn handshake(&self, id: u64) -> Result<Session, Fault> {
        let params = json!({"protocolVersion": REVISION, "capabilities": {},
                            "clientInfo": {"name": "asp", "version": env!("CARGO_PKG_VERSION")}});
        let new = At { id: None, revision: HeaderValue::from_static(REVISION) };
        let exchange = Exchange {
            id,
            method: "initialize",
            params,
            heard: &|_| {},
            cancelled: &CancellationToken::new(),
        };
        let response = self.post(&new, &exchange.message()).await?;
        // From here on it is ended again, whatever comes.
        let at = At { id: response.headers().get(SESSION_ID).cloned(), ..new };
        let mut session = Session { client: self.clone(), at, is_over: AtomicBool::new(false) };
        let result = self.read(response, &session.at, &exchange).await?;
        let agreed = result.get("protocolVersion").and_then(Value::as_str);
        if let Some(revision) = agreed.and_then(|text| HeaderValue::from_str(text).ok()) {
            session.at.revision = revision;
        }
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&session.at, &initialized).await?;
        Ok(session)
    }

    /// Sends a request and waits for its result; a cancel of the call is passed on.
    pub async fn request(
        &self,
        session: &Session,
        exchange: Exchange<'_>,
    ) -> Result<Map<String, Value>, Fault> {
        let answered = async {
            let response = self.post(&session.at, &exchange.message()).await?;
            self.read(response, &session.at, &exchange).await
        };
        tokio::select! {
            result = answered => {
                if matches!(result, Err(Fault::SessionEnded)) {
                    session.is_over.store(true, Ordering::Release);
                }
                result
            }
            () = exchange.cancelled.cancelled() => {
                // The call ends within its grace; the upstream hears of it all the same.
                self.say_cancelled(session.at.clone(), exchange.id);
                Err(Fault::Cancelled)
            }
        }
    }

    fn say_cancelled(&self, at: At, request: u64) {
        let client = self.clone();
        self.bid_farewell(async move {
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                                "params": {"requestId": request, "reason": "cancelled by the caller"}});
            if client.post(&at, &cancel).await.is_err() {
                tracing::debug!("an upstream MCP server did not take a cancel; it goes on with the request");
            }
        });
    }

    /// Runs off the path, within bounds.
    fn bid_farewell(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current()
            && self.farewells.len() < MOST_FAREWELLS
        {
            let bounded = async move { drop(tokio::time::timeout(FAREWELL, farewell).await) };
            self.farewells.spawn_on(bounded, &runtime);
        }
    }

    async fn post(&self, at: &At, message: &Value) -> Result<Response, Fault> {
        let mut headers = at.headers();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.http.post(self.url.clone()).headers(headers).json(message);
        let response =
            request.send().await.map_err(|error| match error.is_connect() || error.is_builder() {
                true => Fault::NotDelivered,
                false => Fault::Lost("the service did not answer".into()),
            })?;
        match response.status() {
            StatusCode::NOT_FOUND if at.id.is_some() => Err(Fault::SessionEnded),
            status if status.is_server_error() => {
                Err(Fault::Refused { status, wait: retry_after(response.headers()) })
            }
            _ => Ok(response),
        }
    }

    async fn read(
        &self,
        mut response: Response,
        at: &At,
        exchange: &Exchange<'_>,
    ) -> Result<Map<String, Value>, Fault> {
        let streamed = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let status = response.status();
        let wait = retry_after(response.headers());
        let broken = |why: &str| Fault::Lost(why.to_owned());
        let mut frames = Frames::default();
        let mut body = Vec::new();
        let mut total = 0;
        while let Some(chunk) =
            response.chunk().await.map_err(|_| broken("the service broke off its answer"))?
        {
            total += chunk.len();
            if total > MAX_RESPONSE {
                return Err(broken("the service's answer is too large"));
            }
            if !streamed {
                body.extend_from_slice(&chunk);
                continue;
            }
            for event in frames.push(&chunk).map_err(|_| broken("the service's answer is too large"))? {
                if let Some(result) = self.message(&event, at, exchange).await {
                    return result;
                }
            }
        }
        if streamed {
            return Err(broken("the service ended its stream without a result"));
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(message) if message.get("result").is_some() || message.get("error").is_some() => {
                answer(message)
            }
            // A redirect is not followed.
            _ if !status.is_success() => Err(Fault::Refused { status, wait }),
            _ => Err(broken(&format!("the service answered {} without a result", status.as_u16()))),
        }
    }

    /// Handles one message of a stream; the answer to our request ends it.
    async fn message(
        &self,
        text: &str,
        at: &At,
        exchange: &Exchange<'_>,
    ) -> Option<Result<Map<String, Value>, Fault>> {
        let message: Value = serde_json::from_str(text).ok()?;
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (None, Some(id)) if id.as_u64() == Some(exchange.id) => return Some(answer(message)),
            (None, _) => {}
            (Some(method), None) => relay(method, message.get("params"), exchange),
            (Some(method), Some(id)) => {
                let reply = if method == "ping" {
                    json!({"jsonrpc": "2.0", "id": id, "result": {}})
                } else {
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not supported"}})
                };
                if self.post(at, &reply).await.is_err() {
                    tracing::debug!("upstream did not take the answer to its request");
                }
            }
        }
        None
    }
}

/// Resolves a moment after nobody waits for the handshake any more.
async fn given_up(sender: &mut oneshot::Sender<Result<Session, Fault>>) {
    sender.closed().await;
    tokio::time::sleep(FAREWELL).await;
}

impl At {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.id {
            headers.insert(SESSION_ID, id.clone());
        }
        headers.insert(PROTOCOL_VERSION, self.revision.clone());
        headers
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.at.id.is_none() || self.is_over.load(Ordering::Acquire) {
            return;
        }
        let request = self.client.http.delete(self.client.url.clone()).headers(self.at.headers());
        self.client.bid_farewell(async move {
            // 405: this server ends its sessions by itself (MCP, session management).
            if let Err(error) = request.send().await {
                tracing::debug!(error = %error.without_url(), "an upstream MCP server was not told that a session ended");
            }
        });
    }
}

impl Exchange<'_> {
    fn message(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params})
    }
}

fn answer(mut message: Value) -> Result<Map<String, Value>, Fault> {
    if let Some(Value::Object(result)) = message.get_mut("result").map(Value::take) {
        return Ok(result);
    }
    let error = message.get("error");
    Err(Fault::Error {
        code: error.and_then(|error| error.get("code")?.as_i64()).unwrap_or(-32603),
        message: error
            .and_then(|error| error.get("message")?.as_str())
            .map(shown)
            .filter(|said| !said.is_empty())
            .unwrap_or_else(|| "the service answered with an error".into()),
    })
}

/// Progress and logs of the upstream become the call's own.
fn relay(method: &str, params: Option<&Value>, exchange: &Exchange<'_>) {
    let Some(params) = params else { return };
    match method {
        "notifications/progress"
            if params.get("progressToken").and_then(Value::as_u64) == Some(exchange.id) =>
        {
            if let Some(progress) = params.get("progress").and_then(Value::as_f64) {
                (exchange.heard)(Event::Progress {
                    progress,
                    total: params.get("total").and_then(Value::as_f64),
                    message: params.get("message").and_then(Value::as_str).map(str::to_owned),
                    gauges: BTreeMap::new(),
                });
            }
        }
        "notifications/message" => {
            let level = params.get("level").and_then(Value::as_str).and_then(LogLevel::parse);
            (exchange.heard)(Event::Log {
                level: level.unwrap_or(LogLevel::Info),
                logger: params.get("logger").and_then(Value::as_str).map(str::to_owned),
                data: params.get("data").cloned().unwrap_or(Value::Null),
            });
        }
        _ => {}
    }
}
