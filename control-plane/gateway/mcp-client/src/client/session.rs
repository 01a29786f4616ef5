//! One session with an upstream, and its running requests.
//!
//! Keeps true: a dropped session is ended at its server, if that keeps sessions; a request of the server outside of
//! any of ours goes to the only call that runs in the session, and otherwise to nobody.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Client;
use super::downstream::Downstream;
use super::updates::Updates;

pub const SESSION_ID: &str = "mcp-session-id";
/// MCP notification that a subscribed resource has changed.
pub(crate) const UPDATED: &str = "notifications/resources/updated";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Pause after a stream of the server's own messages ended; it doubles after each that brought nothing.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An open upstream session. When dropped, it is ended at its server too, if that keeps sessions.
pub struct Session {
    pub(super) client: Client,
    pub at: SessionHeaders,
    /// Capabilities that each request declares, if the server speaks only 2026-07-28.
    pub(super) modern: Option<Value>,
    /// Capabilities of the server.
    pub offers: Offers,
    /// Instructions of the handshake: text for models to read before they use the server.
    pub instructions: Option<String>,
    /// Whether the server ended it first.
    is_over: AtomicBool,
    pub running: Arc<RunningRequests>,
    pub(super) listening: Option<AbortOnDropHandle<()>>,
}

/// Capabilities of a server besides its items, as it declares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
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
    pub(crate) fn of(result: &Map<String, Value>) -> Offers {
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
    pub fn lacks(&self, member: &str) -> bool {
        let is_named = match member {
            "tools" => self.tools,
            "prompts" => self.prompts,
            _ => self.resources,
        };
        !is_named && (self.tools || self.prompts || self.resources)
    }
}

/// Session headers of a request; `id` is absent if the server keeps no sessions.
#[derive(Clone, Default)]
pub struct SessionHeaders {
    pub id: Option<HeaderValue>,
    /// Agreed revision; `initialize` itself has none (2025-06-18 transports, protocol version header).
    pub revision: Option<HeaderValue>,
}

impl SessionHeaders {
    pub fn headers(&self) -> HeaderMap {
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
    pub fn new(client: Client, at: SessionHeaders) -> Session {
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
    pub fn roots_changed(&self) {
        if self.modern.is_some() {
            return;
        }
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
        self.client.tell(self.at.clone(), changed, "notification of changed roots");
    }

    /// Authenticates requests outside of calls as this call from now on.
    pub fn proves_as(&self, client: &Client) {
        self.client.proof.follow(&client.proof);
    }

    pub fn ended_at_its_server(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether the server speaks only 2026-07-28.
    pub fn is_modern(&self) -> bool {
        self.modern.is_some()
    }

    /// Whether the server currently reports changes of its lists.
    pub fn tells_of_lists(&self) -> bool {
        self.offers.list_changes && self.running.hears.load(Ordering::Acquire)
    }

    /// Whether a listener runs, or tries to.
    pub fn listens(&self) -> bool {
        self.listening.is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.at.id.is_none() || self.is_over.load(Ordering::Acquire) {
            return;
        }
        let request = self.client.http.delete(self.client.url.clone());
        let request = request.headers(self.client.proof.headers()).headers(self.at.headers());
        self.client.run_closing(async move {
            // 405: this server ends its sessions by itself (MCP, session management).
            if let Err(error) = request.send().await {
                tracing::debug!(error = %error.without_url(), "an upstream MCP server could not be told that a session ended");
            }
        });
    }
}

/// Requests that run in a session, by their ids; as many as there are calls.
#[derive(Default)]
pub struct RunningRequests {
    by_id: Mutex<HashMap<u64, Arc<dyn Downstream>>>,
    /// Notified when the server reports a change of one of its lists.
    lists_changed: Arc<Notify>,
    /// Resources that the server reported as changed.
    pub updates: Updates,
    /// Resources to be notified of, if the server speaks only 2026-07-28.
    pub wanted: watch::Sender<BTreeSet<String>>,
    /// Whether the server's own messages are being received.
    pub(super) hears: AtomicBool,
    /// Cancelled once the server is known to have ended the session.
    pub over: CancellationToken,
}

/// A running request, until this is dropped.
pub struct RequestGuard<'a> {
    running: &'a RunningRequests,
    id: u64,
}

impl RunningRequests {
    pub fn enter(&self, id: u64, downstream: Arc<dyn Downstream>) -> RequestGuard<'_> {
        self.by_id.lock().insert(id, downstream);
        RequestGuard { running: self, id }
    }

    /// Returns the notification of changed lists.
    pub fn lists_changed(&self) -> Arc<Notify> {
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

    pub(super) fn only(&self) -> Option<Arc<dyn Downstream>> {
        let by_id = self.by_id.lock();
        let mut all = by_id.values();
        match (all.next(), all.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Downstream>> {
        self.by_id.lock().values().cloned().collect()
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<dyn Downstream>> {
        self.by_id.lock().get(&id).cloned()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.running.by_id.lock().remove(&self.id);
    }
}
