//! The circuit breaker of one plugin version.
//!
//! A pure state machine with a given clock. Only failures of the infrastructure count: a crash, a kill, a
//! protocol fault. A tool's own error is a success here.
//! Keeps true: open for `REST` once half of the last `WINDOW` calls failed (`MINIMUM` of them at least), then
//! at most `PROBES` calls at a time until that many succeeded; one failed probe opens it again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: usize = 20;
const MINIMUM: usize = 10;
const REST: Duration = Duration::from_secs(10);
const PROBES: usize = 3;

#[derive(Debug)]
pub struct Breaker {
    state: State,
    /// The last outcomes, true for a failure; at most `WINDOW`.
    outcomes: VecDeque<bool>,
}

#[derive(Debug)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen { running: usize, succeeded: usize },
}

/// What became of an admitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failure,
    /// It never ran.
    Abandoned,
}

impl Breaker {
    pub fn new() -> Breaker {
        Breaker { state: State::Closed, outcomes: VecDeque::with_capacity(WINDOW) }
    }

    /// Whether a call may be admitted. Every admitted call is answered by one [`Breaker::ended`].
    pub fn admit(&mut self, now: Instant) -> bool {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.state = State::HalfOpen { running: 0, succeeded: 0 };
        }
        match &mut self.state {
            State::Closed => true,
            State::Open { .. } => false,
            State::HalfOpen { running, succeeded } => {
                let free = *running + *succeeded < PROBES;
                *running += usize::from(free);
                free
            }
        }
    }

    /// Notes the end of an admitted call.
    pub fn ended(&mut self, outcome: Outcome, now: Instant) {
        match (&mut self.state, outcome) {
            (State::Closed, Outcome::Abandoned) => {}
            (State::Closed, _) => self.count(outcome == Outcome::Failure, now),
            // The call was admitted before the breaker opened.
            (State::Open { .. }, _) => {}
            (State::HalfOpen { .. }, Outcome::Failure) => self.open(now),
            (State::HalfOpen { running, .. }, Outcome::Abandoned) => *running = running.saturating_sub(1),
            (State::HalfOpen { running, succeeded }, Outcome::Success) => {
                *running = running.saturating_sub(1);
                *succeeded += 1;
                if *succeeded >= PROBES {
                    self.state = State::Closed;
                }
            }
        }
    }

    /// For people: `closed`, `open` or `half_open`.
    pub fn name(&self) -> &'static str {
        match self.state {
            State::Closed => "closed",
            State::Open { .. } => "open",
            State::HalfOpen { .. } => "half_open",
        }
    }

    fn count(&mut self, failed: bool, now: Instant) {
        if self.outcomes.len() == WINDOW {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(failed);
        let failures = self.outcomes.iter().filter(|failed| **failed).count();
        if self.outcomes.len() >= MINIMUM && failures * 2 >= self.outcomes.len() {
            self.open(now);
        }
    }

    fn open(&mut self, now: Instant) {
        self.outcomes.clear();
        self.state = State::Open { until: now + REST };
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..MINIMUM {
            assert!(breaker.admit(now));
            breaker.ended(Outcome::Failure, now);
        }
        breaker
    }

    #[test]
    fn half_of_at_least_ten_calls_must_fail() {
        let (mut breaker, now) = (Breaker::new(), Instant::now());
        for _ in 0..9 {
            breaker.ended(Outcome::Failure, now);
        }
        assert!(breaker.admit(now), "nine are too few to judge by");
        breaker.ended(Outcome::Failure, now);
        assert!(!breaker.admit(now));

        let mut healthy = Breaker::new();
        for call in 0..200 {
            healthy.ended(if call % 3 == 0 { Outcome::Failure } else { Outcome::Success }, now);
        }
        assert_eq!(healthy.name(), "closed", "one in three is less than half");
    }

    #[test]
    fn three_good_probes_close_it_and_no_fourth_runs_beside_them() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert!(!breaker.admit(now + Duration::from_millis(9999)));
        let later = now + REST;
        assert!((0..3).all(|_| breaker.admit(later)));
        assert!(!breaker.admit(later));
        breaker.ended(Outcome::Abandoned, later);
        assert!(breaker.admit(later), "a probe that never ran gives its place back");
        for _ in 0..3 {
            assert_eq!(breaker.name(), "half_open");
            breaker.ended(Outcome::Success, later);
        }
        assert!(breaker.admit(later));
        assert_eq!(breaker.name(), "closed");
    }

    #[test]
    fn one_failed_probe_opens_it_again() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + REST;
        assert!(breaker.admit(later));
        breaker.ended(Outcome::Failure, later);
        assert!(!breaker.admit(later + REST - Duration::from_millis(1)));
        assert!(breaker.admit(later + REST));
    }
}
