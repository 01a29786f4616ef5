//! Policy: the compiled org × target × primitive matrix (ADR 10), and rules on a call's arguments.
//!
//! Owns: the decision for one caller and one primitive, and for one call of it. Refuses: exposure and scopes (the
//! entitlement stage joins them). Keeps true: the more specific binding wins (primitive, then target, then protocol)
//! and at equal specificity deny wins, so the order of bindings never matters; the cost of a request does not grow
//! with bindings times groups, nor that of a list with its entries times either (`matrix`). Bindings with conditions
//! on arguments only narrow what the matrix allows, and hide nothing; observed bindings change nothing (`rules`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use asp_edge::names::Pattern;
use asp_edge::{Caller, MACHINE_ISSUER};
use asp_proto::snapshot::{Binding, Mutation, Primitive, Protocol, RiskClass, TargetKind};
use prost::Message as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub mod condition;
mod matrix;
pub mod patterns;
mod rules;

use matrix::{Matrix, PolicySubject};
pub use rules::{Effect, RuleMatch, is_of_calls};
use rules::{OrgRules, Rank, RuleContext};

/// The matrix's decision for one caller and one primitive.
#[derive(Clone, Debug, PartialEq)]
pub enum Ruling {
    Allowed(RulingReason),
    Denied(RulingReason),
    /// The primitive is destructive or high-risk, and no binding allows it: a human must approve the call.
    NeedsApproval,
}

/// The reason for a ruling.
#[derive(Clone, Debug, PartialEq)]
pub enum RulingReason {
    Binding(Arc<Binding>),
    /// No binding matches; the primitive is neither destructive nor high-risk.
    Default,
}

/// The decision of all bindings for one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub effect: Effect,
    /// The binding that decided; `None` if none matches.
    pub by: Option<Arc<Binding>>,
    /// The decision with observed bindings, if one of them would have decided.
    pub observed: Option<ObservedDecision>,
}

/// The decision for a call if the observed bindings were enforced.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedDecision {
    pub effect: Effect,
    /// The observed binding that would have decided.
    pub by: Arc<Binding>,
}

/// The bindings of every org; clones share them.
#[derive(Clone, Default)]
pub struct Policy {
    by_org: HashMap<Arc<str>, Arc<Org>>,
}

#[derive(Default)]
struct Org {
    matrix: Matrix,
    /// `None` if no binding has conditions on arguments, requires an approval or is observed.
    rules: Option<OrgRules>,
    /// SHA-256 of the enforced bindings.
    version: [u8; 32],
}

/// Returns the version of enforced bindings. Their order does not matter.
fn version_of(bindings: &[Binding]) -> [u8; 32] {
    let mut encoded: Vec<Vec<u8>> = bindings.iter().map(Binding::encode_to_vec).collect();
    encoded.sort_unstable();
    let mut digest = Sha256::new();
    for binding in &encoded {
        digest.update((binding.len() as u64).to_be_bytes());
        digest.update(binding);
    }
    digest.finalize().into()
}

/// Returns bindings that deny the primitives of a pattern to every caller of the org, including machines.
pub fn denials(org: &str, primitive: &str) -> [Binding; 2] {
    ["", MACHINE_ISSUER].map(|issuer| Binding {
        org: org.to_owned(),
        target_kind: TargetKind::User.into(),
        target: "*".to_owned(),
        issuer: issuer.to_owned(),
        primitive: primitive.to_owned(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    })
}

/// Denies the primitives of the patterns to everybody in the org. Allows that are at least as specific would beat the
/// denials and are removed.
pub fn deny_instead(org: &str, patterns: &BTreeSet<&str>, bindings: &mut Vec<Binding>) {
    bindings.retain(|binding| {
        let names = Pattern::read(&binding.primitive);
        !(binding.allowed && patterns.iter().any(|denied| Pattern::read(denied).covers(names)))
    });
    bindings.extend(patterns.iter().flat_map(|primitive| denials(org, primitive)));
}

/// The policy for one caller over one protocol, for all primitives of a request.
pub struct Evaluation<'a> {
    /// `None` if the caller's org has no bindings.
    subject: Option<PolicySubject<'a>>,
}

impl Policy {
    /// Compiles bindings; the `observed` ones are counted but not enforced. The error names a condition that does not
    /// compile.
    pub fn new(bindings: Vec<Binding>, observed: Vec<Binding>) -> Result<Policy, String> {
        let mut by_org: HashMap<String, (Vec<Binding>, Vec<Binding>)> = HashMap::new();
        for binding in bindings {
            by_org.entry(binding.org.clone()).or_default().0.push(binding);
        }
        for binding in observed {
            by_org.entry(binding.org.clone()).or_default().1.push(binding);
        }
        let mut policy = Policy::default();
        for (org, (bindings, observed)) in by_org {
            policy.replace(&org, bindings, observed)?;
        }
        Ok(policy)
    }

    /// Replaces the bindings of an org, like [`Policy::new`]. An error changes nothing.
    pub fn replace(
        &mut self,
        org: &str,
        bindings: Vec<Binding>,
        observed: Vec<Binding>,
    ) -> Result<(), String> {
        if bindings.is_empty() && observed.is_empty() {
            self.by_org.remove(org);
            return Ok(());
        }
        let mut new = Org { version: version_of(&bindings), ..Org::default() };
        let enforced = bindings.into_iter().map(|binding| (binding, false));
        for (binding, observed) in enforced.chain(observed.into_iter().map(|binding| (binding, true))) {
            if observed || rules::is_of_calls(&binding) {
                new.rules.get_or_insert_default().add(binding, observed)?;
            } else {
                new.matrix.add(binding);
            }
        }
        self.by_org.insert(org.into(), Arc::new(new));
        Ok(())
    }

    /// Matches `caller` to the targets of its org's bindings, once.
    pub fn evaluation(&self, caller: &Caller, protocol: Protocol) -> Evaluation<'_> {
        let org = self.by_org.get(caller.org.as_str());
        Evaluation { subject: org.map(|org| org.matrix.subject(caller, protocol)) }
    }

    /// Returns the version of an org's policy: the same on every gateway with the same enforced bindings, in whatever
    /// order.
    pub fn version(&self, org: &str) -> [u8; 32] {
        self.by_org.get(org).map_or_else(|| version_of(&[]), |org| org.version)
    }

    fn rules(&self, caller: &Caller) -> Option<&OrgRules> {
        self.by_org.get(caller.org.as_str())?.rules.as_ref()
    }

    /// Whether any binding of the caller's org has conditions on arguments, requires an approval or is observed. If not, [`Policy::rule`]
    /// is the whole decision.
    pub fn has_rules(&self, caller: &Caller) -> bool {
        self.rules(caller).is_some()
    }

    /// Whether a call may need a person's approval because of a binding.
    pub fn may_ask(&self, caller: &Caller, primitive: &Primitive, protocol: Protocol) -> bool {
        self.rules(caller).is_some_and(|rules| rules.may_ask(caller, &primitive.id, protocol))
    }

    /// Whether an enforced binding has conditions on the arguments of such a call.
    pub fn asks_about(&self, caller: &Caller, primitive: &Primitive, protocol: Protocol) -> bool {
        self.rules(caller).is_some_and(|rules| rules.asks_about(caller, &primitive.id, protocol))
    }

    /// Decides about a call with these arguments, defaults included.
    pub fn decide(
        &self,
        caller: &Caller,
        primitive: &Primitive,
        protocol: Protocol,
        arguments: &Value,
    ) -> Decision {
        self.decide_about((caller, primitive, protocol), Some(arguments))
    }

    /// Decides about a call whose arguments are not known: no binding with conditions holds, whatever it requires of a value
    /// or of its absence.
    pub fn decide_without_arguments(
        &self,
        caller: &Caller,
        primitive: &Primitive,
        protocol: Protocol,
    ) -> Decision {
        self.decide_about((caller, primitive, protocol), None)
    }

    fn decide_about(
        &self,
        (caller, primitive, protocol): (&Caller, &Primitive, Protocol),
        arguments: Option<&Value>,
    ) -> Decision {
        let mut evaluation = self.evaluation(caller, protocol);
        let subject = evaluation.subject.as_mut();
        let base = subject.and_then(|subject| subject.deciding(&primitive.id));
        let base = base.and_then(|binding| Some((rules::rank(binding, protocol)?, binding)));
        let Some(rules) = self.rules(caller) else {
            let (effect, by) = combine(base, None, primitive);
            return Decision { effect, by: by.cloned(), observed: None };
        };
        let call = RuleContext { caller, primitive: &primitive.id, protocol, arguments };
        let argued = rules.enforced(&call);
        let (effect, by) = combine(base, argued, primitive);
        let [seen, seen_argued] = rules.observed(&call);
        let would = combine(more_specific(base, seen), more_specific(argued, seen_argued), primitive);
        let is_observed = |binding: &Arc<Binding>| {
            [seen, seen_argued].into_iter().flatten().any(|(_, observed)| Arc::ptr_eq(observed, binding))
        };
        let observed = match would {
            (effect, Some(by)) if is_observed(by) => Some(ObservedDecision { effect, by: by.clone() }),
            _ => None,
        };
        Decision { effect, by: by.cloned(), observed }
    }

    /// Calls `each` with every binding that has conditions or is observed, and names the caller and the primitive.
    pub fn concerning(
        &self,
        (caller, primitive): (&Caller, &Primitive),
        protocol: Protocol,
        arguments: &Value,
        each: impl FnMut(RuleMatch<'_>),
    ) {
        let Some(rules) = self.rules(caller) else { return };
        let call = RuleContext { caller, primitive: &primitive.id, protocol, arguments: Some(arguments) };
        rules.concerning(&call).for_each(each);
    }

    /// Decides whether `caller` may call `primitive` over `protocol`.
    pub fn rule(&self, caller: &Caller, primitive: &Primitive, protocol: Protocol) -> Ruling {
        self.evaluation(caller, protocol).rule(primitive)
    }
}

impl Evaluation<'_> {
    /// Returns the org's targets that match the caller, in order. Two callers of an org with equal targets get equal
    /// rulings.
    pub fn targets(&self) -> Vec<usize> {
        let mut targets = self.subject.as_ref().map(PolicySubject::targets).unwrap_or_default();
        targets.sort_unstable();
        targets
    }

    /// Decides whether the caller may call `primitive`.
    pub fn rule(&mut self, primitive: &Primitive) -> Ruling {
        match self.subject.as_mut().and_then(|subject| subject.deciding(&primitive.id)) {
            Some(binding) if binding.allowed => Ruling::Allowed(RulingReason::Binding(binding.clone())),
            Some(binding) => Ruling::Denied(RulingReason::Binding(binding.clone())),
            None if is_dangerous(primitive) => Ruling::NeedsApproval,
            None => Ruling::Allowed(RulingReason::Default),
        }
    }
}

type RankedBinding<'a> = Option<(Rank, &'a Arc<Binding>)>;

/// Returns the more specific binding; at equal rank the enforced one.
fn more_specific<'a>(enforced: RankedBinding<'a>, observed: RankedBinding<'a>) -> RankedBinding<'a> {
    match (enforced, observed) {
        (Some(one), Some(other)) if other.0 > one.0 => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

/// Combines the deciding binding without conditions and the one with conditions. If the first denies, the primitive
/// is hidden and stays so. Else the more specific one decides, at equal rank the one with conditions, because
/// conditions only ever narrow.
fn combine<'a>(
    base: RankedBinding<'a>,
    argued: RankedBinding<'a>,
    primitive: &Primitive,
) -> (Effect, Option<&'a Arc<Binding>>) {
    match (base, argued) {
        (Some((_, base)), _) if !base.allowed => (Effect::Deny, Some(base)),
        (Some((base, _)), Some((rank, by))) if rank >= base => (Effect::of(by), Some(by)),
        (None, Some((_, by))) => (Effect::of(by), Some(by)),
        (Some((_, base)), _) => (Effect::Allow, Some(base)),
        (None, None) if is_dangerous(primitive) => (Effect::Approve, None),
        (None, None) => (Effect::Allow, None),
    }
}

/// Whether `one` decides instead of `other` about every call that both name: it names the same primitives, is at
/// least as specific, and at equal specificity does not allow more.
pub fn overrules(one: &Binding, other: &Binding) -> bool {
    let protocols = [Protocol::Mcp, Protocol::A2a, Protocol::Rest];
    let outranks = |protocol: Protocol| rules::rank(one, protocol) >= rules::rank(other, protocol);
    one.primitive == other.primitive && protocols.into_iter().all(outranks)
}

/// Describes a binding for logs and audit: target, primitives, protocol and name.
pub fn in_words(binding: &Binding) -> String {
    let kind = target_word(binding);
    let protocol = protocol_word(binding);
    let Binding { target, primitive, name, .. } = binding;
    let target = match target_issuer(binding) {
        "" => target.clone(),
        issuer => format!("{issuer}/{target}"),
    };
    match name.as_str() {
        "" => format!("{kind}:{target} {primitive} {protocol}"),
        name => format!("{kind}:{target} {primitive} {protocol} {name}"),
    }
}

/// Returns the kind of the target, in the words of the admin API.
pub fn target_word(binding: &Binding) -> &'static str {
    match binding.target_kind() {
        TargetKind::User if binding.issuer == MACHINE_ISSUER => "machine",
        TargetKind::User => "user",
        TargetKind::Wcit => "wcit",
        TargetKind::Group => "group",
        TargetKind::Unspecified => "unknown",
    }
}

/// Returns the issuer of the target as in the admin API, empty for none.
pub fn target_issuer(binding: &Binding) -> &str {
    if binding.issuer == MACHINE_ISSUER { "" } else { &binding.issuer }
}

/// Returns the protocol in the words of the admin API, `*` for every one.
pub fn protocol_word(binding: &Binding) -> &'static str {
    match binding.protocol() {
        Protocol::Unspecified => "*",
        protocol => crate::protocol::protocol_name(protocol),
    }
}

/// Whether a call needs an explicit allow or a human's approval.
pub fn is_dangerous(primitive: &Primitive) -> bool {
    primitive.mutation() == Mutation::Destructive || primitive.risk_class() == RiskClass::High
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;
