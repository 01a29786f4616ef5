//! Stage 10: a start and a finish event of every call, on every exit (design §6, seed 1 §1.6.6).
//!
//! Owns: the shape of the events and the queue to the audit log, which writes them in batches off the path.
//! Refuses: argument and result values; only their sizes are recorded. Keeps true: the queue is bounded; a
//! full one slows the calls down instead of losing events; what cannot be queued at all is counted and logged.

use std::sync::Arc;
use std::time::Duration;

use asp_store::calls::{AuditLog, CallEvent};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Call;
use super::outcome::{Outcome, Refusal};
use crate::clock::unix_ms;

/// Most events that wait for the log.
const QUEUE: usize = 16 * 1024;
/// Most events of one append.
const BATCH: usize = 512;
/// How long the writer rests after a failed append.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The queue to the audit log.
pub struct Audit {
    queue: mpsc::Sender<Entry>,
}

enum Entry {
    Event(CallEvent),
    /// Answered when everything before it is durable.
    Flush(oneshot::Sender<()>),
}

impl Audit {
    /// Starts the writer, which ends when the queue is dropped. Needs a running tokio runtime.
    pub fn new(log: Arc<dyn AuditLog>) -> Audit {
        let (queue, entries) = mpsc::channel(QUEUE);
        tokio::spawn(write(log, entries));
        Audit { queue }
    }

    /// Queues an event; waits while the queue is full.
    pub async fn record(&self, event: CallEvent) {
        if self.queue.send(Entry::Event(event)).await.is_err() {
            tracing::error!("audit writer is gone; an event is lost");
        }
    }

    /// Queues an event where nothing can wait.
    pub fn record_now(&self, event: CallEvent) {
        if self.queue.try_send(Entry::Event(event)).is_err() {
            tracing::error!("audit queue is full; an event is lost");
        }
    }

    /// Returns when every event queued before is durable.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Entry::Flush(done)).await.is_ok() {
            // An error means that the writer ended, and it ends only after it has written everything.
            let _ = flushed.await;
        }
    }
}

async fn write(log: Arc<dyn AuditLog>, mut entries: mpsc::Receiver<Entry>) {
    let mut held = Vec::with_capacity(BATCH);
    while entries.recv_many(&mut held, BATCH).await > 0 {
        let (mut events, mut flushes) = (Vec::with_capacity(held.len()), Vec::new());
        for entry in held.drain(..) {
            match entry {
                Entry::Event(event) => events.push(event),
                Entry::Flush(done) => flushes.push(done),
            }
        }
        while let Err(error) = log.append(&events).await {
            tracing::error!(error = %error, waiting = events.len(), "audit log does not take events; trying again");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}

/// The call was accepted for processing.
pub fn started(call: &Call) -> CallEvent {
    event(call, json!({"event": "call.start"}))
}

/// The call was left behind by another gateway and goes on.
pub fn resumed(call: &Call) -> CallEvent {
    event(call, json!({"event": "call.resume"}))
}

/// The call has its outcome.
pub fn finished(call: &Call, outcome: &Outcome) -> CallEvent {
    let (reason, replay, bytes_out, is_error) = match outcome {
        Outcome::Done { output, replayed } => ("ok", *replayed, output.size(), output.is_error()),
        Outcome::Refused(refusal) => (refusal.reason().as_str(), false, 0, true),
    };
    let latency = Instant::now().saturating_duration_since(call.started).as_micros() as u64;
    event(
        call,
        json!({
            "event": "call.finish",
            "outcome": outcome.state().as_str(),
            "reason": reason,
            "error": is_error,
            "rateLimitHit": matches!(outcome, Outcome::Refused(Refusal::Limited { .. })),
            "replay": replay,
            "bytesOut": bytes_out,
            "latencyUs": latency,
        }),
    )
}

/// One delegation, without its texts.
pub struct Delegated {
    /// `id@version`
    pub delegate: String,
    /// client, model, primitive or nobody
    pub way: &'static str,
    /// `ok`, or the word for why there is no answer
    pub outcome: &'static str,
    pub took: Duration,
    /// As the endpoint counts them; 0 where it does not say.
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// A plugin asked a model or another primitive.
pub fn delegated(call: &Call, delegated: &Delegated) -> CallEvent {
    event(
        call,
        json!({
            "event": "call.delegation",
            "delegate": delegated.delegate,
            "by": delegated.way,
            "outcome": delegated.outcome,
            "ms": delegated.took.as_millis() as u64,
            "tokensIn": delegated.tokens_in,
            "tokensOut": delegated.tokens_out,
        }),
    )
}

fn event(call: &Call, mut own: serde_json::Value) -> CallEvent {
    let at_ms = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
    if let Some(members) = own.as_object_mut() {
        let primitive = &call.entry.primitive;
        for (name, value) in [
            ("call", json!(call.id.to_string())),
            ("user", json!(call.caller.user)),
            ("wcit", json!(call.caller.wcit)),
            ("server", json!(call.server.message.name)),
            ("primitive", json!(format!("{}@{}", primitive.id, primitive.version))),
            ("protocol", json!(crate::protocol_name(call.protocol))),
            ("request", json!(call.protocol_request_id)),
            ("bytesIn", json!(call.bytes_in)),
        ] {
            members.insert(name.into(), value);
        }
        if let Some(parent) = call.parent {
            members.insert("parent".into(), json!(parent.call.to_string()));
        }
    }
    CallEvent { at_ms, org: call.caller.org.clone(), event: own.to_string() }
}
