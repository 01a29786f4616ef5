//! Delay before the next worker after one failed.
//!
//! A pure state machine: time and random numbers are arguments. Keeps true: delays double from `first` to `cap`, and
//! start over once `HEALTHY` has passed since the last delay ended. The time without a failure counts, not the lifetime
//! of a worker: one that serves a single call never lives long, however healthy its plugin is.

use std::time::Duration;

use asp_platform::pauses::{Pauses, doubling};
use tokio::time::Instant;

/// Delays after crashes.
const FIRST: Duration = Duration::from_millis(250);
const CAP: Duration = Duration::from_secs(30);
/// Delays after starts for which the machine lacked something: calls wait for the next attempt, so they must be short.
const FIRST_OF_HOST: Duration = Duration::from_millis(100);
const CAP_OF_HOST: Duration = Duration::from_secs(1);
/// Time without a failure after which a crash is not part of a crash loop.
const HEALTHY: Duration = Duration::from_secs(60);
/// Random variation of a delay, as a fraction of it, so that plugins that died together do not return together.
const JITTER: f64 = 0.2;

/// The delay after the next failure.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    delays: Pauses,
    /// End of the last delay.
    until: Option<Instant>,
}

impl Backoff {
    /// Creates the backoff after starts for which the machine lacked something.
    pub fn of_host() -> Backoff {
        let delays = doubling(FIRST_OF_HOST, CAP_OF_HOST);
        Backoff { first: FIRST_OF_HOST, cap: CAP_OF_HOST, delays, until: None }
    }

    /// Records a failure. `chance` is a random number in 0..1.
    pub fn failed(&mut self, chance: f64, now: Instant) {
        if self.until.is_some_and(|until| now >= until + HEALTHY) {
            self.delays = doubling(self.first, self.cap);
        }
        let delay = self.delays.next().unwrap_or(self.cap);
        let delay = delay.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0));
        self.until = self.until.max(Some(now + delay));
    }

    /// Records a success: the next failure is treated as the first.
    pub fn succeeded(&mut self) {
        self.delays = doubling(self.first, self.cap);
        self.until = None;
    }

    /// Returns the earliest time of the next attempt; `None`: at once.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

impl Default for Backoff {
    /// Creates the backoff after crashes.
    fn default() -> Self {
        Backoff { first: FIRST, cap: CAP, delays: doubling(FIRST, CAP), until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: f64 = 0.5;

    /// Returns the delays of failures, each of which comes `pause` after the last delay ended.
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
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        let loops = delays(&mut backoff, &mut now, Duration::from_secs(1), 10);
        assert_eq!(loops, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        now += HEALTHY;
        assert_eq!(delays(&mut backoff, &mut now, Duration::ZERO, 2), [250, 500]);
    }

    /// Each of these workers lived for its one call, a second; only the crashes count.
    #[test]
    fn the_workers_of_single_calls_that_crash_now_and_then_wait_no_longer_each_time() {
        let mut backoff = Backoff::default();
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
            let mut backoff = Backoff::default();
            backoff.failed(chance, now);
            assert_eq!(backoff.until(now), Some(now + Duration::from_millis(expected)));
        }
    }
}
