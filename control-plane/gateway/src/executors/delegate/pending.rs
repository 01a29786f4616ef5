//! A delegation from the moment it was asked until it is answered, whoever asked and whoever answers.
//!
//! Keeps true: a question to the client is put at once, so that it stands where it was asked, and only its answer is
//! waited for; the answer fits the delegate's output schema; a delegation leaves one metric and one audit line.

use asp_json::Json;
use serde_json::{Map, Value};

use super::answer::{self, Answered};
use super::delegation::{Delegation, Fault, Way};
use super::{Delegates, record};
use crate::call::question::{Ask, PendingQuestion, Question, put};
use crate::telemetry::metrics::delegations::Usage;

/// What a model may say where nobody names an amount: MCP requires one.
pub(crate) const DEFAULT_TOKENS: u32 = 1024;

/// A delegation that goes its way.
pub(crate) struct PendingDelegation {
    delegation: Delegation,
    way: Way,
    /// The question to the client; `None` where the platform answers.
    asked: Option<PendingQuestion>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// An MCP `CreateMessageResult`.
    pub said: Json,
    /// The same as a plugin gets it.
    pub result: Value,
}

impl PendingDelegation {
    /// `question`: the id of the question to the client, where that is asked.
    pub(crate) fn begin(
        delegation: Delegation,
        way: Way,
        question: impl FnOnce() -> String,
    ) -> Result<PendingDelegation, Fault> {
        let asked = match way {
            Way::Client => {
                let ask = match delegation.delegate()?.entry.primitive.asks_roots {
                    true => Ask::Roots,
                    false => Ask::Sampling(Value::Object(shown(&delegation)).into()),
                };
                let put = put(&delegation.call, Question { id: question(), ask });
                let asked = put.map_err(|_| Fault::Unsupported)?;
                Some(asked.within(delegation.until.saturating_duration_since(delegation.began)))
            }
            Way::Model | Way::Primitive => None,
        };
        Ok(PendingDelegation { delegation, way, asked })
    }

    /// Waits for the answer, checks and records it.
    pub(crate) async fn answered(self, delegates: &Delegates) -> Result<Answer, Fault> {
        let PendingDelegation { delegation, way, asked } = self;
        let answered = match asked {
            Some(asked) => answer::of_client(asked, &delegation.call).await,
            None => delegates.answer(way, &delegation).await,
        };
        let usage = answered.as_ref().map_or_else(|_| Usage::default(), |answered| answered.usage);
        let checked = answered.and_then(|answered| checked(answered, &delegation, way));
        record::ended(&delegation, way, checked.as_ref().map(drop), usage).await;
        checked
    }
}

/// What the client is asked: of its servers' context only what it declares that it can show.
fn shown(delegation: &Delegation) -> Map<String, Value> {
    let mut params = delegation.sampling.clone();
    if !delegation.call.abilities().sampling_context {
        params.remove("includeContext");
    }
    params
}

fn checked(answered: Answered, delegation: &Delegation, way: Way) -> Result<Answer, Fault> {
    let told = delegation.is_conversation && way == Way::Client;
    let asked = told.then_some(&delegation.sampling);
    let result = answer::result(&answered.said, &delegation.delegate()?.entry, asked)?;
    Ok(Answer { said: answered.said, result })
}
