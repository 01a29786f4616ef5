//! Who may call what: the compiled tenant × target × primitive matrix (ADR 10).
//!
//! Owns: the answer for one caller and one primitive. Refuses: exposure and scopes (the entitlement stage joins
//! them). Keeps true: more specific beats less (primitive, then target, then protocol) and at equal
//! specificity deny wins, so the order in which bindings were written never matters; what a caller's request costs
//! does not grow with bindings times groups, nor a list's with its entries times either (`matrix`).

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Caller;
use asp_proto::snapshot::{Binding, Mutation, Primitive, Protocol, RiskClass};

mod matrix;
pub mod patterns;

use matrix::{Matrix, Subject};

/// What the matrix says of one caller and one primitive.
#[derive(Clone, Debug, PartialEq)]
pub enum Ruling {
    Allowed(Rule),
    Denied(Rule),
    /// Destructive or high-risk, and nobody allowed it by name: a human must approve the call.
    NeedsApproval,
}

/// What decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    Binding(Arc<Binding>),
    /// No binding matches; the primitive is neither destructive nor high-risk.
    Default,
}

/// The bindings of every org.
#[derive(Default)]
pub struct Policy {
    by_org: HashMap<String, Matrix>,
}

/// The policy as it is for one caller over one protocol, for however many primitives a request asks.
pub struct Evaluation<'a> {
    /// `None` where the caller's org has no bindings.
    subject: Option<Subject<'a>>,
}

impl Policy {
    pub fn new(bindings: Vec<Binding>) -> Policy {
        let mut by_org: HashMap<String, Matrix> = HashMap::new();
        for binding in bindings {
            by_org.entry(binding.org.clone()).or_default().add(binding);
        }
        Policy { by_org }
    }

    /// Matches `caller` to the targets of its org's bindings, once.
    pub fn evaluation(&self, caller: &Caller, protocol: Protocol) -> Evaluation<'_> {
        Evaluation { subject: self.by_org.get(&caller.org).map(|matrix| matrix.subject(caller, protocol)) }
    }

    /// Rules on `caller` calling `primitive` over `protocol`.
    pub fn rule(&self, caller: &Caller, primitive: &Primitive, protocol: Protocol) -> Ruling {
        self.evaluation(caller, protocol).rule(primitive)
    }
}

impl Evaluation<'_> {
    /// Which of the org's targets name the caller, in order: callers of one org in whom these are the same are ruled on
    /// alike.
    pub fn targets(&self) -> Vec<usize> {
        let mut targets = self.subject.as_ref().map(Subject::targets).unwrap_or_default();
        targets.sort_unstable();
        targets
    }

    /// Rules on the caller calling `primitive`.
    pub fn rule(&mut self, primitive: &Primitive) -> Ruling {
        match self.subject.as_mut().and_then(|subject| subject.deciding(&primitive.id)) {
            Some(binding) if binding.allowed => Ruling::Allowed(Rule::Binding(binding.clone())),
            Some(binding) => Ruling::Denied(Rule::Binding(binding.clone())),
            None if is_dangerous(primitive) => Ruling::NeedsApproval,
            None => Ruling::Allowed(Rule::Default),
        }
    }
}

/// Whether a call needs an explicit allow or a human's approval.
pub fn is_dangerous(primitive: &Primitive) -> bool {
    primitive.mutation() == Mutation::Destructive || primitive.risk_class() == RiskClass::High
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::TargetKind;

    use super::*;

    fn caller() -> Caller {
        Caller {
            org: "acme".into(),
            user: "alice".into(),
            groups: vec!["ops".into(), "dev".into()],
            scopes: Vec::new(),
            client: "cli".into(),
            wcit: "t-1".into(),
            digest: [0; 32],
            issuer: "dev".into(),
            issued_at: 0,
            expires_at: u64::MAX,
        }
    }

    fn primitive(id: &str) -> Primitive {
        Primitive { id: id.into(), ..Primitive::default() }
    }

    fn binding(
        kind: TargetKind,
        target: &str,
        primitive: &str,
        protocol: Protocol,
        allowed: bool,
    ) -> Binding {
        Binding {
            org: "acme".into(),
            target_kind: kind.into(),
            target: target.into(),
            primitive: primitive.into(),
            protocol: protocol.into(),
            allowed,
        }
    }

    fn allowed(bindings: Vec<Binding>, id: &str) -> bool {
        matches!(Policy::new(bindings).rule(&caller(), &primitive(id), Protocol::Mcp), Ruling::Allowed(_))
    }

    #[test]
    fn without_a_binding_only_dangerous_primitives_need_more() {
        assert!(allowed(vec![], "cc.search"));
        let mut dangerous = primitive("cc.delete");
        dangerous.set_mutation(Mutation::Destructive);
        let policy = Policy::default();
        assert_eq!(policy.rule(&caller(), &dangerous, Protocol::Mcp), Ruling::NeedsApproval);
        let mut risky = primitive("cc.wipe");
        risky.set_risk_class(RiskClass::High);
        assert_eq!(policy.rule(&caller(), &risky, Protocol::Mcp), Ruling::NeedsApproval);
    }

    #[test]
    fn the_more_specific_primitive_decides_before_the_target() {
        use Protocol::Unspecified as Any;
        use TargetKind::User;
        let rows = [
            // exact primitive for everyone beats a prefix for exactly alice
            (
                vec![binding(User, "alice", "cc.*", Any, true), binding(User, "*", "cc.search", Any, false)],
                false,
            ),
            (
                vec![binding(User, "alice", "cc.*", Any, false), binding(User, "*", "cc.search", Any, true)],
                true,
            ),
            // the longer prefix wins
            (vec![binding(User, "*", "cc*", Any, false), binding(User, "*", "cc.s*", Any, true)], true),
            // same primitive: the exact target wins
            (vec![binding(User, "alice", "cc.*", Any, true), binding(User, "*", "cc.*", Any, false)], true),
            (vec![binding(User, "al*", "cc.*", Any, false), binding(User, "*", "cc.*", Any, true)], false),
        ];
        for (bindings, expected) in rows {
            assert_eq!(allowed(bindings.clone(), "cc.search"), expected, "{bindings:?}");
            let reversed: Vec<_> = bindings.into_iter().rev().collect();
            assert_eq!(allowed(reversed.clone(), "cc.search"), expected, "{reversed:?}");
        }
    }

    #[test]
    fn the_named_protocol_beats_any_and_other_protocols_do_not_count() {
        use TargetKind::User;
        let rows = [
            (Protocol::Unspecified, false, Protocol::Mcp, true, true),
            (Protocol::Unspecified, true, Protocol::Mcp, false, false),
            (Protocol::Unspecified, true, Protocol::A2a, false, true),
        ];
        for (first, first_allowed, second, second_allowed, expected) in rows {
            let bindings = vec![
                binding(User, "*", "*", first, first_allowed),
                binding(User, "*", "*", second, second_allowed),
            ];
            assert_eq!(allowed(bindings, "x"), expected);
        }
    }

    #[test]
    fn at_equal_specificity_deny_wins() {
        use Protocol::Unspecified as Any;
        let groups = vec![
            binding(TargetKind::Group, "ops", "x", Any, true),
            binding(TargetKind::Group, "dev", "x", Any, false),
        ];
        assert!(!allowed(groups.clone(), "x"));
        assert!(!allowed(groups.into_iter().rev().collect(), "x"));
    }

    #[test]
    fn bindings_of_another_org_user_token_or_group_do_not_count() {
        let mut foreign = binding(TargetKind::User, "*", "*", Protocol::Unspecified, false);
        foreign.org = "globex".into();
        assert!(allowed(vec![foreign], "x"));
        for (kind, target) in
            [(TargetKind::User, "bob"), (TargetKind::Wcit, "t-2"), (TargetKind::Group, "sales")]
        {
            assert!(allowed(vec![binding(kind, target, "*", Protocol::Unspecified, false)], "x"));
        }
    }
}
