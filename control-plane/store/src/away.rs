//! Circuit breaker for a backend.
//!
//! Keeps true: nobody waits for a backend that is known to be unavailable, except one probe a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval of probes, and the longest time before a backend that is back is used again.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Availability of a backend.
#[derive(Default)]
pub(crate) struct Away {
    /// Time of the next probe; `None` while the backend answers.
    until: Mutex<Option<Instant>>,
}

/// Reason of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The backend is available.
    AsEver,
    /// The backend is unavailable; this request probes it.
    ToLook,
}

impl Away {
    /// Returns whether to send a request now, and why.
    pub(crate) fn asks(&self) -> Option<Asks> {
        let mut until = self.until.lock();
        match *until {
            None => Some(Asks::AsEver),
            Some(at) if at > Instant::now() => None,
            Some(_) => {
                // Other requests do not wait for this probe.
                *until = Some(Instant::now() + LOOK_EVERY);
                Some(Asks::ToLook)
            }
        }
    }

    /// Records an answer; returns whether the backend has just become available. An answer to a request from before the
    /// outage does not count.
    pub(crate) fn answered(&self, asked: Asks) -> bool {
        asked == Asks::ToLook && self.until.lock().take().is_some()
    }

    /// Records a failure; returns whether the backend has just become unavailable.
    pub(crate) fn failed(&self) -> bool {
        self.until.lock().replace(Instant::now() + LOOK_EVERY).is_none()
    }
}
