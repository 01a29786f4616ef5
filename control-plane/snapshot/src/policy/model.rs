//! The policy checked against the simplest possible model: it examines every binding for every call, and evaluates
//! conditions in the plainest way. Each rule of the model can be inverted, and a model with any one inverted must
//! disagree: a rule that no triple tells apart is not tested.

use std::cmp::Ordering;

use asp_proto::snapshot::condition::Test;
use asp_proto::snapshot::{Condition, Range, Scalars};
use serde_json::json;

use super::*;

/// Number of triples: bindings, a caller with a primitive, and arguments.
const TRIPLES: u64 = 30_000;

/// Rules of the model that can be inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    OrgsAreApart,
    TargetsAreOfTheirKind,
    IssuersAreApart,
    UsersAreNoMachines,
    OtherProtocolsDoNotCount,
    PrimitivesBeforeTargets,
    TargetsBeforeKinds,
    KindsBeforeIssuers,
    IssuersBeforeProtocols,
    NamedIssuersFirst,
    ExactBeforePrefix,
    LongerPrefixesFirst,
    TokensBeforeUsers,
    UsersBeforeGroups,
    NamedProtocolsFirst,
    DenialsBeforeAllows,
    DenialsBeforeApprovals,
    ApprovalsBeforeAllows,
    HiddenStaysHidden,
    ConditionsHideNothing,
    MoreSpecificAllowsBeatConditions,
    AllConditionsHold,
    DangerousNeedsApproval,
    ObservedIsNotEnforced,
    ObservedCountsWhereItDecides,
    AbsentFulfilsNothing,
    ContainersFulfilNothing,
    RangesHaveTheirEnds,
    NumbersByValue,
    IntegersExactly,
    NumbersAreNoTexts,
    GlobsFromTheStart,
    GlobsToTheEnd,
    TextsByteByByte,
}

const ALL: [Rule; 34] = {
    use Rule::*;
    [
        OrgsAreApart,
        TargetsAreOfTheirKind,
        IssuersAreApart,
        UsersAreNoMachines,
        OtherProtocolsDoNotCount,
        PrimitivesBeforeTargets,
        TargetsBeforeKinds,
        KindsBeforeIssuers,
        IssuersBeforeProtocols,
        NamedIssuersFirst,
        ExactBeforePrefix,
        LongerPrefixesFirst,
        TokensBeforeUsers,
        UsersBeforeGroups,
        NamedProtocolsFirst,
        DenialsBeforeAllows,
        DenialsBeforeApprovals,
        ApprovalsBeforeAllows,
        HiddenStaysHidden,
        ConditionsHideNothing,
        MoreSpecificAllowsBeatConditions,
        AllConditionsHold,
        DangerousNeedsApproval,
        ObservedIsNotEnforced,
        ObservedCountsWhereItDecides,
        AbsentFulfilsNothing,
        ContainersFulfilNothing,
        RangesHaveTheirEnds,
        NumbersByValue,
        IntegersExactly,
        NumbersAreNoTexts,
        GlobsFromTheStart,
        GlobsToTheEnd,
        TextsByteByByte,
    ]
};

/// Bindings, a caller with a primitive, and arguments.
struct Triple {
    enforced: Vec<Binding>,
    observed: Vec<Binding>,
    caller: Caller,
    primitive: Primitive,
    protocol: Protocol,
    arguments: Value,
}

/// Whether the primitive is listed, the effect on a call, and the effect with observed bindings if one of them
/// decides.
type Observation = (bool, Effect, Option<Effect>);

impl Triple {
    fn real(&self) -> Observation {
        let policy = Policy::new(self.enforced.clone(), self.observed.clone()).unwrap();
        let listed = policy.rule(&self.caller, &self.primitive, self.protocol);
        let decision = policy.decide(&self.caller, &self.primitive, self.protocol, &self.arguments);
        (
            !matches!(listed, Ruling::Denied(_)),
            decision.effect,
            decision.observed.map(|observed| observed.effect),
        )
    }

    fn model(&self, turned: Option<Rule>) -> Observation {
        let is = |rule: Rule| turned != Some(rule);
        let seen: Vec<(&Binding, bool)> = self.observed.iter().map(|binding| (binding, true)).collect();
        let mut bound: Vec<(&Binding, bool)> = self.enforced.iter().map(|binding| (binding, false)).collect();
        if !is(Rule::ObservedIsNotEnforced) {
            bound.extend(seen.iter().copied());
        }
        let (effect, _) = self.call(&bound, &is);
        let listed = self.base(&bound, &is).is_none_or(|(binding, _)| binding.allowed);
        let all: Vec<(&Binding, bool)> = bound.iter().copied().chain(seen.iter().copied()).collect();
        let (would, by_observed) = self.call(&all, &is);
        let applies = |binding: &Binding| self.applies(binding, &is) && self.holds(binding, &is);
        let counts = if is(Rule::ObservedCountsWhereItDecides) {
            by_observed
        } else {
            self.observed.iter().any(applies)
        };
        (listed, effect, counts.then_some(would))
    }

    fn applies(&self, binding: &Binding, is: &dyn Fn(Rule) -> bool) -> bool {
        let Caller { org, user, wcit, groups, .. } = &self.caller;
        let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        let mut names: Vec<(TargetKind, &str)> = vec![(TargetKind::User, user), (TargetKind::Wcit, wcit)];
        names.extend(groups.iter().map(|group| (TargetKind::Group, group.as_str())));
        let of_kind = |kind| kind == binding.target_kind() || !is(Rule::TargetsAreOfTheirKind);
        let named = names.iter().any(|(kind, name)| of_kind(*kind) && fits(&binding.target, name));
        let is_machine = self.caller.issuer == MACHINE_ISSUER;
        let of_issuer = match binding.issuer.as_str() {
            "" => binding.target_kind() != TargetKind::User || !is_machine || !is(Rule::UsersAreNoMachines),
            issuer => issuer == self.caller.issuer || !is(Rule::IssuersAreApart),
        };
        let protocol = binding.protocol() == Protocol::Unspecified || binding.protocol() == self.protocol;
        (&binding.org == org || !is(Rule::OrgsAreApart))
            && named
            && of_issuer
            && fits(&binding.primitive, &self.primitive.id)
            && (protocol || !is(Rule::OtherProtocolsDoNotCount))
    }

    /// Returns the binding that decides what is listed.
    fn base<'a>(
        &self,
        bindings: &[(&'a Binding, bool)],
        is: &dyn Fn(Rule) -> bool,
    ) -> Option<(&'a Binding, bool)> {
        let plain = |binding: &Binding| binding.when.is_empty() || !is(Rule::ConditionsHideNothing);
        self.best(bindings, is, &plain)
    }

    fn call(&self, bindings: &[(&Binding, bool)], is: &dyn Fn(Rule) -> bool) -> (Effect, bool) {
        let base = self.base(bindings, is);
        let argued = self.best(bindings, is, &|binding| !binding.when.is_empty() && self.holds(binding, is));
        let beats = |one: &Binding, other: &Binding| self.order(one, other, is).is_ge();
        match (base, argued) {
            (Some((base, seen)), _) if !base.allowed && is(Rule::HiddenStaysHidden) => (Effect::Deny, seen),
            (Some((base, seen)), Some((argued, _)))
                if is(Rule::MoreSpecificAllowsBeatConditions) && !beats(argued, base) =>
            {
                (effect(base), seen)
            }
            (_, Some((argued, seen))) => (effect(argued), seen),
            (Some((base, seen)), None) => (effect(base), seen),
            (None, None) if is_dangerous(&self.primitive) && is(Rule::DangerousNeedsApproval) => {
                (Effect::Approve, false)
            }
            (None, None) => (Effect::Allow, false),
        }
    }

    fn best<'a>(
        &self,
        bindings: &[(&'a Binding, bool)],
        is: &dyn Fn(Rule) -> bool,
        which: &dyn Fn(&Binding) -> bool,
    ) -> Option<(&'a Binding, bool)> {
        let mut best: Option<(&Binding, bool)> = None;
        for (binding, seen) in bindings {
            if !self.applies(binding, is) || !which(binding) {
                continue;
            }
            // Among equals an enforced one counts.
            if best.is_none_or(|(known, _)| self.order(binding, known, is).is_gt()) {
                best = Some((*binding, *seen));
            }
        }
        best
    }

    fn order(&self, one: &Binding, other: &Binding, is: &dyn Fn(Rule) -> bool) -> Ordering {
        let pattern = |pattern: &str| match pattern.strip_suffix('*') {
            None if is(Rule::ExactBeforePrefix) => 1_000,
            None => -1_000,
            Some(prefix) if is(Rule::LongerPrefixesFirst) => prefix.len() as i32,
            Some(prefix) => -(prefix.len() as i32),
        };
        let kind = |binding: &Binding| match binding.target_kind() {
            TargetKind::Wcit if is(Rule::TokensBeforeUsers) => 30,
            TargetKind::Wcit => 15,
            TargetKind::User if is(Rule::UsersBeforeGroups) => 20,
            TargetKind::User => 5,
            _ => 10,
        };
        let protocol = |binding: &Binding| {
            (binding.protocol() != Protocol::Unspecified) == is(Rule::NamedProtocolsFirst)
        };
        let severity = |binding: &Binding| match effect(binding) {
            Effect::Deny if !is(Rule::DenialsBeforeAllows) => 0,
            Effect::Deny if !is(Rule::DenialsBeforeApprovals) => 15,
            Effect::Deny => 30,
            Effect::Approve if !is(Rule::ApprovalsBeforeAllows) => 5,
            Effect::Approve => 20,
            Effect::Allow => 10,
        };
        let by_primitive = pattern(&one.primitive).cmp(&pattern(&other.primitive));
        let by_target = pattern(&one.target).cmp(&pattern(&other.target));
        let by_kind = kind(one).cmp(&kind(other));
        let issuer = |binding: &Binding| binding.issuer.is_empty() != is(Rule::NamedIssuersFirst);
        let by_issuer = issuer(one).cmp(&issuer(other));
        let by_protocol = protocol(one).cmp(&protocol(other));
        let names = match is(Rule::PrimitivesBeforeTargets) {
            true if is(Rule::TargetsBeforeKinds) => by_primitive.then(by_target).then(by_kind),
            true => by_primitive.then(by_kind).then(by_target),
            false => by_target.then(by_primitive).then(by_kind),
        };
        let names = match (is(Rule::KindsBeforeIssuers), is(Rule::IssuersBeforeProtocols)) {
            (true, true) => names.then(by_issuer).then(by_protocol),
            (false, _) => by_primitive.then(by_target).then(by_issuer).then(by_kind).then(by_protocol),
            (_, false) => names.then(by_protocol).then(by_issuer),
        };
        names.then(severity(one).cmp(&severity(other)))
    }

    fn holds(&self, binding: &Binding, is: &dyn Fn(Rule) -> bool) -> bool {
        let mut each = binding.when.iter().map(|condition| self.fulfilled(condition, is));
        if is(Rule::AllConditionsHold) { each.all(|holds| holds) } else { each.any(|holds| holds) }
    }

    fn fulfilled(&self, condition: &Condition, is: &dyn Fn(Rule) -> bool) -> bool {
        // What is negated is fulfilled by an absent argument, an array and an object, too.
        let negated = match condition.test.as_ref().unwrap() {
            Test::NotIn(list) => Test::In(list.clone()),
            Test::NotGlob(glob) => Test::Glob(glob.clone()),
            _ => return self.passes(condition, is),
        };
        let plain = Condition { test: Some(negated), ..condition.clone() };
        !self.passes(&plain, is)
    }

    fn passes(&self, condition: &Condition, is: &dyn Fn(Rule) -> bool) -> bool {
        let mut found = &self.arguments;
        for name in condition.pointer.split('/').skip(1) {
            match found.get(name) {
                Some(inner) => found = inner,
                None => return !is(Rule::AbsentFulfilsNothing),
            }
        }
        if found.is_array() || found.is_object() {
            return !is(Rule::ContainersFulfilNothing);
        }
        let value = |text: &String| serde_json::from_str::<Value>(text).unwrap();
        match condition.test.as_ref().unwrap() {
            Test::Equals(list) | Test::In(list) => {
                list.json.iter().map(value).any(|value| equal(&value, found, is))
            }
            Test::Glob(glob) => found.as_str().is_some_and(|text| {
                let start = if is(Rule::GlobsFromTheStart) { "" } else { "*" };
                let end = if is(Rule::GlobsToTheEnd) { "" } else { "*" };
                globbed(format!("{start}{glob}{end}").as_bytes(), text.as_bytes())
            }),
            Test::Range(Range { min, max }) => {
                let ends = is(Rule::RangesHaveTheirEnds);
                let Some(number) = halves(found, is) else { return false };
                let is_from = |end: &String| {
                    let end = halves(&value(end), is).unwrap();
                    number > end || (ends && number == end)
                };
                let is_to = |end: &String| {
                    let end = halves(&value(end), is).unwrap();
                    number < end || (ends && number == end)
                };
                (min.is_empty() || is_from(min)) && (max.is_empty() || is_to(max))
            }
            Test::NotIn(_) | Test::NotGlob(_) => unreachable!("they are negated above"),
        }
    }
}

fn effect(binding: &Binding) -> Effect {
    match (binding.approval, binding.allowed) {
        (true, _) => Effect::Approve,
        (false, true) => Effect::Allow,
        (false, false) => Effect::Deny,
    }
}

/// Returns twice the number: all numbers here are halves of integers.
fn halves(value: &Value, is: &dyn Fn(Rule) -> bool) -> Option<i128> {
    let integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    match integer {
        Some(integer) if is(Rule::IntegersExactly) => Some(integer * 2),
        _ => value.as_f64().map(|double| (double * 2.0) as i128),
    }
}

fn equal(one: &Value, other: &Value, is: &dyn Fn(Rule) -> bool) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (one, other) {
        (Value::Number(_), Value::Number(_)) if is(Rule::NumbersByValue) => {
            halves(one, is) == halves(other, is)
        }
        (Value::String(one), Value::String(other)) if !is(Rule::TextsByteByByte) => {
            one.to_lowercase() == other.to_lowercase()
        }
        (one, other) if !is(Rule::NumbersAreNoTexts) => text(one) == text(other),
        (one, other) => one == other,
    }
}

/// Tries every way to divide the text.
fn globbed(glob: &[u8], text: &[u8]) -> bool {
    match glob.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| globbed(rest, &text[from..])),
        Some((byte, rest)) => text.first() == Some(byte) && globbed(rest, &text[1..]),
    }
}

/// Xorshift (Marsaglia), which gives the same triples in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

fn condition(random: &mut Random) -> Condition {
    const NUMBERS: [&str; 8] =
        ["1", "1.0", "1.5", "-2", "9007199254740993", "9007199254740992", "18446744073709551615", "0"];
    const SCALARS: [&str; 8] = ["1", "1.0", "9007199254740993", "\"1\"", "\"eu\"", "\"EU\"", "true", "null"];
    let list = |json: Vec<&str>| Scalars { json: json.into_iter().map(str::to_owned).collect() };
    const GLOBS: [&str; 6] = ["e*", "*u", "*", "eu", "a*b*a", "E*"];
    let test = match random.below(7) {
        0 => Test::Equals(list(vec![random.of(&SCALARS)])),
        1 => Test::In(list((0..=random.below(3)).map(|_| random.of(&SCALARS)).collect())),
        2 => Test::Glob(random.of(&GLOBS).to_owned()),
        3 => Test::NotIn(list((0..=random.below(3)).map(|_| random.of(&SCALARS)).collect())),
        4 => Test::NotGlob(random.of(&GLOBS).to_owned()),
        5 => Test::Range(Range { min: random.of(&NUMBERS).into(), max: String::new() }),
        _ => Test::Range(Range { min: String::new(), max: random.of(&NUMBERS).into() }),
    };
    Condition { pointer: random.of(&["/a", "/a", "/b", "/o/c"]).into(), test: Some(test) }
}

fn binding(random: &mut Random) -> Binding {
    let conditions = [0, 0, 1, 1, 1, 2];
    let when: Vec<Condition> = (0..random.of(&conditions)).map(|_| condition(random)).collect();
    let verdict = random.below(2) == 0;
    Binding {
        org: random.of(&["acme", "acme", "acme", "acme", "globex"]).into(),
        target_kind: random.of(&[TargetKind::User, TargetKind::Wcit, TargetKind::Group]).into(),
        target: random.of(&["*", "*", "n*", "na*", "name", "nape", "other"]).into(),
        primitive: random.of(&["*", "p*", "pa*", "pay", "pay", "list"]).into(),
        protocol: random
            .of(&[Protocol::Unspecified, Protocol::Unspecified, Protocol::Mcp, Protocol::Rest])
            .into(),
        allowed: when.is_empty() && verdict,
        approval: !when.is_empty() && verdict,
        when,
        name: String::new(),
        issuer: random.of(&["", "", "", "", "login", MACHINE_ISSUER]).into(),
        approvers: String::new(),
        approvers_issuer: String::new(),
    }
}

fn some_bindings(random: &mut Random) -> Vec<Binding> {
    let mut list: Vec<Binding> = (0..random.below(6)).map(|_| binding(random)).collect();
    if let Some(first) = list.first().cloned().filter(|_| random.below(2) == 0) {
        list.push(nearly(&first, random));
    }
    list
}

/// Returns a binding of equal or nearly equal rank that may decide otherwise.
fn nearly(first: &Binding, random: &mut Random) -> Binding {
    let other = binding(random);
    let issuer = random.of(&[first.issuer.clone(), other.issuer.clone()]);
    let protocol = random.of(&[first.protocol, other.protocol]);
    let when = random.of(&[first.when.clone(), other.when.clone()]);
    let is_positive = other.allowed || other.approval;
    let (allowed, approval) = (is_positive && when.is_empty(), is_positive && !when.is_empty());
    Binding { allowed, approval, when, issuer, protocol, ..first.clone() }
}

fn triple(random: &mut Random) -> Triple {
    let values = [
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(-2),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992_u64),
        json!(u64::MAX),
        json!("1"),
        json!("eu"),
        json!("EU"),
        json!("xeu"),
        json!("eux"),
        json!("aba"),
        json!("abba"),
        json!(true),
        json!(null),
        json!(["eu"]),
        json!({"c": "eu"}),
    ];
    let mut arguments = json!({});
    for name in ["a", "b"] {
        if random.below(4) > 0 {
            arguments[name] = random.of(&values);
        }
    }
    if random.below(2) == 0 {
        arguments["o"] = json!({"c": random.of(&values)});
    }
    let mut primitive =
        Primitive { id: random.of(&["pay", "pay", "list", "x"]).into(), ..Primitive::default() };
    if random.below(3) == 0 {
        primitive.set_mutation(Mutation::Destructive);
    }
    Triple {
        enforced: some_bindings(random),
        observed: some_bindings(random),
        caller: Caller {
            org: "acme".into(),
            user: random.of(&["name", "nape", "x"]).into(),
            groups: vec![random.of(&["name", "nape"]).into(), "other".into()],
            scopes: Vec::new(),
            client: String::new(),
            wcit: random.of(&["name", "nape", "x"]).into(),
            digest: [0; 32],
            issuer: random.of(&["login", "login", "other", MACHINE_ISSUER]).into(),
            issued_at: 0,
            expires_at: u64::MAX,
        },
        primitive,
        protocol: random.of(&[Protocol::Mcp, Protocol::Mcp, Protocol::Rest]),
        arguments,
    }
}

#[test]
fn triples_are_decided_as_the_model_does_and_as_none_with_one_rule_turned() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut differences = [0_u32; ALL.len()];
    let mut effects = [0_u32; 3];
    let mut observed = 0_u32;
    for number in 0..TRIPLES {
        let triple = triple(&mut random);
        let real = triple.real();
        assert_eq!(real, triple.model(None), "triple {number}: {:?} {:?}", triple.enforced, triple.observed);
        effects[real.1 as usize] += 1;
        observed += u32::from(real.2.is_some());
        for (turned, differences) in ALL.iter().zip(&mut differences) {
            *differences += u32::from(real != triple.model(Some(*turned)));
        }
    }
    assert!(effects.iter().all(|count| *count > 500) && observed > 500, "{effects:?}, {observed} observed");
    for (turned, differences) in ALL.iter().zip(differences) {
        assert!(differences > 0, "{turned:?}: a model without it decides alike");
    }
}
