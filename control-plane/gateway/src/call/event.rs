//! What happens on the way to a result, in a bounded log that any number of readers follow.
//!
//! Keeps true: a writer never waits; a reader that falls behind loses the oldest events and never blocks the
//! others; nothing follows the end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

/// Most events a call keeps.
const MAX_EVENTS: usize = 256;
/// Longest text of one event in bytes; a longer one is cut.
const MAX_TEXT: usize = 16 * 1024;
/// Most counters of one progress event; the others are dropped.
const MAX_GAUGES: usize = 32;

/// One event of a call (ADR 1).
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
        /// The plugin's own counters, by name; at most 32.
        gauges: BTreeMap<String, f64>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: Value,
    },
    /// A part of the result; MCP has no partial results, so the faces join or stream it.
    Chunk {
        text: String,
    },
    Artifact {
        uri: String,
        content_type: Option<String>,
        description: Option<String>,
    },
    /// A phase of the plugin or of its admission, for observation only.
    Status {
        phase: String,
        message: Option<String>,
    },
    /// A question was opened; it may be closed by the time somebody reads this.
    Asked {
        id: String,
    },
}

/// RFC 5424 severities as MCP names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }

    pub fn parse(text: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// The bounded log of one call.
pub struct EventLog {
    /// Which log the numbers of its events are of: a call that goes on at another gateway counts anew.
    stream: u32,
    inner: Mutex<Inner>,
    /// How many events were ever pushed; `None` at the end.
    pushed: watch::Sender<Pushed>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Pushed {
    count: u64,
    closed: bool,
}

#[derive(Default)]
struct Inner {
    /// The number of the first kept event.
    first: u64,
    events: VecDeque<Event>,
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog {
            stream: rand::random(),
            inner: Mutex::new(Inner::default()),
            pushed: watch::Sender::new(Pushed { count: 0, closed: false }),
        }
    }
}

impl EventLog {
    /// What tells this log from every other one of the same call.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Appends an event; past the bound the oldest is dropped.
    pub fn push(&self, event: Event) {
        if self.pushed.borrow().closed {
            return;
        }
        {
            let mut inner = self.inner.lock();
            if inner.events.len() == MAX_EVENTS {
                inner.events.pop_front();
                inner.first += 1;
            }
            inner.events.push_back(cut(event));
        }
        self.pushed.send_modify(|pushed| pushed.count += 1);
    }

    pub(super) fn close(&self) {
        self.pushed.send_modify(|pushed| pushed.closed = true);
    }

    /// The progress a reader knows that has read every event before number `first`; `None` when there was none,
    /// or it is no longer kept.
    pub fn progress_before(&self, first: u64) -> Option<f64> {
        let inner = self.inner.lock();
        let known = usize::try_from(first.saturating_sub(inner.first)).unwrap_or(usize::MAX);
        let seen = inner.events.iter().take(known).filter_map(|event| match event {
            Event::Progress { progress, .. } => Some(*progress),
            _ => None,
        });
        seen.fold(None, |most: Option<f64>, progress| Some(most.map_or(progress, |most| most.max(progress))))
    }

    /// A reader from event number `first`, or from the oldest that is kept.
    pub fn reader_from(self: &Arc<Self>, first: u64) -> EventReader {
        EventReader { pushed: self.pushed.subscribe(), log: self.clone(), next: first }
    }
}

/// Follows a log.
pub struct EventReader {
    log: Arc<EventLog>,
    next: u64,
    pushed: watch::Receiver<Pushed>,
}

impl EventReader {
    /// The number of the event it reads next.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next event; `None` after the end.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let seen = *self.pushed.borrow_and_update();
            if let Some(event) = self.take() {
                return Some(event);
            }
            if seen.closed || self.pushed.changed().await.is_err() {
                return self.take();
            }
        }
    }

    fn take(&mut self) -> Option<Event> {
        let inner = self.log.inner.lock();
        let at = self.next.max(inner.first);
        let event = inner.events.get(usize::try_from(at - inner.first).ok()?)?.clone();
        self.next = at + 1;
        Some(event)
    }
}

fn cut(event: Event) -> Event {
    match event {
        Event::Progress { progress, total, message, gauges } => Event::Progress {
            progress,
            total,
            message: message.map(cut_text),
            gauges: gauges.into_iter().take(MAX_GAUGES).collect(),
        },
        Event::Chunk { text } => Event::Chunk { text: cut_text(text) },
        Event::Status { phase, message } => {
            Event::Status { phase: cut_text(phase), message: message.map(cut_text) }
        }
        Event::Log { level, logger, data } => {
            Event::Log { level, logger: logger.map(cut_text), data: cut_data(data) }
        }
        other => other,
    }
}

/// A value that is too large is its JSON text, cut.
fn cut_data(data: Value) -> Value {
    let text = match data {
        Value::String(text) => text,
        Value::Array(_) | Value::Object(_) => match data.to_string() {
            text if text.len() > MAX_TEXT => text,
            _ => return data,
        },
        plain => return plain,
    };
    Value::String(cut_text(text))
}

/// Cuts a text to what one event may hold.
pub fn cut_text(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn progress(n: u64) -> Event {
        Event::Progress { progress: n as f64, total: None, message: None, gauges: BTreeMap::new() }
    }

    #[tokio::test]
    async fn every_reader_sees_every_event_in_order_and_then_the_end() {
        let log = Arc::new(EventLog::default());
        let mut early = log.reader_from(0);
        log.push(progress(1));
        log.push(progress(2));
        let mut late = log.reader_from(0);
        log.close();
        log.push(progress(3));
        for reader in [&mut early, &mut late] {
            assert_eq!(reader.next().await, Some(progress(1)));
            assert_eq!(reader.next().await, Some(progress(2)));
            assert_eq!(reader.next().await, None);
        }
    }

    #[test]
    fn the_progress_before_an_event_is_the_highest_there_was() {
        let log = EventLog::default();
        for n in [3, 7, 5] {
            log.push(progress(n));
        }
        assert_eq!(log.progress_before(0), None);
        assert_eq!(log.progress_before(1), Some(3.0));
        assert_eq!(log.progress_before(3), Some(7.0));
        assert_eq!(log.progress_before(9), Some(7.0));
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_loses_the_oldest() {
        let log = Arc::new(EventLog::default());
        let mut reader = log.reader_from(0);
        for n in 0..(MAX_EVENTS as u64 + 10) {
            log.push(progress(n));
        }
        assert_eq!(reader.next().await, Some(progress(10)));
        assert_eq!(log.inner.lock().events.len(), MAX_EVENTS);
    }

    #[tokio::test]
    async fn a_waiting_reader_wakes() {
        let log = Arc::new(EventLog::default());
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.reader_from(0).next().await }
        });
        tokio::task::yield_now().await;
        log.push(progress(7));
        assert_eq!(waiting.await.unwrap(), Some(progress(7)));
    }

    #[test]
    fn a_log_keeps_no_more_than_a_text_may_have() {
        let long = "ü".repeat(MAX_TEXT);
        for data in [json!(long), json!({"a": [long]}), json!([[long], 1])] {
            let log = EventLog::default();
            log.push(Event::Log { level: LogLevel::Info, logger: Some(long.clone()), data });
            let inner = log.inner.lock();
            let Some(Event::Log { logger: Some(logger), data: Value::String(data), .. }) =
                inner.events.front()
            else {
                panic!("no text")
            };
            assert!(logger.len() <= MAX_TEXT && data.len() <= MAX_TEXT);
        }
        let log = EventLog::default();
        let small = Event::Log { level: LogLevel::Info, logger: None, data: json!({"a": 1}) };
        log.push(small.clone());
        assert_eq!(log.inner.lock().events.front(), Some(&small));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let log = EventLog::default();
        log.push(Event::Chunk { text: "ü".repeat(MAX_TEXT) });
        let inner = log.inner.lock();
        let Some(Event::Chunk { text }) = inner.events.front() else { panic!("no chunk") };
        assert_eq!(text.len(), MAX_TEXT);
    }
}
