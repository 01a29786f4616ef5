//! The clock for the age of keys.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

use asp_platform::clock;

/// Wall clock for data that ages over hours; tests can advance it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds by which a test advanced it.
    #[cfg(test)]
    ahead: Arc<AtomicU64>,
}

impl Clock {
    /// Returns Unix milliseconds.
    #[cfg(not(test))]
    pub fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    #[cfg(test)]
    pub fn now_ms(&self) -> u64 {
        clock::now_ms() + self.ahead.load(Ordering::SeqCst)
    }

    /// Advances the clock.
    #[cfg(test)]
    pub(crate) fn pass(&self, time: std::time::Duration) {
        self.ahead.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}
