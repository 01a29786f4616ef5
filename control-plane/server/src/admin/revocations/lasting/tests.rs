//! The denials in a response, checked against the decisions of edges and gateways.

use asp_edge::Caller;
use asp_proto::snapshot::{Mutation, Primitive};
use asp_snapshot::policy::{Policy, Ruling};

use super::*;

const PRIMITIVES: [&str; 4] = ["cc.pay", "cc.pays", "cc.search", "echo"];
const PATTERNS: [&str; 6] = ["*", "cc.*", "cc.p*", "cc.pay", "echo", "gone.*"];
const TARGETS: [(&str, &[&str]); 4] = [
    ("user", &["*", "bo*", "bob", "alice"]),
    ("machine", &["*", "bo*", "bob", "press"]),
    ("group", &["*", "op*", "ops", "dev"]),
    ("wcit", &["*", "t-*", "t-1", "m-1"]),
];
const PROTOCOLS: [&str; 3] = ["*", "mcp", "rest"];
const SERVED: [Protocol; 2] = [Protocol::Mcp, Protocol::Rest];
const STATES: u64 = 4_000;

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list[usize::try_from(self.0 >> 33).unwrap() % list.len()]
    }
}

fn record((kind, target): (&str, &str), primitive: &str, protocol: &str, allowed: bool) -> BindingRecord {
    BindingRecord {
        org: "acme".into(),
        target_type: kind.into(),
        target: target.into(),
        primitive: primitive.into(),
        protocol: protocol.into(),
        allowed,
        ..BindingRecord::default()
    }
}

fn some_bindings(dice: &mut Dice) -> Vec<BindingRecord> {
    let mut found: Vec<BindingRecord> = Vec::new();
    for _ in 0..dice.pick(&[1, 3, 6, 10]) {
        let (kind, targets) = dice.pick(&TARGETS);
        let target = (kind, dice.pick(targets));
        let mut one =
            record(target, dice.pick(&PATTERNS), dice.pick(&PROTOCOLS), dice.pick(&[true, true, false]));
        one.name = dice.pick(&["", "", "x"]).into();
        one.observed = dice.pick(&[false, false, false, true]);
        if dice.pick(&[0, 0, 0, 0, 1]) == 1 {
            one.when = r#"[{"pointer":"/a","equals":1}]"#.into();
            (one.allowed, one.approval) = dice.pick(&[(false, false), (true, true)]);
        }
        if !found.iter().any(|known| known.same_key(&one)) {
            found.push(one);
        }
    }
    found
}

fn caller(user: &str, groups: &[&str], wcit: &str) -> Caller {
    Caller {
        org: "acme".into(),
        user: user.into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        scopes: Vec::new(),
        client: "cli".into(),
        wcit: wcit.into(),
        digest: [0; 32],
        issuer: "dev".into(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}

/// The machine of this name, by any of its keys.
fn machines(name: &str) -> Vec<Caller> {
    let is_machine = |caller: Caller| Caller { issuer: MACHINE_ISSUER.into(), ..caller };
    callers(name).into_iter().map(is_machine).collect()
}

/// Every caller with this name, with any groups and tokens.
fn callers(user: &str) -> Vec<Caller> {
    let groups: [&[&str]; 4] = [&[], &["ops"], &["dev"], &["ops", "dev"]];
    let mut all = Vec::new();
    for groups in groups {
        all.extend(["t-1", "t-2", "other"].map(|wcit| caller(user, groups, wcit)));
    }
    all
}

/// Bindings of the org with denials that were stored as [`command`] has them: one of the same key is replaced.
fn with(stored: &[BindingRecord], denials: &[Binding]) -> Vec<BindingRecord> {
    let mut all = stored.to_vec();
    for denial in denials {
        let target = (target_word(denial), denial.target.as_str());
        let kinds = if target == ("user", "*") { vec![target, ("machine", "*")] } else { vec![target] };
        for target in kinds {
            let denial = record(target, &denial.primitive, protocol_word(denial), false);
            all.retain(|known| !known.same_key(&denial));
            all.push(denial);
        }
    }
    all
}

fn policy_of(records: &[BindingRecord]) -> Policy {
    let of = |observed: bool| {
        let some = records.iter().filter(|record| record.observed == observed);
        some.map(|record| policy::binding(record).unwrap()).collect()
    };
    Policy::new(of(false), of(true)).unwrap()
}

/// The calls that are allowed, or wait for a person.
fn open(records: &[BindingRecord], callers: &[Caller]) -> Vec<String> {
    let policy = policy_of(records);
    let mut open = Vec::new();
    for caller in callers {
        for (id, protocol) in PRIMITIVES.iter().flat_map(|id| SERVED.map(|protocol| (id, protocol))) {
            let mutation = if *id == "cc.pay" { Mutation::Destructive } else { Mutation::ReadOnly };
            let primitive = Primitive { id: (*id).into(), mutation: mutation.into(), ..Primitive::default() };
            if !matches!(policy.rule(caller, &primitive, protocol), Ruling::Denied(_)) {
                open.push(format!("{} {:?} {} {id} {protocol:?}", caller.user, caller.groups, caller.wcit));
            }
        }
    }
    open
}

fn lockout(user: Option<&str>) -> Lockout<'_> {
    Lockout { org: "acme", user, is_machine: false, others: ["m-1".to_owned()].into() }
}

#[test]
fn with_the_denials_of_an_answer_no_call_of_a_user_is_allowed_whatever_is_stored() {
    let mut dice = Dice(7);
    let mut opened = 0;
    for state in 0..STATES {
        let stored = some_bindings(&mut dice);
        let (denials, omitted) = lockout(Some("bob")).denials(&stored);
        assert_eq!(omitted, 0);
        let left = open(&with(&stored, &denials), &callers("bob"));
        assert_eq!(left, Vec::<String>::new(), "{state}: {stored:?}\n{denials:?}");
        // The previous response: a denial of everything, and of each pattern that a binding allows.
        let before: Vec<Binding> = std::iter::once("*")
            .chain(stored.iter().filter(|one| one.allowed && !one.observed).map(|one| one.primitive.as_str()))
            .map(|primitive| lockout(Some("bob")).denial(primitive, Protocol::Unspecified))
            .collect();
        opened += usize::from(!open(&with(&stored, &before), &callers("bob")).is_empty());
    }
    assert!(opened > 100, "{opened} of {STATES} states need more than a denial for each pattern");
}

#[test]
fn with_the_denials_of_an_answer_no_call_of_a_machine_is_allowed_whatever_is_stored() {
    let mut dice = Dice(17);
    for state in 0..STATES {
        let stored = some_bindings(&mut dice);
        let (denials, omitted) = Lockout { is_machine: true, ..lockout(Some("press")) }.denials(&stored);
        assert_eq!(omitted, 0);
        let left = open(&with(&stored, &denials), &machines("press"));
        assert_eq!(left, Vec::<String>::new(), "{state}: {stored:?}\n{denials:?}");
    }
}

#[test]
fn with_the_denials_of_an_answer_no_call_of_an_org_is_allowed_whatever_is_stored() {
    let mut dice = Dice(11);
    let mut all: Vec<Caller> = ["bob", "alice", "zoe"].iter().flat_map(|user| callers(user)).collect();
    all.extend(machines("press"));
    for state in 0..STATES {
        let stored = some_bindings(&mut dice);
        let (denials, omitted) = lockout(None).denials(&stored);
        assert_eq!(omitted, 0);
        let left = open(&with(&stored, &denials), &all);
        assert_eq!(left, Vec::<String>::new(), "{state}: {stored:?}\n{denials:?}");
    }
}

#[test]
fn a_denial_of_a_user_takes_nothing_from_others_but_a_token_that_a_binding_names() {
    let mut dice = Dice(13);
    for _ in 0..STATES {
        let stored = some_bindings(&mut dice);
        let (denials, _) = lockout(Some("bob")).denials(&stored);
        let others: Vec<Caller> = ["m-1", "t-2"].iter().map(|wcit| caller("alice", &["ops"], wcit)).collect();
        assert_eq!(open(&with(&stored, &denials), &others), open(&stored, &others), "{stored:?}");
    }
}

#[test]
fn each_allow_that_would_win_has_a_denial_and_no_other_one() {
    let rows: [(&[BindingRecord], &[&str]); 9] = [
        (&[], &[]),
        (&[record(("group", "ops"), "cc.pay", "mcp", true)], &["--deny cc.pay --user bob"]),
        (&[record(("user", "bob"), "cc.pay", "mcp", true)], &["--deny cc.pay --user bob --protocol mcp"]),
        (&[record(("user", "bob"), "*", "rest", true)], &["--deny '*' --user bob --protocol rest"]),
        (&[record(("user", "bo*"), "cc.*", "rest", true)], &["--deny 'cc.*' --user bob"]),
        (&[record(("wcit", "t-1"), "echo", "*", true)], &["--deny echo --wcit t-1"]),
        (&[record(("wcit", "m-1"), "echo", "*", true), record(("user", "zoe"), "echo", "*", true)], &[]),
        (&[record(("group", "ops"), "echo", "*", true), record(("user", "bob"), "echo", "*", false)], &[]),
        (
            &[record(("group", "ops"), "echo", "*", true), record(("wcit", "t-*"), "echo", "mcp", true)],
            &["--deny echo --user bob"],
        ),
    ];
    for (stored, expected) in rows {
        let (denials, omitted) = lockout(Some("bob")).denials(stored);
        let commands: Vec<String> = denials.iter().map(|denial| command(denial, false)).collect();
        let mut wanted = vec!["asp policy acme --deny '*' --user bob".to_owned()];
        wanted.extend(expected.iter().map(|rest| format!("asp policy acme {rest}")));
        assert_eq!((commands, omitted), (wanted, 0), "{stored:?}");
    }
}

#[test]
fn beyond_the_bound_allows_are_counted_and_the_next_answer_has_them() {
    let stored: Vec<BindingRecord> =
        (0..50).map(|number| record(("group", "ops"), &format!("p{number}"), "*", true)).collect();
    let (first, omitted) = lockout(Some("bob")).denials(&stored);
    assert_eq!((first.len(), omitted), (MAX_COMMANDS, 31));
    let (second, omitted) = lockout(Some("bob")).denials(&with(&stored, &first));
    assert_eq!((second.len(), omitted), (MAX_COMMANDS, 12));
}

#[test]
fn a_command_is_safe_to_paste() {
    let of = |org: &str, target: (&str, &str), primitive: &str, is_forced| {
        let denial =
            policy::binding(&BindingRecord { org: org.into(), ..record(target, primitive, "*", false) });
        command(&denial.unwrap(), is_forced)
    };
    assert_eq!(of("acme", ("user", "bob"), "*", false), "asp policy acme --deny '*' --user bob");
    assert_eq!(of("Acme Ltd", ("user", "*"), "cc.pay", true), "asp policy 'Acme Ltd' --deny cc.pay --force");
    assert_eq!(
        of("acme", ("group", "o'neil; rm"), "x", false),
        r"asp policy acme --deny x --group 'o'\''neil; rm'"
    );
    assert_eq!(of("-x", ("user", "-u v"), "-p", false), "asp policy --deny=-p --user='-u v' -- -x");
}
