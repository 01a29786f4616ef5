//! A delegation from the request until its answer, whoever asked and whoever answers.
//!
//! Keeps true: a question to the client is put immediately, in its place among the events, and only its answer is
//! waited for; the answer fits the delegate's output schema; a delegation leaves one metric and one audit line.

use std::time::Duration;

use asp_call::call::question::{Ask, PendingQuestion, Question, put};
use asp_call::telemetry::metrics::Usage;
use asp_json::Json;
use asp_snapshot::Dependency;
use serde_json::{Map, Value, json};

use super::answer::{self, DelegateAnswer};
use super::delegation::{Delegation, DelegationFault, Way};
use super::{Delegates, record};

/// Token limit of a model if nobody states one: MCP requires a limit.
pub(crate) const DEFAULT_TOKENS: u32 = 1024;
/// Time limit of a model if neither the code that asks nor the spec states one.
pub(crate) const DEFAULT_TIME: Duration = Duration::from_secs(300);
/// Maximum input of a model in bytes, as JSON text.
pub(crate) const MAX_INPUT: usize = 512 << 10;

/// A delegation whose answer is pending.
pub(crate) struct PendingDelegation {
    delegation: Delegation,
    way: Way,
    /// The question to the client; `None` if the platform answers.
    asked: Option<PendingQuestion>,
}

/// Answer to a delegation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckedAnswer {
    /// An MCP `CreateMessageResult`.
    pub said: Json,
    /// The same in the form for a plugin.
    pub result: Json,
}

impl PendingDelegation {
    /// Starts a delegation. `question` returns the id of the question to the client, if the client is asked.
    pub(crate) fn begin(
        delegates: &Delegates,
        delegation: Delegation,
        question: impl FnOnce() -> String,
    ) -> Result<PendingDelegation, DelegationFault> {
        let delegate = delegation.delegate()?;
        let is_conversation = delegation.is_conversation;
        let way = delegates.way(&delegation.call, delegate, &delegation.sampling, is_conversation)?;
        let asked = match way {
            Way::Client => {
                let ask = match delegate.entry.primitive.asks_roots {
                    true => Ask::Roots,
                    false => Ask::Sampling(Value::Object(client_params(&delegation)).into()),
                };
                let put = put(&delegation.call, Question { id: question(), ask });
                let asked = put.map_err(|_| DelegationFault::Unsupported)?;
                Some(asked.within(delegation.until.saturating_duration_since(delegation.began)))
            }
            Way::Model | Way::Primitive => None,
        };
        Ok(PendingDelegation { delegation, way, asked })
    }

    /// Waits for the answer, checks it and records it.
    pub(crate) async fn answered(self, delegates: &Delegates) -> Result<CheckedAnswer, DelegationFault> {
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

/// Builds the parameters of `sampling/createMessage`: the spec's constant part and the input as one message.
pub(crate) fn sampling(delegate: &Dependency, input: &Json) -> Map<String, Value> {
    let mut params = delegate.question.clone();
    let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
    params.insert("messages".into(), json!([{"role": "user", "content": {"type": "text", "text": text}}]));
    params.entry("maxTokens").or_insert(json!(DEFAULT_TOKENS));
    params
}

/// Returns the request for the client, with its servers' context only if it declares that it supports that.
fn client_params(delegation: &Delegation) -> Map<String, Value> {
    let mut params = delegation.sampling.clone();
    if !delegation.call.abilities().sampling_context {
        params.remove("includeContext");
    }
    params
}

fn checked(
    answered: DelegateAnswer,
    delegation: &Delegation,
    way: Way,
) -> Result<CheckedAnswer, DelegationFault> {
    let is_conversation = delegation.is_conversation && way != Way::Primitive;
    let asked = is_conversation.then_some(&delegation.sampling);
    let result = answer::result(&answered.said, &delegation.delegate()?.entry, asked)?;
    Ok(CheckedAnswer { said: answered.said, result })
}
