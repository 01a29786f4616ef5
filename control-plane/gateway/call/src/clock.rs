//! The wall clock, for times that leave the process. All measurements use the monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use asp_platform::time::rfc3339;
use tokio::time::Instant;

/// Returns the time since 1970; zero if the clock is set before it.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time in Unix seconds.
pub fn unix_seconds() -> u64 {
    since_epoch().as_secs()
}

/// Returns the time in Unix milliseconds.
pub fn unix_ms() -> u64 {
    since_epoch().as_millis() as u64
}

/// Returns the instant of `epoch_ms` in Unix milliseconds; now for a past one, `None` beyond the range of the clock.
pub(crate) fn instant(epoch_ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(epoch_ms.saturating_sub(unix_ms())))
}

/// Waits until `moment`; forever if there is none.
pub async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
