//! Resources that a plugin watches.
//!
//! Refuses primitives without a plugin that could watch, and pools in which a subscription would occupy the only
//! slot.

use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Mode, PoolMode, RiskClass, Spec};

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    if spec.schema.watched.is_none() {
        return;
    }
    if !spec.runtime.as_ref().is_some_and(|runtime| runtime.mode == Mode::Plugin) {
        let message = "no plugin runs this, so nothing reports changes";
        let hint = "let a plugin run it (`runtime.mode: plugin`); an upstream MCP server is subscribed to without this";
        findings.add(FaultCode::BadValue, "/primitiveSchema/watched", message, hint);
        return;
    }
    if has_one_slot(spec) {
        let message =
            "its plugin serves one call at a time, and a subscription would occupy it: reads would never run";
        let hint =
            "make `runtime.pool.max` 2 at least, or `concurrency` where one process serves several calls";
        findings.add(FaultCode::BadValue, "/primitiveSchema/watched", message, hint);
    }
}

/// Whether the pool has a slot for only one call.
fn has_one_slot(spec: &Spec) -> bool {
    let pool = spec.runtime.as_ref().and_then(|runtime| runtime.pool.as_ref());
    let Some(pool) = pool.filter(|pool| pool.max == Some(1)) else { return false };
    // At high risk, every call has a process of its own (ADR 5).
    let is_alone =
        pool.mode == Some(PoolMode::Ephemeral) || spec.security.risk_class == Some(RiskClass::High);
    is_alone || pool.concurrency == Some(1)
}
