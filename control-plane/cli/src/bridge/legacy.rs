//! Messages of the revisions with a handshake (MCP 2025-03-26 to 2025-11-25): the session, its stream, and a new session
//! if the server has lost it.
//!
//! Keeps true: the client sees one session, however often it is reopened; a broken stream is resumed after the last event
//! received; the client's log level and subscriptions are requested again in a new session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_json::{Json, Members};
use asp_mcp_client::client::is_event_stream;
use asp_mcp_client::client::session::{SESSION_ID, SessionHeaders};
use asp_platform::pauses::doubling;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::connection::{Connection, RequestFault, StreamPosition};
use super::{Bridge, id_of};

/// Maximum number of subscriptions restored in a new session.
const MAX_SUBSCRIBED: usize = 1000;
/// Backoff between attempts to listen: doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct LegacyEra {
    identity: Mutex<SessionIdentity>,
    /// Held while the session is reopened, so that it is reopened only once.
    reopening: tokio::sync::Mutex<()>,
    setup: Mutex<SessionSetup>,
    listens: AtomicBool,
}

/// Identity of the current session, empty before the handshake.
#[derive(Clone, Default)]
struct SessionIdentity {
    at: SessionHeaders,
    /// Number of times a session was opened.
    generation: u64,
}

/// State to restore in a new session.
#[derive(Default)]
struct SessionSetup {
    initialize: Option<Json>,
    level: Option<Json>,
    /// Subscription requests by URI.
    subscribed: BTreeMap<String, Json>,
}

impl LegacyEra {
    /// Whether the client has completed a handshake.
    pub(super) fn is_open(&self) -> bool {
        self.identity.lock().generation > 0
    }

    /// Ends the session at the server.
    pub(super) async fn end(&self, connection: &Connection) {
        let identity = self.identity.lock().clone();
        if identity.at.id.is_some() {
            // Err: the server expires the session by itself.
            let _ = connection.send(Method::DELETE, &identity.at.headers(), None).await;
        }
    }

    pub(super) async fn request(&self, bridge: &Bridge, message: &Json) -> Result<(), RequestFault> {
        let id = id_of(message);
        if method(message) == "initialize" {
            self.setup.lock().initialize = Some(message.clone());
            let response = bridge.connection.post(&HeaderMap::new(), message).await?;
            let session = response.headers().get(SESSION_ID).cloned();
            return bridge
                .relay(response, None, &id, |answer| self.record_session(session.clone(), answer))
                .await;
        }
        let response = self.post(bridge, message).await?;
        let is_taken = response.status().is_success();
        let headers = self.identity.lock().at.headers();
        bridge
            .relay(response, Some(&headers), &id, |answer| {
                if is_taken && answer.get("result").is_some() {
                    self.setup.lock().remember(message);
                }
            })
            .await
    }

    /// Forwards a notification, or an answer to the server's request.
    pub(super) async fn tell(&self, bridge: &Arc<Bridge>, message: &Json) -> Result<(), RequestFault> {
        let response = self.post(bridge, message).await?;
        if !response.status().is_success() {
            return Err(bridge.connection.no_message(response.status()));
        }
        if method(message) == "notifications/initialized" && !self.listens.swap(true, Ordering::AcqRel) {
            let bridge_of = Arc::clone(bridge);
            bridge.background.spawn(async move {
                let stop = bridge_of.stop.clone();
                stop.run_until_cancelled_owned(listen(bridge_of)).await
            });
        }
        Ok(())
    }

    /// Posts a message in the session. If the session is gone, the server did nothing, so the message is posted again in
    /// a new one.
    async fn post(&self, bridge: &Bridge, message: &Json) -> Result<Response, RequestFault> {
        let identity = self.identity.lock().clone();
        let response = bridge.connection.post(&identity.at.headers(), message).await?;
        if response.status() != StatusCode::NOT_FOUND || identity.at.id.is_none() {
            return Ok(response);
        }
        self.reopen(bridge, identity.generation).await?;
        let headers = self.identity.lock().at.headers();
        bridge.connection.post(&headers, message).await
    }

    /// Repeats the client's handshake, without the client noticing.
    async fn reopen(&self, bridge: &Bridge, generation: u64) -> Result<(), RequestFault> {
        let _one = self.reopening.lock().await;
        let initialize = self.setup.lock().initialize.clone();
        let (true, Some(initialize)) = (self.identity.lock().generation == generation, initialize) else {
            return Ok(());
        };
        let initialize = with_id(&initialize, "asp-mcp-initialize");
        let connection = &bridge.connection;
        let response = connection.post(&HeaderMap::new(), &initialize).await?;
        let session = response.headers().get(SESSION_ID).cloned();
        self.record_session(session, &answer(connection, response).await?);
        let headers = self.identity.lock().at.headers();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        connection.post(&headers, &initialized.into()).await?;
        let repeated = self.setup.lock().requests_to_repeat();
        for message in repeated {
            let message = with_id(&message, "asp-mcp-again");
            answer(connection, connection.post(&headers, &message).await?).await?;
        }
        Ok(())
    }

    fn record_session(&self, session: Option<HeaderValue>, answer: &Value) {
        let revision = answer.pointer("/result/protocolVersion").and_then(Value::as_str);
        let Some(revision) = revision.and_then(|text| HeaderValue::from_str(text).ok()) else { return };
        let mut identity = self.identity.lock();
        let at = SessionHeaders { id: session, revision: Some(revision) };
        *identity = SessionIdentity { at, generation: identity.generation + 1 };
    }
}

impl SessionSetup {
    /// Records a granted request that a new session must repeat.
    fn remember(&mut self, message: &Json) {
        let uri = message.pointer("/params/uri").and_then(Value::as_str).unwrap_or_default();
        match method(message) {
            "logging/setLevel" => self.level = Some(message.clone()),
            "resources/subscribe" if self.subscribed.len() < MAX_SUBSCRIBED => {
                self.subscribed.insert(uri.to_owned(), message.clone());
            }
            "resources/unsubscribe" => {
                self.subscribed.remove(uri);
            }
            _ => {}
        }
    }

    fn requests_to_repeat(&self) -> Vec<Json> {
        self.level.iter().chain(self.subscribed.values()).cloned().collect()
    }
}

/// Forwards the messages that the server sends on its own, for as long as it offers a stream for them.
async fn listen(bridge: Arc<Bridge>) {
    let legacy = &bridge.legacy;
    let connection = &bridge.connection;
    let mut pauses = doubling(FIRST_PAUSE, LAST_PAUSE);
    let mut position = StreamPosition::default();
    let mut generation = 0;
    loop {
        let identity = legacy.identity.lock().clone();
        if identity.generation != generation {
            // The position belongs to the previous session.
            position = StreamPosition::default();
            generation = identity.generation;
        }
        let got = connection.send(Method::GET, &position.after(&identity.at.headers()), None).await;
        match got {
            Ok(response) if is_event_stream(&response) => {
                pauses = doubling(FIRST_PAUSE.max(position.pause()), LAST_PAUSE);
                // Err: an event was too large. The stream answers no request, so no error is sent.
                let _ = bridge.forward(response, &Value::Null.into(), &|_| {}, &mut position).await;
            }
            // The server no longer knows the position.
            Ok(response) if response.status() == StatusCode::BAD_REQUEST => {
                position = StreamPosition::default()
            }
            // The server offers no such stream.
            Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => return,
            Ok(response) if response.status() == StatusCode::NOT_FOUND && identity.at.id.is_some() => {
                // Err: retried in the next round.
                let _ = legacy.reopen(&bridge, identity.generation).await;
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(pauses.next().unwrap_or(LAST_PAUSE)).await;
    }
}

/// Returns the answer to a request of the bridge itself; other messages in the response are dropped.
async fn answer(connection: &Connection, response: Response) -> Result<Value, RequestFault> {
    let status = response.status();
    let streamed = is_event_stream(&response);
    let body = connection.body(response).await?;
    if !streamed {
        return Json::parse(&body)
            .map(|answer| answer.view().clone())
            .map_err(|_| connection.no_message(status));
    }
    let events = asp_platform::event_stream::Frames::default().push(&body).unwrap_or_default();
    let last = events.iter().rev().find_map(|event| asp_json::decode(event).ok());
    last.ok_or_else(|| connection.no_message(status))
}

fn with_id(message: &Json, id: &str) -> Json {
    let mut members = Members::of(message);
    members.insert("id", id);
    members.to_json()
}

fn method(message: &Value) -> &str {
    message.get("method").and_then(Value::as_str).unwrap_or_default()
}
