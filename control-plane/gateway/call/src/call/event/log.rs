//! The bounded event log of one call, with any number of readers.
//!
//! Keeps true: a writer never waits; events have consecutive numbers; generations rise from event to event, also if
//! another gateway continues the call without its earlier events; a reader that falls behind gets those of the oldest
//! events that still matter, can tell which are missing, and never blocks the others; nothing follows the end.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Amount, Event, LogLevel, cut};
use crate::call::watched;
use crate::clock::unix_ms;

mod fold;

use fold::Fold;

/// Maximum number of events kept per call.
const MAX_EVENTS: usize = 256;

/// Maximum number of names of a log that are remembered.
const MAX_NAMES: usize = 8;

/// Distance between the first generations of gateways that run a call one after the other: more than the events of one.
/// JSON numbers are exact for two million of them.
const EVENTS_OF_GATEWAY: u64 = 1 << 32;

/// Returns the generation of a call that a gateway runs after this many takeovers, before its first event there. It is
/// higher than any that an earlier gateway has shown.
pub fn first_generation(takeovers: u32) -> u64 {
    u64::from(takeovers) * EVENTS_OF_GATEWAY + 1
}

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// Number of the event in its call, from 0.
    pub number: u64,
    /// Generation of the call with this event: the same at every gateway, higher than those of all earlier events.
    pub generation: u64,
    /// Time of the event, in Unix milliseconds.
    pub at_ms: u64,
    pub event: Event,
}

impl LoggedEvent {
    /// Creates an event of the gateway that started the call.
    pub fn first(number: u64, at_ms: u64, event: Event) -> LoggedEvent {
        LoggedEvent { number, generation: first_generation(0) + number + 1, at_ms, event }
    }
}

/// The events of a log that still matter.
pub struct FoldedLog {
    /// The events, ordered by number.
    pub events: Vec<LoggedEvent>,
    /// Number of the first event that is not folded in.
    pub next: u64,
    /// Generation of the call with all that are.
    pub generation: u64,
}

/// The bounded log of one call.
pub struct EventLog {
    /// Names of the log that its numbers belong to, the current one last. A call that continues at another gateway may
    /// be numbered from the start.
    names: Mutex<VecDeque<u32>>,
    inner: Mutex<Inner>,
    /// Number of events pushed so far, and whether the log is closed.
    pushed: watch::Sender<LogState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct LogState {
    count: u64,
    closed: bool,
}

struct Inner {
    /// Number of the next event.
    next: u64,
    /// Generation of the call with the events so far.
    generation: u64,
    /// Generation to which the numbers of the events that are pushed here are added.
    base: u64,
    events: VecDeque<LoggedEvent>,
    /// Remains of the events that are no longer kept.
    folded: Fold,
}

impl Default for Inner {
    fn default() -> Inner {
        let first = first_generation(0);
        Inner { next: 0, generation: first, base: first, events: VecDeque::new(), folded: Fold::default() }
    }
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog {
            names: Mutex::new(VecDeque::from([rand::random()])),
            inner: Mutex::new(Inner::default()),
            pushed: watch::Sender::new(LogState { count: 0, closed: false }),
        }
    }
}

impl EventLog {
    /// Creates the log of a call that started at another gateway. Numbers continue after the `kept` events; `next` is
    /// the first number that has no event there.
    pub fn continued(stream: u32, kept: Vec<LoggedEvent>, next: u64) -> EventLog {
        let log = EventLog { names: Mutex::new(VecDeque::from([stream])), ..EventLog::default() };
        {
            let mut inner = log.inner.lock();
            inner.next = kept.first().map_or(next, |first| first.number);
            inner.generation = inner.base + inner.next;
            if let Some(before) = inner.next.checked_sub(1) {
                inner.folded.lose_logs(before);
            }
        }
        kept.into_iter().for_each(|logged| log.push_numbered(logged));
        {
            let mut inner = log.inner.lock();
            let unread = next.saturating_sub(inner.next);
            inner.generation += unread;
            inner.next = next;
        }
        log
    }

    /// Notes that the gateway runs the call after this many takeovers: generations of its own events are higher than those
    /// of all earlier ones, which it need not have.
    pub fn begin_after(&self, takeovers: u32) {
        let mut inner = self.inner.lock();
        inner.base = first_generation(takeovers);
        if inner.events.is_empty() {
            inner.generation = inner.base + inner.next;
        }
    }

    /// Notes that the call had at least this generation at another gateway, whose last events are not known here.
    pub fn raise_to(&self, generation: u64) {
        let mut inner = self.inner.lock();
        inner.generation = inner.generation.max(generation);
    }

    /// Returns the generation of the call with the events so far.
    pub fn generation(&self) -> u64 {
        self.inner.lock().generation
    }

    /// Whether the event before number `next` has this generation, so that a reader that has seen it misses nothing if it
    /// continues from there.
    pub fn continues_at(&self, next: u64, generation: u64) -> bool {
        let Some(last) = next.checked_sub(1) else { return true };
        let inner = self.inner.lock();
        let at = inner.events.partition_point(|logged| logged.number < last);
        inner.events.get(at).is_some_and(|logged| (logged.number, logged.generation) == (last, generation))
    }

    /// Returns the current name, which distinguishes this log from every other one of the same call.
    pub fn stream(&self) -> u32 {
        self.names.lock().back().copied().unwrap_or_default()
    }

    /// Whether event numbers of the log `stream` are valid here.
    pub fn counts(&self, stream: u32) -> bool {
        self.names.lock().contains(&stream)
    }

    /// Gives the log another name, under which it is published from now on. Its numbers stay valid, also under its last
    /// [`MAX_NAMES`] names; a gateway that has other events under the former name does not know the new one.
    pub fn rename(&self, stream: u32) {
        let mut names = self.names.lock();
        names.push_back(stream);
        if names.len() > MAX_NAMES {
            names.pop_front();
        }
    }

    /// Appends an event and returns its number; above the maximum, the oldest event is dropped.
    pub fn push(&self, event: Event) -> Option<u64> {
        if self.pushed.borrow().closed {
            return None;
        }
        let number = {
            let mut inner = self.inner.lock();
            let number = inner.next;
            let generation = inner.base + number + 1;
            inner.keep(LoggedEvent { number, generation, at_ms: unix_ms(), event: cut(event) });
            number
        };
        self.change(|pushed| pushed.count += 1);
        Some(number)
    }

    /// Appends an event of another gateway under its number and generation there; ignores a number that came before.
    pub fn push_numbered(&self, logged: LoggedEvent) {
        if self.pushed.borrow().closed {
            return;
        }
        {
            let mut inner = self.inner.lock();
            if logged.number < inner.next {
                return;
            }
            if logged.number > inner.next {
                inner.folded.lose_logs(logged.number - 1);
            }
            inner.keep(logged);
        }
        self.change(|pushed| pushed.count += 1);
    }

    pub(in crate::call) fn close(&self) {
        self.change(|pushed| pushed.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut LogState)) {
        watched::change(&self.pushed, |pushed| {
            change(pushed);
            true
        });
    }

    /// Returns the highest progress that a reader of all events before number `first` can know; `None` without any.
    pub fn progress_before(&self, first: u64) -> Option<Amount> {
        let inner = self.inner.lock();
        let seen = inner.events.iter().take_while(|logged| logged.number < first).map(progress);
        highest(seen.chain([inner.folded.progress_before(first)])).cloned()
    }

    /// Returns the size of its events in memory in bytes, folded ones included.
    pub(crate) fn held_bytes(&self) -> usize {
        let inner = self.inner.lock();
        inner.events.iter().chain(inner.folded.events()).map(|logged| logged.event.held_bytes()).sum()
    }

    /// Returns the number of the next event.
    pub fn next_number(&self) -> u64 {
        self.inner.lock().next
    }

    /// Returns the number of the oldest event that is kept, or of the next one if none is.
    pub fn oldest(&self) -> u64 {
        let inner = self.inner.lock();
        inner.events.front().map_or(inner.next, |oldest| oldest.number)
    }

    /// Returns the last `most` bytes of the kept parts of the result, cut at a character.
    pub fn partial(&self, most: usize) -> String {
        let inner = self.inner.lock();
        let mut parts = Vec::new();
        let mut length = 0;
        for logged in inner.events.iter().rev() {
            if length >= most {
                break;
            }
            if let Event::Chunk { text } = &logged.event {
                length += text.len();
                parts.push(text.as_str());
            }
        }
        let whole: String = parts.into_iter().rev().collect();
        let start = (whole.len().saturating_sub(most)..=whole.len()).find(|at| whole.is_char_boundary(*at));
        start.and_then(|start| whole.get(start..)).unwrap_or_default().to_owned()
    }

    /// Returns the events so far that still matter.
    pub fn folded(&self) -> FoldedLog {
        let inner = self.inner.lock();
        let mut folded = inner.folded.clone();
        for logged in &inner.events {
            folded.take(logged.clone());
        }
        FoldedLog { events: folded.into_events(), next: inner.next, generation: inner.generation }
    }

    /// Returns a reader from event number `first`, or from the oldest that is kept.
    pub fn reader_from(self: &Arc<Self>, first: u64) -> EventReader {
        EventReader { pushed: self.pushed.subscribe(), log: self.clone(), next: first, looked: 0, lost: None }
    }
}

impl Inner {
    /// Appends an event; above the maximum, folds the oldest one.
    fn keep(&mut self, logged: LoggedEvent) {
        if self.events.len() == MAX_EVENTS
            && let Some(dropped) = self.events.pop_front()
        {
            self.folded.take(dropped);
        }
        self.next = logged.number + 1;
        self.generation = logged.generation;
        self.events.push_back(logged);
    }
}

fn progress(logged: &LoggedEvent) -> Option<&Amount> {
    match &logged.event {
        Event::Progress { progress, .. } if !progress.value().is_nan() => Some(progress),
        _ => None,
    }
}

fn highest<'a>(all: impl IntoIterator<Item = Option<&'a Amount>>) -> Option<&'a Amount> {
    all.into_iter().flatten().reduce(|highest, next| if next.is_above(highest) { next } else { highest })
}

/// A reader of a log.
pub struct EventReader {
    log: Arc<EventLog>,
    next: u64,
    pushed: watch::Receiver<LogState>,
    /// First event that was not yet checked for loss.
    looked: u64,
    /// Highest level of the log messages that were lost.
    lost: Option<LogLevel>,
}

impl EventReader {
    /// Returns the number of the event to read next, if that is still kept.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the oldest event that was kept at the last check: of those between, only the ones that still matter are
    /// left.
    pub fn first_retained(&self) -> u64 {
        self.looked
    }

    /// Returns the highest level of the log messages that were dropped before this reader reached them, if it is
    /// `lowest` or above. It is reported once, at the first event that is kept, so that a client that continues from
    /// there knows.
    pub fn lost_logs(&mut self, lowest: LogLevel) -> Option<LogLevel> {
        if self.next <= self.looked {
            return None;
        }
        self.lost.take().filter(|highest| *highest >= lowest)
    }

    /// Returns the next event that is kept or still matters; `None` after the end.
    pub async fn next(&mut self) -> Option<LoggedEvent> {
        loop {
            let seen = *self.pushed.borrow_and_update();
            if let Some(logged) = self.take() {
                return Some(logged);
            }
            if seen.closed || self.pushed.changed().await.is_err() {
                return self.take();
            }
        }
    }

    fn take(&mut self) -> Option<LoggedEvent> {
        let inner = self.log.inner.lock();
        let first = inner.events.front()?.number;
        if self.next < first {
            self.lost = self.lost.max(inner.folded.logs_from(self.next.max(self.looked)));
            self.looked = first;
        }
        let dropped = if self.next < first { inner.folded.next_from(self.next) } else { None };
        let at = self.next.max(first);
        let logged = match dropped {
            Some(logged) => logged.clone(),
            None => inner.events.get(inner.events.partition_point(|kept| kept.number < at))?.clone(),
        };
        if logged.number > at {
            // The events in between were lost at their gateway.
            self.lost = self.lost.max(inner.folded.logs_from(at));
            self.looked = logged.number;
        }
        self.next = logged.number + 1;
        Some(logged)
    }
}

#[cfg(test)]
mod tests;
