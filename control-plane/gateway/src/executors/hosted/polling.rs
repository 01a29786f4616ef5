//! How often a service is asked, and for how long it may give nothing but failures.
//!
//! Keeps true: one call asks a service at most 20 times a second, whatever the service says; what changes is
//! asked for soon again, what rests less and less often.

use std::time::Duration;

/// The shortest pause: the bound of requests a second.
const SHORTEST: Duration = Duration::from_millis(50);
/// The pause after a change; half as long again after each answer without one.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// The longest pause a service can ask for by `Retry-After`: a call must see its own end.
const LONGEST_ASKED: Duration = Duration::from_secs(10);
/// Failures in a row before a call that was never accepted is given up: about 3 s.
const PATIENCE_BEFORE: u32 = 5;
/// Failures in a row before an accepted call is: about half a minute, the time of a restart.
const PATIENCE_AFTER: u32 = 20;

/// The pace of one call's requests.
#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    failures: u32,
    accepted: bool,
    /// What the last answer asked for.
    retry_after: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: FIRST, failures: 0, accepted: false, retry_after: None }
    }
}

impl Pace {
    /// The service answered with a state that is `new`, or the one that was known.
    pub(super) fn answered(&mut self, new: bool, retry_after: Option<Duration>) {
        self.accepted = true;
        self.failures = 0;
        self.retry_after = retry_after;
        self.pause = if new { FIRST } else { (self.pause * 3 / 2).min(LONGEST) };
    }

    /// How long to wait before the next look at the call.
    pub(super) fn pause(&self) -> Duration {
        self.retry_after.map_or(self.pause, |asked| asked.clamp(SHORTEST, LONGEST_ASKED))
    }

    /// The service failed: how long to wait before it is asked again, or `None` when that was enough.
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
        let mut pace = Pace::default();
        let mut before = pace.pause();
        for _ in 0..20 {
            pace.answered(false, None);
            assert!(pace.pause() >= before && pace.pause() <= LONGEST);
            before = pace.pause();
        }
        assert_eq!(before, LONGEST);
        pace.answered(true, None);
        assert_eq!(pace.pause(), FIRST);
    }

    #[test]
    fn a_service_says_when_to_come_back_only_between_the_bounds() {
        let mut pace = Pace::default();
        for (asked, kept) in [(0, SHORTEST), (1, Duration::from_secs(1)), (3600, LONGEST_ASKED)] {
            pace.answered(true, Some(Duration::from_secs(asked)));
            assert_eq!(pace.pause(), kept);
        }
        assert_eq!(pace.failed(Some(Duration::ZERO)), Some(FIRST));
        assert_eq!(pace.failed(Some(Duration::from_secs(3600))), Some(LONGEST_ASKED));
    }

    #[test]
    fn failures_are_borne_longer_once_a_call_was_accepted() {
        let borne = |mut pace: Pace| {
            let mut waits = Vec::new();
            while let Some(wait) = pace.failed(None) {
                waits.push(wait);
            }
            waits
        };
        let before = borne(Pace::default());
        assert_eq!(before.len(), 5);
        assert!(before.windows(2).all(|pair| pair[0] * 2 == pair[1]));
        let mut accepted = Pace::default();
        accepted.failed(None);
        accepted.answered(true, None);
        let after = borne(accepted);
        assert_eq!(after.len(), 20);
        assert!(after.iter().sum::<Duration>() > Duration::from_secs(30));
    }
}
