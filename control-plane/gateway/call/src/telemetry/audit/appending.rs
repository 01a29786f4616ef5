//! The way of events from the queue to the log: in batches, and again until the log accepts them.
//!
//! Keeps true: a flush is answered once everything before it is durable; an event leaves the journal after the log has it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asp_platform::redact::redact_json;
use asp_store::audit::journal::Journal;
use asp_store::audit::replay::settle;
use asp_store::audit::{AuditLog, CallEvent, CapturedBody, MAX_BODY};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::writer::Writer;
use super::{BATCH, GATHER, Health, QueueEntry, RETRY_AFTER, SLOW};

/// Writes what is queued until the queue ends.
pub(super) async fn write(
    log: Arc<dyn AuditLog>,
    mut entries: mpsc::Receiver<QueueEntry>,
    health: Arc<Health>,
    mut writer: Writer,
    journal: Option<Arc<Journal>>,
) {
    let mut held = Vec::with_capacity(BATCH);
    loop {
        let received = match writer.due_in() {
            None => entries.recv_many(&mut held, BATCH).await,
            // A record that is not renewed would be taken for that of a lost gateway.
            Some(due) => match timeout(due, entries.recv_many(&mut held, BATCH)).await {
                Ok(received) => received,
                Err(_) => {
                    writer.renew(log.as_ref()).await;
                    continue;
                }
            },
        };
        if received == 0 {
            return;
        }
        if held.len() < BATCH && held.iter().all(|entry| matches!(entry, QueueEntry::Event(..))) {
            tokio::time::sleep(GATHER).await;
            while held.len() < BATCH
                && let Ok(entry) = entries.try_recv()
            {
                held.push(entry);
            }
        }
        let mut events = Vec::with_capacity(held.len());
        let mut places = Vec::with_capacity(held.len());
        let mut bodies = Vec::new();
        let mut flushes = Vec::new();
        for entry in held.drain(..) {
            match entry {
                QueueEntry::Event(event, place) => {
                    events.push(event);
                    places.extend(place);
                }
                QueueEntry::Body(body) => {
                    health.body_bytes.fetch_sub(body.body.len(), Ordering::AcqRel);
                    bodies.push(redact_body(body));
                }
                QueueEntry::Flush(done) => flushes.push(done),
            }
        }
        if !events.is_empty() {
            add(log.as_ref(), &mut writer, &health, events).await;
            if let Some(journal) = &journal {
                journal.forget(&places);
            }
        }
        if !bodies.is_empty() {
            store_bodies(log.as_ref(), &bodies, &health).await;
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}

/// Adds events to the log, and waits until it has them.
async fn add(log: &dyn AuditLog, writer: &mut Writer, health: &Health, mut events: Vec<CallEvent>) {
    // Before its events: a call that is in the log belongs to a gateway that is.
    writer.note(&events);
    if writer.is_due() {
        writer.renew(log).await;
    }
    let late = writer.take_late(&mut events);
    events.extend(settled(log, late).await);
    append(log, &events, health).await;
}

/// Returns those of the late events that are to be appended; all, if that cannot be found out now.
async fn settled(log: &dyn AuditLog, late: Vec<CallEvent>) -> Vec<CallEvent> {
    if late.is_empty() {
        return late;
    }
    match timeout(SLOW, settle(log, late.clone())).await {
        Ok(Ok(append)) => append,
        Ok(Err(_)) | Err(_) => late,
    }
}

/// Redacts a body, and then cuts it: a secret that is cut would no longer be found.
fn redact_body(body: CapturedBody) -> CapturedBody {
    let mut text = redact_json(&body.body).into_owned();
    text.truncate(text.floor_char_boundary(MAX_BODY));
    CapturedBody { body: text, ..body }
}

/// Stores bodies once; events go first, and do not wait for them.
async fn store_bodies(log: &dyn AuditLog, bodies: &[CapturedBody], health: &Health) {
    let stored = timeout(SLOW, log.capture(bodies)).await;
    if !matches!(stored, Ok(Ok(()))) {
        health.lost.inc_by(bodies.len() as u64);
        tracing::warn!(
            bodies = bodies.len(),
            "arguments and results of calls could not be kept for auditors: check the audit log's disk or database"
        );
    }
}

pub(super) fn redact_event(event: CallEvent) -> CallEvent {
    let Cow::Owned(text) = redact_json(&event.event) else { return event };
    CallEvent { event: text, ..event }
}

/// Appends until the log accepts the events.
async fn append(log: &dyn AuditLog, events: &[CallEvent], health: &Health) {
    loop {
        let appending = log.append(events);
        tokio::pin!(appending);
        let appended = match timeout(SLOW, &mut appending).await {
            Ok(appended) => appended,
            Err(_) => {
                if health.goes_out() {
                    tracing::warn!(
                        waiting = events.len(),
                        "audit log is very slow; calls with effects are refused when its queue is full: check the disk of the state directory"
                    );
                }
                appending.await
            }
        };
        match appended {
            Ok(()) => return health.well(),
            Err(error) => {
                health.refuses.store(true, Ordering::Release);
                if health.goes_out() {
                    tracing::error!(%error, waiting = events.len(), "audit log rejected events and is retried; they wait in memory, and calls with effects are refused when the queue is full: check the disk of the state directory");
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}
