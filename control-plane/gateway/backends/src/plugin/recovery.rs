//! Recovery of a call whose worker or runtime is lost or rejects it.
//!
//! Owns: the only decision between another attempt and an end; the runtimes that have rejected an attempt. Keeps true: a
//! delivered call runs again only if the plugin resumes from its checkpoint or a repetition is harmless (ADR 6); the
//! number of attempts is bounded. In one attempt no runtime is asked twice, and the final rejection is the most hopeful
//! one, so that a call waits where waiting for one of the runtimes helps.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Output, Refusal};
use asp_proto::plugin::Asked;
use asp_runtime_client::admission::Rejection;
use asp_runtime_client::runtimes::Runtime;
use asp_runtime_client::tunnel::TunnelFault;
use tokio::time::Instant;
use tonic::Code;

use super::admission::refusal;
use super::attempt_state::AttemptState;

/// Maximum number of executions of one call that resumes.
const MAX_RESUMES: u32 = 32;
/// Maximum number of repetitions of a call that does not resume.
const MAX_REPEATS: u32 = 1;
/// Maximum number of times a lost call asks a runtime that does not take it: with the waits below, about a minute.
const MAX_REFUSED: u32 = 40;
/// Maximum number of times a new call asks a runtime that is being replaced: with the waits below, some ten seconds.
const MAX_REPLACED: u32 = 10;
/// First wait before another attempt; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(25);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Minimum time left for another attempt.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Outcome of one attempt.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    Ended(Result<Output, Refusal>),
    /// No worker took the call.
    Rejected(Rejection),
    /// The worker was lost without a result.
    Lost {
        delivered: bool,
        why: String,
    },
    /// A read or a prompt ended with questions.
    Asked(Asked),
}

impl AttemptOutcome {
    /// Returns the outcome after the loss of a worker, or a violation of the protocol by it.
    pub(super) fn of_loss(call: &Call, why: &str) -> AttemptOutcome {
        AttemptOutcome::Lost { delivered: call.was_handed_over(), why: why.to_owned() }
    }

    /// Returns the outcome after a fault of the tunnel.
    pub(super) fn of_fault(call: &Call, fault: &TunnelFault) -> AttemptOutcome {
        match fault {
            // The call was not delivered to a second worker.
            TunnelFault::Cut(status) if status.code() == Code::AlreadyExists => {
                AttemptOutcome::Rejected(Rejection::StillEnding)
            }
            TunnelFault::Cut(status) => AttemptOutcome::of_loss(call, status.message()),
            TunnelFault::Garbage(what) => AttemptOutcome::of_loss(call, what),
        }
    }

    /// Returns the outcome of a call that was cancelled.
    pub(super) const fn cancelled() -> AttemptOutcome {
        AttemptOutcome::Ended(Err(Refusal::Cancelled))
    }
}

/// Decision after an attempt.
#[derive(Debug)]
pub(super) enum Next {
    Done(Result<Output, Refusal>),
    Again { at: Instant },
}

/// Attempts of one call so far.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// The call was delivered to a worker at least once.
    begun: bool,
    /// A runtime was lost before a worker had the call: it may soon be back.
    cut: bool,
    repeats: u32,
    resumes: u32,
    /// Rejections, or losses before delivery, since the last delivery.
    refused: u32,
}

impl Recovery {
    pub(super) fn after(&mut self, call: &Call, attempt_state: &AttemptState, ended: AttemptOutcome) -> Next {
        let unlucky = match ended {
            AttemptOutcome::Ended(result) => return Next::Done(result),
            AttemptOutcome::Lost { delivered: true, why } => {
                tracing::warn!(call = %call.id, trace = %call.trace, %why, "a worker was lost during a call, which continues with another one if that is safe, and otherwise ends with an unknown outcome");
                self.begun = true;
                self.refused = 0;
                return self.after_loss(call, attempt_state);
            }
            AttemptOutcome::Lost { delivered: false, why } => {
                tracing::warn!(call = %call.id, trace = %call.trace, %why, "a worker was lost before it took a call, which is sent to another one");
                self.cut = true;
                None
            }
            AttemptOutcome::Rejected(rejection) => Some(rejection),
            // Its answers are awaited before the next attempt.
            AttemptOutcome::Asked(_) => return again(call, Duration::ZERO),
        };
        self.after_refusal(call, unlucky)
    }

    /// Decides for a call whose gateway is gone, and its worker with it.
    pub(super) fn taken_over(&mut self, call: &Call, attempt_state: &AttemptState) -> Next {
        self.begun = true;
        self.after_loss(call, attempt_state)
    }

    /// Decides after the loss of a worker that had the call.
    fn after_loss(&mut self, call: &Call, attempt_state: &AttemptState) -> Next {
        let (count, most) = if attempt_state.resumes() {
            (&mut self.resumes, MAX_RESUMES)
        } else if call.may_repeat() {
            (&mut self.repeats, MAX_REPEATS)
        } else {
            return Next::Done(Err(Refusal::OutcomeUnknown));
        };
        *count += 1;
        if *count > most {
            return Next::Done(Err(unfinished(call)));
        }
        again(call, FIRST_WAIT)
    }

    /// Decides after no worker took the call. `None`: a worker would have taken it but was lost.
    fn after_refusal(&mut self, call: &Call, rejection: Option<Rejection>) -> Next {
        self.refused += 1;
        if self.begun {
            let passes = rejection.as_ref().is_none_or(Rejection::passes);
            if !passes || self.refused > MAX_REFUSED {
                return Next::Done(Err(unfinished(call)));
            }
            return again(call, self.wait());
        }
        match rejection {
            Some(Rejection::Unreachable) if self.cut && self.refused <= MAX_REFUSED => {
                again(call, self.wait())
            }
            Some(Rejection::StillEnding) if self.refused <= MAX_REFUSED => again(call, self.wait()),
            // The successor will be there soon.
            Some(Rejection::Draining | Rejection::JustLost) if self.refused <= MAX_REPLACED => {
                again(call, self.wait())
            }
            None if self.refused <= MAX_REPEATS => again(call, Duration::ZERO),
            None => {
                Next::Done(Err(Refusal::Upstream("the plugin's worker died before it took the call".into())))
            }
            Some(rejection) => Next::Done(Err(refusal(rejection))),
        }
    }

    /// Returns the wait before a runtime that does not take the call is asked again.
    fn wait(&self) -> Duration {
        FIRST_WAIT.saturating_mul(2_u32.saturating_pow(self.refused)).min(LONGEST_WAIT)
    }
}

fn again(call: &Call, wait: Duration) -> Next {
    let at = Instant::now() + wait;
    if call.deadline().saturating_duration_since(at) < LEAST_TIME {
        return Next::Done(Err(unfinished(call)));
    }
    Next::Again { at }
}

/// Returns the refusal of a call that no worker finished.
fn unfinished(call: &Call) -> Refusal {
    let why = Refusal::Upstream("the plugin's worker was lost".into());
    if call.was_handed_over() { call.unanswered(why) } else { why }
}

/// Runtimes that have rejected the call, and the most hopeful rejection.
#[derive(Default)]
pub(super) struct Round {
    refused: Vec<Arc<Runtime>>,
    best: Option<Rejection>,
}

impl Round {
    pub(super) fn add(&mut self, runtime: Arc<Runtime>, rejection: Rejection) {
        self.refused.push(runtime);
        if self.best.as_ref().is_none_or(|best| hope(&rejection) < hope(best)) {
            self.best = Some(rejection);
        }
    }

    pub(super) fn refused(&self) -> &[Arc<Runtime>] {
        &self.refused
    }

    /// Returns the combined rejection; `Unreachable` if there was no runtime.
    pub(super) fn rejection(self) -> Rejection {
        self.best.unwrap_or(Rejection::Unreachable)
    }
}

/// Ranks a rejection; the lower, the sooner waiting helps.
fn hope(rejection: &Rejection) -> u8 {
    match rejection {
        Rejection::StillEnding => 0,
        // The successor will be there soon.
        Rejection::Draining | Rejection::JustLost => 1,
        Rejection::Busy { .. } => 2,
        Rejection::Host(_) => 3,
        Rejection::Unreachable => 4,
        Rejection::Unhealthy(_) => 5,
        Rejection::PutOff(_) => 6,
        Rejection::Unusable(_) | Rejection::Refuses(_) => 7,
        Rejection::Impossible(_) => 8,
    }
}

#[cfg(test)]
mod tests {
    use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};

    use super::*;

    #[tokio::test]
    async fn a_call_is_told_what_is_most_hopeful_of_all_refusals() {
        let target =
            RuntimeTarget { languages: vec!["python".into()], url: "unix:/nowhere".into(), peer: None };
        let runtimes = Runtimes::new(vec![target]).unwrap();
        let runtime = runtimes.all().borrow()[0].clone();
        let busy = || Rejection::Busy { retry_after: Duration::from_secs(1) };
        let unhealthy = || Rejection::Unhealthy("quarantined: it crashes".into());
        let said = |rejections: Vec<Rejection>| {
            let mut round = Round::default();
            rejections.into_iter().for_each(|rejection| round.add(runtime.clone(), rejection));
            round.rejection()
        };
        assert_eq!(said(vec![]), Rejection::Unreachable);
        assert_eq!(said(vec![unhealthy(), busy(), Rejection::Unreachable]), busy());
        assert_eq!(said(vec![busy(), Rejection::Draining]), Rejection::Draining);
        assert_eq!(said(vec![Rejection::Impossible("it".into()), unhealthy()]), unhealthy());
    }
}
