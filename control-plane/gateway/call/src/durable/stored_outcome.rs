//! The stored form of a call's outcome.
//!
//! Keeps true: an outcome is stored once; if the ledger has it under the call's key, it is only there.

use serde::{Deserialize, Serialize};

use crate::call::outcome::{Outcome, Output, Refusal};
use crate::call::ownership::LedgerClaim;
use crate::call::{Call, State};

/// The stored outcome of a call. Variants are only added: gateways of two versions share records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StoredOutcome {
    Done(Output),
    Refused(Refusal),
    /// The answer is in the ledger, under the call's key.
    InLedger(LedgerClaim),
    /// The call was completed, and its answer was too large.
    TooLarge,
}

impl StoredOutcome {
    /// Returns the outcome to store; what the ledger has, or may still get, is stored only there.
    pub(crate) fn of(call: &Call, outcome: &Outcome) -> StoredOutcome {
        match (outcome, call.ownership.claim()) {
            (Outcome::Done { .. } | Outcome::Refused(Refusal::OutcomeUnknown), Some(claim))
                if claim.mutating =>
            {
                StoredOutcome::InLedger(claim.clone())
            }
            (Outcome::Done { output, .. }, _) => StoredOutcome::Done(output.clone()),
            (Outcome::Refused(refusal), _) => StoredOutcome::Refused(refusal.clone()),
        }
    }

    /// Returns the state of the call; that of an outcome in the ledger is not known here.
    pub(crate) fn state(&self) -> State {
        match self {
            StoredOutcome::Done(_) | StoredOutcome::InLedger(_) | StoredOutcome::TooLarge => State::Completed,
            StoredOutcome::Refused(refusal) => refusal.state(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::{Disapproval, Withdrawal};
    use crate::call::page::Visit;

    #[test]
    fn a_refusal_is_told_as_it_was_and_only_a_limit_loses_its_name() {
        let refusals = [
            Refusal::Withdrawn(Withdrawal::TokenExpired),
            Refusal::NotApproved(Disapproval::Declined),
            Refusal::InvalidArguments { pointer: "/a".into(), message: "m".into() },
            Refusal::Relayed {
                code: -7,
                message: "m".into(),
                data: Some(serde_json::json!({"n": 1}).into()),
            },
            Refusal::PagesFirst {
                pages: vec![Visit { id: "v".into(), message: "m".into(), url: "https://a.example".into() }],
            },
            Refusal::Cancelled,
        ];
        let again = |refusal: Refusal| {
            let text = serde_json::to_vec(&StoredOutcome::Refused(refusal)).unwrap();
            serde_json::from_slice::<StoredOutcome>(&text).unwrap()
        };
        for refusal in refusals {
            assert_eq!(again(refusal.clone()), StoredOutcome::Refused(refusal));
        }
        let limited = again(Refusal::Limited { limit: "minute", retry_after_ms: 3 });
        assert_eq!(limited, StoredOutcome::Refused(Refusal::Limited { limit: "calls", retry_after_ms: 3 }));
    }
}
