//! The wall clock, for what leaves the process. Everything that measures time uses the monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// RFC 3339 in UTC with milliseconds. Days are counted from 0000-03-01, so that leap days come last in a year.
pub(crate) fn rfc3339(epoch_ms: u64) -> String {
    let seconds = epoch_ms / 1000;
    let millis = epoch_ms % 1000;
    let days = seconds / 86_400;
    let second_of_day = seconds % 86_400;
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let hour = second_of_day / 3600;
    let minute = second_of_day / 60 % 60;
    let second = second_of_day % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}
