//! The clock for the age of keys.

#[cfg(feature = "testkit")]
use std::sync::Arc;
#[cfg(feature = "testkit")]
use std::sync::atomic::{AtomicU64, Ordering};

use asp_platform::clock;

/// Wall clock for data that ages over hours; tests can advance it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds by which a test advanced it.
    #[cfg(feature = "testkit")]
    ahead: Arc<AtomicU64>,
}

impl Clock {
    /// Returns Unix milliseconds.
    #[cfg(not(feature = "testkit"))]
    pub fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    #[cfg(feature = "testkit")]
    pub fn now_ms(&self) -> u64 {
        clock::now_ms() + self.ahead.load(Ordering::SeqCst)
    }

    /// Advances the clock.
    #[cfg(feature = "testkit")]
    pub fn pass(&self, time: std::time::Duration) {
        self.ahead.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}
