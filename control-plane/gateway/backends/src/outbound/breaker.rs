//! Circuit breakers, one for each server's requests to one upstream origin.
//!
//! Owns: which breaker a request belongs to, what its end says about the service, and the last failure of each. Keeps true: the failures of one
//! server's paths pause no other server at the same origin; only failures of the infrastructure count, never a tool's
//! own error; a service that is silent until a fair deadline has failed; a request that its caller gave up, or gave
//! too little time, says nothing; a dropped permit is released.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::terms::runtime_bound;
use asp_platform::breaker::{Breaker, Outcome};
use asp_platform::clock;
use asp_registry::origin_of;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of breakers. Specs name the origins, so this bounds a mistake, not a client; beyond it the least
/// recently used one is forgotten.
const MAX_BREAKERS: usize = 10_000;
/// Silence for this long counts as a failure; a shorter time limit is the caller's choice.
pub(crate) const FAIR_TIME: Duration = Duration::from_secs(10);

/// Time for which a failure is reported.
const REPORTED_FOR: Duration = Duration::from_secs(600);
/// Maximum length of a reported cause in bytes.
const MAX_CAUSE: usize = 200;
/// Cause of a failure that has no text of its own.
const NO_ANSWER: &str = "the service gave no valid answer in time";

/// A service with a recent failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// Server whose requests failed.
    pub server: String,
    pub origin: String,
    /// State of the breaker: `closed`, `open` or `half_open`.
    pub breaker: &'static str,
    /// Time of the last failure in Unix milliseconds, and its cause.
    pub failed_at: u64,
    pub cause: String,
}

/// Breakers by server and origin.
#[derive(Default)]
pub(crate) struct Breakers {
    by_name: Mutex<HashMap<String, KeptBreaker>>,
}

struct KeptBreaker {
    origin: Arc<Mutex<Origin>>,
    used: Instant,
}

#[derive(Default)]
struct Origin {
    breaker: Breaker,
    /// Number of the last request.
    requests: u64,
    last_failure: Option<RequestFailure>,
}

struct RequestFailure {
    cause: String,
    at: Instant,
    /// The same time in Unix milliseconds.
    wall_time: u64,
}

/// Permit for one request. If dropped, the request was given up, or the service was silent for too long.
pub(crate) struct Permit {
    origin: Arc<Mutex<Origin>>,
    number: u64,
    patience: Option<Instant>,
    settled: bool,
    /// Cause of the failure, if the result names one.
    cause: Option<String>,
}

impl Breakers {
    /// Fails immediately while the breaker of the server's requests to the origin is open. Silence beyond `patience`
    /// is the service's failure; `None` if the end of the wait says nothing about the service.
    pub(crate) fn enter(
        &self,
        server: &str,
        origin: &str,
        patience: Option<Instant>,
    ) -> Result<Permit, Refusal> {
        let origin = self.of(server, origin);
        let number = {
            let mut origin = origin.lock();
            origin.requests += 1;
            let number = origin.requests;
            origin.breaker.admit(number, Instant::now().into_std()).then_some(number)
        };
        match number {
            Some(number) => Ok(Permit { origin, number, patience, settled: false, cause: None }),
            None => Err(Refusal::Upstream("the service failed repeatedly and gets no requests now".into())),
        }
    }

    /// Enters for a call, whose request goes to `url`.
    pub(crate) fn enter_for(&self, call: &Call, url: &str) -> Result<Permit, Refusal> {
        self.enter(&call.server.message.name, origin_of(url), patience(call))
    }

    /// Returns the services with a failure in the last ten minutes, the latest first.
    pub(crate) fn failing(&self) -> Vec<UpstreamFailure> {
        let mut failing: Vec<UpstreamFailure> =
            self.by_name.lock().iter().filter_map(|(name, kept)| kept.failure(name)).collect();
        failing.sort_by_key(|failure| std::cmp::Reverse(failure.failed_at));
        failing
    }

    fn of(&self, server: &str, origin: &str) -> Arc<Mutex<Origin>> {
        // Names of servers contain no space.
        let name = format!("{server} {origin}");
        let used = Instant::now();
        let mut by_name = self.by_name.lock();
        if by_name.len() >= MAX_BREAKERS && !by_name.contains_key(&name) {
            let oldest = by_name.iter().min_by_key(|(_, kept)| kept.used).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                by_name.remove(&oldest);
            }
        }
        let kept = by_name.entry(name).or_insert_with(|| KeptBreaker { origin: Arc::default(), used });
        kept.used = used;
        Arc::clone(&kept.origin)
    }
}

impl KeptBreaker {
    fn failure(&self, name: &str) -> Option<UpstreamFailure> {
        let (server, url) = name.split_once(' ')?;
        let origin = self.origin.lock();
        let last = origin.last_failure.as_ref().filter(|last| last.at.elapsed() < REPORTED_FOR)?;
        Some(UpstreamFailure {
            server: server.to_owned(),
            origin: url.to_owned(),
            breaker: origin.breaker.name(),
            failed_at: last.wall_time,
            cause: last.cause.clone(),
        })
    }
}

/// Returns the cause of a failure of the service; `None` for another refusal.
fn cause(call: &Call, refusal: &Refusal) -> Option<String> {
    let mut cause = match refusal {
        Refusal::OutcomeUnknown => call.failure_cause().unwrap_or_else(|| refusal.to_string()),
        Refusal::Upstream(_) | Refusal::Deadline | Refusal::Declined(_) => refusal.to_string(),
        _ => return None,
    };
    cause.truncate(cause.floor_char_boundary(MAX_CAUSE));
    Some(cause)
}

/// Returns the time until which a service that runs `call` may be silent. `None` if the caller shortened the time, or
/// so little time is left that a timeout proves nothing: callers must not be able to shut off a service for others.
pub(crate) fn patience(call: &Call) -> Option<Instant> {
    let fair = FAIR_TIME.min(runtime_bound(&call.entry.primitive) / 2);
    let given = call.deadline().saturating_duration_since(Instant::now());
    (given >= fair && !call.is_shortened()).then_some(call.deadline())
}

impl Permit {
    /// Records the result of the call's request.
    pub(crate) fn leave(mut self, call: &Call, result: &Result<Output, Refusal>) {
        self.cause = result.as_ref().err().and_then(|refusal| cause(call, refusal));
        self.record(result);
    }

    fn record(self, result: &Result<Output, Refusal>) {
        match result {
            Err(Refusal::Upstream(_) | Refusal::OutcomeUnknown | Refusal::Deadline) => {
                self.settle(Outcome::Failure);
            }
            Ok(_)
            | Err(
                Refusal::Declined(_)
                | Refusal::Relayed { .. }
                | Refusal::PagesFirst { .. }
                | Refusal::Limited { .. }
                | Refusal::InvalidOutput { .. },
            ) => {
                self.settle(Outcome::Success);
            }
            // Cancelled, or never sent.
            Err(_) => {}
        }
    }

    /// Records the outcome of a request that has no output.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        self.settled = true;
        let now = Instant::now();
        let unnamed = || (outcome == Outcome::Failure).then(|| NO_ANSWER.to_owned());
        let cause = self.cause.take().or_else(unnamed);
        let mut origin = self.origin.lock();
        if let Some(cause) = cause {
            origin.last_failure = Some(RequestFailure { cause, at: now, wall_time: clock::now_ms() });
        }
        origin.breaker.ended(self.number, outcome, now.into_std());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.settled {
            let is_late = self.patience.is_some_and(|end| Instant::now() >= end);
            self.end(if is_late { Outcome::Failure } else { Outcome::Abandoned });
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_platform::breaker::REST;

    use super::*;

    fn outcome(ok: bool) -> Result<Output, Refusal> {
        if ok { Ok(Output::tool_error("its own fault")) } else { Err(Refusal::Upstream("x".into())) }
    }

    fn opened() -> Breakers {
        let breakers = Breakers::default();
        while let Ok(permit) = breakers.enter("s", "a", None) {
            permit.record(&outcome(false));
        }
        breakers
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_origin_is_paused_and_its_neighbour_is_not() {
        let breakers = opened();
        assert!(breakers.enter("s", "a", None).is_err());
        assert!(breakers.enter("s", "b", None).is_ok());
        assert!(breakers.enter("other", "a", None).is_ok(), "another server's requests there");
        tokio::time::advance(REST).await;
        let probes: Vec<_> = std::iter::from_fn(|| breakers.enter("s", "a", None).ok()).collect();
        assert_eq!(probes.len(), 3);
        for probe in probes {
            probe.record(&outcome(true));
        }
        assert!(breakers.enter("s", "a", None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_only_what_was_unused_for_longest_is_forgotten() {
        let breakers = Breakers::default();
        breakers.enter("s", "old", None).unwrap().settle(Outcome::Success);
        tokio::time::advance(Duration::from_secs(1)).await;
        while let Ok(permit) = breakers.enter("s", "a", None) {
            permit.record(&outcome(false));
        }
        for number in 2..=MAX_BREAKERS {
            drop(breakers.enter("s", &number.to_string(), None));
        }
        assert_eq!(breakers.by_name.lock().len(), MAX_BREAKERS);
        assert!(!breakers.by_name.lock().contains_key("s old"));
        assert!(breakers.enter("s", "a", None).is_err(), "an open breaker stays open");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_refused_while_probes_run_do_not_keep_it_shut() {
        let breakers = opened();
        tokio::time::advance(REST).await;
        let probes: Vec<_> = std::iter::from_fn(|| breakers.enter("s", "a", None).ok()).collect();
        for _ in 0..100 {
            assert!(breakers.enter("s", "a", None).is_err());
        }
        drop(probes);
        for _ in 0..3 {
            breakers.enter("s", "a", None).unwrap().settle(Outcome::Success);
        }
        assert!(breakers.enter("s", "a", None).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_silent_until_a_fair_deadline_has_failed() {
        let breakers = Breakers::default();
        for _ in 0..10 {
            let permit = breakers.enter("s", "a", Some(Instant::now() + Duration::from_secs(1))).unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
            permit.record(&Err(Refusal::Cancelled));
        }
        assert!(breakers.enter("s", "a", None).is_err(), "hangs open it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_callers_cancel_and_its_bad_arguments_say_nothing() {
        let breakers = Breakers::default();
        let bad = Err(Refusal::InvalidArguments { pointer: String::new(), message: String::new() });
        for given_up in [Err(Refusal::Cancelled), bad] {
            for _ in 0..100 {
                let permit = breakers.enter("s", "a", Some(Instant::now() + Duration::from_secs(1))).unwrap();
                permit.record(&given_up);
            }
        }
        // They would have outweighed these, or closed the breaker by themselves.
        for _ in 0..10 {
            breakers.enter("s", "a", None).unwrap().record(&outcome(false));
        }
        assert!(breakers.enter("s", "a", None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_failure_of_a_service_is_reported_for_a_while() {
        let breakers = opened();
        breakers.enter("s", "good", None).unwrap().record(&outcome(true));
        let shown = |breakers: &Breakers| {
            let failing = breakers.failing().into_iter();
            failing.map(|one| (one.server, one.origin, one.breaker, one.cause)).collect::<Vec<_>>()
        };
        let entry = |state: &'static str| vec![("s".to_owned(), "a".to_owned(), state, NO_ANSWER.to_owned())];
        assert_eq!(shown(&breakers), entry("open"));
        tokio::time::advance(REST).await;
        for _ in 0..3 {
            breakers.enter("s", "a", None).unwrap().record(&outcome(true));
        }
        assert_eq!(shown(&breakers), entry("closed"), "it recovered");
        let mut refused = breakers.enter("s", "a", None).unwrap();
        refused.cause = Some("the service does not accept calls of this platform".into());
        refused.record(&Err(Refusal::Declined(String::new())));
        assert_eq!(shown(&breakers)[0].3, "the service does not accept calls of this platform");
        tokio::time::advance(REPORTED_FOR).await;
        assert!(breakers.failing().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_pauses_again_and_tool_errors_never_count() {
        let breakers = Breakers::default();
        for _ in 0..20 {
            breakers.enter("s", "b", None).unwrap().record(&outcome(true));
        }
        assert!(breakers.enter("s", "b", None).is_ok());
        let breakers = opened();
        tokio::time::advance(REST).await;
        breakers.enter("s", "a", None).unwrap().record(&outcome(false));
        assert!(breakers.enter("s", "a", None).is_err());
    }
}
