//! Events of the calls that a client may return for, sealed in a store that all gateways share.
//!
//! Owns: the stored events of the calls that run here, and reading those of other calls. Keeps true: an event has the
//! same number at every gateway; events that clients got while the store was unavailable share no number with later
//! events of another gateway, because they belong to a log of another name; a question stays in the store while it is
//! open, however many events follow; a gateway that has lost a call adds no events; a sealed event opens only at its
//! position; if the store does not answer, a call continues, and only this gateway has its events (I-6).

use std::sync::Arc;
use std::time::Duration;

use asp_store::counter::Counters;
use asp_store::outbox::{AppendOutcome, Batch, MAX_BYTES, MAX_ENTRY, Outbox, OutboxError, StoredEvents};
use asp_store::records::OwnerId;
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::Call;
use crate::call::event::Event;
use crate::call::event::log::{EventReader, LoggedEvent};
use crate::call::publication::Publication;
use crate::call::question::{Question, Turn};
use crate::durable::event_budget::EventBudgets;
use crate::outage_log::OutageLog;
use crate::seal::{Purpose, Sealer};

/// Maximum number of events written at once.
const BATCH: usize = 64;
/// Time for which events are kept after the last write: longer than a client may take to return after the end of its
/// call.
const KEEP: Duration = Duration::from_secs(180);
/// Interval at which the events of a silent call are kept alive.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// Delay before a store that does not answer is asked again, plus up to as much at random: the retries of all calls are
/// spread.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum random delay with which calls resume that were paused because a budget was used up.
const PAUSED: Duration = Duration::from_secs(10);
/// Maximum number of calls that write at once after an outage, so that a recovering store is not overloaded.
const AT_ONCE: usize = 8;
/// Number of retries for a call that has ended.
const RETRIES: u32 = 10;

/// Events of calls in the store that all gateways share.
pub struct SharedEvents {
    outbox: Arc<dyn Outbox>,
    sealer: Arc<Sealer>,
    owner: OwnerId,
    outage: OutageLog,
    budgets: EventBudgets,
    turns: Semaphore,
}

/// Ownership of calls.
#[async_trait]
pub trait Rows: Send + Sync {
    /// Whether this gateway decides the call's outcome.
    async fn is_ours(&self, call: &Call) -> bool;
}

/// The stored events of one call.
pub struct KeptEvents {
    /// Name of the log that the numbers belong to.
    pub log: u32,
    /// Number of the oldest event that is kept.
    pub first: u64,
    /// The events in order, without those that do not open with this gateway's keys.
    pub events: Vec<KeptEvent>,
    /// Open questions from before these events, in order.
    pub asked: Vec<KeptEvent>,
    /// Number of the next event.
    pub next: u64,
}

impl KeptEvents {
    /// Returns the number of the oldest event or question.
    pub fn oldest(&self) -> u64 {
        self.asked.first().map_or(self.first, |asked| asked.logged.number)
    }

    /// Continues the log of a call after these events.
    pub fn continue_in(self, call: &mut Call) {
        let mut said = Vec::with_capacity(self.events.len());
        for KeptEvent { logged, turn, .. } in self.events {
            if let Some(turn) = turn {
                call.questions.restore_turn(turn);
            }
            said.push(logged);
        }
        call.continues(self.log, said, self.next);
    }
}

/// An event, with the question if it reports one, and with the last answer if it reports one to a conversation.
pub struct KeptEvent {
    pub logged: LoggedEvent,
    pub question: Option<Question>,
    pub turn: Option<Turn>,
}

#[derive(Serialize, Deserialize)]
struct EventEntry {
    at_ms: u64,
    /// `None` from a gateway of an earlier version.
    #[serde(default)]
    generation: Option<u64>,
    event: Event,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    question: Option<Question>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<Turn>,
}

/// Result of a write.
enum WriteResult {
    Some,
    /// The org's budget is used up until then.
    Paused(Instant),
    /// The call belongs to another gateway.
    NotOurs,
}

/// Writer of one call's events, with its state.
struct EventWriter<'a> {
    call: &'a Call,
    publication: &'a Publication,
    reader: EventReader,
    /// Name of the log under which the events are written. A restarted log gets a new name that no client has seen yet;
    /// the call takes the name once the log is stored.
    log: u32,
    /// Whether events reach clients of this gateway only, because the store is unavailable.
    is_unshared: bool,
    /// Events that were read and are not written yet.
    held: Vec<LoggedEvent>,
    /// Whether the next write replaces the stored events of the call.
    reset: bool,
    kept: KeptBytes,
}

/// Bytes of a call that the store keeps, and that were charged to the budgets.
struct KeptBytes {
    bytes: usize,
    counted_at: Instant,
}

impl KeptBytes {
    /// `bytes` are there before the first write: of a call that was taken over, what its gateway of before wrote and counted.
    fn of(bytes: usize) -> KeptBytes {
        KeptBytes { bytes: bytes.min(MAX_BYTES), counted_at: Instant::now() }
    }

    /// Bytes to count again, because the next write keeps them for longer than they were counted for.
    fn due(&self, now: Instant) -> usize {
        if self.is_due(now) { self.bytes } else { 0 }
    }

    fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.counted_at) >= KEEP
    }

    /// Notes a write of `written` bytes, with which those that were due at `counted_at` were counted. The store keeps no more than the
    /// newest entries.
    fn has_stored(&mut self, written: usize, reset: bool, counted_at: Instant) {
        let before = if reset { 0 } else { self.bytes };
        if reset || self.is_due(counted_at) {
            self.counted_at = counted_at;
        }
        self.bytes = before.saturating_add(written).min(MAX_BYTES);
    }
}

impl SharedEvents {
    /// Creates the shared events. `counters` count the budgets of orgs; all orgs together write at most `bytes_of_all`
    /// within the time for which events are kept.
    pub fn new(
        outbox: Arc<dyn Outbox>,
        counters: Arc<dyn Counters>,
        bytes_of_all: u64,
        sealer: Arc<Sealer>,
        owner: OwnerId,
    ) -> SharedEvents {
        SharedEvents {
            outbox,
            sealer,
            owner,
            outage: OutageLog::default(),
            budgets: EventBudgets::within(KEEP, bytes_of_all, counters),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Writes the events of a call, from now on to its end.
    pub(super) fn begin(self: &Arc<Self>, call: &Arc<Call>, rows: Arc<dyn Rows>) {
        call.ownership.publish_from(0);
        let shared = self.clone();
        let call = call.clone();
        tokio::spawn(async move {
            if let Some(publication) = call.ownership.publication() {
                shared.write(&call, publication, rows.as_ref()).await;
                publication.finish();
            }
        });
    }

    /// Takes over the events of a call that this gateway continues; `None` if they are not known.
    pub async fn take(&self, call: Uuid) -> Option<KeptEvents> {
        let taken = self.noted(self.outbox.take(call.into_bytes(), self.owner, KEEP).await)??;
        Some(self.opened(call, taken))
    }

    /// Reads the events of a call from number `from` on; `None` if they are not known.
    pub async fn read(&self, call: Uuid, from: u64) -> Option<KeptEvents> {
        let kept = self.noted(self.outbox.read(call.into_bytes(), from).await)??;
        Some(self.opened(call, kept))
    }

    fn opened(&self, call: Uuid, kept: StoredEvents) -> KeptEvents {
        let next = kept.next();
        let numbered = (kept.first..).zip(&kept.entries);
        let pinned = kept.pinned.iter().map(|(number, sealed)| (*number, sealed));
        let open = |(number, sealed): (u64, &Bytes)| {
            let place = place(call, kept.log, number);
            let plain = self.sealer.open_bytes(Purpose::CallEvent, &place, sealed)?;
            let EventEntry { at_ms, generation, event, question, turn } =
                serde_json::from_slice(&plain).ok()?;
            let logged = LoggedEvent::first(number, at_ms, event);
            let generation = generation.unwrap_or(logged.generation);
            Some(KeptEvent { logged: LoggedEvent { generation, ..logged }, question, turn })
        };
        KeptEvents {
            log: kept.log,
            first: kept.first,
            events: numbered.filter_map(open).collect(),
            asked: pinned.filter_map(open).collect(),
            next,
        }
    }

    async fn write(&self, call: &Call, publication: &Publication, rows: &dyn Rows) {
        let reader = call.events.reader_from(publication.next());
        let reset = publication.next() == 0;
        let log = call.events.stream();
        let kept = KeptBytes::of(if reset { 0 } else { call.events.held_bytes() });
        let held = Vec::new();
        let mut writer =
            EventWriter { call, publication, reader, log, is_unshared: false, held, reset, kept };
        let mut failures = 0;
        loop {
            // An empty log is stored before the first event.
            let is_begun = !writer.reset || !writer.held.is_empty();
            if is_begun && !writer.gather().await {
                return;
            }
            match self.write_some(&mut writer, rows, failures > 0).await {
                Ok(WriteResult::Some) => failures = 0,
                Ok(WriteResult::NotOurs) => return,
                Ok(WriteResult::Paused(until)) => {
                    writer.note_outage();
                    // Spread over time; obsolete when the call has ended.
                    let until = until + PAUSED.mul_f64(rand::random());
                    tokio::select! {
                        () = tokio::time::sleep_until(until) => writer.begin_again(),
                        _ = call.finished() => return,
                    }
                }
                Err(error) => {
                    failures += 1;
                    self.noted::<()>(Err(error));
                    writer.note_outage();
                    if failures > RETRIES && call.outcome().is_some() {
                        return;
                    }
                    tokio::time::sleep(RETRY + RETRY.mul_f64(rand::random())).await;
                    writer.begin_again();
                }
            }
        }
    }

    /// Writes the first consecutively numbered events that are held; after an outage, in turn with other calls.
    async fn write_some(
        &self,
        writer: &mut EventWriter<'_>,
        rows: &dyn Rows,
        in_turn: bool,
    ) -> Result<WriteResult, OutboxError> {
        let first = writer.first();
        let count = writer.in_a_row();
        writer.reset |= first != writer.publication.next();
        let log = writer.log;
        let some = writer.held.iter().take(count);
        let entries: Vec<Bytes> = some.filter_map(|logged| self.entry(writer.call, log, logged)).collect();
        if entries.len() != count {
            return Err(OutboxError::Unavailable("an event cannot be sealed".into()));
        }
        let open = writer.call.questions.open_numbers();
        let pinned = if writer.reset { self.open_before(writer, first) } else { Vec::new() };
        let batch =
            Batch { log, first, entries: &entries, reset: writer.reset, open: &open, pinned: &pinned };
        let counted_at = Instant::now();
        let due = if writer.reset { 0 } else { writer.kept.due(counted_at) };
        let (org, bytes) = (&writer.call.caller.org, batch.bytes() + due);
        let common = match self.budgets.take(org, bytes).await {
            Ok(common) => common,
            Err(until) => {
                tracing::debug!(call = %writer.call.id, trace = %writer.call.trace, %org, "event budget of an org, or of all orgs, is used up; for a while only this gateway has the events of this call");
                return Ok(WriteResult::Paused(until));
            }
        };
        let id = writer.call.id.into_bytes();
        let appended = {
            // An error means that the semaphore is closed, which never happens.
            let _turn = if in_turn { self.turns.acquire().await.ok() } else { None };
            self.outbox.append(id, self.owner, batch, KEEP).await
        };
        if !matches!(appended, Ok(AppendOutcome::Stored)) {
            self.budgets.give_back(org, bytes, common);
        }
        let appended = appended?;
        self.noted(Ok(()));
        match appended {
            AppendOutcome::Stored => {
                writer.kept.has_stored(bytes - due, writer.reset, counted_at);
                writer.has_stored(count);
            }
            AppendOutcome::Missing => writer.begin_again(),
            AppendOutcome::NotOwner if !rows.is_ours(writer.call).await => return Ok(WriteResult::NotOurs),
            // The store did not answer when the call was taken over, or a gateway that has lost the call wrote in
            // between.
            AppendOutcome::NotOwner => {
                self.outbox.take(id, self.owner, KEEP).await?;
                writer.begin_again();
            }
        }
        Ok(WriteResult::Some)
    }

    /// Returns the open questions whose events the call no longer has.
    fn open_before(&self, writer: &EventWriter<'_>, first: u64) -> Vec<(u64, Bytes)> {
        let call = writer.call;
        let sealed = |(number, question): (u64, Question)| {
            let event = Event::Asked { id: question.id };
            let logged = LoggedEvent::first(number, call.began_ms(), event);
            Some((number, self.entry(call, writer.log, &logged)?))
        };
        call.questions.open_within(0..first).into_iter().filter_map(sealed).collect()
    }

    fn entry(&self, call: &Call, log: u32, logged: &LoggedEvent) -> Option<Bytes> {
        let place = place(call.id, log, logged.number);
        let question = match &logged.event {
            // It may have been answered since.
            Event::Asked { id } => call.questions.find(id),
            _ => None,
        };
        let turn = match &logged.event {
            Event::Answered { .. } | Event::Resumed if call.opening.is_some() => call.questions.last_turn(),
            _ => None,
        };
        let seal = |question, turn| {
            let at_ms = logged.at_ms;
            let generation = Some(logged.generation);
            let entry = EventEntry { at_ms, generation, event: readable(&logged.event), question, turn };
            let plain = serde_json::to_vec(&entry).ok()?;
            self.sealer.seal_bytes(Purpose::CallEvent, &place, &plain).ok()
        };
        let sealed = seal(question, turn)?;
        // A question that is too large is asked by this gateway alone.
        if sealed.len() > MAX_ENTRY { seal(None, None).map(Bytes::from) } else { Some(Bytes::from(sealed)) }
    }

    /// Passes an answer of the store on; an outage is logged once, until the store answers again.
    fn noted<T>(&self, answer: Result<T, OutboxError>) -> Option<T> {
        self.outage.noted(answer, |error| {
            tracing::warn!(%error, "shared events of calls are unavailable; until they are back, a client that returns at another gateway gets the outcome of its call, but not the events it missed");
        })
    }
}

impl EventWriter<'_> {
    /// Reads the events that are there, and waits for one if there is none; false after the last event. Nothing is held
    /// if the call was silent for [`KEEP_EVERY`].
    async fn gather(&mut self) -> bool {
        if self.held.is_empty() {
            tokio::select! {
                next = self.reader.next() => match next {
                    Some(logged) => self.held.push(logged),
                    None => return false,
                },
                () = tokio::time::sleep(KEEP_EVERY) => return true,
            }
        }
        while self.held.len() < BATCH
            && let Some(Some(logged)) = self.reader.next().now_or_never()
        {
            self.held.push(logged);
        }
        true
    }

    fn first(&self) -> u64 {
        self.held.first().map_or(self.publication.next(), |logged| logged.number)
    }

    /// Returns how many of the held events are numbered consecutively.
    fn in_a_row(&self) -> usize {
        let numbers = self.held.iter().map(|logged| logged.number);
        numbers.zip(self.first()..).take_while(|(number, expected)| number == expected).count()
    }

    fn has_stored(&mut self, count: usize) {
        let next = self.first() + u64::try_from(count).unwrap_or(u64::MAX);
        self.held.drain(..count);
        self.reset = false;
        if self.log != self.call.events.stream() {
            self.call.events.rename(self.log);
        }
        self.is_unshared = false;
        self.publication.advance_to(next);
    }

    /// Renames the log, because clients get events that are not stored: another gateway that continues the call would
    /// give their numbers to other events. They belong to a log whose name no other gateway knows.
    fn note_outage(&mut self) {
        if !std::mem::replace(&mut self.is_unshared, true) {
            self.call.events.rename(rand::random());
        }
        self.publication.note_outage();
    }

    /// Restarts the write: all events that the call still has are written again.
    fn begin_again(&mut self) {
        self.reset = true;
        self.log = rand::random();
        self.publication.restart();
        self.held.clear();
        self.reader = self.call.events.reader_from(0);
    }
}

/// Returns an event that JSON can represent: one with a number that JSON lacks is replaced by an empty part.
fn readable(event: &Event) -> Event {
    match event {
        Event::Progress { progress, total, gauges, .. }
            if !(progress.value().is_finite()
                && total.as_ref().is_none_or(|total| total.value().is_finite())
                && gauges.values().all(|gauge| gauge.is_finite())) =>
        {
            Event::Chunk { text: String::new() }
        }
        event => event.clone(),
    }
}

/// Returns the context of a seal, which opens only for its call, its log and its number.
fn place(call: Uuid, log: u32, number: u64) -> Vec<u8> {
    [call.as_bytes().as_slice(), &log.to_be_bytes(), &number.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_long_call_keeps_is_counted_again_and_no_more_than_there_can_be() {
        let mut kept = KeptBytes::of(2 * MAX_BYTES);
        let now = Instant::now;
        assert_eq!(kept.due(now()), 0, "counted by the gateway of before");
        tokio::time::advance(KEEP).await;
        assert_eq!(kept.due(now()), MAX_BYTES, "and no longer than for so long");
        kept.has_stored(700, true, now());
        tokio::time::advance(KEEP / 2).await;
        kept.has_stored(300, false, now());
        assert_eq!(kept.due(now()), 0, "counted for so long");
        let before = now();
        tokio::time::advance(KEEP / 2).await;
        kept.has_stored(0, false, before);
        assert_eq!(kept.due(now()), 1_000, "they became due while the store took its time");
        kept.has_stored(0, false, now());
        assert_eq!(kept.due(now()), 0);
        kept.has_stored(2 * MAX_BYTES, false, now());
        tokio::time::advance(KEEP).await;
        assert_eq!(kept.due(now()), MAX_BYTES);
        kept.has_stored(5, true, now());
        tokio::time::advance(KEEP).await;
        assert_eq!(kept.due(now()), 5, "what was there is replaced");
    }
}
