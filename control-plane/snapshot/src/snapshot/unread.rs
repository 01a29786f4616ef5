//! Values in an org's part that this version does not know.
//!
//! Keeps true: an unknown protocol or target kind is never read as "all". A binding or exception that allows
//! something by an unknown value is left out. A binding that denies or requires approval by one denies everything it
//! may cover.

use std::collections::BTreeSet;

use asp_proto::snapshot::{Binding, OrgPart, Protocol, TargetKind};

use crate::policy::deny_instead;

/// Maximum number of unknown values that are named; the others are counted.
const MAX_NAMED: usize = 5;

/// Removes unknown values from a part. Returns a description of them, or `None` if this version knows all values.
pub(super) fn settle(part: &mut OrgPart) -> Option<String> {
    let mut unknown = Vec::new();
    let mut denied = BTreeSet::new();
    part.bindings.retain_mut(|binding| {
        let Some(value) = unknown_value(binding) else { return true };
        unknown.push(value);
        if !binding.allowed && TargetKind::try_from(binding.target_kind).is_err() {
            denied.insert(std::mem::take(&mut binding.primitive));
            return false;
        }
        binding.protocol = Protocol::Unspecified.into();
        binding.approval = false;
        binding.approvers.clear();
        !binding.allowed
    });
    let denied: BTreeSet<&str> = denied.iter().map(String::as_str).collect();
    deny_instead(&part.org, &denied, &mut part.bindings);
    part.observed_bindings.retain(|binding| match unknown_value(binding) {
        None => true,
        Some(value) => {
            unknown.push(value);
            false
        }
    });
    part.exposure.retain(|exception| {
        let is_known = Protocol::try_from(exception.protocol).is_ok();
        if !is_known {
            unknown.push(format!("protocol {} in the exposure of {}", exception.protocol, exception.server));
        }
        // An exception that disables is kept: the edge's code denies by it.
        is_known || !exception.enabled
    });
    describe(&unknown)
}

fn unknown_value(binding: &Binding) -> Option<String> {
    let Binding { primitive, protocol, target_kind, .. } = binding;
    if TargetKind::try_from(*target_kind).is_err() {
        return Some(format!("kind of target {target_kind} in a binding on {primitive}"));
    }
    let is_unknown = Protocol::try_from(*protocol).is_err();
    is_unknown.then(|| format!("protocol {protocol} in a binding on {primitive}"))
}

fn describe(unknown: &[String]) -> Option<String> {
    let shown = unknown.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = match unknown.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!unknown.is_empty()).then(|| format!("not known to this version: {shown}{more}"))
}
