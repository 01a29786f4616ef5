//! The wall clock, for what leaves the process. Everything that measures time uses the monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since 1970; zero on a clock that stands before it.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unix seconds.
pub(crate) fn unix_seconds() -> u64 {
    since_epoch().as_secs()
}

/// Unix milliseconds.
pub(crate) fn unix_ms() -> u64 {
    since_epoch().as_millis() as u64
}
