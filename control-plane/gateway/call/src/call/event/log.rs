//! The bounded event log of one call, with any number of readers.
//!
//! Keeps true: a writer never waits; events have consecutive numbers; a reader that falls behind gets those of the
//! oldest events that still matter, can tell which are missing, and never blocks the others; nothing follows the end.

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

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// Number of the event in its call, from 0.
    pub number: u64,
    /// Time of the event, in Unix milliseconds.
    pub at_ms: u64,
    pub event: Event,
}

/// The events of a log that still matter.
pub struct FoldedLog {
    /// The events, ordered by number.
    pub events: Vec<LoggedEvent>,
    /// Number of the first event that is not folded in.
    pub next: u64,
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

#[derive(Default)]
struct Inner {
    /// Number of the next event.
    next: u64,
    events: VecDeque<LoggedEvent>,
    /// Remains of the events that are no longer kept.
    folded: Fold,
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
            if let Some(before) = inner.next.checked_sub(1) {
                inner.folded.lose_logs(before);
            }
        }
        kept.into_iter().for_each(|logged| log.push_numbered(logged));
        log.inner.lock().next = next;
        log
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
            inner.keep(LoggedEvent { number, at_ms: unix_ms(), event: cut(event) });
            number
        };
        self.change(|pushed| pushed.count += 1);
        Some(number)
    }

    /// Appends an event of another gateway under its number there; ignores a number that came before.
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
        FoldedLog { events: folded.into_events(), next: inner.next }
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn progress(n: u64) -> Event {
        Event::Progress { progress: (n as f64).into(), total: None, message: None, gauges: BTreeMap::new() }
    }

    async fn read(reader: &mut EventReader) -> Option<(u64, Event)> {
        reader.next().await.map(|logged| (logged.number, logged.event))
    }

    #[tokio::test]
    async fn every_reader_sees_every_event_in_order_and_then_the_end() {
        let log = Arc::new(EventLog::default());
        let mut early = log.reader_from(0);
        assert_eq!((log.push(progress(1)), log.push(progress(2))), (Some(0), Some(1)));
        let mut late = log.reader_from(0);
        log.close();
        assert_eq!(log.push(progress(3)), None);
        for reader in [&mut early, &mut late] {
            assert_eq!(read(reader).await, Some((0, progress(1))));
            assert_eq!(read(reader).await, Some((1, progress(2))));
            assert_eq!(read(reader).await, None);
        }
    }

    #[test]
    fn the_progress_before_an_event_is_the_highest_there_was() {
        let log = EventLog::default();
        for n in [3, 7, 5] {
            log.push(progress(n));
        }
        assert_eq!(log.progress_before(0), None);
        assert_eq!(log.progress_before(1), Some(3.0.into()));
        assert_eq!(log.progress_before(3), Some(7.0.into()));
        assert_eq!(log.progress_before(9), Some(7.0.into()));
        for _ in 0..MAX_EVENTS {
            log.push(Event::Chunk { text: String::new() });
        }
        assert_eq!(log.progress_before(3), Some(7.0.into()), "also when its event is gone");
        assert_eq!(log.progress_before(1), None, "what came after it was not shown");
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_gets_what_matters_of_the_oldest_and_can_tell_which_are_gone() {
        let log = Arc::new(EventLog::default());
        let mut reader = log.reader_from(0);
        for n in 0..(MAX_EVENTS as u64 + 10) {
            log.push(progress(n));
        }
        assert_eq!(reader.position(), 0);
        assert_eq!(
            read(&mut reader).await,
            Some((9, progress(9))),
            "the highest that the log has no room for"
        );
        assert_eq!(read(&mut reader).await, Some((10, progress(10))));
        assert_eq!((reader.position(), log.inner.lock().events.len()), (11, MAX_EVENTS));
        let last = MAX_EVENTS as u64 + 9;
        let FoldedLog { events, next } = log.folded();
        let events: Vec<_> = events.into_iter().map(|logged| (logged.number, logged.event)).collect();
        assert_eq!((events, next), (vec![(last, progress(last))], last + 1));
    }

    #[test]
    fn the_end_of_what_is_kept_of_a_partial_result_is_told() {
        let log = EventLog::default();
        for text in ["dropped", "aü", "b"] {
            log.push(Event::Chunk { text: text.into() });
            log.push(progress(1));
        }
        assert_eq!((log.partial(4).as_str(), log.partial(3).as_str(), log.oldest()), ("aüb", "üb", 0));
        assert_eq!(log.partial(2), "b", "not half a character");
        for _ in 0..MAX_EVENTS - 2 {
            log.push(progress(2));
        }
        assert_eq!((log.partial(99).as_str(), log.oldest()), ("b", 4));
    }

    fn log_message(level: LogLevel) -> Event {
        Event::Log { level, logger: None, data: "said".into() }
    }

    #[tokio::test]
    async fn a_log_that_goes_on_elsewhere_counts_on_and_says_what_is_gone() {
        let kept = |number| LoggedEvent { number, at_ms: 1, event: progress(number) };
        let log = Arc::new(EventLog::continued(9, vec![kept(5), kept(6)], 7));
        assert_eq!((log.stream(), log.next_number(), log.oldest()), (9, 7, 5));
        assert_eq!(log.push(progress(7)), Some(7));
        // A reader that has read everything before gets nothing twice, and misses nothing.
        let mut reader = log.reader_from(6);
        assert_eq!(read(&mut reader).await, Some((6, progress(6))));
        assert_eq!(
            (read(&mut reader).await, reader.lost_logs(LogLevel::Debug)),
            (Some((7, progress(7))), None)
        );
        // A reader that has not may have missed log messages of any level.
        let mut late = log.reader_from(3);
        assert_eq!(read(&mut late).await, Some((5, progress(5))));
        assert_eq!(late.lost_logs(LogLevel::Emergency), Some(LogLevel::Emergency));
        assert_eq!(EventLog::continued(9, Vec::new(), 4).next_number(), 4);
    }

    #[test]
    fn a_log_goes_by_its_last_names_and_by_no_other() {
        let log = EventLog::continued(0, Vec::new(), 0);
        for name in 1..=MAX_NAMES as u32 {
            assert!(log.counts(0) && !log.counts(name));
            log.rename(name);
            assert_eq!((log.stream(), log.counts(name)), (name, true));
        }
        assert!(!log.counts(0) && log.counts(1), "those of before are bounded");
    }

    #[tokio::test]
    async fn events_of_another_gateway_keep_their_numbers_and_a_gap_is_told() {
        let log = Arc::new(EventLog::continued(9, Vec::new(), 0));
        for number in [0, 1, 1, 0, 5] {
            log.push_numbered(LoggedEvent { number, at_ms: 1, event: log_message(LogLevel::Info) });
        }
        let mut reader = log.reader_from(1);
        assert_eq!(read(&mut reader).await.map(|(number, _)| number), Some(1));
        assert_eq!(reader.lost_logs(LogLevel::Debug), None);
        assert_eq!(read(&mut reader).await.map(|(number, _)| number), Some(5));
        assert_eq!(reader.lost_logs(LogLevel::Debug), Some(LogLevel::Emergency), "2 to 4 are gone");
        assert_eq!(reader.lost_logs(LogLevel::Debug), None, "said once");
        assert_eq!(log.push(progress(1)), Some(6));
    }

    #[tokio::test]
    async fn a_waiting_reader_wakes() {
        let log = Arc::new(EventLog::default());
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { read(&mut log.reader_from(0)).await }
        });
        tokio::task::yield_now().await;
        log.push(progress(7));
        assert_eq!(waiting.await.unwrap(), Some((0, progress(7))));
    }
}
