//! The circuit breaker: gives something that fails a rest, and finds out by a few probes whether it works again.
//!
//! Owns: the one state machine of an upstream's breaker in the gateway and of a plugin's in the runtime. Refuses: a
//! clock of its own, so that every sequence can be tried. Keeps true: open for [`REST`] once half of the last
//! `WINDOW` requests failed (`MINIMUM` of them at least); then at most `PROBES` at a time until that many
//! succeeded; one failed probe opens it again. Whatever became of the requests before, somebody who asks again and
//! again is admitted within [`REST`]: probes that nobody hears of any more do not hold their places for longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long nothing is sent after the failures, and how long a silent probe keeps its place.
pub const REST: Duration = Duration::from_secs(10);

const WINDOW: usize = 20;
const MINIMUM: usize = 10;
const PROBES: usize = 3;

/// The breaker of one upstream or plugin. Requests are told apart by numbers that the owner gives them, each greater
/// than all before: one that was admitted before the last change of state says nothing about the present.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    /// The greatest number so far.
    latest: u64,
    /// Requests up to this number belong to an earlier state.
    before: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// The last outcomes, true for a failure; at most `WINDOW`.
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

/// What became of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Of the infrastructure: no answer, a crash, a broken protocol. An error that an answer tells of is a success.
    Failure,
    /// It was never sent, or given up before anything could be said about it.
    Abandoned,
}

// === impl Breaker ===

impl Breaker {
    /// Closed: nothing has failed yet.
    pub fn new() -> Breaker {
        Breaker { state: State::Closed { outcomes: VecDeque::new() }, latest: 0, before: 0 }
    }

    /// Whether the request with this number may be sent. One that was refused must not be reported to
    /// [`Breaker::ended`]; one that was admitted should be, once.
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

    /// Notes the end of an admitted request.
    pub fn ended(&mut self, number: u64, outcome: Outcome, now: Instant) {
        if number <= self.before {
            return;
        }
        match (&mut self.state, outcome) {
            // Nothing is admitted while it is open, so this was reported without having been admitted.
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
                // A probe that took longer than its place was kept is as good as any.
                *running = running.saturating_sub(1);
                *succeeded += 1;
                if *succeeded >= PROBES {
                    self.change(State::Closed { outcomes: VecDeque::new() });
                }
            }
        }
    }

    /// For people: `closed`, `open` or `half_open`.
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
