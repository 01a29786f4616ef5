//! Calls to an upstream MCP server over Streamable HTTP.
//!
//! Owns: one upstream session per (principal, downstream session, URL), in a bounded table, never shared.
//! Keeps true: a session that is let go is ended at its server; progress, logs and errors are relayed; no capability is declared upstream, so a server's
//! request to us is answered with an error; what the upstream sends is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_proto::snapshot::{Kind, ProxyMcp};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::call::principal::principal;
use crate::execution::Execution;
use crate::executors::outbound::client::Outbound;
use crate::executors::outbound::refused::{Meaning, by_status};
use crate::executors::outbound::upstream::lost;

pub mod client;

use client::{Client, Exchange, Fault, Session};

/// Most upstream sessions of one replica.
const MAX_SESSIONS: usize = 10_000;

/// The upstream sessions of one gateway.
pub struct McpUpstreams {
    outbound: Arc<Outbound>,
    sessions: Mutex<HashMap<Key, Slot>>,
    next_id: AtomicU64,
    farewells: TaskTracker,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    url: String,
    principal: [u8; 16],
    downstream: String,
}

/// Held while one call opens the session, so that concurrent calls do not open it twice.
type Opened = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

struct Slot {
    session: Opened,
    used: Instant,
}

impl McpUpstreams {
    pub(super) fn new(outbound: Arc<Outbound>) -> McpUpstreams {
        McpUpstreams {
            outbound,
            sessions: Mutex::default(),
            next_id: AtomicU64::new(1),
            farewells: TaskTracker::new(),
        }
    }

    /// Runs one call; an upstream session that has ended is opened anew, once.
    pub(super) async fn run(&self, target: &ProxyMcp, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let destination = self
            .outbound
            .destination(&target.url, &execution.snapshot.upstreams)
            .map_err(|error| Refusal::Upstream(error.to_string()))?;
        let client = Client {
            http: destination.client.clone(),
            url: destination.url,
            farewells: self.farewells.clone(),
        };
        let key = Key {
            url: target.url.clone(),
            principal: principal(&call.caller),
            downstream: call.session.clone(),
        };
        let (method, params) = request(target, execution);
        for attempt in 0..2 {
            let slot = self.slot(&key);
            let session = self.open(&client, &slot).await?;
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let mut params = params.clone();
            params.insert(
                "_meta".into(),
                json!({"progressToken": id, "traceparent": execution.call.trace.traceparent()}),
            );
            let exchange = Exchange {
                id,
                method,
                params: Value::Object(params),
                heard: &|event| call.emit(event),
                cancelled: &call.cancellation(),
            };
            match client.request(&session, exchange).await {
                Err(Fault::SessionEnded) if attempt == 0 => forget(&slot, &session).await,
                Err(fault) => return Err(refusal(call, fault)),
                Ok(result) => return Ok(output(call.entry.primitive.kind(), result)),
            }
        }
        Err(Refusal::Upstream("the service does not keep its sessions".into()))
    }

    /// Ends every session, and returns when the services that are to be told something were told.
    pub(super) async fn drained(&self) {
        let slots = std::mem::take(&mut *self.sessions.lock());
        drop(slots);
        self.farewells.close();
        self.farewells.wait().await;
        self.farewells.reopen();
    }

    async fn open(&self, client: &Client, slot: &Opened) -> Result<Arc<Session>, Refusal> {
        let mut held = slot.lock().await;
        if let Some(session) = &*held {
            return Ok(session.clone());
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Nothing of the call is delivered yet, whatever goes wrong here.
        let opened = client.initialize(id).await.map_err(|fault| match fault {
            Fault::Refused { status, wait } => match by_status_alone(status, wait) {
                Meaning::Refused(refusal) => refusal,
                Meaning::Open(why) => Refusal::Upstream(format!("handshake: {why}")),
            },
            fault => Refusal::Upstream(format!("handshake: {fault}")),
        })?;
        let session = Arc::new(opened);
        *held = Some(session.clone());
        Ok(session)
    }

    fn slot(&self, key: &Key) -> Opened {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= MAX_SESSIONS
            && !sessions.contains_key(key)
            && let Some(oldest) =
                sessions.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone())
        {
            sessions.remove(&oldest);
        }
        let slot = sessions
            .entry(key.clone())
            .or_insert_with(|| Slot { session: Arc::default(), used: Instant::now() });
        slot.used = Instant::now();
        slot.session.clone()
    }
}

fn refusal(call: &Call, fault: Fault) -> Refusal {
    match fault {
        Fault::Error { code, message } => Refusal::Relayed { code, message },
        Fault::NotDelivered | Fault::SessionEnded => Refusal::Upstream(fault.to_string()),
        Fault::Refused { status, wait } => by_status_alone(status, wait).of(call),
        Fault::Lost(why) => lost(call, &why),
        Fault::Cancelled => Refusal::Cancelled,
    }
}

/// A status says nothing of the arguments here: what an MCP server has to say of them it says in JSON-RPC.
fn by_status_alone(status: StatusCode, wait: Option<Duration>) -> Meaning {
    match by_status(status, wait, String::new()) {
        Meaning::Refused(Refusal::InvalidArguments { .. }) => {
            Meaning::Refused(Refusal::Declined(format!("the service answered {}", status.as_u16())))
        }
        meaning => meaning,
    }
}

/// The server has ended the session. Another call may have found that out before, and opened a new one.
async fn forget(slot: &Opened, session: &Arc<Session>) {
    let mut held = slot.lock().await;
    if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, session)) {
        *held = None;
    }
}

fn request(target: &ProxyMcp, execution: &Execution) -> (&'static str, Map<String, Value>) {
    let mut params = Map::new();
    match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate => {
            let uri = execution.arguments.get("uri").cloned();
            params.insert("uri".into(), uri.unwrap_or_else(|| target.tool.clone().into()));
            ("resources/read", params)
        }
        kind => {
            params.insert("name".into(), target.tool.clone().into());
            params.insert("arguments".into(), execution.arguments.clone());
            (if kind == Kind::Prompt { "prompts/get" } else { "tools/call" }, params)
        }
    }
}

fn output(kind: Kind, mut result: Map<String, Value>) -> Output {
    let mut list = |name: &str| match result.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    match kind {
        Kind::Resource | Kind::ResourceTemplate => Output::Contents { contents: list("contents") },
        Kind::Prompt => {
            let messages = list("messages");
            let description = result.get("description").and_then(Value::as_str).map(str::to_owned);
            Output::Messages { description, messages }
        }
        _ => {
            let content = list("content");
            Output::Tool {
                content,
                is_error: result.get("isError") == Some(&Value::Bool(true)),
                structured: result.remove("structuredContent"),
                meta: Map::new(),
            }
        }
    }
}
