//! The wall clock in milliseconds, the platform's unit.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns Unix milliseconds; 0 if the clock is before 1970.
pub fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

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
        now_ms()
    }

    #[cfg(test)]
    pub fn now_ms(&self) -> u64 {
        now_ms() + self.ahead.load(Ordering::SeqCst)
    }

    /// Advances the clock.
    #[cfg(test)]
    pub(crate) fn pass(&self, time: std::time::Duration) {
        self.ahead.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}
