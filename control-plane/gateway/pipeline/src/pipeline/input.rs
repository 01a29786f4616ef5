//! Stage 5: the arguments fit the input schema, in which defaults are filled in first, and the bindings of the caller's org
//! decide on them (`when`). The variables of a resource template must follow the rules of their positions in the URI, in
//! every protocol. The values of a completion are not arguments yet: only those that the primitive declares are passed
//! on, up to a maximum length.
//!
//! Keeps true: a binding hides nothing here (I-10): a refused primitive is listed, and its refusal names the arguments; an
//! observed binding changes nothing, and is counted once per call at each gateway that runs it. Completions and lists
//! are not evaluated. The bindings are evaluated when a call starts, and when another gateway continues it: a rule that
//! comes into force while it runs does not end it.

use asp_call::call::outcome::Refusal;
use asp_call::call::ruling::Approvers;
use asp_call::call::{Call, CallKind, CallRequest};
use asp_call::telemetry::metrics::Metrics;
use asp_json::Json;
use asp_proto::snapshot::Binding;
use asp_snapshot::policy::{Decision, Effect, ObservedDecision, in_words, is_of_calls};
use asp_snapshot::{ListedPrimitive, Snapshot};
use serde_json::Value;

/// Maximum length of a value that is passed on for a completion, in bytes.
const MAX_TYPED: usize = 4096;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(call: &Call, arguments: &mut Json) -> Result<(), Refusal> {
    match call.kind {
        CallKind::Invoke => {}
        CallKind::Complete(_) => return typed(call, arguments),
        CallKind::List => return Ok(()),
    }
    let entry = &call.entry;
    if let (Some(template), Some(variables)) = (&entry.template, arguments.as_object()) {
        template.expand(variables).map_err(|fault| Refusal::misplaced(&fault))?;
    }
    let Some(schema) = &entry.input else { return Ok(()) };
    complete(&call.entry, arguments);
    schema
        .check(arguments)
        .map_err(|misfit| Refusal::InvalidArguments { pointer: misfit.pointer, message: misfit.message })
}

/// Refuses duplicate keys where arguments are checked before the call: the last value is checked, and the recipient may
/// read the first.
fn check_keys(arguments: &Json) -> Result<(), Refusal> {
    match asp_json::repeated(arguments.text()) {
        Some(pointer) => {
            let message = "is there twice, and these arguments are checked before the call; send it once";
            Err(Refusal::InvalidArguments { pointer, message: message.into() })
        }
        None => Ok(()),
    }
}

/// Fills in the defaults: in the view of all arguments, because policy reads it, and in the text for authored
/// primitives. Other services apply their own defaults (JSON Schema 2020-12 validation, section 9.2).
pub fn complete(entry: &ListedPrimitive, arguments: &mut Json) {
    let Some(schema) = &entry.input else { return };
    if !schema.has_defaults() {
        return;
    }
    let mut completed = arguments.view().clone();
    schema.apply_defaults(&mut completed);
    *arguments = match entry.is_forwarded() {
        true => arguments.viewed_as(completed),
        false => arguments.changed_to(completed),
    };
}

/// Keeps the declared arguments of a completion: a client may name other known arguments as it likes.
fn typed(call: &Call, arguments: &mut Json) -> Result<(), Refusal> {
    let Value::Object(mut known) = arguments.view().clone() else { return Ok(()) };
    known.retain(|name, _| call.entry.is_argument(name));
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > MAX_TYPED);
    match known.iter().find(|(_, value)| is_long(value)) {
        Some((name, _)) => Err(Refusal::InvalidArguments {
            pointer: format!("/{name}"),
            message: format!("at most {MAX_TYPED} bytes are completed"),
        }),
        None => {
            *arguments = arguments.changed_to(Value::Object(known));
            Ok(())
        }
    }
}

/// Whether a person must approve the call because of a binding, and notes who. Duplicate keys are refused if an enforced binding
/// asks about them.
pub fn check_rules(
    snapshot: &Snapshot,
    metrics: &Metrics,
    call: &Call,
    arguments: &Json,
) -> Result<bool, Refusal> {
    if call.kind.is_invocation()
        && snapshot.policy.asks_about(&call.caller, &call.entry.primitive, call.protocol)
    {
        check_keys(arguments)?;
    }
    call.ruling.requires(None);
    let Some(Decision { effect, by, observed }) = decision(snapshot, call, arguments) else {
        return Ok(false);
    };
    if let Some(seen) = observed {
        count(metrics, call, &seen, effect);
    }
    // A binding that decides lists too was evaluated by entitlement already.
    let by = by.filter(|binding| is_of_calls(binding));
    call.ruling.decides(by.as_deref().map(in_words));
    match (by, effect) {
        (Some(binding), Effect::Deny) => {
            let pointers: Vec<&str> = binding.when.iter().map(|when| when.pointer.as_str()).collect();
            Err(Refusal::Barred(format!(
                "a rule denies this call for its arguments ({})",
                pointers.join(", ")
            )))
        }
        (Some(binding), Effect::Approve) => {
            call.ruling.requires(approvers(&binding, snapshot.policy.version(&call.caller.org)));
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Returns who approves calls by a binding of a policy of this version, if the caller does not.
fn approvers(binding: &Binding, policy: [u8; 32]) -> Option<Approvers> {
    let approvers =
        || Approvers { group: binding.approvers.clone(), issuer: binding.approvers_issuer.clone(), policy };
    (!binding.approvers.is_empty()).then(approvers)
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
    let CallRequest { caller, entry, protocol, kind, .. } = &call.request;
    let is_asked = kind.is_invocation() && snapshot.policy.has_rules(caller);
    is_asked.then(|| snapshot.policy.decide(caller, &entry.primitive, *protocol, arguments))
}

fn count(metrics: &Metrics, call: &Call, seen: &ObservedDecision, did: Effect) {
    if call.ruling.observes(seen.effect.as_str(), in_words(&seen.by)) {
        metrics.observed(seen.effect, did);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant I-12: a grant is bound to the policy that names its approvers, not to a later one.
    #[test]
    fn approvers_are_kept_with_the_version_of_their_policy() {
        let binding =
            Binding { approvers: "finance".into(), approvers_issuer: "login".into(), ..Binding::default() };
        let expected = Approvers { group: "finance".into(), issuer: "login".into(), policy: [7; 32] };
        assert_eq!(approvers(&binding, [7; 32]), Some(expected));
        assert_eq!(approvers(&Binding { approvers: String::new(), ..binding }, [7; 32]), None);
    }
}
