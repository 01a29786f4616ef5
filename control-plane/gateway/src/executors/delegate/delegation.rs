//! One delegation: who is to answer it, and the words for why nobody did.

use std::sync::Arc;

use asp_json::Json;
use asp_snapshot::{Dependency, Snapshot};
use serde_json::Map;
use serde_json::Value;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::outcome::Refusal;
use crate::execution::Platform;

/// Why a delegation has no answer (runtime/README.md, closed set).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The primitive's spec does not name this delegate.
    Undeclared,
    /// Neither the caller's client nor the platform has anything that answers.
    Unsupported,
    /// The input is beyond its bound.
    TooLarge,
    /// The input does not fit.
    InvalidInput,
    /// A rate limit, or too many delegations at a time.
    Limited,
    /// It was understood and not done: by policy, or by whoever was asked.
    Refused,
    /// Whoever is to answer cannot be reached, fails, or speaks another language.
    Unavailable,
    /// Nothing came in time.
    Expired,
    /// There is an answer, and it does not fit the output schema.
    InvalidOutput,
    /// The call was cancelled.
    Cancelled,
    /// Whoever was asked failed, in its own words, which may be empty.
    Failed(String),
}

impl Fault {
    /// Fault of a question whose wait ended without an answer.
    pub(crate) const fn unanswered(refusal: &Refusal) -> Fault {
        match refusal {
            Refusal::Cancelled => Fault::Cancelled,
            _ => Fault::Expired,
        }
    }

    /// The word of the closed set.
    pub const fn word(&self) -> &'static str {
        match self {
            Fault::Undeclared => "undeclared",
            Fault::Unsupported => "unsupported",
            Fault::TooLarge => "too_large",
            Fault::InvalidInput => "invalid_input",
            Fault::Limited => "limited",
            Fault::Refused => "refused",
            Fault::Unavailable => "unavailable",
            Fault::Expired => "expired",
            Fault::InvalidOutput => "invalid_output",
            Fault::Cancelled => "cancelled",
            Fault::Failed(_) => "failed",
        }
    }

    /// What the plugin is told: the word, and after `failed` the words of whoever failed.
    pub fn text(&self) -> String {
        match self {
            Fault::Failed(said) if !said.is_empty() => format!("failed: {said}"),
            other => other.word().to_owned(),
        }
    }
}

/// Who answers a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The caller's client, with its own model.
    Client,
    /// A model of the platform's.
    Model,
    /// Another primitive.
    Primitive,
}

impl Way {
    /// The name in metrics and audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Way::Client => "client",
            Way::Model => "model",
            Way::Primitive => "primitive",
        }
    }
}

/// One delegation, with all that answering it takes.
pub struct Delegation {
    pub call: Arc<Call>,
    pub snapshot: Arc<Snapshot>,
    pub platform: Arc<dyn Platform>,
    /// The delegate's id.
    pub id: String,
    /// Unique within the call.
    pub correlation: String,
    pub input: Json,
    /// The parameters of MCP's `sampling/createMessage`.
    pub sampling: Map<String, Value>,
    /// The messages are the code's own, in place of an input: only a client's model is told them.
    pub is_conversation: bool,
    pub began: Instant,
    /// No answer counts after this; never later than the call's deadline.
    pub until: Instant,
}

impl Delegation {
    /// The delegate; present in the snapshot the delegation was made with.
    pub(crate) fn delegate(&self) -> Result<&Dependency, Fault> {
        self.snapshot.dependencies.get(&self.id).map(|found| &**found).ok_or(Fault::Undeclared)
    }
}
