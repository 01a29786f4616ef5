//! Polling interval of a service, and how long it may only fail.
//!
//! Keeps true: one call asks a service at most 20 times a second, whatever the service says; a changing state is
//! polled at short intervals, an unchanged one at increasing intervals.

use std::time::Duration;

/// Shortest pause, which bounds the requests per second.
const SHORTEST: Duration = Duration::from_millis(50);
/// Pause after a change; it grows by half after each answer without one.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// Longest pause that a service can ask for by `Retry-After`: a call must see its own end.
const LONGEST_ASKED: Duration = Duration::from_secs(10);
/// Consecutive failures before a call that was never accepted is given up: about 3 s.
const PATIENCE_BEFORE: u32 = 5;
/// Consecutive failures before an accepted call is given up: about half a minute, the time of a restart.
const PATIENCE_AFTER: u32 = 20;

/// Polling state of one call.
#[derive(Debug)]
pub(super) struct Backoff {
    pause: Duration,
    failures: u32,
    accepted: bool,
    /// `Retry-After` of the last answer.
    retry_after: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { pause: FIRST, failures: 0, accepted: false, retry_after: None }
    }
}

impl Backoff {
    /// Records an answer with a `new` state, or with the known one.
    pub(super) fn answered(&mut self, new: bool, retry_after: Option<Duration>) {
        self.accepted = true;
        self.failures = 0;
        self.retry_after = retry_after;
        self.pause = if new { FIRST } else { (self.pause * 3 / 2).min(LONGEST) };
    }

    /// Returns the pause before the next poll.
    pub(super) fn pause(&self) -> Duration {
        self.retry_after.map_or(self.pause, |asked| asked.clamp(SHORTEST, LONGEST_ASKED))
    }

    /// Records a failure of the service; returns the pause before it is asked again, or `None` if it has failed too
    /// often.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        self.failures += 1;
        let patience = if self.accepted { PATIENCE_AFTER } else { PATIENCE_BEFORE };
        if self.failures > patience {
            return None;
        }
        let doubled = FIRST.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(LONGEST);
        Some(retry_after.map_or(doubled, |asked| asked.clamp(doubled, LONGEST_ASKED)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_rests_is_asked_less_often_and_one_that_moves_soon_again() {
        let mut backoff = Backoff::default();
        let mut before = backoff.pause();
        for _ in 0..20 {
            backoff.answered(false, None);
            assert!(backoff.pause() >= before && backoff.pause() <= LONGEST);
            before = backoff.pause();
        }
        assert_eq!(before, LONGEST);
        backoff.answered(true, None);
        assert_eq!(backoff.pause(), FIRST);
    }

    #[test]
    fn a_service_says_when_to_come_back_only_between_the_bounds() {
        let mut backoff = Backoff::default();
        for (asked, kept) in [(0, SHORTEST), (1, Duration::from_secs(1)), (3600, LONGEST_ASKED)] {
            backoff.answered(true, Some(Duration::from_secs(asked)));
            assert_eq!(backoff.pause(), kept);
        }
        assert_eq!(backoff.failed(Some(Duration::ZERO)), Some(FIRST));
        assert_eq!(backoff.failed(Some(Duration::from_secs(3600))), Some(LONGEST_ASKED));
    }

    #[test]
    fn failures_are_borne_longer_once_a_call_was_accepted() {
        let borne = |mut backoff: Backoff| {
            let mut waits = Vec::new();
            while let Some(wait) = backoff.failed(None) {
                waits.push(wait);
            }
            waits
        };
        let before = borne(Backoff::default());
        assert_eq!(before.len(), 5);
        assert!(before.windows(2).all(|pair| pair[0] * 2 == pair[1]));
        let mut accepted = Backoff::default();
        accepted.failed(None);
        accepted.answered(true, None);
        let after = borne(accepted);
        assert_eq!(after.len(), 20);
        assert!(after.iter().sum::<Duration>() > Duration::from_secs(30));
    }
}
