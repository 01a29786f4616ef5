//! Decisions by bindings, whose order never matters.

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

fn binding(kind: TargetKind, target: &str, primitive: &str, protocol: Protocol, allowed: bool) -> Binding {
    Binding {
        org: "acme".into(),
        target_kind: kind.into(),
        target: target.into(),
        primitive: primitive.into(),
        protocol: protocol.into(),
        allowed,
        ..Binding::default()
    }
}

fn allowed(bindings: Vec<Binding>, id: &str) -> bool {
    let policy = Policy::new(bindings, vec![]).unwrap();
    matches!(policy.rule(&caller(), &primitive(id), Protocol::Mcp), Ruling::Allowed(_))
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
        // An exact primitive for everyone beats a prefix for exactly alice.
        (vec![binding(User, "alice", "cc.*", Any, true), binding(User, "*", "cc.search", Any, false)], false),
        (vec![binding(User, "alice", "cc.*", Any, false), binding(User, "*", "cc.search", Any, true)], true),
        // The longer prefix wins.
        (vec![binding(User, "*", "cc*", Any, false), binding(User, "*", "cc.s*", Any, true)], true),
        // For the same primitive the exact target wins.
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
fn an_approval_without_conditions_hides_nothing_and_yields_to_a_more_specific_allow() {
    use Protocol::Unspecified as Any;
    let by_finance =
        Binding { approvers: "finance".into(), ..binding(TargetKind::User, "*", "x", Any, false) };
    let by_caller = Binding { approval: true, ..binding(TargetKind::User, "*", "x", Any, false) };
    for approval in [by_finance, by_caller] {
        let policy = Policy::new(vec![approval.clone()], vec![]).unwrap();
        assert!(matches!(policy.rule(&caller(), &primitive("x"), Protocol::Mcp), Ruling::Allowed(_)));
        let decided = policy.decide(&caller(), &primitive("x"), Protocol::Mcp, &Value::Null);
        assert_eq!(decided.effect, Effect::Approve);
        assert_eq!(decided.by.unwrap().approvers, approval.approvers);
        let unknown = policy.decide_without_arguments(&caller(), &primitive("x"), Protocol::Mcp);
        assert_eq!(unknown.effect, Effect::Approve);
        assert!(policy.may_ask(&caller(), &primitive("x"), Protocol::Mcp));
        assert!(!policy.asks_about(&caller(), &primitive("x"), Protocol::Mcp));
        let exempt = binding(TargetKind::User, "alice", "x", Any, true);
        let policy = Policy::new(vec![approval.clone(), exempt], vec![]).unwrap();
        let decided = policy.decide(&caller(), &primitive("x"), Protocol::Mcp, &Value::Null);
        assert_eq!(decided.effect, Effect::Allow);
        let observed = Policy::new(vec![], vec![approval]).unwrap();
        let decided = observed.decide(&caller(), &primitive("x"), Protocol::Mcp, &Value::Null);
        assert_eq!((decided.effect, decided.observed.unwrap().effect), (Effect::Allow, Effect::Approve));
    }
}

/// Invariant I-12.
#[test]
fn an_approval_by_the_caller_never_stands_in_for_one_by_another_person() {
    use Protocol::Unspecified as Any;
    let by_caller =
        Binding { approval: true, name: "own".into(), ..binding(TargetKind::User, "*", "x", Any, false) };
    let by = |group: &str| Binding {
        approvers: group.into(),
        name: group.into(),
        ..binding(TargetKind::User, "*", "x", Any, false)
    };
    let rows = [
        ([by_caller.clone(), by("finance")], "finance"),
        // Either would do, as long as it is the same at every gateway.
        ([by("security"), by("finance")], "finance"),
    ];
    for ([one, other], expected) in rows {
        for bindings in [vec![one.clone(), other.clone()], vec![other, one]] {
            let policy = Policy::new(bindings.clone(), vec![]).unwrap();
            let decided = policy.decide(&caller(), &primitive("x"), Protocol::Mcp, &Value::Null);
            assert_eq!(decided.effect, Effect::Approve);
            assert_eq!(decided.by.unwrap().approvers, expected, "{bindings:?}");
        }
    }
}

#[test]
fn the_version_of_a_policy_changes_with_its_bindings_and_not_with_their_order() {
    let [one, other] = ["a", "b"].map(|id| binding(TargetKind::User, "*", id, Protocol::Mcp, true));
    let version = |bindings: Vec<Binding>| Policy::new(bindings, vec![]).unwrap().version("acme");
    let both = version(vec![one.clone(), other.clone()]);
    assert_eq!(both, version(vec![other.clone(), one.clone()]));
    assert_ne!(both, version(vec![one.clone()]));
    assert_ne!(both, version(vec![one, Binding { allowed: false, ..other }]));
    assert_eq!(version(vec![]), Policy::default().version("globex"));
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
    for (kind, target) in [(TargetKind::User, "bob"), (TargetKind::Wcit, "t-2"), (TargetKind::Group, "sales")]
    {
        assert!(allowed(vec![binding(kind, target, "*", Protocol::Unspecified, false)], "x"));
    }
}
