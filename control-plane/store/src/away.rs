//! Whether a backend that may be away is asked.
//!
//! Keeps true: nobody waits for a backend that is known to be away, but for one a second that looks whether it is back.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two looks at a backend that is away: it is used again within as much of its return.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of a backend.
#[derive(Default)]
pub(crate) struct Away {
    /// When it is to be asked again; `None` while it answers.
    until: Mutex<Option<Instant>>,
}

/// Why it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// It answers.
    AsEver,
    /// It is away: whether it is back.
    ToLook,
}

impl Away {
    /// Whether it is to be asked now, and why.
    pub(crate) fn asks(&self) -> Option<Asks> {
        let mut until = self.until.lock();
        match *until {
            None => Some(Asks::AsEver),
            Some(at) if at > Instant::now() => None,
            Some(_) => {
                // The others do not wait for this one.
                *until = Some(Instant::now() + LOOK_EVERY);
                Some(Asks::ToLook)
            }
        }
    }

    /// There was an answer; whether the backend is back with it. An answer to what was asked before it was away says
    /// nothing of that.
    pub(crate) fn answered(&self, asked: Asks) -> bool {
        asked == Asks::ToLook && self.until.lock().take().is_some()
    }

    /// There was none; whether it is away since now.
    pub(crate) fn failed(&self) -> bool {
        self.until.lock().replace(Instant::now() + LOOK_EVERY).is_none()
    }
}
