//! An ended call as a gateway that did not run it knows it.

use std::time::Duration;

use super::record::Record;
use super::stored_outcome::StoredOutcome;
use crate::call::event::log::LoggedEvent;

/// A call that has ended, perhaps at another gateway.
pub struct EndedCall {
    pub record: Record,
    /// Its outcome; `None` if the outcome stays unknown, because its gateway is gone and no other can continue the
    /// call.
    pub kept: Option<StoredOutcome>,
    /// Time of its end, in Unix milliseconds.
    pub ended_ms: u64,
    /// Lowest generation that the call had with its last event.
    pub generation: u64,
    /// Time for which its record is kept.
    pub left: Duration,
    /// Its events, if its record has them.
    pub events: Option<EndedEvents>,
}

/// Events of an ended call that still matter.
pub struct EndedEvents {
    /// Name of the log that the numbers belong to.
    pub log: u32,
    pub events: Vec<LoggedEvent>,
    /// Number of the next event.
    pub next: u64,
}
