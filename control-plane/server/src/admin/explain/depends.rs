//! Groups and tokens that a question does not name and with which another binding would decide.

use std::collections::BTreeSet;

use asp_edge::{Caller, names};
use asp_proto::snapshot::{Binding, TargetKind};
use asp_snapshot::policy::Effect;
use serde_json::{Value, json};

/// Maximum number of targets that are tried; each costs an evaluation.
const MAX_TRIED: usize = 100;
/// Maximum number of results.
const MAX_SHOWN: usize = 20;

/// A caller, the id of a primitive, and whether the question has arguments.
pub(super) struct Subject<'a> {
    pub(super) caller: &'a Caller,
    pub(super) primitive: &'a str,
    pub(super) has_arguments: bool,
}

/// Lists the targets in bindings of the primitive that would change the outcome for callers that have them; with
/// `when`, for some arguments.
pub(super) fn of(
    bindings: &[Binding],
    subject: &Subject<'_>,
    outcome: impl Fn(&Caller) -> &'static str,
) -> Vec<Value> {
    let Subject { caller, primitive, has_arguments } = *subject;
    let own = outcome(caller);
    let mut tried = BTreeSet::new();
    let mut found = Vec::new();
    for binding in bindings.iter().filter(|binding| names::matches(&binding.primitive, primitive)) {
        if tried.len() >= MAX_TRIED || found.len() >= MAX_SHOWN {
            break;
        }
        let Some((kind, with)) = with(caller, binding) else { continue };
        let when = !has_arguments && !binding.when.is_empty();
        if !tried.insert((kind, binding.target.as_str(), when)) {
            continue;
        }
        if !when {
            let other = outcome(&with);
            if other != own {
                found.push(json!({ kind: binding.target, "outcome": other }));
            }
        } else if own != "denied" {
            let other = if Effect::of(binding) == Effect::Approve { "needs_approval" } else { "denied" };
            found.push(json!({ kind: binding.target, "outcome": other, "when": true }));
        }
    }
    found
}

/// Returns the caller with the group or token that the binding names; `None` if that would not suffice to match.
fn with(caller: &Caller, binding: &Binding) -> Option<(&'static str, Caller)> {
    let target = binding.target.as_str();
    match binding.target_kind() {
        TargetKind::Group if !caller.groups.iter().any(|group| names::matches(target, group)) => {
            let groups = caller.groups.iter().cloned().chain([member(target)]).collect();
            Some(("group", Caller { groups, ..caller.clone() }))
        }
        TargetKind::Wcit if caller.wcit.is_empty() => {
            Some(("wcit", Caller { wcit: member(target), ..caller.clone() }))
        }
        _ => None,
    }
}

/// Returns a name that matches a pattern.
pub(in crate::admin) fn member(pattern: &str) -> String {
    match pattern.strip_suffix('*') {
        None => pattern.to_owned(),
        Some(prefix) => format!("{prefix}-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_member_of_a_pattern_is_one() {
        for pattern in ["ops", "ops*", "*"] {
            assert!(names::matches(pattern, &member(pattern)), "{pattern}");
        }
    }
}
