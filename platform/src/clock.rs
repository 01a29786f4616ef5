//! The wall clock in milliseconds, the platform's unit.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns Unix milliseconds; 0 if the clock is before 1970.
pub fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
