//! Delegations that a backend's code asks for.
//!
//! Owns: the choice of the answerer, and the timeout of the answer, which is at most the rest of the call.

use std::time::Duration;

use asp_call::execution::Execution;
use asp_json::Json;
use asp_snapshot::Dependency;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::delegate::Delegates;
use crate::delegate::delegation::{Delegation, DelegationFault};
use crate::delegate::pending::PendingDelegation;

/// One delegation as a backend asks for it.
pub(crate) struct DelegationRequest<'a> {
    pub delegate: &'a Dependency,
    /// The delegate's id.
    pub id: String,
    /// Correlation id, unique within the call.
    pub correlation: String,
    pub input: Json,
    /// The parameters of MCP's `sampling/createMessage`.
    pub sampling: Map<String, Value>,
    /// Whether the messages are the code's own, instead of an input.
    pub is_conversation: bool,
    /// Maximum time for the answer.
    pub longest: Duration,
}

/// Begins a delegation. `question` returns the id of the question to the client, if the client answers.
pub(crate) fn begin(
    execution: &Execution,
    delegates: &Delegates,
    request: DelegationRequest<'_>,
    question: impl FnOnce() -> String,
) -> Result<PendingDelegation, DelegationFault> {
    let DelegationRequest { delegate, id, correlation, input, sampling, is_conversation, longest } = request;
    let call = &execution.call;
    let way = delegates.way(call, delegate, &sampling, is_conversation)?;
    let began = Instant::now();
    let delegation = Delegation {
        call: call.clone(),
        snapshot: execution.snapshot.clone(),
        platform: execution.platform.clone(),
        id,
        correlation,
        input,
        sampling,
        is_conversation,
        began,
        until: call.deadline().min(began + longest),
    };
    PendingDelegation::begin(delegation, way, question)
}
