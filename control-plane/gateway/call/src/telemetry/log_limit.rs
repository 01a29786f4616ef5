//! Rate limit of a warning that clients can cause as often as they like.
//!
//! Keeps true: at most one line a minute, with the number of occurrences that it stands for.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Minimum interval between two lines.
const EVERY: Duration = Duration::from_secs(60);

/// The limit of one warning.
#[derive(Default)]
pub struct LogLimit(Mutex<Occurrences>);

#[derive(Default)]
struct Occurrences {
    /// Number of occurrences since the last line.
    count: u64,
    last_line: Option<Instant>,
}

impl LogLimit {
    /// Counts an occurrence. If a line is due, returns the number of occurrences since the last one.
    pub fn count(&self) -> Option<u64> {
        let now = Instant::now();
        let mut occurrences = self.0.lock();
        occurrences.count += 1;
        if occurrences.last_line.is_some_and(|at| now.saturating_duration_since(at) < EVERY) {
            return None;
        }
        occurrences.last_line = Some(now);
        Some(std::mem::take(&mut occurrences.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_minute_has_one_line_that_counts_those_left_out() {
        let limit = LogLimit::default();
        assert_eq!(limit.count(), Some(1));
        for _ in 0..9 {
            assert_eq!(limit.count(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(limit.count(), Some(10));
        assert_eq!(limit.count(), None);
    }
}
