//! The bindings of one org that have conditions on arguments (`when`), require an approval, or are only observed.
//!
//! Keeps true: lists never evaluate them. They are examined one by one for each call, and are few
//! (`asp_store::control::MAX_RULES_PER_ORG`). Precedence is that of all policy (ADR 10): among equally specific
//! bindings a denial comes first, then one that requires approval.

use std::sync::Arc;

use asp_edge::{Caller, covers_issuer, names};
use asp_proto::snapshot::{Binding, Protocol, TargetKind};
use serde_json::Value;

use super::condition::{Condition, MAX_CONDITIONS};

/// The effect of one binding, or of all of them, on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    Allow,
    /// A person must approve the call.
    Approve,
    Deny,
}

impl Effect {
    /// Returns the effect of a binding.
    pub fn of(binding: &Binding) -> Effect {
        match (binding.approval || !binding.approvers.is_empty(), binding.allowed) {
            (true, _) => Effect::Approve,
            (false, true) => Effect::Allow,
            (false, false) => Effect::Deny,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Approve => "approve",
            Effect::Deny => "deny",
        }
    }
}

/// Whether a binding decides calls alone, and changes no list: it has conditions, or requires an approval.
pub fn is_of_calls(binding: &Binding) -> bool {
    !binding.when.is_empty() || Effect::of(binding) == Effect::Approve
}

/// Precedence of a binding that names the call: specificity by primitive, target, target kind, issuer and protocol,
/// then the effect, then whether another person approves.
pub(super) type Rank = (usize, usize, u8, bool, u8, Effect, bool);

/// Returns the rank of a binding that names the caller's target and the primitive; `None` if it is for another
/// protocol. The specificity of a pattern depends on the pattern alone, not on the name it matches.
pub(super) fn rank(binding: &Binding, protocol: Protocol) -> Option<Rank> {
    let by_pattern = |pattern: &str| match pattern.strip_suffix('*') {
        None => usize::MAX,
        Some(prefix) => prefix.len(),
    };
    let by_kind = match binding.target_kind() {
        TargetKind::Wcit => 2,
        TargetKind::User => 1,
        TargetKind::Group | TargetKind::Unspecified => 0,
    };
    // An unknown protocol must not be read as "every one".
    let by_protocol = match Protocol::try_from(binding.protocol) {
        Ok(Protocol::Unspecified) => 0,
        Ok(named) if named == protocol => 1,
        Ok(_) | Err(_) => return None,
    };
    let (primitive, target) = (by_pattern(&binding.primitive), by_pattern(&binding.target));
    let by_issuer = !binding.issuer.is_empty();
    // Else an approval by the caller could stand in for one by another person.
    let by_others = !binding.approvers.is_empty();
    Some((primitive, target, by_kind, by_issuer, by_protocol, Effect::of(binding), by_others))
}

/// Bindings with compiled conditions.
#[derive(Default)]
pub(super) struct OrgRules {
    enforced: Vec<CompiledRule>,
    observed: Vec<CompiledRule>,
}

struct CompiledRule {
    binding: Arc<Binding>,
    when: Vec<Condition>,
}

impl CompiledRule {
    /// Returns the group that approves, and its issuer.
    fn approvers(&self) -> (&str, &str) {
        (&self.binding.approvers, &self.binding.approvers_issuer)
    }

    fn concerns(&self, caller: &Caller, primitive: &str) -> bool {
        let names = |name: &str| names::matches(&self.binding.target, name);
        let names_user = self.binding.target_kind() == TargetKind::User;
        if !covers_issuer(&self.binding.issuer, names_user, &caller.issuer) {
            return false;
        }
        let names_caller = match self.binding.target_kind() {
            TargetKind::Wcit => names(&caller.wcit),
            TargetKind::User => names(&caller.user),
            TargetKind::Group => caller.groups.iter().any(|group| names(group)),
            TargetKind::Unspecified => false,
        };
        names_caller && names::matches(&self.binding.primitive, primitive)
    }
}

/// A binding outside the matrix that names a caller and a primitive.
#[derive(Clone, Copy, Debug)]
pub struct RuleMatch<'a> {
    pub binding: &'a Binding,
    pub observed: bool,
    /// Whether all of its conditions hold, which is true without conditions.
    pub holds: bool,
}

/// The call that rules are evaluated for.
pub(super) struct RuleContext<'a> {
    pub caller: &'a Caller,
    pub primitive: &'a str,
    pub protocol: Protocol,
    /// `None` if they are not known.
    pub arguments: Option<&'a Value>,
}

impl OrgRules {
    pub(super) fn add(&mut self, binding: Binding, observed: bool) -> Result<(), String> {
        let fault = |fault: String| {
            let Binding { org, primitive, .. } = &binding;
            format!("a binding of {org} on {primitive}: when: {fault}")
        };
        if binding.when.len() > MAX_CONDITIONS {
            return Err(fault(format!("more than {MAX_CONDITIONS} conditions")));
        }
        let when = binding.when.iter().map(Condition::compile).collect::<Result<_, _>>().map_err(fault)?;
        let rules = if observed { &mut self.observed } else { &mut self.enforced };
        rules.push(CompiledRule { binding: Arc::new(binding), when });
        Ok(())
    }

    /// Whether a call may need a person's approval.
    pub(super) fn may_ask(&self, caller: &Caller, primitive: &str, protocol: Protocol) -> bool {
        self.enforced.iter().any(|rule| {
            Effect::of(&rule.binding) == Effect::Approve
                && rank(&rule.binding, protocol).is_some()
                && rule.concerns(caller, primitive)
        })
    }

    /// Whether an enforced binding has conditions on the arguments of such a call.
    pub(super) fn asks_about(&self, caller: &Caller, primitive: &str, protocol: Protocol) -> bool {
        self.enforced
            .iter()
            .filter(|rule| !rule.when.is_empty())
            .any(|rule| rank(&rule.binding, protocol).is_some() && rule.concerns(caller, primitive))
    }

    /// Returns the most specific enforced binding whose conditions hold.
    pub(super) fn enforced(&self, call: &RuleContext<'_>) -> Option<(Rank, &Arc<Binding>)> {
        first(&self.enforced, call, |_| true)
    }

    /// Returns the most specific observed bindings whose conditions hold: one that decides lists too, and one that only
    /// decides calls.
    pub(super) fn observed(&self, call: &RuleContext<'_>) -> [Option<(Rank, &Arc<Binding>)>; 2] {
        [
            first(&self.observed, call, |rule| !is_of_calls(&rule.binding)),
            first(&self.observed, call, |rule| is_of_calls(&rule.binding)),
        ]
    }

    /// Returns all bindings that name the caller and the primitive.
    pub(super) fn concerning<'a>(&'a self, call: &'a RuleContext<'_>) -> impl Iterator<Item = RuleMatch<'a>> {
        let all = [(&self.enforced, false), (&self.observed, true)];
        all.into_iter().flat_map(move |(rules, observed)| {
            rules.iter().filter(|rule| is_about(rule, call)).map(move |rule| RuleMatch {
                binding: &rule.binding,
                observed,
                holds: holds(rule, call),
            })
        })
    }
}

fn is_about(rule: &CompiledRule, call: &RuleContext<'_>) -> bool {
    rank(&rule.binding, call.protocol).is_some() && rule.concerns(call.caller, call.primitive)
}

fn holds(rule: &CompiledRule, call: &RuleContext<'_>) -> bool {
    match call.arguments {
        Some(arguments) => rule.when.iter().all(|condition| condition.holds(arguments)),
        None => rule.when.is_empty(),
    }
}

/// Returns the first binding by rank that applies. Of bindings of equal rank, whose approvers may differ, every gateway
/// takes the same.
fn first<'a>(
    rules: &'a [CompiledRule],
    call: &RuleContext<'_>,
    kind: impl Fn(&CompiledRule) -> bool,
) -> Option<(Rank, &'a Arc<Binding>)> {
    let about = rules.iter().filter(|rule| kind(rule) && rule.concerns(call.caller, call.primitive));
    let mut ranked: Vec<(Rank, &CompiledRule)> =
        about.filter_map(|rule| Some((rank(&rule.binding, call.protocol)?, rule))).collect();
    ranked.sort_by(|(one, by), (other, by_other)| {
        other.cmp(one).then_with(|| by.approvers().cmp(&by_other.approvers()))
    });
    let found = ranked.into_iter().find(|(_, rule)| holds(rule, call));
    found.map(|(rank, rule)| (rank, &rule.binding))
}
