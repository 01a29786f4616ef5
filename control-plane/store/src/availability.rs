//! Circuit breaker for a backend.
//!
//! Keeps true: nobody waits for a backend that is known to be unavailable, except one probe a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval of probes, and the longest time before a backend that is back is used again.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Availability of a backend.
#[derive(Default)]
pub(crate) struct Availability {
    /// Time of the next probe; `None` while the backend answers.
    next_probe: Mutex<Option<Instant>>,
}

/// Reason of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The backend is available.
    Normal,
    /// The backend is unavailable; this request probes it.
    Probe,
}

impl Availability {
    /// Returns whether to send a request now, and why.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        let mut next_probe = self.next_probe.lock();
        match *next_probe {
            None => Some(Attempt::Normal),
            Some(at) if at > Instant::now() => None,
            Some(_) => {
                // Other requests do not wait for this probe.
                *next_probe = Some(Instant::now() + PROBE_EVERY);
                Some(Attempt::Probe)
            }
        }
    }

    /// Records an answer; returns whether the backend has just become available. An answer to a request from before the
    /// outage does not count.
    pub(crate) fn answered(&self, attempt: Attempt) -> bool {
        attempt == Attempt::Probe && self.next_probe.lock().take().is_some()
    }

    /// Records a failure; returns whether the backend has just become unavailable.
    pub(crate) fn failed(&self) -> bool {
        self.next_probe.lock().replace(Instant::now() + PROBE_EVERY).is_none()
    }
}
