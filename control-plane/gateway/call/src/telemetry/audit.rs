//! A start and a finish event of every call, on every exit, and the queue to the audit log, which writes them in
//! batches off the request path.
//!
//! If the log is slow or fails, the queue eventually fills up, and then a new call waits for at most [`PATIENCE`];
//! while the log rejects events it does not wait at all. A call that may have effects and whose start is not recorded
//! by then is refused before it runs; one that only reads continues, unless the log is required
//! ([`AuditLog::is_required`]). If the log has no capacity for an org ([`AuditLog::has_room`]), its new calls are not
//! recorded and refused by the same rule, and running calls are recorded to their end. Events after the fact (finish,
//! delegation) never delay an answer. Every loss is counted in `asp_audit_events_lost_total`, and each outage is logged
//! once, with its end.
//!
//! Refuses: argument and result values; only their sizes are recorded. Removes secrets ([`asp_platform::redact`]), which clients
//! and plugins can put into ids and names. Keeps true: the queue is bounded; an event that is queued is in the kernel
//! ([`Journal`]), so that the log gets it even if this process is killed.

mod approvals;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asp_edge::Reason;
use asp_store::audit::journal::{Journal, JournalPlace};
use asp_store::audit::replay::{has_end, keep_replaying};
use asp_store::audit::{AuditLog, CallEvent, CapturedBody};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::call::Call;
use crate::call::outcome::{Outcome, Refusal};
use crate::clock::unix_ms;

pub use approvals::{ApprovalFact, approval};
pub use links::{LinkFact, link};

mod appending;
mod links;
mod lost;
mod writer;

use appending::{redact_event, write};
pub use lost::{LostCall, LostCalls, LostGateway};
use writer::{Writer, stamp};

/// Maximum number of events that wait for the log.
const QUEUE: usize = 16 * 1024;
/// Maximum number of events in one append.
const BATCH: usize = 512;
/// Time that the writer waits for more events before it appends: an append costs the same wake-ups, statements and
/// `fsync` for one event as for hundreds. If the process is killed, the events of this time are in its journal only.
const GATHER: Duration = Duration::from_millis(25);
/// Delay after a failed append.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Time that a call waits for capacity in the queue: a burst is over by then, an outage is not.
const PATIENCE: Duration = Duration::from_secs(1);
/// Duration of an append that counts as an outage: the queue holds more than a second of full load.
const SLOW: Duration = Duration::from_secs(2);
/// Maximum size of a body that is captured; of a longer one only the size is kept.
const MAX_CAPTURED: usize = 256 * 1024;
/// Maximum bytes of bodies that wait for the log.
const MAX_WAITING_BODIES: usize = 16 << 20;
/// Reason in the audit of a call whose primitive the org's policy hides from its caller.
const DENIED: &str = "denied";
/// Time that a shutdown waits for queued events.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// The queue to the audit log.
pub struct Audit {
    queue: mpsc::Sender<QueueEntry>,
    log: Arc<dyn AuditLog>,
    health: Arc<Health>,
    /// Whether no call may run unrecorded.
    required: bool,
    /// Id of this run of the gateway, which every event names.
    id: String,
    /// Events that the log does not have yet; `None` for a log without journals.
    journal: Option<Arc<Journal>>,
}

/// Error: the event was not accepted in time.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordingError;

enum QueueEntry {
    /// A redacted event, and its place in the journal.
    Event(CallEvent, Option<JournalPlace>),
    Body(CapturedBody),
    /// A request for an answer once everything before it is durable.
    Flush(oneshot::Sender<()>),
}

/// Health of the log.
#[derive(Default)]
struct Health {
    /// Whether it rejects events, or takes very long.
    out: AtomicBool,
    /// Whether it rejected the last events.
    refuses: AtomicBool,
    /// Whether events have been lost since the log was last healthy.
    losing: AtomicBool,
    /// Bytes of the bodies in the queue.
    body_bytes: AtomicUsize,
    lost: Counter,
}

impl Audit {
    /// Starts the writer, which ends when the queue is dropped; `lost` counts the events it does not get. Needs a
    /// running tokio runtime.
    pub fn new(log: Arc<dyn AuditLog>, lost: Counter) -> Audit {
        let (queue, entries) = mpsc::channel(QUEUE);
        let health = Arc::new(Health { lost, ..Health::default() });
        let required = log.is_required();
        let writer = Writer::new();
        let id = writer.id().to_owned();
        let journal = log.journals().map(|directory| Arc::new(Journal::new(directory, &id)));
        if let Some(journal) = &journal {
            tokio::spawn(keep_replaying(log.clone(), Arc::downgrade(journal)));
        }
        tokio::spawn(write(log.clone(), entries, health.clone(), writer, journal.clone()));
        Audit { queue, log, health, required, id, journal }
    }

    /// Whether a call may run although its start is not recorded, by whether it may have effects.
    pub fn may_miss(&self, has_effects: bool) -> bool {
        !has_effects && !self.required
    }

    /// Whether new calls of this org may be recorded.
    pub fn has_room(&self, org: &str) -> bool {
        self.log.has_room(org)
    }

    /// Counts events that are not recorded because the log has no capacity for their org, which the log itself has
    /// logged.
    pub fn count_missed(&self, events: u64) {
        self.health.lost.inc_by(events);
    }

    /// Queues the arguments or the result of a call, if those of its server are kept; lost if the queue is full.
    pub fn capture(&self, call: &Call, part: &'static str, text: impl FnOnce() -> String) {
        if !self.log.captures(&call.server.message.name) {
            return;
        }
        let mut body = text();
        if body.len() > MAX_CAPTURED {
            // Not cut: half of a secret would no longer be found.
            body = format!("{{\"omitted\":{}}}", body.len());
        }
        let body = CapturedBody {
            at_ms: i64::try_from(unix_ms()).unwrap_or(i64::MAX),
            org: call.caller.org.clone(),
            call: call.id.to_string(),
            part: part.to_owned(),
            body,
        };
        let size = body.body.len();
        let waiting = self.health.body_bytes.fetch_add(size, Ordering::AcqRel);
        if waiting + size > MAX_WAITING_BODIES || self.queue.try_send(QueueEntry::Body(body)).is_err() {
            self.health.body_bytes.fetch_sub(size, Ordering::AcqRel);
            self.health.lose();
        }
    }

    /// Queues an event of something that begins, if the log has capacity for its org; otherwise as
    /// [`Audit::record_end`].
    pub async fn record(&self, event: CallEvent) -> Result<(), RecordingError> {
        if !self.has_room(&event.org) {
            self.count_missed(1);
            return Err(RecordingError);
        }
        self.record_end(event).await
    }

    /// Queues an event, and waits a while if the queue is full. If no call may run unrecorded, the queue is only for
    /// bursts: events that the log rejects are not kept in memory, where a stop would lose them.
    pub async fn record_end(&self, event: CallEvent) -> Result<(), RecordingError> {
        if self.required && self.health.refuses.load(Ordering::Acquire) {
            self.health.lose();
            return Err(RecordingError);
        }
        let Some(event) = self.offer(event) else { return Ok(()) };
        let patience = if self.health.out.load(Ordering::Acquire) { Duration::ZERO } else { PATIENCE };
        match timeout(patience, self.queue.reserve()).await {
            Ok(Ok(place)) => {
                place.send(self.entry(event));
                Ok(())
            }
            Ok(Err(_)) | Err(_) => {
                self.health.lose();
                Err(RecordingError)
            }
        }
    }

    /// Queues the events of a call that was taken over and does not continue, unless the log has its last one. If the log does
    /// not answer, nothing is queued: the call may have its end there, and otherwise it is one of a lost gateway. An end of
    /// its former gateway that comes later is dropped, because of the takeover.
    pub async fn record_last(&self, resumed: CallEvent, finished: CallEvent, begun_ms: u64) {
        let stamped = stamp(&self.id, redact_event(finished.clone()));
        let begun_ms = i64::try_from(begun_ms).unwrap_or_default();
        match timeout(SLOW, has_end(self.log.as_ref(), &stamped, begun_ms)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                // A lost event is counted.
                let _ = self.record_end(resumed).await;
                let _ = self.record_end(finished).await;
            }
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(
                    "audit log did not answer whether a call of a lost gateway has its last event"
                );
            }
        }
    }

    /// Queues an event if there is capacity, otherwise returns it.
    pub fn offer(&self, event: CallEvent) -> Option<CallEvent> {
        match self.queue.try_reserve() {
            Ok(place) => {
                place.send(self.entry(event));
                None
            }
            Err(_) => Some(event),
        }
    }

    /// Returns an event as it is queued: redacted, and in the journal. Only with a place in the queue, so that the journal
    /// has nothing that is not queued.
    fn entry(&self, event: CallEvent) -> QueueEntry {
        let event = stamp(&self.id, redact_event(event));
        let place = self.journal.as_ref().and_then(|journal| journal.add(&event));
        QueueEntry::Event(event, place)
    }

    /// Queues an event from code that cannot wait.
    pub fn record_now(&self, event: CallEvent) {
        if self.offer(event).is_some() {
            self.health.lose();
        }
    }

    /// Waits until every event queued before is durable, for at most [`LAST_EVENTS`].
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let flushing = async {
            if self.queue.send(QueueEntry::Flush(done)).await.is_ok() {
                // An error means that the writer has ended, which it does only after writing everything.
                let _ = flushed.await;
            }
        };
        if timeout(LAST_EVENTS, flushing).await.is_err() {
            tracing::error!("audit log did not accept the last events of calls in time; they may be lost");
        }
    }
}

impl Health {
    fn lose(&self) {
        self.lost.inc();
        if !self.losing.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "audit log does not accept events in time; events of calls are lost, and calls that may have \
                 effects are refused until it does: check the disk of the state directory"
            );
        }
    }

    fn well(&self) {
        self.out.store(false, Ordering::Release);
        self.refuses.store(false, Ordering::Release);
        if self.losing.swap(false, Ordering::AcqRel) {
            tracing::warn!(
                lost_so_far = self.lost.get(),
                "audit log accepts events again; lost events stay lost, and calls with effects are no longer refused"
            );
        }
    }

    /// Records an outage; returns whether the log was healthy before.
    fn goes_out(&self) -> bool {
        !self.out.swap(true, Ordering::AcqRel)
    }
}

/// Returns the event of a call accepted for processing.
pub fn started(call: &Call) -> CallEvent {
    event(call, StartEvent { event: "call.start" })
}

/// Returns the event of a call taken over from another gateway.
pub fn resumed(call: &Call) -> CallEvent {
    event(call, StartEvent { event: "call.resume" })
}

/// Returns the event of a call's outcome.
pub fn finished(call: &Call, outcome: &Outcome) -> CallEvent {
    let ruled = call.ruling.get();
    let (reason, replay, bytes_out, is_error) = match outcome {
        Outcome::Done { output, replayed } => ("ok", *replayed, output.size(), output.is_error()),
        // Its caller must not know that there is something to deny; the audit says so.
        Outcome::Refused(refusal) if ruled.hides && is_unknown(refusal.reason()) => (DENIED, false, 0, true),
        Outcome::Refused(refusal) => (refusal.reason().as_str(), false, 0, true),
    };
    let latency = Instant::now().saturating_duration_since(call.started).as_micros() as u64;
    event(
        call,
        FinishEvent {
            event: "call.finish",
            outcome: outcome.state().as_str(),
            reason,
            error: is_error,
            rate_limit_hit: matches!(outcome, Outcome::Refused(Refusal::Limited { .. })),
            replay,
            bytes_out,
            latency_us: latency,
            rule: ruled.rule,
            observed: ruled.observed.map(|(would, rule)| ObservedEffect { would, rule }),
        },
    )
}

fn is_unknown(reason: Reason) -> bool {
    matches!(reason, Reason::UnknownPrimitive | Reason::UnknownServer)
}

/// One delegation, without its texts.
pub struct DelegationRecord {
    /// `id@version` of the delegate.
    pub delegate: String,
    /// `client`, `model`, `primitive` or `nobody`
    pub way: &'static str,
    /// `ok`, or the reason why there is no answer.
    pub outcome: &'static str,
    pub took: Duration,
    /// Tokens as the endpoint counts them; 0 if it does not report them.
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// Returns the event of a plugin's request to a model or another primitive.
pub fn delegated(call: &Call, delegated: &DelegationRecord) -> CallEvent {
    event(
        call,
        Delegation {
            event: "call.delegation",
            delegate: &delegated.delegate,
            by: delegated.way,
            outcome: delegated.outcome,
            ms: delegated.took.as_millis() as u64,
            tokens_in: delegated.tokens_in,
            tokens_out: delegated.tokens_out,
        },
    )
}

/// An event for serialization, which borrows from the call because it is written for every start and finish.
#[derive(Serialize)]
struct EventRecord<'a, E> {
    #[serde(flatten)]
    own: E,
    call: fmt::Arguments<'a>,
    user: &'a str,
    /// Name of the caller's issuer in the snapshot.
    issuer: &'a str,
    wcit: &'a str,
    server: &'a str,
    primitive: fmt::Arguments<'a>,
    protocol: &'static str,
    request: &'a str,
    trace: fmt::Arguments<'a>,
    #[serde(rename = "bytesIn")]
    bytes_in: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

#[derive(Serialize)]
struct StartEvent {
    event: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FinishEvent {
    event: &'static str,
    outcome: &'static str,
    reason: &'static str,
    error: bool,
    rate_limit_hit: bool,
    replay: bool,
    bytes_out: usize,
    latency_us: u64,
    /// Binding or exposure that refused the call, or binding that had a person asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<ObservedEffect>,
}

#[derive(Serialize)]
struct ObservedEffect {
    would: &'static str,
    rule: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Delegation<'a> {
    event: &'static str,
    delegate: &'a str,
    by: &'static str,
    outcome: &'static str,
    ms: u64,
    tokens_in: u64,
    tokens_out: u64,
}

fn event(call: &Call, own: impl Serialize) -> CallEvent {
    let primitive = &call.entry.primitive;
    event_now(
        &call.caller.org,
        &EventRecord {
            own,
            call: format_args!("{}", call.id),
            user: &call.caller.user,
            issuer: &call.caller.issuer,
            wcit: &call.caller.wcit,
            server: &call.server.message.name,
            primitive: format_args!("{}@{}", primitive.id, primitive.version),
            protocol: asp_snapshot::protocol::protocol_name(call.protocol),
            request: &call.protocol_request_id,
            trace: format_args!("{}", call.trace),
            bytes_in: call.bytes_in,
            parent: call.parent.map(|parent| parent.call.to_string()),
        },
    )
}

/// Returns the event of a fact of this moment.
fn event_now(org: &str, fact: &impl Serialize) -> CallEvent {
    let at_ms = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
    // Texts, numbers and flags always serialize to JSON.
    CallEvent { at_ms, org: org.to_owned(), event: serde_json::to_string(fact).unwrap_or_default() }
}

#[cfg(test)]
mod tests;
