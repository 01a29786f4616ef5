//! One delegation: who is to answer it, and the reasons for a missing answer.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::execution::{Execution, Platform};
use asp_json::Json;
use asp_snapshot::{Dependency, Snapshot};
use serde_json::Map;
use serde_json::Value;
use tokio::time::Instant;

/// Reason why a delegation has no answer (runtime/README.md, closed set).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegationFault {
    /// The primitive's spec does not name this delegate.
    Undeclared,
    /// Neither the caller's client nor the platform can answer.
    Unsupported,
    /// The input exceeds its bound.
    TooLarge,
    /// The input is invalid.
    InvalidInput,
    /// A rate limit, or too many delegations at a time.
    Limited,
    /// The request was understood and declined: by policy, or by the party that was asked.
    Refused,
    /// The party that is to answer cannot be reached, fails, or sends an invalid answer.
    Unavailable,
    /// No answer arrived in time.
    Expired,
    /// The answer does not fit the output schema.
    InvalidOutput,
    /// The call was cancelled.
    Cancelled,
    /// The party that was asked failed; with its message, which may be empty.
    Failed(String),
}

impl DelegationFault {
    /// Returns the fault of a question whose wait ended without an answer.
    pub(crate) const fn unanswered(refusal: &Refusal) -> DelegationFault {
        match refusal {
            Refusal::Cancelled => DelegationFault::Cancelled,
            _ => DelegationFault::Expired,
        }
    }

    /// Returns the word of the closed set.
    pub const fn word(&self) -> &'static str {
        match self {
            DelegationFault::Undeclared => "undeclared",
            DelegationFault::Unsupported => "unsupported",
            DelegationFault::TooLarge => "too_large",
            DelegationFault::InvalidInput => "invalid_input",
            DelegationFault::Limited => "limited",
            DelegationFault::Refused => "refused",
            DelegationFault::Unavailable => "unavailable",
            DelegationFault::Expired => "expired",
            DelegationFault::InvalidOutput => "invalid_output",
            DelegationFault::Cancelled => "cancelled",
            DelegationFault::Failed(_) => "failed",
        }
    }

    /// Returns the text for the plugin: the word, and after `failed` the message of the party that failed.
    pub fn text(&self) -> String {
        match self {
            DelegationFault::Failed(said) if !said.is_empty() => format!("failed: {said}"),
            other => other.word().to_owned(),
        }
    }
}

/// Source of a delegation's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The caller's client, with its own model.
    Client,
    /// A model of the platform.
    Model,
    /// Another primitive.
    Primitive,
}

impl Way {
    /// Returns the name for metrics and audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Way::Client => "client",
            Way::Model => "model",
            Way::Primitive => "primitive",
        }
    }
}

/// One delegation, with everything that is needed to answer it.
pub struct Delegation {
    pub call: Arc<Call>,
    pub snapshot: Arc<Snapshot>,
    pub platform: Arc<dyn Platform>,
    /// The delegate's id.
    pub id: String,
    /// Correlation id, unique within the call.
    pub correlation: String,
    pub input: Json,
    /// The parameters of MCP's `sampling/createMessage`.
    pub sampling: Map<String, Value>,
    /// Whether the messages are the code's own, instead of an input.
    pub is_conversation: bool,
    pub began: Instant,
    /// Time limit of the answer; never later than the call's deadline.
    pub until: Instant,
}

impl Delegation {
    /// Creates a delegation of a call without its question; the answer takes at most `longest`, or the rest of the call.
    pub(crate) fn of(execution: &Execution, longest: Duration) -> Delegation {
        let began = Instant::now();
        Delegation {
            call: execution.call.clone(),
            snapshot: execution.snapshot.clone(),
            platform: execution.platform.clone(),
            id: String::new(),
            correlation: String::new(),
            input: Value::Null.into(),
            sampling: Map::new(),
            is_conversation: false,
            began,
            until: execution.call.deadline().min(began + longest),
        }
    }

    /// Returns the delegate, which is in the snapshot that the delegation was made with.
    pub(crate) fn delegate(&self) -> Result<&Dependency, DelegationFault> {
        self.snapshot.dependencies.get(&self.id).map(|found| &**found).ok_or(DelegationFault::Undeclared)
    }
}
