//! Pushes of which a part is rejected, and what is in force afterwards (invariant I-5).

use asp_edge::Caller;
use asp_proto::snapshot::{
    Binding, Condition, ExposureException, Issuer, Limit, MachineKey, OrgPart, Primitive, Protocol,
    RecentRevocations, ServerPart, SnapshotPart, snapshot_part::Part,
};

use super::*;
use crate::policy::Ruling;
use crate::snapshot::draft::tests::{binding, put, server, whole};
use crate::snapshot::fault::UNREAD;

fn part_of(name: &str, change: impl FnOnce(&mut ServerPart)) -> Part {
    let (edge, server, primitive) = server(name);
    let mut part = ServerPart { edge: Some(edge), server: Some(server), primitives: vec![primitive] };
    change(&mut part);
    Part::Server(part)
}

fn bad_schema(part: &mut ServerPart) {
    part.primitives[0].input_schema = "{".into();
}

fn named_issuer(part: &mut ServerPart) {
    part.edge.as_mut().unwrap().issuers = vec!["corporate".into()];
}

fn base(public_url: &str, issuers: &[&str]) -> Part {
    let issuer = |name: &&str| Issuer {
        name: (*name).into(),
        iss: format!("https://{name}.example"),
        ..Issuer::default()
    };
    Part::Base(BasePart {
        public_url: public_url.into(),
        issuers: issuers.iter().map(issuer).collect(),
        ..BasePart::default()
    })
}

/// A part with a condition that this version cannot compile.
fn unknown_condition(org: &str) -> OrgPart {
    let newer = Binding { when: vec![Condition { pointer: "/x".into(), test: None }], ..binding(org) };
    OrgPart { org: org.into(), bindings: vec![newer], ..OrgPart::default() }
}

fn needing(name: &str, part: Part) -> (String, Option<SnapshotPart>) {
    (name.to_owned(), Some(SnapshotPart { part: Some(part), needs: vec!["quota".into()] }))
}

fn recent(revision: u64) -> (String, Option<SnapshotPart>) {
    put(parts::RECENT, Part::Recent(RecentRevocations { revision, ..RecentRevocations::default() }))
}

fn in_force(snapshot: &Snapshot) -> Vec<(&str, &str)> {
    snapshot.faults().iter().map(|(name, fault)| (name.as_str(), fault.in_force)).collect()
}

fn recent_revision(snapshot: &Snapshot) -> u64 {
    snapshot.edge.recent().unwrap().revision()
}

fn is_denied(snapshot: &Snapshot, org: &str) -> bool {
    denies(snapshot, org, "anything")
}

fn denies(snapshot: &Snapshot, org: &str, primitive: &str) -> bool {
    let caller = Caller {
        org: org.into(),
        user: "alice".into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: "t".into(),
        digest: [0; 32],
        issuer: String::new(),
        issued_at: 0,
        expires_at: u64::MAX,
    };
    let primitive = Primitive { id: primitive.into(), ..Primitive::default() };
    matches!(snapshot.policy.rule(&caller, &primitive, Protocol::Mcp), Ruling::Denied(_))
}

fn serves(snapshot: &Snapshot, name: &str) -> bool {
    let is_served = snapshot.server(name).is_some();
    assert_eq!(
        snapshot.edge.exposed(name, "initech", Protocol::Mcp),
        is_served,
        "{name}: the two go together"
    );
    is_served
}

#[test]
fn a_server_that_does_not_compile_holds_up_no_revocation_and_keeps_its_last_form() {
    let before = Snapshot::build(whole()).unwrap();
    let changes = vec![
        put("server/two", part_of("two", bad_schema)),
        put("server/three", part_of("three", bad_schema)),
        recent(2),
        ("server/one".to_owned(), None),
    ];
    assert!(before.changed(2, changes.clone()).is_err());
    let after = before.applied(2, changes).unwrap();
    assert_eq!((after.revision, recent_revision(&after)), (2, 2));
    assert_eq!(in_force(&after), [("server/three", NOT_SERVED), ("server/two", LAST_FORM)]);
    assert!(after.faults()["server/two"].reason.starts_with("primitive two.tool: input schema"));
    assert!(Arc::ptr_eq(before.server("two").unwrap(), after.server("two").unwrap()));
    assert!(!serves(&after, "three") && !serves(&after, "one"), "what is gone is gone");
    // Faults remain until their parts are sent again.
    let after = after.applied(3, vec![recent(3)]).unwrap();
    assert_eq!(in_force(&after).len(), 2);
    let changes = vec![put("server/three", part_of("three", |_| {})), ("server/two".to_owned(), None)];
    let after = after.applied(4, changes).unwrap();
    assert!(in_force(&after).is_empty() && serves(&after, "three") && !serves(&after, "two"));
}

/// The last policy would allow what has been denied since.
#[test]
fn a_denial_beside_a_condition_that_does_not_compile_is_in_force() {
    let allow = |primitive: &str| Binding { primitive: primitive.into(), allowed: true, ..binding("acme") };
    let mut first = whole();
    first.bindings = vec![allow("*")];
    let before = Snapshot::build(first).unwrap();
    let OrgPart { bindings: newer, .. } = unknown_condition("acme");
    let newer = newer.into_iter().map(|newer| Binding { primitive: "wire*".into(), ..newer });
    let denial = Binding { primitive: "pay".into(), ..binding("acme") };
    let bindings: Vec<Binding> = newer.chain([allow("*"), allow("wire.out"), denial]).collect();
    let part = OrgPart { org: "acme".into(), bindings, ..OrgPart::default() };
    let after = before.applied(2, vec![put("org/acme", Part::Org(part))]).unwrap();
    assert_eq!(in_force(&after), [("org/acme", NARROWED)]);
    for (primitive, denied) in [("pay", true), ("wire", true), ("wire.out", true), ("look", false)] {
        assert_eq!(denies(&after, "acme", primitive), denied, "{primitive}");
    }
    assert!(!denies(&before, "acme", "pay"));
}

/// Invariant I-5: a gateway of the previous version never allows more.
#[test]
fn values_that_this_version_does_not_know_allow_nothing_and_deny_all_that_they_may_be_about() {
    let before = Snapshot::build(whole()).unwrap();
    let on = |primitive: &str| Binding { primitive: primitive.into(), ..binding("acme") };
    let allow = |primitive: &str| Binding { allowed: true, ..on(primitive) };
    let bindings = vec![
        Binding { protocol: 7, ..allow("closed.pay") },
        Binding { protocol: 7, ..on("wire") },
        Binding { target_kind: 9, ..on("out*") },
        Binding { target_kind: 9, ..allow("closed.look") },
        on("closed*"),
        allow("closed.known"),
        allow("out.x"),
    ];
    let exception = |server: &str, enabled: bool| ExposureException {
        org: "acme".into(),
        server: server.into(),
        protocol: 7,
        enabled,
    };
    let part = OrgPart {
        org: "acme".into(),
        observed_bindings: vec![Binding { protocol: 7, ..on("seen") }],
        exposure: vec![exception("one", false), exception("two", true)],
        bindings,
        ..OrgPart::default()
    };
    let after = before.applied(2, vec![put("org/acme", Part::Org(part)), recent(2)]).unwrap();
    assert_eq!(in_force(&after), [("org/acme", UNREAD)]);
    let reason = &after.faults()["org/acme"].reason;
    assert!(
        reason.contains("protocol 7 in a binding on closed.pay") && reason.ends_with("and 2 more"),
        "{reason}"
    );
    for (primitive, denied) in [
        ("closed.pay", true),
        ("closed.look", true),
        ("closed.known", false),
        ("wire", true),
        ("out.x", true),
        ("anything", false),
    ] {
        assert_eq!(denies(&after, "acme", primitive), denied, "{primitive}");
    }
    let exposed = |server: &str| after.edge.exposed(server, "acme", Protocol::Mcp);
    assert!(!exposed("one") && exposed("two"));
    let mended = OrgPart { org: "acme".into(), ..OrgPart::default() };
    let after = after.applied(3, vec![put("org/acme", Part::Org(mended))]).unwrap();
    assert!(in_force(&after).is_empty());
}

#[test]
fn a_part_of_a_newer_kind_is_named_and_a_primitive_whose_danger_is_not_known_is_not_taken() {
    let before = Snapshot::build(whole()).unwrap();
    let changes = vec![
        ("newer/kind".to_owned(), Some(SnapshotPart::default())),
        put("server/two", part_of("two", |part| part.primitives[0].mutation = 9)),
        put("server/three", part_of("three", |part| part.primitives[0].risk_class = 9)),
    ];
    let after = before.applied(2, changes).unwrap();
    let expected = [("newer/kind", LEFT_OUT), ("server/three", NOT_SERVED), ("server/two", LAST_FORM)];
    assert_eq!(in_force(&after), expected);
    assert!(after.faults()["server/two"].reason.contains("its mutation 9 is not known"));
    let after = after.applied(3, vec![("newer/kind".to_owned(), None)]).unwrap();
    assert!(!after.faults().contains_key("newer/kind"));
}

#[test]
fn an_org_has_what_compiles_without_its_deleted_keys_and_is_denied_the_rest() {
    let before = Snapshot::build(whole()).unwrap();
    let key = |org: &str| MachineKey {
        id: format!("k-{org}"),
        hash: vec![1; 32],
        org: org.into(),
        user: "press".into(),
        ..MachineKey::default()
    };
    let unreadable = OrgPart { machine_keys: vec![key("globex")], ..unknown_condition("globex") };
    let changes = vec![
        put("org/acme", Part::Org(unknown_condition("acme"))),
        put("org/globex", Part::Org(unreadable)),
        put("org/new", Part::Org(unknown_condition("new"))),
        recent(2),
    ];
    let after = before.applied(2, changes).unwrap();
    let expected = [("org/acme", NARROWED), ("org/globex", NARROWED), ("org/new", NARROWED)];
    assert_eq!((in_force(&after), recent_revision(&after)), (expected.to_vec(), 2));
    assert_eq!(after.limits("acme").len(), 0, "its list is that of now");
    assert!(is_denied(&after, "new") && !is_denied(&after, "nobody"));
    let known: Vec<bool> = ["acme", "globex"].iter().map(|org| after.machine_parts.has(org)).collect();
    assert_eq!(known, [false, true], "machines are those of now");
    // A denied org has no other state to fall back to.
    let after = after.applied(3, vec![put("org/new", Part::Org(unknown_condition("new")))]).unwrap();
    assert!(is_denied(&after, "new"));
    let after = after.applied(4, vec![("org/new".to_owned(), None)]).unwrap();
    assert!(!is_denied(&after, "new") && !after.faults().contains_key("org/new"));
}

#[test]
fn an_org_whose_exceptions_edges_refuse_is_denied() {
    let before = Snapshot::build(whole()).unwrap();
    let foreign = ExposureException { org: "globex".into(), server: "one".into(), ..Default::default() };
    let acme = OrgPart { org: "acme".into(), exposure: vec![foreign], ..OrgPart::default() };
    let after = before.applied(2, vec![put("org/acme", Part::Org(acme)), recent(2)]).unwrap();
    assert_eq!((in_force(&after), recent_revision(&after)), (vec![("org/acme", ORG_DENIED)], 2));
    assert!(is_denied(&after, "acme"), "a server may have been switched off");
}

#[test]
fn one_orgs_machines_that_cannot_be_told_apart_open_nothing_and_others_go_on() {
    let before = Snapshot::build(whole()).unwrap();
    let key = |id: &str, org: &str, bytes: usize| MachineKey {
        id: id.into(),
        hash: vec![2; bytes],
        org: org.into(),
        user: "press".into(),
        ..MachineKey::default()
    };
    let part = |org: &str, key: MachineKey| {
        put(
            &parts::of_org(org),
            Part::Org(OrgPart { org: org.into(), machine_keys: vec![key], ..OrgPart::default() }),
        )
    };
    let changes = vec![part("new", key("n", "new", 7)), part("other", key("o", "other", 32)), recent(2)];
    let after = before.applied(2, changes).unwrap();
    assert_eq!((in_force(&after), recent_revision(&after)), (vec![("org/new", NO_MACHINES)], 2));
    assert!(!after.machine_parts.has("new") && after.machine_parts.has("other"));
    // An id that belongs to another org's key.
    let after = after.applied(3, vec![part("globex", key("k", "globex", 32))]).unwrap();
    assert!(after.faults().contains_key("org/globex") && after.machine_parts.has("acme"));
}

#[test]
fn a_part_that_needs_what_this_version_does_not_know_is_denied() {
    let part = || {
        let limits = vec![Limit { org: "hooli".into(), capacity: 1, ..Limit::default() }];
        Part::Org(OrgPart { org: "hooli".into(), limits, ..OrgPart::default() })
    };
    let before = Snapshot::build(whole()).unwrap().applied(1, vec![put("org/hooli", part())]).unwrap();
    assert!(!is_denied(&before, "hooli"));
    let mut needy = recent(2);
    needy.1.as_mut().unwrap().needs = vec!["quota".into()];
    let changes = vec![needing("server/two", part_of("two", |_| {})), needing("org/hooli", part()), needy];
    let after = before.applied(2, changes).unwrap();
    assert!(serves(&after, "one") && !serves(&after, "two") && is_denied(&after, "hooli"));
    assert_eq!(recent_revision(&after), 2, "a revocation counts as far as it is known");
    assert_eq!(in_force(&after).len(), 3);
    assert!(after.faults()["server/two"].reason.contains("`quota`"));

    let closed = after.applied(3, vec![needing(BASE, base("https://h", &[])), recent(3)]).unwrap();
    assert!(!serves(&closed, "one") && recent_revision(&closed) == 3);
    assert_eq!(closed.faults()[BASE].in_force, NOTHING_SERVED);
    let closed = closed.applied(4, vec![put("server/four", part_of("four", |_| {}))]).unwrap();
    assert!(!serves(&closed, "four"), "nothing is served beside a base that is denied");
    let open = closed.applied(5, vec![put(BASE, base("https://h", &[]))]).unwrap();
    assert!(serves(&open, "one") && serves(&open, "four") && !serves(&open, "two"));
}

#[test]
fn a_base_that_does_not_compile_leaves_the_last_one_without_the_issuers_that_are_gone() {
    let first = vec![
        put(BASE, base("https://h", &["corporate", "partner"])),
        put("server/one", part_of("one", named_issuer)),
        put("server/two", part_of("two", |_| {})),
    ];
    let before = Snapshot::empty().applied(1, first).unwrap();
    assert!(serves(&before, "one") && serves(&before, "two") && in_force(&before).is_empty());
    let changes = vec![
        put(BASE, base("nowhere", &["partner", "new"])),
        put(
            "server/three",
            part_of("three", |part| part.edge.as_mut().unwrap().issuers = vec!["new".into()]),
        ),
        recent(2),
    ];
    let after = before.applied(2, changes).unwrap();
    let expected = [(BASE, LAST_FORM), ("server/one", NOT_SERVED), ("server/three", NOT_SERVED)];
    assert_eq!((in_force(&after), recent_revision(&after)), (expected.to_vec(), 2));
    let names: Vec<&str> = after.issuers.iter().map(|issuer| issuer.name.as_str()).collect();
    assert_eq!((names, after.edge.public_url()), (vec!["partner"], "https://h"));
    assert!(serves(&after, "two") && !serves(&after, "one"));
    // Servers rejected with the last base need not be sent again with a new one.
    let mended = after.applied(3, vec![put(BASE, base("https://h", &["corporate", "new"]))]).unwrap();
    assert!(in_force(&mended).is_empty(), "{:?}", mended.faults());
    assert!(["one", "two", "three"].iter().all(|name| serves(&mended, name)));
}

#[test]
fn without_any_base_or_with_lists_of_revocations_that_cannot_be_read_nothing_is_taken() {
    let empty = Snapshot::empty();
    assert!(empty.applied(1, vec![recent(1)]).is_err());
    let fault = empty.applied(1, vec![put(BASE, base("nowhere", &[]))]).err().unwrap();
    assert!(fault.starts_with("base: public_url"), "{fault}");
    let before = Snapshot::build(whole()).unwrap();
    let unreadable = (parts::RECENT.to_owned(), Some(SnapshotPart::default()));
    assert!(before.applied(2, vec![unreadable]).is_err());
    let unsorted = RecentRevocations { revision: 2, revoked: vec![1; 7], ..Default::default() };
    assert!(before.applied(2, vec![put(parts::RECENT, Part::Recent(unsorted))]).is_err());
}
