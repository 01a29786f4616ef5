//! The circuit breaker: stops requests to a failing dependency, and finds out by a few probes whether it works again.
//!
//! Owns: the one state machine for upstreams in the gateway and for plugins in the runtime. Refuses: a clock of its
//! own, so that every sequence can be tested. Keeps true: open for [`REST`] once half of the last `WINDOW` requests
//! failed (with at least `MINIMUM` requests); then at most `PROBES` at a time until that many succeeded; one failed
//! probe opens it again. Whatever happened to earlier requests, a caller that keeps trying is admitted within [`REST`]:
//! probes whose result is never reported do not hold their permits for longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time without requests after the failures, and time after which an unreported probe loses its permit.
pub const REST: Duration = Duration::from_secs(10);

const WINDOW: usize = 20;
const MINIMUM: usize = 10;
const PROBES: usize = 3;

/// Breaker of one upstream or plugin. The owner numbers requests in ascending order: the result of a request that was
/// admitted before the last change of state is ignored.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    /// Largest number so far.
    latest: u64,
    /// Requests up to this number belong to an earlier state.
    before: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// Last outcomes, true for a failure; at most `WINDOW`.
    Closed {
        outcomes: VecDeque<bool>,
    },
    Open {
        until: Instant,
    },
    HalfOpen {
        running: usize,
        succeeded: usize,
        since: Instant,
    },
}

/// Outcome of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Infrastructure failure: no answer, a crash, a protocol violation. An error reported in an answer is a success.
    Failure,
    /// The request was never sent, or given up before its result was known.
    Abandoned,
}

// === impl Breaker ===

impl Breaker {
    /// Creates a closed breaker.
    pub fn new() -> Breaker {
        Breaker { state: State::Closed { outcomes: VecDeque::new() }, latest: 0, before: 0 }
    }

    /// Whether the request with this number may be sent. A refused request must not be reported to [`Breaker::ended`];
    /// an admitted one should be, once.
    pub fn admit(&mut self, number: u64, now: Instant) -> bool {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.state = State::HalfOpen { running: 0, succeeded: 0, since: now };
        }
        let admitted = match &mut self.state {
            State::Closed { .. } => true,
            State::Open { .. } => false,
            State::HalfOpen { running, succeeded, since } => {
                let taken = *running + *succeeded >= PROBES;
                let silent = now.saturating_duration_since(*since) >= REST;
                if taken && silent {
                    *running = 0;
                    *since = now;
                }
                let free = !taken || silent;
                *running += usize::from(free);
                free
            }
        };
        if admitted {
            self.latest = self.latest.max(number);
        }
        admitted
    }

    /// Records the end of an admitted request.
    pub fn ended(&mut self, number: u64, outcome: Outcome, now: Instant) {
        if number <= self.before {
            return;
        }
        match (&mut self.state, outcome) {
            // Nothing is admitted while it is open, so this request was reported without having been admitted.
            (State::Open { .. }, _) | (State::Closed { .. }, Outcome::Abandoned) => {}
            (State::Closed { outcomes }, _) => {
                if outcomes.len() == WINDOW {
                    outcomes.pop_front();
                }
                outcomes.push_back(outcome == Outcome::Failure);
                let failures = outcomes.iter().filter(|failed| **failed).count();
                if outcomes.len() >= MINIMUM && failures * 2 >= outcomes.len() {
                    self.change(State::Open { until: now + REST });
                }
            }
            (State::HalfOpen { .. }, Outcome::Failure) => self.change(State::Open { until: now + REST }),
            (State::HalfOpen { running, .. }, Outcome::Abandoned) => *running = running.saturating_sub(1),
            (State::HalfOpen { running, succeeded, .. }, Outcome::Success) => {
                // A probe that took longer than its permit was held counts like any other.
                *running = running.saturating_sub(1);
                *succeeded += 1;
                if *succeeded >= PROBES {
                    self.change(State::Closed { outcomes: VecDeque::new() });
                }
            }
        }
    }

    /// Returns the state for display: `closed`, `open` or `half_open`.
    pub fn name(&self) -> &'static str {
        match self.state {
            State::Closed { .. } => "closed",
            State::Open { .. } => "open",
            State::HalfOpen { .. } => "half_open",
        }
    }

    fn change(&mut self, next: State) {
        self.state = next;
        self.before = self.latest;
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker::new()
    }
}

#[cfg(test)]
mod tests;
