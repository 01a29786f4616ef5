//! How long the next worker waits after one could not go on.
//!
//! A pure state machine: it is told the time and the chance. Keeps true: delays double from `first` to `cap`, and start
//! over once `HEALTHY` has passed since the last delay ended. What counts is the time without a failure and not how
//! long a worker lived: one that serves a single call never lives long, however healthy its plugin is.

use std::time::Duration;

use tokio::time::Instant;

/// Of crashes.
const FIRST: Duration = Duration::from_millis(250);
const CAP: Duration = Duration::from_secs(30);
/// Of what the machine could not do: a call waits for the next attempt, so that it is soon served again.
const FIRST_OF_HOST: Duration = Duration::from_millis(100);
const CAP_OF_HOST: Duration = Duration::from_secs(1);
/// A crash after so long a time is not part of a loop.
const HEALTHY: Duration = Duration::from_secs(60);
/// Plus or minus this share, so that plugins that died together do not return together.
const JITTER: f64 = 0.2;

/// The delay that the next failure costs.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
    /// The end of the last delay.
    until: Option<Instant>,
}

impl Backoff {
    /// After crashes.
    pub fn new() -> Backoff {
        Backoff { first: FIRST, cap: CAP, next: FIRST, until: None }
    }

    /// After starts for which the machine had no room.
    pub fn of_host() -> Backoff {
        Backoff { first: FIRST_OF_HOST, cap: CAP_OF_HOST, next: FIRST_OF_HOST, until: None }
    }

    /// Notes a failure. `chance` is a random number in 0..1.
    pub fn failed(&mut self, chance: f64, now: Instant) {
        if self.until.is_some_and(|until| now >= until + HEALTHY) {
            self.next = self.first;
        }
        let delay = self.next;
        self.next = (delay * 2).min(self.cap);
        let delay = delay.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0));
        self.until = self.until.max(Some(now + delay));
    }

    /// What failed has worked: the next failure is the first again.
    pub fn succeeded(&mut self) {
        self.next = self.first;
        self.until = None;
    }

    /// When the next attempt may begin; `None`: at once.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: f64 = 0.5;

    /// The delays of failures of which each comes a `pause` after the last delay ended.
    fn delays(backoff: &mut Backoff, now: &mut Instant, pause: Duration, failures: usize) -> Vec<u128> {
        let delay = |_| {
            backoff.failed(MIDDLE, *now);
            let until = backoff.until(*now).unwrap();
            let delay = until - *now;
            *now = until + pause;
            delay.as_millis()
        };
        (0..failures).map(delay).collect()
    }

    #[test]
    fn delays_double_to_the_cap_and_start_over_after_a_healthy_minute() {
        let mut backoff = Backoff::new();
        let mut now = Instant::now();
        let loops = delays(&mut backoff, &mut now, Duration::from_secs(1), 10);
        assert_eq!(loops, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        now += HEALTHY;
        assert_eq!(delays(&mut backoff, &mut now, Duration::ZERO, 2), [250, 500]);
    }

    /// Each of these workers lived for its one call, a second; only the crashes count.
    #[test]
    fn the_workers_of_single_calls_that_crash_now_and_then_wait_no_longer_each_time() {
        let mut backoff = Backoff::new();
        let mut now = Instant::now();
        assert_eq!(delays(&mut backoff, &mut now, Duration::from_secs(61), 12), [250; 12]);
    }

    #[test]
    fn what_the_machine_could_not_do_is_tried_again_within_a_second() {
        let mut backoff = Backoff::of_host();
        let mut now = Instant::now();
        let tried = delays(&mut backoff, &mut now, Duration::ZERO, 6);
        assert_eq!(tried, [100, 200, 400, 800, 1000, 1000]);
        backoff.failed(MIDDLE, now);
        backoff.succeeded();
        assert_eq!(backoff.until(now), None);
        assert_eq!(delays(&mut backoff, &mut now, Duration::ZERO, 1), [100]);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let now = Instant::now();
        for (chance, expected) in [(0.0, 200), (1.0, 300), (7.0, 300), (-1.0, 200)] {
            let mut backoff = Backoff::new();
            backoff.failed(chance, now);
            assert_eq!(backoff.until(now), Some(now + Duration::from_millis(expected)));
        }
    }
}
