//! Record of a delegation: one metric and one audit line, whoever answered.
//!
//! Refuses: texts of the question and of the answer.

use std::time::Duration;

use asp_call::call::Call;
use asp_call::execution::Platform;
use asp_call::telemetry::audit::DelegationRecord;
use asp_call::telemetry::metrics::Usage;
use tokio::time::Instant;

use crate::delegate::delegation::{Delegation, DelegationFault, Way};

/// Maximum length of a delegate id in the audit: a worker may send any text.
const MAX_ID: usize = 128;

/// Records a delegation for which nobody was asked.
pub async fn unasked(platform: &dyn Platform, call: &Call, delegate: &str, fault: &DelegationFault) {
    let delegated = DelegationRecord {
        delegate: delegate.chars().take(MAX_ID).collect(),
        way: "nobody",
        outcome: fault.word(),
        took: Duration::ZERO,
        tokens_in: 0,
        tokens_out: 0,
    };
    // It has already happened; the platform counts a lost record.
    platform.record_delegation(call, &delegated).await;
}

/// Records how a delegation ended.
pub async fn ended(delegation: &Delegation, way: Way, result: Result<(), &DelegationFault>, usage: Usage) {
    let took = Instant::now().saturating_duration_since(delegation.began);
    let outcome = match result {
        Ok(()) => "ok",
        Err(fault) => fault.word(),
    };
    let version = match delegation.delegate() {
        Ok(delegate) => delegate.entry.primitive.version.as_str(),
        Err(_) => "",
    };
    let delegated = DelegationRecord {
        delegate: format!("{}@{version}", delegation.id),
        way: way.as_str(),
        outcome,
        took,
        tokens_in: usage.tokens_in,
        tokens_out: usage.tokens_out,
    };
    // It has already happened; the platform counts a lost record.
    delegation.platform.record_delegation(&delegation.call, &delegated).await;
}
