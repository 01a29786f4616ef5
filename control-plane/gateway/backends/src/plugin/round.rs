//! One attempt over several runtimes, as long as each rejects the call.
//!
//! Keeps true: no runtime is asked twice; the final rejection is the most hopeful one, so that a call waits where
//! waiting for one of the runtimes helps.

use std::sync::Arc;

use asp_runtime_client::admission::Rejection;
use asp_runtime_client::runtimes::Runtime;

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
    use std::time::Duration;

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
