//! What clients asked and were told, what happened at the service behind the platform, and what was in force, in the order of
//! time: the record by which a test of failures is judged.
//!
//! Owns: the record. What must hold of it is in `judge.rs`. Keeps true: what a client did is there before it is sent and what
//! it was told after that came, so that whatever is judged by their order happened in it.

mod judge;

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parking_lot::Mutex;

pub use self::judge::{Fault, judge};

/// Most entries of a failure's report that concern one fault.
const SHOWN: usize = 40;

/// What the platform promises of calls of a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// They run at most once; after a loss their outcome may be unknown.
    AtMostOnce,
    /// They have their effect exactly once, whatever is lost: the service knows a repetition, or goes on where it was.
    ExactlyOnce,
    /// Nothing that the history would have: they change nothing, or their effects are counted elsewhere. What is told of them
    /// is judged as of [`Promise::AtMostOnce`].
    NoneSeen,
}

/// One thing that was seen. `ask` is the number of the request that began it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A client asks for something, or comes back for it; `ask` is its own number.
    Asked { ask: usize, promise: Promise, place: String },
    /// It was told the result.
    Told { ask: usize, answer: String },
    /// It was told that nothing was done.
    Refused { ask: usize, why: String },
    /// It was told that the outcome is unknown.
    Unknown { ask: usize },
    /// It was told that there is nothing of this name.
    Missing { ask: usize },
    /// Its connection broke, or told it nothing certain.
    Unanswered { ask: usize, why: String },
    /// It was told that the call was cancelled.
    Cancelled { ask: usize },
    /// The service did it.
    Happened,
    /// A process was lost or cut off.
    Lost,
    /// All are there again, and have taken over what there was to be.
    Well,
    /// A client was told this event of a stream; a stream's are numbered from 1.
    Event { number: u64 },
    /// A client was told the end of the stream, after so many events where it was told that.
    Ended { last: Option<u64> },
    /// An admin writes a value.
    Written { write: usize, value: String },
    /// The write was acknowledged.
    Stored { write: usize },
    /// The write was refused, certainly.
    NotStored { write: usize },
    /// So it stands at a place after all writes, and after everything is well again.
    InForce { place: String, value: String },
}

/// An entry: when, and of which call, stream or setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Duration,
    pub of: String,
    pub what: What,
}

/// A record that many clients write at once.
#[derive(Clone)]
pub struct History {
    began: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Default for History {
    fn default() -> History {
        History { began: Instant::now(), entries: Arc::default() }
    }
}

/// A request that was sent, whose answer is to be recorded.
#[must_use = "what came of a request is part of the history"]
pub struct Ask {
    history: History,
    of: String,
    number: usize,
}

/// A write that was sent.
#[must_use = "what came of a write is part of the history"]
pub struct Write {
    history: History,
    of: String,
    number: usize,
}

impl History {
    pub fn add(&self, of: &str, what: What) {
        self.numbered(of, |_| what);
    }

    /// A client asks for this at a place.
    pub fn ask(&self, of: &str, promise: Promise, place: impl Display) -> Ask {
        let place = place.to_string();
        let number = self.numbered(of, |ask| What::Asked { ask, promise, place });
        Ask { history: self.clone(), of: of.to_owned(), number }
    }

    /// An admin writes this.
    pub fn write(&self, of: &str, value: impl Display) -> Write {
        let value = value.to_string();
        let number = self.numbered(of, |write| What::Written { write, value });
        Write { history: self.clone(), of: of.to_owned(), number }
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().clone()
    }

    /// How many entries are such ones.
    pub fn count(&self, is_one: impl Fn(&What) -> bool) -> usize {
        self.entries.lock().iter().filter(|entry| is_one(&entry.what)).count()
    }

    /// Fails with each fault, and with what led to the first.
    pub fn hold(&self) -> Result<()> {
        let entries = self.entries();
        let faults = judge(&entries);
        let Some(first) = faults.first() else { return Ok(()) };
        let told: Vec<String> = faults.iter().take(SHOWN).map(ToString::to_string).collect();
        bail!("{} faults:\n{}\n{}", faults.len(), told.join("\n"), self.story(&first.of));
    }

    /// What there is of one call, stream or setting, and which processes were lost meanwhile.
    pub fn story(&self, of: &str) -> String {
        let entries = self.entries();
        let first = entries.iter().position(|entry| entry.of == of).unwrap_or_default();
        let story = entries.iter().skip(first).filter(|entry| entry.of == of || entry.is_of_processes());
        let story: Vec<String> = story.take(SHOWN).map(ToString::to_string).collect();
        format!("{of}:\n{}", story.join("\n"))
    }

    /// Adds an entry that knows its place in the order.
    fn numbered(&self, of: &str, what: impl FnOnce(usize) -> What) -> usize {
        let mut entries = self.entries.lock();
        let number = entries.len();
        let (at, of, what) = (self.began.elapsed(), of.to_owned(), what(number));
        entries.push(Entry { at, of, what });
        number
    }
}

impl Ask {
    pub fn told(self, answer: impl Into<String>) {
        let answer = answer.into();
        self.add(|ask| What::Told { ask, answer });
    }

    pub fn refused(self, why: impl Into<String>) {
        let why = why.into();
        self.add(|ask| What::Refused { ask, why });
    }

    pub fn unknown(self) {
        self.add(|ask| What::Unknown { ask });
    }

    pub fn missing(self) {
        self.add(|ask| What::Missing { ask });
    }

    pub fn unanswered(self, why: impl Display) {
        let why = why.to_string();
        self.add(|ask| What::Unanswered { ask, why });
    }

    pub fn cancelled(self) {
        self.add(|ask| What::Cancelled { ask });
    }

    fn add(self, what: impl FnOnce(usize) -> What) {
        self.history.add(&self.of, what(self.number));
    }
}

impl Write {
    pub fn stored(self) {
        self.history.add(&self.of, What::Stored { write: self.number });
    }

    pub fn not_stored(self) {
        self.history.add(&self.of, What::NotStored { write: self.number });
    }

    /// Nobody knows whether it was stored.
    pub fn unanswered(self) {}
}

impl Entry {
    fn is_of_processes(&self) -> bool {
        matches!(self.what, What::Lost | What::Well)
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} s {}: {:?}", self.at.as_secs_f64(), self.of, self.what)
    }
}
