//! A Streamable HTTP client of the legacy era (MCP 2025-03-26 to 2025-11-25; `modern` is that of the next one): the
//! handshake, and one request per POST, answered by JSON or by an event stream. Lenient in what it reads: unknown
//! content is skipped.
//!
//! Keeps true: every request has a time bound; a session that was opened is ended again, however its handshake ends.

use std::sync::Arc;
use std::time::Duration;

use asp_json::{Json, Members};
use asp_outbound::retry_after;
use asp_proto::grace::CANCEL_REQUEST_WITHIN;
use asp_proto::mcp_revision::Revision;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::message::{Failure, INTERNAL, UpstreamObject};
pub use super::message::{RequiredPage, ServerEvent};

mod changes;
pub mod downstream;
mod exchange;
mod listening;
pub mod modern;
pub mod open_requests;
pub mod proof;
mod reading;
pub mod session;
pub mod tasks;
pub mod updates;

use downstream::{Downstream, NoDownstream};
use proof::Proof;
pub(crate) use reading::MAX_PAGE;
use reading::Messages;
pub use reading::is_event_stream;
use session::{Offers, SESSION_ID, Session, SessionHeaders};
use tasks::ClientTasks;

/// Longest silence of an upstream that waits for nothing from here; one that asks our user may wait for as long as
/// the answer takes.
const SILENCE: Duration = Duration::from_secs(60);

/// An upstream endpoint.
#[derive(Clone)]
pub struct Client {
    pub http: reqwest::Client,
    pub url: Url,
    /// State shared with the other clients of the process.
    pub tasks: Arc<ClientTasks>,
    /// Upstreams known to speak only 2026-07-28.
    pub eras: modern::Eras,
    /// Authentication of its requests.
    pub proof: Proof,
}

/// One request, and the call that it belongs to.
pub struct Exchange<'a> {
    pub id: u64,
    pub method: &'a str,
    pub params: Value,
    /// Parameters that the call's client sent.
    pub sent: ClientParams,
    /// Arguments that are mirrored into headers, if the upstream speaks 2026-07-28.
    pub headers: HeaderMap,
    /// Receiver of this request's progress and logs, which also answers the upstream's requests within it.
    pub downstream: Arc<dyn Downstream>,
    /// Cancels the request at the upstream.
    pub cancelled: CancellationToken,
}

/// Parameters of a call as its client sent them.
#[derive(Clone, Default)]
pub struct ClientParams {
    pub arguments: Option<Json>,
    /// Members of `_meta`; those of this gateway take precedence.
    pub meta: Members,
}

/// Reason why a request got no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// The session is gone and nothing was executed (404).
    #[error("the service ended its session")]
    SessionEnded,
    /// The upstream's own JSON-RPC error.
    #[error("{message} ({code})")]
    Error { code: i64, message: String, visits: Vec<RequiredPage>, data: Option<Json> },
    /// The answer is an HTTP status. `said`: the text of a JSON-RPC error without a request id, or empty.
    #[error("{}", answered(*status, said))]
    Refused { status: StatusCode, wait: Option<Duration>, names_session: bool, said: String },
    /// A fault that may concern the session instead of the request. `did_nothing`: by its status the request was
    /// refused, so that it may be sent again in another session. `is_named`: the server mentions the session; if it
    /// does not, only another session can tell which of both it was.
    #[error("{fault}")]
    SessionRefused { fault: Box<ClientFault>, did_nothing: bool, is_named: bool },
    /// The request was certainly not delivered.
    #[error("the service could not be reached")]
    NotDelivered,
    /// Limit of open handshakes with the service reached; this one was not begun.
    #[error("too many sessions with the service are being opened: it may be slow")]
    Busy,
    /// The request may have been delivered, and got no usable answer.
    #[error("{0}")]
    Lost(String),
    #[error("cancelled")]
    Cancelled,
}

impl From<Failure> for ClientFault {
    fn from(Failure { code, message, visits, data }: Failure) -> ClientFault {
        ClientFault::Error { code, message, visits, data }
    }
}

impl ClientFault {
    /// Classifies a fault that may be of the session. MCP specifies 404 for a session that the server does not know;
    /// many servers answer 400, or an error that mentions the session. An error about the request's own parameters is
    /// -32602, whatever its status.
    fn of_session(self, status: StatusCode) -> ClientFault {
        let did_nothing = status.is_client_error();
        let (may_be, is_named) = match &self {
            ClientFault::Refused { names_session, .. } => {
                let is_named = did_nothing && *names_session;
                (is_named || status == StatusCode::BAD_REQUEST, is_named)
            }
            ClientFault::Error { code, message, .. } if names_session(message) => {
                let is_named = matches!(code, -32099..=-32000 | -32600);
                // An internal error may mention a session of the tool itself.
                (is_named || *code == INTERNAL, is_named)
            }
            _ => (false, false),
        };
        match may_be {
            true => ClientFault::SessionRefused { fault: Box::new(self), did_nothing, is_named },
            false => self,
        }
    }

    /// Returns the fault of the request, once the session is excluded as the cause.
    pub fn of_request(self) -> ClientFault {
        match self {
            ClientFault::SessionRefused { fault, .. } => *fault,
            fault => fault,
        }
    }
}

/// Describes a status, with the server's text.
pub fn answered(status: StatusCode, said: &str) -> String {
    let status = status.as_u16();
    if said.is_empty() {
        format!("the service answered {status}")
    } else {
        format!("the service answered {status}: {said}")
    }
}

/// Whether a server mentions its session, or one that was never begun.
fn names_session(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("session") || said.contains("not initialized")
}

impl Client {
    /// Returns a client whose proof is changed independently.
    pub fn apart(&self) -> Client {
        Client { proof: self.proof.apart(), ..self.clone() }
    }

    /// Creates a request that belongs to no call.
    pub fn alone<'a>(&self, method: &'a str, params: Value) -> Exchange<'a> {
        Exchange {
            id: self.tasks.next_id(),
            method,
            params,
            sent: ClientParams::default(),
            headers: HeaderMap::new(),
            downstream: Arc::new(NoDownstream),
            cancelled: CancellationToken::new(),
        }
    }

    /// Performs the handshake, as a client with these MCP capabilities. When abandoned, it continues for a moment,
    /// because the session that the server may have opened by then must be ended there.
    pub async fn initialize(&self, capabilities: Value) -> Result<Session, ClientFault> {
        if let Some(offers) = self.eras.modern(&self.url) {
            return Ok(modern::session(self, capabilities, offers));
        }
        let place = self.tasks.handshake(&self.url).ok_or(ClientFault::Busy)?;
        let client = self.clone();
        let (mut sender, opened) = oneshot::channel();
        self.tasks.closings.spawn(async move {
            let _place = place;
            let opened = tokio::select! {
                opened = client.handshake(capabilities) => opened,
                () = given_up(&mut sender) => return,
            };
            // If nobody waits any more, the dropped session is ended.
            drop(sender.send(opened));
        });
        opened.await.unwrap_or_else(|_| Err(ClientFault::Lost("the handshake was interrupted".into())))
    }

    async fn handshake(&self, capabilities: Value) -> Result<Session, ClientFault> {
        let params = json!({"protocolVersion": Revision::LATEST_LEGACY.as_str(), "capabilities": &capabilities,
                            "clientInfo": {"name": "asp", "version": env!("CARGO_PKG_VERSION")}});
        let new = SessionHeaders::default();
        let exchange = self.alone("initialize", params);
        let response = self.post_text(&new, exchange.message()).await?;
        let status = response.status();
        // From here on the session is ended again, whatever happens.
        let at = SessionHeaders { id: response.headers().get(SESSION_ID).cloned(), ..new };
        let mut session = Session::new(self.clone(), at);
        let messages = Messages::answering(response, exchange.method);
        let result = match exchange::answered(self, &session.at, messages, &exchange).await {
            Err(fault) if modern::may_be(status, &fault) => {
                return modern::discover(self, capabilities).await.ok_or(fault);
            }
            answered => answered?,
        };
        let agreed = result.get("protocolVersion").and_then(Value::as_str);
        let known = agreed.and_then(Revision::parse).filter(|revision| !revision.is_modern());
        let known = known.ok_or_else(|| {
            ClientFault::Lost("the service supports no revision of MCP that the platform supports".into())
        })?;
        session.at.revision = Some(HeaderValue::from_static(known.as_str()));
        session.offers = Offers::of(&result);
        session.instructions = session::instructions(&result);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&session.at, &initialized).await?;
        if result.get("capabilities").is_some_and(|can| can.get("logging").is_some_and(Value::is_object)) {
            self.wants_logs(session.at.clone(), exchange.id);
        }
        Ok(session)
    }

    /// Asks for log messages from `info` on; levels that a client does not want are left out here. Some servers send
    /// none before they are asked (2025-11-25 utilities, logging).
    fn wants_logs(&self, at: SessionHeaders, id: u64) {
        // No other request of the session has this id: `initialize` had it as a number.
        let wants = json!({"jsonrpc": "2.0", "id": format!("log.{id}"), "method": "logging/setLevel",
                           "params": {"level": "info"}});
        self.tell(at, wants, "log level");
    }

    /// Sends a message whose answer nobody waits for; `what` names it in a log if the server does not accept it.
    pub(super) fn tell(&self, at: SessionHeaders, message: Value, what: &'static str) {
        let client = self.clone();
        self.run_closing(async move {
            if client.post(&at, &message).await.is_err() {
                tracing::debug!(what, "an upstream MCP server did not accept a message");
            }
        });
    }

    /// Sends a request and waits for its result; passes on a cancel of the call.
    pub async fn request(
        &self,
        session: &Session,
        exchange: Exchange<'_>,
    ) -> Result<UpstreamObject, ClientFault> {
        if session.modern.is_some() {
            return modern::request(self, session, &exchange).await;
        }
        let _running = session.running.enter(exchange.id, exchange.downstream.clone());
        let answered = async {
            let response = self.post_text(&session.at, exchange.message()).await?;
            let status = response.status();
            let messages = Messages::answering(response, exchange.method);
            let answered = exchange::answered(self, &session.at, messages, &exchange).await;
            answered.map_err(|fault| if session.at.id.is_some() { fault.of_session(status) } else { fault })
        };
        tokio::select! {
            result = answered => {
                let is_over = match &result {
                    Err(ClientFault::SessionEnded) => true,
                    // The server now speaks only the next era, which the next greeting finds out.
                    Err(ClientFault::Error { code, .. }) => *code == modern::UNSUPPORTED_VERSION,
                    _ => false,
                };
                if is_over {
                    session.ended_at_its_server();
                    return Err(ClientFault::SessionEnded);
                }
                result
            }
            () = exchange.cancelled.cancelled() => {
                // The call ends within its grace period; the upstream is notified all the same.
                self.say_cancelled(session.at.clone(), exchange.id);
                Err(ClientFault::Cancelled)
            }
        }
    }

    fn say_cancelled(&self, at: SessionHeaders, request: u64) {
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                            "params": {"requestId": request, "reason": "cancelled by the caller"}});
        self.tell(at, cancel, "cancel of a request, which continues");
    }

    /// Sends a closing request in a task of its own, within bounds.
    pub(super) fn run_closing(&self, closing: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current()
            && let Some(place) = self.tasks.closing(&self.url)
        {
            let bounded = async move {
                let _place = place;
                drop(tokio::time::timeout(CANCEL_REQUEST_WITHIN, closing).await);
            };
            self.tasks.closings.spawn_on(bounded, &runtime);
        }
    }

    /// Sends one message that has no result; returns the head of the response.
    pub(super) async fn post(&self, at: &SessionHeaders, message: &Value) -> Result<Response, ClientFault> {
        answer_of(self.post_request(at, message.to_string()), at).await
    }

    /// Sends one message; returns the head of the response, whose body may be a JSON-RPC error whatever its status.
    async fn post_text(&self, at: &SessionHeaders, message: String) -> Result<Response, ClientFault> {
        fetch(self.post_request(at, message), at).await
    }

    fn post_request(&self, at: &SessionHeaders, message: String) -> reqwest::RequestBuilder {
        let mut headers = at.headers();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.http.post(self.url.clone()).headers(self.proof.headers()).headers(headers);
        request.body(message)
    }

    /// Opens a stream of the server's own messages, or resumes one after the event with this id.
    pub(super) async fn get(
        &self,
        at: &SessionHeaders,
        after: Option<&str>,
    ) -> Result<Response, ClientFault> {
        let mut headers = at.headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert("last-event-id", after);
        }
        let request = self.http.get(self.url.clone()).headers(self.proof.headers()).headers(headers);
        answer_of(request, at).await
    }
}

/// Sends a request; fails if the server does.
async fn answer_of(request: reqwest::RequestBuilder, at: &SessionHeaders) -> Result<Response, ClientFault> {
    let response = fetch(request, at).await?;
    let status = response.status();
    match status.is_server_error() {
        true => {
            let wait = retry_after(response.headers());
            Err(ClientFault::Refused { status, wait, names_session: false, said: String::new() })
        }
        false => Ok(response),
    }
}

/// Sends a request; fails if the response says that the session is gone.
async fn fetch(request: reqwest::RequestBuilder, at: &SessionHeaders) -> Result<Response, ClientFault> {
    let silent = || ClientFault::Lost("the service did not answer".into());
    let sent = tokio::time::timeout(SILENCE, request.send()).await.map_err(|_| silent())?;
    let response = sent.map_err(|error| match error.is_connect() || error.is_builder() {
        true => ClientFault::NotDelivered,
        false => silent(),
    })?;
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::GONE if at.id.is_some() => Err(ClientFault::SessionEnded),
        _ => Ok(response),
    }
}

/// Resolves a moment after the caller has abandoned the handshake.
async fn given_up(sender: &mut oneshot::Sender<Result<Session, ClientFault>>) {
    sender.closed().await;
    tokio::time::sleep(CANCEL_REQUEST_WITHIN).await;
}

impl ClientParams {
    /// Builds a request with [`ClientParams::params`].
    fn request(&self, id: u64, method: &str, params: &Value, more: &Members) -> String {
        let params = self.params(params, more);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#, Value::from(method))
    }

    /// Returns these parameters, more as they are written, and the client's own.
    pub(crate) fn params(&self, params: &Value, more: &Members) -> Json {
        let mut members = Members::of(&params.clone().into());
        more.iter().for_each(|(name, value)| members.insert(name, value.clone()));
        if let Some(arguments) = &self.arguments {
            members.insert("arguments", arguments.clone());
        }
        if !self.meta.is_empty() {
            let mut meta = self.meta.clone();
            let own = members.get("_meta").map(Members::of).unwrap_or_default();
            own.iter().for_each(|(name, value)| meta.insert(name, value.clone()));
            members.insert("_meta", meta.to_json());
        }
        members.to_json()
    }
}

impl Exchange<'_> {
    fn message(&self) -> String {
        self.sent.request(self.id, self.method, &self.params, &Members::default())
    }
}
