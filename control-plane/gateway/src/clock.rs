//! The wall clock, for what leaves the process. Everything that measures time uses the monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use asp_platform::time::rfc3339;
use tokio::time::Instant;

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

/// The moment that is `epoch_ms` Unix milliseconds; now for what is past, `None` beyond what a clock can say.
pub(crate) fn instant(epoch_ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(epoch_ms.saturating_sub(unix_ms())))
}

/// Waits until a moment that may never come.
pub(crate) async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
