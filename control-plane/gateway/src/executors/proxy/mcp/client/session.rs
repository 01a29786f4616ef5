//! One session with an upstream: its running requests, and the messages that its server sends outside of them.
//!
//! Keeps true: a dropped session is ended at its server, if that keeps sessions; a request of the server outside of
//! any of ours goes to the only call that runs in the session, and otherwise to nobody.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_platform::pauses::doubling;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::changes::Changes;
use super::exchange::{CANCELLED, StreamRequests};

use super::reading::Messages;
use super::updates::Updates;
use super::{Client, ClientFault};
use crate::executors::conversation::downstream::Downstream;
use crate::executors::proxy::mcp::message::{self, Message};

pub(in crate::executors::proxy::mcp) const SESSION_ID: &str = "mcp-session-id";
/// MCP notification that a subscribed resource has changed.
const UPDATED: &str = "notifications/resources/updated";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Maximum time that a call waits for the stream of the server's own messages, so that its first questions can
/// arrive.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);
/// Pause after that stream ended; it doubles after each that brought nothing.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An open upstream session. When dropped, it is ended at its server too, if that keeps sessions.
pub struct Session {
    client: Client,
    pub(in crate::executors::proxy::mcp) at: SessionHeaders,
    /// Capabilities that each request declares, if the server speaks only 2026-07-28.
    pub(super) modern: Option<Value>,
    /// Capabilities of the server.
    pub(in crate::executors::proxy::mcp) offers: Offers,
    /// Instructions of the handshake: text for models to read before they use the server.
    pub(in crate::executors::proxy::mcp) instructions: Option<String>,
    /// Whether the server ended it first.
    is_over: AtomicBool,
    pub(in crate::executors::proxy::mcp) running: Arc<RunningRequests>,
    listening: Option<AbortOnDropHandle<()>>,
}

/// Capabilities of a server besides its items, as it declares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::executors::proxy::mcp) struct Offers {
    /// Notifies subscribers that a resource has changed.
    pub subscriptions: bool,
    /// Notifies of changes of each of its lists.
    pub list_changes: bool,
    /// Offers values for arguments.
    pub completions: bool,
    /// Has these lists; templates are listed with resources.
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
}

/// Returns the `instructions` of a handshake.
pub(super) fn instructions(result: &Map<String, Value>) -> Option<String> {
    result.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Offers {
    /// Reads the capabilities of a handshake.
    pub(super) fn of(result: &Map<String, Value>) -> Offers {
        let can = result.get("capabilities");
        let of = |name: &str| can.and_then(|can| can.get(name)).filter(|can| !can.is_null());
        let is_true = |can: &Value, name: &str| can.get(name) == Some(&Value::Bool(true));
        let lists = ["tools", "prompts", "resources"];
        Offers {
            subscriptions: of("resources").is_some_and(|can| is_true(can, "subscribe")),
            list_changes: lists.iter().all(|list| of(list).is_none_or(|can| is_true(can, "listChanged"))),
            completions: of("completions").is_some(),
            tools: of("tools").is_some(),
            prompts: of("prompts").is_some(),
            resources: of("resources").is_some(),
        }
    }

    /// Whether the server declares its lists, and the one with this member is not among them.
    pub(in crate::executors::proxy::mcp) fn lacks(&self, member: &str) -> bool {
        let is_named = match member {
            "tools" => self.tools,
            "prompts" => self.prompts,
            _ => self.resources,
        };
        !is_named && (self.tools || self.prompts || self.resources)
    }
}

/// Session headers of a request; `id` is absent if the server keeps no sessions.
#[derive(Clone)]
pub(in crate::executors::proxy::mcp) struct SessionHeaders {
    pub id: Option<HeaderValue>,
    /// Agreed revision; `initialize` itself has none (2025-06-18 transports, protocol version header).
    pub revision: Option<HeaderValue>,
}

impl SessionHeaders {
    pub(in crate::executors::proxy::mcp) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(revision) = &self.revision {
            headers.insert(PROTOCOL_VERSION, revision.clone());
        }
        headers
    }
}

impl Session {
    pub(in crate::executors::proxy::mcp) fn made(client: Client, at: SessionHeaders) -> Session {
        Session {
            // Independent from the beginning: the credentials of the call that opens the session belong to the
            // call.
            client: client.apart(),
            at,
            modern: None,
            offers: Offers::default(),
            instructions: None,
            is_over: AtomicBool::new(false),
            running: Arc::default(),
            listening: None,
        }
    }

    /// Reports that the client's roots have changed. An upstream that rejects this asks again when it needs them.
    pub(in crate::executors::proxy::mcp) fn roots_changed(&self) {
        if self.modern.is_some() {
            return;
        }
        let client = self.client.clone();
        let at = self.at.clone();
        self.client.bid_farewell(async move {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
            if client.post(&at, &changed).await.is_err() {
                tracing::debug!("an upstream MCP server did not accept the notification of changed roots");
            }
        });
    }

    /// Authenticates requests outside of calls as this call from now on.
    pub(in crate::executors::proxy::mcp) fn proves_as(&self, client: &Client) {
        self.client.proof.follow(&client.proof);
    }

    pub(in crate::executors::proxy::mcp) fn ended_at_its_server(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether the server speaks only 2026-07-28.
    pub(in crate::executors::proxy::mcp) fn is_modern(&self) -> bool {
        self.modern.is_some()
    }

    /// Whether the server currently reports changes of its lists.
    pub(in crate::executors::proxy::mcp) fn tells_of_lists(&self) -> bool {
        self.offers.list_changes && self.running.hears.load(Ordering::Acquire)
    }

    /// Whether a listener runs, or tries to.
    pub(in crate::executors::proxy::mcp) fn listens(&self) -> bool {
        self.listening.is_some()
    }

    /// Listens to the server's notifications of changes, including those of its lists if `lists`. Returns as `listen`
    /// does.
    pub(in crate::executors::proxy::mcp) async fn listen_to_changes(&mut self, lists: bool) {
        let Some(capabilities) = self.modern.clone() else { return self.listen().await };
        let Ok(place) = self.client.tasks.listeners.clone().try_acquire_owned() else { return };
        let changes =
            Changes { client: self.client.clone(), capabilities, running: self.running.clone(), lists };
        let (opened, is_open) = oneshot::channel();
        let task = async move {
            changes.run(opened).await;
            drop(place);
        };
        self.listening = Some(AbortOnDropHandle::new(tokio::spawn(task)));
        drop(tokio::time::timeout(LISTENS_WITHIN, is_open).await);
    }

    /// Listens to the server's own messages, if it keeps sessions. Returns once it can send some, or after
    /// `LISTENS_WITHIN`.
    pub(in crate::executors::proxy::mcp) async fn listen(&mut self) {
        if self.at.id.is_none() {
            return;
        }
        // If no listener is left, the server's own messages are not read, and calls continue.
        let Ok(place) = self.client.tasks.listeners.clone().try_acquire_owned() else { return };
        let (opened, is_open) = oneshot::channel();
        let listener = Listener {
            client: self.client.clone(),
            at: self.at.clone(),
            running: self.running.clone(),
            _place: place,
        };
        self.listening = Some(AbortOnDropHandle::new(tokio::spawn(listener.run(opened))));
        // Closed: this server sends no messages of its own.
        drop(tokio::time::timeout(LISTENS_WITHIN, is_open).await);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.at.id.is_none() || self.is_over.load(Ordering::Acquire) {
            return;
        }
        let request = self.client.http.delete(self.client.url.clone());
        let request = request.headers(self.client.proof.headers()).headers(self.at.headers());
        self.client.bid_farewell(async move {
            // 405: this server ends its sessions by itself (MCP, session management).
            if let Err(error) = request.send().await {
                tracing::debug!(error = %error.without_url(), "an upstream MCP server could not be told that a session ended");
            }
        });
    }
}

/// Requests that run in a session, by their ids; as many as there are calls.
#[derive(Default)]
pub(in crate::executors::proxy::mcp) struct RunningRequests {
    by_id: Mutex<HashMap<u64, Arc<dyn Downstream>>>,
    /// Notified when the server reports a change of one of its lists.
    lists_changed: Arc<Notify>,
    /// Resources that the server reported as changed.
    pub(in crate::executors::proxy::mcp) updates: Updates,
    /// Resources to be notified of, if the server speaks only 2026-07-28.
    pub(in crate::executors::proxy::mcp) wanted: watch::Sender<BTreeSet<String>>,
    /// Whether the server's own messages are being received.
    pub(super) hears: AtomicBool,
    /// Cancelled once the server is known to have ended the session.
    pub(in crate::executors::proxy::mcp) over: CancellationToken,
}

/// A running request, until this is dropped.
pub(in crate::executors::proxy::mcp) struct RequestGuard<'a> {
    running: &'a RunningRequests,
    id: u64,
}

impl RunningRequests {
    pub(in crate::executors::proxy::mcp) fn enter(
        &self,
        id: u64,
        downstream: Arc<dyn Downstream>,
    ) -> RequestGuard<'_> {
        self.by_id.lock().insert(id, downstream);
        RequestGuard { running: self, id }
    }

    /// Returns the notification of changed lists.
    pub(in crate::executors::proxy::mcp) fn lists_changed(&self) -> Arc<Notify> {
        self.lists_changed.clone()
    }

    /// Handles a notification about lists and resources.
    pub(super) fn hear_change(&self, method: &str, params: &Map<String, Value>) {
        if method.ends_with("/list_changed") {
            self.lists_changed.notify_one();
        }
        if method == UPDATED
            && let Some(uri) = params.get("uri").and_then(Value::as_str)
        {
            self.updates.hear(uri);
        }
    }

    fn only(&self) -> Option<Arc<dyn Downstream>> {
        let by_id = self.by_id.lock();
        let mut all = by_id.values();
        match (all.next(), all.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    fn all(&self) -> Vec<Arc<dyn Downstream>> {
        self.by_id.lock().values().cloned().collect()
    }

    fn find(&self, id: u64) -> Option<Arc<dyn Downstream>> {
        self.by_id.lock().get(&id).cloned()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.running.by_id.lock().remove(&self.id);
    }
}

/// Reader of the session's own stream.
struct Listener {
    client: Client,
    at: SessionHeaders,
    running: Arc<RunningRequests>,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    async fn run(self, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut after: Option<String> = None;
        let mut pauses = doubling(PAUSE, LONGEST_PAUSE);
        loop {
            let response = self.client.get(&self.at, after.as_deref()).await;
            match response {
                Ok(response) if response.status() == StatusCode::OK => {
                    match opened.take() {
                        Some(opened) => drop(opened.send(())),
                        // Messages sent in between are lost.
                        None if after.is_none() => self.running.updates.miss(),
                        None => {}
                    }
                    let mut messages = Messages::listening(response);
                    if !messages.is_stream() {
                        return;
                    }
                    self.running.hears.store(true, Ordering::Release);
                    let heard = self.hear(&mut messages).await;
                    self.running.hears.store(false, Ordering::Release);
                    let place = messages.resumable();
                    let asked = place.as_ref().and_then(|(_, pause)| *pause).unwrap_or(PAUSE);
                    after = place.map(|(id, _)| id).or(after);
                    let first = asked.clamp(PAUSE, LONGEST_PAUSE);
                    pauses = if heard { doubling(first, LONGEST_PAUSE) } else { pauses };
                }
                // The server has no such stream (405).
                Ok(_) => return,
                Err(ClientFault::SessionEnded) => return self.running.over.cancel(),
                Err(_) => {}
            }
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Reads one stream to its end; returns whether it brought a message.
    async fn hear(&self, messages: &mut Messages) -> bool {
        let mut asks = StreamRequests::of(self.client.clone(), self.at.clone());
        let mut heard = false;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = asks.next(), if !asks.is_empty() => continue,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return heard,
                // Broken off, or above the limit: not a reason to reconnect soon.
                Err(_) => return false,
            };
            heard = true;
            match message {
                // The answer to a request is read where that was sent.
                Message::Answer { .. } | Message::Unaddressed(_) => {}
                Message::Request { id, method, params } => {
                    asks.begin(self.running.only(), id, method, params);
                }
                Message::Notification { method, params } if method == CANCELLED => asks.take_back(&params),
                Message::Notification { method, params } => {
                    self.running.hear_change(&method, &params);
                    if let Some(visit) = message::visited(&method, &params) {
                        self.running.all().iter().for_each(|downstream| downstream.visited(visit));
                    }
                    let Some((token, event)) = message::event(&method, &params) else { continue };
                    let whose = match token {
                        Some(id) => self.running.find(id),
                        None => self.running.only(),
                    };
                    if let Some(whose) = whose {
                        whose.heard(event);
                    }
                }
            }
        }
    }
}
