//! What a delegation leaves behind: one metric and one audit line, whoever answered.
//!
//! Refuses: texts, of the question and of the answer.

use std::time::Duration;

use tokio::time::Instant;

use super::answer::Usage;
use super::{Delegation, Fault, Way};
use crate::call::pipeline::Pipeline;
use crate::call::{Call, audit};

/// Longest delegate id in the audit: a worker may name anything.
const MAX_ID: usize = 128;

/// Records a delegation that nobody was asked.
pub async fn unasked(pipeline: &Pipeline, call: &Call, delegate: &str, fault: &Fault) {
    pipeline.metrics.delegations.ended("nobody", fault.word(), Duration::ZERO, Usage::default());
    let delegated = audit::Delegated {
        delegate: delegate.chars().take(MAX_ID).collect(),
        way: "nobody",
        outcome: fault.word(),
        took: Duration::ZERO,
        tokens_in: 0,
        tokens_out: 0,
    };
    // It has happened; a loss is counted there.
    let _ = pipeline.audit.record(audit::delegated(call, &delegated)).await;
}

/// Records how a delegation ended.
pub async fn ended(delegation: &Delegation, way: Way, result: Result<(), &Fault>, usage: Usage) {
    let took = Instant::now().saturating_duration_since(delegation.began);
    let outcome = match result {
        Ok(()) => "ok",
        Err(fault) => fault.word(),
    };
    let pipeline = &delegation.pipeline;
    pipeline.metrics.delegations.ended(way.as_str(), outcome, took, usage);
    let version = match delegation.delegate() {
        Ok(delegate) => delegate.entry.primitive.version.as_str(),
        Err(_) => "",
    };
    let delegated = audit::Delegated {
        delegate: format!("{}@{version}", delegation.id),
        way: way.as_str(),
        outcome,
        took,
        tokens_in: usage.tokens_in,
        tokens_out: usage.tokens_out,
    };
    // It has happened; a loss is counted there.
    let _ = pipeline.audit.record(audit::delegated(&delegation.call, &delegated)).await;
}
