//! Circuit breakers, one per upstream origin.
//!
//! Opens when half of the last 20 requests failed (of at least 10), for 10 s; then lets 3 probes through and
//! closes when they succeed. Only failures of the infrastructure count, never a tool's own error.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::outcome::{Output, Refusal};

const WINDOW: usize = 20;
const LEAST: usize = 10;
const OPEN_FOR: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// Most origins; specs name them, so this bounds a mistake, not a client.
const MAX_ORIGINS: usize = 10_000;

/// The breakers by origin.
#[derive(Default)]
pub(in crate::executors) struct Breakers {
    by_origin: Mutex<HashMap<String, Arc<Mutex<Breaker>>>>,
}

enum Breaker {
    Closed { recent: VecDeque<bool> },
    Open { until: Instant },
    HalfOpen { sent: u32, succeeded: u32 },
}

/// Leave to send one request. Dropped without an end, it counts as not used.
pub(in crate::executors) struct Permit {
    breaker: Arc<Mutex<Breaker>>,
    settled: bool,
}

impl Breakers {
    /// Refuses at once while the origin's breaker is open.
    pub(in crate::executors) fn enter(&self, origin: &str) -> Result<Permit, Refusal> {
        let breaker = {
            let mut by_origin = self.by_origin.lock();
            if by_origin.len() >= MAX_ORIGINS && !by_origin.contains_key(origin) {
                by_origin.clear();
            }
            let closed = || Arc::new(Mutex::new(Breaker::Closed { recent: VecDeque::new() }));
            by_origin.entry(origin.to_owned()).or_insert_with(closed).clone()
        };
        if breaker.lock().admits() {
            Ok(Permit { breaker, settled: false })
        } else {
            Err(Refusal::Upstream("the service has failed repeatedly and is given a pause".into()))
        }
    }
}

impl Permit {
    /// Records how the request went.
    pub(in crate::executors) fn leave(self, result: &Result<Output, Refusal>) {
        let failed =
            matches!(result, Err(Refusal::Upstream(_) | Refusal::OutcomeUnknown | Refusal::Deadline));
        self.settle(!failed);
    }

    /// Records how the request went, where no output says it.
    pub(in crate::executors) fn settle(mut self, succeeded: bool) {
        self.settled = true;
        self.breaker.lock().record(succeeded);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // A probe that nobody waited for says nothing; another one may be sent.
        if let Breaker::HalfOpen { sent, .. } = &mut *self.breaker.lock() {
            *sent = sent.saturating_sub(1);
        }
    }
}

impl Breaker {
    fn admits(&mut self) -> bool {
        if let Breaker::Open { until } = self
            && Instant::now() >= *until
        {
            *self = Breaker::HalfOpen { sent: 0, succeeded: 0 };
        }
        match self {
            Breaker::Closed { .. } => true,
            Breaker::Open { .. } => false,
            Breaker::HalfOpen { sent, .. } => {
                *sent += 1;
                *sent <= PROBES
            }
        }
    }

    fn record(&mut self, succeeded: bool) {
        let open = || Breaker::Open { until: Instant::now() + OPEN_FOR };
        match self {
            Breaker::Closed { recent } => {
                if recent.len() == WINDOW {
                    recent.pop_front();
                }
                recent.push_back(succeeded);
                let failures = recent.iter().filter(|ok| !**ok).count();
                if recent.len() >= LEAST && failures * 2 >= recent.len() {
                    *self = open();
                }
            }
            Breaker::HalfOpen { .. } if !succeeded => *self = open(),
            Breaker::HalfOpen { succeeded: good, .. } => {
                *good += 1;
                if *good >= PROBES {
                    *self = Breaker::Closed { recent: VecDeque::new() };
                }
            }
            // A request from before the breaker opened.
            Breaker::Open { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ok: bool) -> Result<Output, Refusal> {
        if ok { Ok(Output::tool_error("its own fault")) } else { Err(Refusal::Upstream("x".into())) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_origin_is_paused_and_its_neighbour_is_not() {
        let breakers = Breakers::default();
        for _ in 0..LEAST {
            breakers.enter("a").unwrap().leave(&outcome(false));
        }
        assert!(breakers.enter("a").is_err());
        assert!(breakers.enter("b").is_ok());
        tokio::time::advance(OPEN_FOR).await;
        let probes: Vec<_> = (0..PROBES).map(|_| breakers.enter("a").unwrap()).collect();
        assert!(breakers.enter("a").is_err());
        for probe in probes {
            probe.leave(&outcome(true));
        }
        assert!(breakers.enter("a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_was_given_up_makes_room_for_another() {
        let breakers = Breakers::default();
        for _ in 0..LEAST {
            breakers.enter("a").unwrap().leave(&outcome(false));
        }
        tokio::time::advance(OPEN_FOR).await;
        for _ in 0..2 * PROBES {
            drop(breakers.enter("a").unwrap());
        }
        for _ in 0..PROBES {
            breakers.enter("a").unwrap().settle(true);
        }
        assert!(breakers.enter("a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_pauses_again_and_tool_errors_never_count() {
        let breakers = Breakers::default();
        for _ in 0..WINDOW {
            breakers.enter("a").unwrap().leave(&outcome(true));
        }
        assert!(breakers.enter("a").is_ok());
        for _ in 0..WINDOW {
            if let Ok(permit) = breakers.enter("a") {
                permit.leave(&outcome(false));
            }
        }
        tokio::time::advance(OPEN_FOR).await;
        breakers.enter("a").unwrap().leave(&outcome(false));
        assert!(breakers.enter("a").is_err());
    }
}
