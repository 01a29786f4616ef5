//! Decisions of the bindings of the caller's org on a call's arguments (`when`), and the effects that observed bindings
//! would have had. Evaluated once the arguments fit their schema.
//!
//! Keeps true: nothing here hides anything (I-10): a refused primitive is listed, and its refusal names the arguments;
//! an observed binding changes nothing, and is counted once per call at each gateway that runs it. Completions and
//! lists are not evaluated. The rules are evaluated when a call starts, and when another gateway continues it: a rule
//! that comes into force while it runs does not end it.

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::telemetry::metrics::Metrics;
use asp_json::Json;
use asp_snapshot::Snapshot;
use asp_snapshot::policy::{Decision, Effect, ObservedDecision, in_words};
use serde_json::Value;

use super::input;

/// Whether a person must approve the call because of its arguments. Duplicate keys are refused if an enforced binding
/// asks about them.
pub fn check(snapshot: &Snapshot, metrics: &Metrics, call: &Call, arguments: &Json) -> Result<bool, Refusal> {
    if call.kind.is_invocation()
        && snapshot.policy.asks_about(&call.caller, &call.entry.primitive, call.protocol)
    {
        input::check_keys(arguments)?;
    }
    let Some(Decision { effect, by, observed }) = decision(snapshot, call, arguments) else {
        return Ok(false);
    };
    if let Some(seen) = observed {
        count(metrics, call, &seen, effect);
    }
    // A binding without conditions was evaluated by entitlement already.
    let by = by.filter(|binding| !binding.when.is_empty());
    call.ruling.decides(by.as_deref().map(in_words));
    match (by, effect) {
        (Some(binding), Effect::Deny) => {
            let pointers: Vec<&str> = binding.when.iter().map(|when| when.pointer.as_str()).collect();
            Err(Refusal::Barred(format!(
                "a rule denies this call for its arguments ({})",
                pointers.join(", ")
            )))
        }
        (Some(_), Effect::Approve) => Ok(true),
        _ => Ok(false),
    }
}

/// Counts the effect that an observed binding would have had on a call that is hidden from its caller.
pub fn observe_hidden(snapshot: &Snapshot, metrics: &Metrics, call: &Call) {
    // The arguments were not read, so no condition holds.
    let decision = decision(snapshot, call, &Value::Null);
    if let Some(Decision { effect: Effect::Deny, observed: Some(seen), .. }) = decision {
        count(metrics, call, &seen, Effect::Deny);
    }
}

fn decision(snapshot: &Snapshot, call: &Call, arguments: &Value) -> Option<Decision> {
    let Call { caller, entry, protocol, kind, .. } = call;
    let is_asked = kind.is_invocation() && snapshot.policy.has_rules(caller);
    is_asked.then(|| snapshot.policy.decide(caller, &entry.primitive, *protocol, arguments))
}

fn count(metrics: &Metrics, call: &Call, seen: &ObservedDecision, did: Effect) {
    if call.ruling.observes(seen.effect.as_str(), in_words(&seen.by)) {
        metrics.observed(seen.effect, did);
    }
}
