//! Rate limit for one worker's requests. It bounds their audit lines, so that none has to be dropped.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Interval between requests: fifty connections a second are more than a plugin needs, and few audit lines.
const EVERY: Duration = Duration::from_millis(20);
/// Maximum number of requests at once, after a pause.
const BURST: u32 = 128;

#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Due time of the next request, if each were as late as allowed.
    next: Mutex<Instant>,
}

impl RateLimiter {
    pub(super) fn new() -> RateLimiter {
        RateLimiter { next: Mutex::new(Instant::now()) }
    }

    /// Waits until the next request may be handled.
    pub(super) async fn acquire(&self) {
        let due = {
            let now = Instant::now();
            let mut next = self.next.lock();
            let due = *next;
            // A pause permits one burst and no more.
            *next = due.max(now.checked_sub(EVERY * BURST).unwrap_or(now)) + EVERY;
            due
        };
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_taken_at_once_and_then_fifty_a_second() {
        let rate_limit = RateLimiter::new();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let began = Instant::now();
        for _ in 0..BURST {
            rate_limit.acquire().await;
        }
        assert!(began.elapsed() <= EVERY);
        for _ in 0..100 {
            rate_limit.acquire().await;
        }
        let took = began.elapsed();
        assert!(took >= EVERY * 98 && took <= EVERY * 101, "{took:?}");
    }
}
