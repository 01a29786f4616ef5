//! Requests to the server's URL, and forwarding of their responses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::http_client;
use asp_json::{Json, Members};
use asp_mcp_client::client::is_event_stream;
use asp_platform::event_stream::Frames;
use asp_platform::secret::Secret;
use backon::{ExponentialBuilder, Retryable};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Response, StatusCode, Url};
use serde_json::Value;

use super::Bridge;

/// Maximum size in bytes of an answer that is not a stream.
const MAX_ANSWER: usize = 16 << 20;
/// Pauses between attempts to deliver a request that was certainly not delivered because nothing answers at the URL: 12
/// seconds in all.
const PAUSES: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).with_max_times(7);
/// Maximum number of resumptions in a row that yield no event.
const RESUMPTIONS: u32 = 8;
/// Pause before a stream is resumed: the default if the server names none, and the upper bound.
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// URL of a server and the credential to use there.
pub(crate) struct ServerEndpoint {
    pub(crate) url: Url,
    pub(crate) credential: Credential,
}

impl ServerEndpoint {
    /// Returns the settings of an HTTP client; fails if the credential would be sent unencrypted.
    pub(crate) fn http_client(&self) -> anyhow::Result<ClientBuilder> {
        match self.credential {
            Credential::None => Ok(http_client::without_credential(&self.url)),
            _ => http_client::builder(self.url.as_str(), &ProcessEnvironment),
        }
    }
}

/// Returns the URL of a server's protocol below a platform's URL.
pub(crate) fn below(mut platform: Url, server: &str, protocol: &str) -> Option<Url> {
    platform.path_segments_mut().ok()?.pop_if_empty().extend([server, protocol]);
    Some(platform)
}

/// The caller's bearer token.
pub(crate) enum Credential {
    None,
    Token(Secret),
    /// Read for each request, so that it can be renewed.
    File(PathBuf),
    /// Minted for each request, when this process is itself the platform.
    Minted(Mint),
}

impl Credential {
    /// Returns the token to send now.
    pub(crate) async fn token(&self) -> Result<Option<Secret>, RequestFault> {
        match self {
            Credential::None => Ok(None),
            Credential::Token(token) => Ok(Some(token.clone())),
            Credential::Minted(mint) => {
                mint().map(Some).map_err(|error| RequestFault::NotMinted(error.to_string()))
            }
            Credential::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(Some(Secret::new(text.trim().to_owned()))),
                Err(error) => Err(RequestFault::NoToken { path: path.clone(), why: error.to_string() }),
            },
        }
    }
}

/// Mints a token, or fails with the reason.
pub(crate) type Mint = Arc<dyn Fn() -> anyhow::Result<Secret> + Send + Sync>;

pub(super) struct Connection {
    client: Client,
    place: ServerEndpoint,
}

/// A failure to get the server's answer to a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFault {
    #[error("{url} is not reachable; the request was not delivered")]
    NotDelivered { url: Url },
    #[error("{url}: the connection was lost before the answer arrived; the request may have taken effect")]
    Lost { url: Url },
    #[error("{url} answered {} without a message", status.as_u16())]
    NoMessage { url: Url, status: StatusCode },
    #[error("the token cannot be read from {}: {why}", path.display())]
    NoToken { path: PathBuf, why: String },
    #[error("the token could not be created: {0}")]
    NotMinted(String),
    #[error("a message cannot be sent: {0}")]
    Unsendable(String),
}

impl RequestFault {
    /// Returns the platform's reason name for the failure.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            RequestFault::NotDelivered { .. } | RequestFault::NoMessage { .. } => "upstream_unavailable",
            RequestFault::Lost { .. } => "outcome_unknown",
            RequestFault::NoToken { .. } | RequestFault::NotMinted(_) => "unauthenticated",
            RequestFault::Unsendable(_) => "invalid_request",
        }
    }
}

impl Connection {
    pub(super) fn new(place: ServerEndpoint) -> anyhow::Result<Connection> {
        let client = place.http_client()?.build().context("create the HTTP client")?;
        Ok(Connection { client, place })
    }

    pub(super) fn connection_lost(&self) -> RequestFault {
        RequestFault::Lost { url: self.place.url.clone() }
    }

    pub(super) async fn post(&self, headers: &HeaderMap, message: &Json) -> Result<Response, RequestFault> {
        self.send(Method::POST, headers, Some(message)).await
    }

    /// Sends a request; `message` is the body of a POST.
    pub(super) async fn send(
        &self,
        method: Method,
        headers: &HeaderMap,
        message: Option<&Json>,
    ) -> Result<Response, RequestFault> {
        let attempt = || async {
            let mut request =
                self.client.request(method.clone(), self.place.url.clone()).headers(headers.clone());
            request = request.header(ACCEPT, "application/json, text/event-stream");
            if let Some(message) = message {
                request = request.header(CONTENT_TYPE, "application/json").body(message.text().to_owned());
            }
            if let Some(token) = self.place.credential.token().await? {
                request = request.bearer_auth(token.expose());
            }
            request.send().await.map_err(|error| match error {
                error if error.is_builder() => RequestFault::Unsendable(error.to_string()),
                error if error.is_connect() => RequestFault::NotDelivered { url: self.place.url.clone() },
                _ => self.connection_lost(),
            })
        };
        let is_undelivered = |fault: &RequestFault| matches!(fault, RequestFault::NotDelivered { .. });
        attempt.retry(PAUSES).sleep(tokio::time::sleep).when(is_undelivered).await
    }

    /// Reads the whole of an answer that is not a stream.
    pub(super) async fn body(&self, mut response: Response) -> Result<Vec<u8>, RequestFault> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| self.connection_lost())? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(self.no_message(response.status()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(super) fn no_message(&self, status: StatusCode) -> RequestFault {
        RequestFault::NoMessage { url: self.place.url.clone(), status }
    }
}

impl Bridge {
    /// Forwards the messages of a response as they arrive, up to the answer to `request`. `seen` gets the answer before
    /// the client does. With the headers of a session, a broken stream is resumed after the last event received.
    pub(super) async fn relay(
        &self,
        response: Response,
        session: Option<&HeaderMap>,
        request: &Json,
        seen: impl Fn(&Value),
    ) -> Result<(), RequestFault> {
        if !is_event_stream(&response) {
            let status = response.status();
            let body = self.connection.body(response).await?;
            return self.relay_body(status, &body, request, seen).await;
        }
        let mut position = StreamPosition::default();
        let mut stream = Some(response);
        let mut tries = 0;
        loop {
            if let Some(response) = stream.take() {
                position.said = false;
                if self.forward(response, request, &seen, &mut position).await? {
                    return Ok(());
                }
                tries = if position.said { 0 } else { tries };
            }
            tries += 1;
            let Some(headers) = session.filter(|_| !position.id.is_empty() && tries <= RESUMPTIONS) else {
                return Err(self.connection.connection_lost());
            };
            tokio::time::sleep(position.pause()).await;
            let response = self.connection.send(Method::GET, &position.after(headers), None).await?;
            match response.status() {
                StatusCode::OK if is_event_stream(&response) => stream = Some(response),
                // Nothing more will arrive: the client has cancelled the request.
                StatusCode::NO_CONTENT => return Ok(()),
                status if status.is_server_error() => {}
                _ => return Err(self.connection.connection_lost()),
            }
        }
    }

    /// Forwards an answer to `request` that arrived as one body.
    pub(super) async fn relay_body(
        &self,
        status: StatusCode,
        body: &[u8],
        request: &Json,
        seen: impl Fn(&Value),
    ) -> Result<(), RequestFault> {
        let mut message = Json::parse(body).map_err(|_| self.connection.no_message(status))?;
        if !message.is_array() && message.get("jsonrpc").is_none() {
            return Err(self.connection.no_message(status));
        }
        // A refusal sent before the message was read has no id.
        if message.is_object() && message.get("id").is_none_or(Value::is_null) {
            let mut members = Members::of(&message);
            members.insert("id", request.clone());
            message = members.to_json();
        }
        seen(&message);
        self.send(message.text().to_owned()).await;
        Ok(())
    }

    /// Forwards the messages of a stream up to the answer to `request` or the end of the stream. Returns whether the
    /// answer was forwarded.
    pub(super) async fn forward(
        &self,
        mut response: Response,
        request: &Json,
        seen: &impl Fn(&Value),
        position: &mut StreamPosition,
    ) -> Result<bool, RequestFault> {
        let status = response.status();
        // Same limit as for an answer that arrives as one body.
        let mut frames = Frames::bounded(MAX_ANSWER);
        // Err: the connection broke, which ends the stream too.
        while let Ok(Some(chunk)) = response.chunk().await {
            let events = frames.push(&chunk).map_err(|_| self.connection.no_message(status))?;
            for event in events {
                let Ok(message) = Json::parse(event.as_bytes()) else { continue };
                let is_answer = message.is_array()
                    || (message.get("id") == Some(request.view()) && message.get("method").is_none());
                if is_answer {
                    seen(&message);
                }
                self.send(event).await;
                position.said = true;
                if is_answer {
                    return Ok(true);
                }
            }
            position.read(&frames);
        }
        Ok(false)
    }
}

/// The client's position in a stream.
#[derive(Default)]
pub(super) struct StreamPosition {
    /// Id of the last event; empty if there was none.
    id: String,
    retry: Option<Duration>,
    /// Whether, since the last resumption, an event arrived or the server named a pause.
    said: bool,
}

impl StreamPosition {
    fn read(&mut self, frames: &Frames) {
        if let Some(id) = frames.last_id() {
            id.clone_into(&mut self.id);
        }
        if let Some(retry) = frames.retry() {
            self.retry = Some(retry.min(LONGEST_RETRY));
            self.said = true;
        }
    }

    /// Returns the pause before the stream is resumed.
    pub(super) fn pause(&self) -> Duration {
        self.retry.unwrap_or(RETRY)
    }

    /// Returns the headers of a request that resumes the stream here.
    pub(super) fn after(&self, headers: &HeaderMap) -> HeaderMap {
        let mut headers = headers.clone();
        if let Some(id) = Some(&self.id).filter(|id| !id.is_empty())
            && let Ok(id) = HeaderValue::from_str(id)
        {
            headers.insert("last-event-id", id);
        }
        headers
    }
}
