//! Builds from changes: what is rebuilt, and what stays the same.

use asp_edge::names;
use asp_proto::snapshot::{GatewaySnapshot, snapshot_part};
use asp_snapshot::Snapshot;
use asp_snapshot::machines::RESERVED;
use asp_store::control::{
    BindingRecord, CertificateName, ExposureRecord, HomeRecord, MachineCertificateRecord, MachineKeyRecord,
    Machines, Placement, PublishedForm, RegionRecord, RouteRecord, ServerRecord, UnreadableIssuer,
    UnreadableMachine,
};

use super::super::StaticConfig;
use super::super::tests::{config, server};
use super::*;
use crate::catalog::fault::{HOMES_CUT, LAST_FORM, ORG_DENIED, ROUTES_CLOSED};

impl SnapshotBuild {
    /// Joins the build into one message.
    pub(crate) fn whole(&self) -> GatewaySnapshot {
        asp_xds::whole::whole(self.position.revision, &self.edge, &self.gateway)
    }
}

fn denial(org: &str, target: &str) -> BindingRecord {
    BindingRecord {
        org: org.into(),
        target_type: "user".into(),
        target: target.into(),
        primitive: "ping".into(),
        protocol: "*".into(),
        allowed: false,
        ..BindingRecord::default()
    }
}

/// 1.2 MB of exposure exceptions.
fn too_much(org: &str) -> impl Iterator<Item = ExposureRecord> + '_ {
    (0..3_000).map(move |number| ExposureRecord {
        org: org.into(),
        server: format!("{number:0>400}"),
        protocol: "mcp".into(),
        enabled: true,
    })
}

fn built(builder: &mut Builder, state: &ControlState) -> (GatewaySnapshot, Vec<Fault>) {
    let built = builder.build(StateUpdate::All(state.clone()), false).unwrap();
    (built.whole(), built.faults)
}

fn bindings(whole: &GatewaySnapshot, org: &str) -> Vec<(String, bool)> {
    let of_org = whole.bindings.iter().filter(|binding| binding.org == org);
    of_org.map(|binding| (binding.target.clone(), binding.allowed)).collect()
}

#[test]
fn the_server_that_stands_for_all_others_is_published_with_them() {
    let config = StaticConfig { all_servers: true, ..config(true) };
    let mut builder = Builder::new(Compiler::new(config));
    let mut state = ControlState {
        revision: 1,
        servers: vec![server("{schemes: [jwt], issuers: [dev]}")],
        ..ControlState::default()
    };
    let (whole, faults) = built(&mut builder, &state);
    assert_eq!(faults, []);
    let mut servers: Vec<&str> = whole.servers.iter().map(|server| server.name.as_str()).collect();
    servers.sort_unstable();
    assert_eq!(servers, [ALL_SERVERS, "demo"]);
    let edge = whole.edge.unwrap();
    assert!(edge.all_servers && evaluate(&edge).is_ok());
    let issuers = |edge: &EdgeSnapshot| {
        let all = edge.servers.iter().find(|server| server.name == ALL_SERVERS).unwrap();
        all.issuers.clone()
    };
    assert_eq!(issuers(&edge), ["dev"]);
    state.revision = 2;
    let same = builder.build(StateUpdate::All(state.clone()), false).unwrap();
    assert!(!same.changed.contains("server/all"), "{:?}", same.changed);
    let open = server("{schemes: [none]}");
    state.servers = vec![ServerRecord { revision: 3, ..open }];
    state.revision = 3;
    let (whole, _) = built(&mut builder, &state);
    assert_eq!(issuers(&whole.edge.unwrap()), [""; 0], "it follows the servers");
}

#[test]
fn an_org_that_no_longer_fits_keeps_its_last_form_and_a_new_one_is_denied() {
    let mut builder = Builder::new(Compiler::new(config(true)));
    builder.most.policy = 1024 * 1024;
    let mut state = ControlState {
        revision: 1,
        servers: vec![server("{schemes: [jwt], issuers: [dev]}")],
        bindings: vec![denial("grown", "alice"), denial("other", "carol")],
        ..ControlState::default()
    };
    let (_, faults) = built(&mut builder, &state);
    assert_eq!(faults, []);
    state.revision = 2;
    state.exposure = too_much("grown").chain(too_much("new")).collect();
    state.bindings.push(denial("other", "dave"));
    let (second, faults) = built(&mut builder, &state);
    let mut named: Vec<(&str, &str)> =
        faults.iter().map(|fault| (fault.name.as_str(), fault.in_force)).collect();
    named.sort_unstable();
    assert_eq!(named, [("grown", LAST_FORM), ("new", ORG_DENIED)]);
    assert_eq!(bindings(&second, "grown"), [("alice".to_owned(), false)], "its denial is still there");
    assert_eq!(bindings(&second, "new"), vec![("*".to_owned(), false); 2], "users, and machines");
    assert_eq!(bindings(&second, "other").len(), 2, "the rest is renewed");
    assert!(evaluate(&second.edge.unwrap()).is_ok());
}

/// A builder with little room for orgs, as in a process that has just started.
fn small() -> Builder {
    let mut builder = Builder::new(Compiler::new(config(true)));
    builder.most.policy = 1024 * 1024;
    builder
}

/// All forms that are to be kept of what is published now, and the parts that are gone.
fn pending(builder: &mut Builder) -> (Vec<PublishedForm>, Vec<String>) {
    let mut pending = builder.pending();
    let Batch { forms, gone, .. } = pending.batch();
    assert!(pending.is_empty() && builder.pending().is_empty());
    (forms, gone.into_iter().map(|(part, _)| part).collect())
}

#[test]
fn an_org_that_does_not_fit_has_the_form_of_the_store_unless_a_later_one_was_published_here() {
    let key = |id: &str| MachineKeyRecord {
        id: id.into(),
        org: "grown".into(),
        machine: "press".into(),
        hash: "ab".repeat(32),
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 0,
        expires_at: u64::MAX / 2,
    };
    let mut state = ControlState {
        revision: 1,
        bindings: vec![denial("grown", "alice")],
        machines: Machines { keys: vec![key("k")], ..Machines::default() },
        ..ControlState::default()
    };
    let mut running = small();
    built(&mut running, &state);
    let (forms, gone) = pending(&mut running);
    assert_eq!((forms.len(), forms[0].part.as_str(), forms[0].revision, gone.len()), (1, "org/grown", 1, 0));
    state.revision = 2;
    state.exposure = too_much("grown").collect();
    state.bindings.clear();

    let mut fresh = small();
    let first = fresh.build(StateUpdate::All(state.clone()), false).unwrap();
    assert_eq!(first.faults[0].in_force, ORG_DENIED);
    let asked = fresh.unread_parts();
    assert_eq!(asked, ["org/grown"]);
    fresh.take_forms(&asked, &forms);
    let second = fresh.build_again(first, false).unwrap();
    assert_eq!(second.faults[0].in_force, LAST_FORM);
    let (here, _) = built(&mut running, &state);
    let there = second.whole();
    assert_eq!(bindings(&there, "grown"), [("alice".to_owned(), false)]);
    assert_eq!((&here.bindings, &here.machine_keys), (&there.bindings, &there.machine_keys));
    assert_eq!(fresh.unread_parts(), Vec::<String>::new(), "it was asked for");
    assert_eq!(pending(&mut fresh).0, [], "nothing of it was published here as it is stored");

    // What was published here later than what the store has stays.
    let later =
        ControlState { revision: 3, bindings: vec![denial("grown", "bob")], ..ControlState::default() };
    built(&mut running, &later);
    let (whole, _) = built(&mut running, &ControlState { revision: 4, ..state });
    let asked = running.unread_parts();
    running.take_forms(&asked, &forms);
    assert_eq!(bindings(&whole, "grown"), [("bob".to_owned(), false)]);
    let again = running.build_again(SnapshotBuild::default(), false).unwrap();
    assert_eq!(bindings(&again.whole(), "grown"), [("bob".to_owned(), false)]);
    assert_eq!(pending(&mut running).0[0].revision, 3, "the store gets it");

    built(&mut running, &ControlState { revision: 5, ..ControlState::default() });
    assert_eq!(pending(&mut running), (Vec::new(), vec!["org/grown".to_owned()]));
}

#[test]
fn a_server_that_no_longer_compiles_keeps_its_last_form() {
    let mut builder = Builder::new(Compiler::new(config(true)));
    let good = server("{schemes: [jwt], issuers: [dev]}");
    let state = ControlState { revision: 1, servers: vec![good.clone()], ..ControlState::default() };
    let (first, _) = built(&mut builder, &state);
    let mut bad = good;
    bad.revision = 2;
    bad.files[1].text = "id: ping\n".into();
    let state = ControlState { revision: 2, servers: vec![bad], ..ControlState::default() };
    let (second, faults) = built(&mut builder, &state);
    assert_eq!(second.servers, first.servers);
    assert_eq!((faults.len(), faults[0].in_force), (1, LAST_FORM));
    let (anew, faults) = built(&mut Builder::new(Compiler::new(config(true))), &state);
    assert_eq!((anew.servers.len(), faults[0].part), (0, Part::Server));
}

/// Another version may have stored them.
#[test]
fn rows_that_this_version_cannot_read_are_named_and_the_rest_is_published() {
    let mut builder = Builder::new(Compiler::new(config(true)));
    let mut newer = server("{schemes: [jwt], issuers: [dev]}");
    let state = ControlState { revision: 1, servers: vec![newer.clone()], ..ControlState::default() };
    let (first, faults) = built(&mut builder, &state);
    assert_eq!(faults, []);
    newer.files.clear();
    (newer.unreadable, newer.revision) = (Some("unknown field `mode`".into()), 2);
    let row = |kind, id: &str| UnreadableMachine {
        org: "acme".into(),
        kind,
        id: id.into(),
        fault: "no list".into(),
    };
    let state = ControlState {
        revision: 2,
        servers: vec![newer],
        bindings: vec![denial("acme", "alice")],
        unreadable_issuers: vec![UnreadableIssuer { side: "partners".into(), name: "third".into() }],
        machines: Machines { unreadable: vec![row("key", "k"), row("bound", "")], ..Machines::default() },
        ..ControlState::default()
    };
    let (second, faults) = built(&mut builder, &state);
    assert_eq!(second.servers, first.servers);
    assert_eq!(bindings(&second, "acme"), [("alice".to_owned(), false)]);
    let named: Vec<(Part, &str)> = faults.iter().map(|fault| (fault.part, fault.name.as_str())).collect();
    let acme = (Part::Org, "acme");
    assert_eq!(named, [(Part::Server, "demo"), acme, acme, (Part::Issuer, "partners/third")]);
    assert_eq!(faults[0].in_force, LAST_FORM);
    let (anew, faults) = built(&mut Builder::new(Compiler::new(config(true))), &state);
    assert_eq!((anew.servers.len(), faults[0].in_force), (0, crate::catalog::fault::NOT_SERVED));
}

/// A list that was stored before there was a check.
#[test]
fn limits_that_do_not_count_for_every_call_are_named_and_published_as_they_are_stored() {
    let limit = |n: usize| asp_store::control::LimitRecord {
        server: "*".into(),
        primitive: format!("{}*", "p".repeat(n)),
        user: "*".into(),
        wcit: "*".into(),
        issuer: "*".into(),
        machine: "*".into(),
        capacity: 1,
        refill: format!("{n}/s"),
        observe: false,
        ..asp_store::control::LimitRecord::default()
    };
    let state = |count: usize| ControlState {
        revision: 1,
        limits: (1..=count).map(|n| ("acme".to_owned(), limit(n))).collect(),
        ..ControlState::default()
    };
    let (_, faults) = built(&mut Builder::new(Compiler::new(config(true))), &state(8));
    assert_eq!(faults, []);
    let (published, faults) = built(&mut Builder::new(Compiler::new(config(true))), &state(9));
    assert_eq!((faults.len(), faults[0].part, faults[0].name.as_str()), (1, Part::Org, "acme"));
    assert!(faults[0].fault.contains("primitive ppppppppp*"), "{}", faults[0].fault);
    assert_eq!(published.limits.len(), 9);
}

#[test]
fn of_two_stored_servers_that_conflict_the_older_one_is_published() {
    let mut builder = Builder::new(Compiler::new(config(true)));
    let older = server("{schemes: [jwt], issuers: [dev]}");
    let mut newer = older.clone();
    (newer.name, newer.revision) = ("another".into(), 2);
    for file in &mut newer.files {
        file.path = file.path.replace("demo/", "another/");
        file.text = file.text.replace("demo", "another").replace("Pings.", "Pongs.");
    }
    let state = ControlState { revision: 2, servers: vec![newer, older], ..ControlState::default() };
    let (built, faults) = built(&mut builder, &state);
    let names: Vec<&str> = built.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["demo"]);
    assert_eq!((faults.len(), faults[0].name.as_str()), (1, "another"));
    assert!(Snapshot::build(built).is_ok());
}

/// Homes of single orgs, in addition to those of a pattern and of all others.
fn homes(count: usize) -> Placement {
    let home = |org: String| HomeRecord { org, region: "us".into() };
    let homes = (0..count).map(|number| home(format!("{number:0>250}")));
    Placement {
        regions: vec![RegionRecord { name: "us".into(), cluster: "region-us".into() }],
        homes: homes.chain([home("9-*".into())]).collect(),
        ..Placement::default()
    }
}

#[test]
fn homes_that_do_not_fit_keep_their_last_form_and_at_a_start_refuse_whom_they_leave_out() {
    let stored =
        |revision, count| ControlState { revision, placement: homes(count), ..ControlState::default() };
    let mut builder = Builder::new(Compiler::new(config(true)));
    let (first, faults) = built(&mut builder, &stored(1, 2));
    assert_eq!((first.regions.len(), faults.len()), (3, 0));
    let (second, faults) = built(&mut builder, &stored(2, 600));
    assert_eq!((&second.regions, faults[0].in_force), (&first.regions, LAST_FORM));

    let mut anew = Builder::new(Compiler::new(config(true)));
    let (cut, faults) = built(&mut anew, &stored(2, 600));
    assert_eq!((faults.len(), faults[0].name.as_str(), faults[0].in_force), (1, "homes", HOMES_CUT));
    assert!(budget::bytes(&cut.regions) <= budget::HOMES.bytes && cut.regions.len() > 400);
    let (known, last) = cut.regions.split_at(cut.regions.len() - 1);
    assert!(known.iter().all(|home| home.cluster == "region-us" && !home.org.ends_with('*')));
    let nowhere = (last[0].org.as_str(), last[0].cluster.as_str(), last[0].here);
    assert_eq!(nowhere, ("*", "", false), "who might be at home elsewhere is served nowhere");
    assert!(!names::is_label(&last[0].region), "no region has its name");
    let edge = cut.edge.unwrap();
    assert_eq!(edge.regions, cut.regions);
    assert!(evaluate(&edge).is_ok());
    let mut moved = stored(3, 600);
    moved.placement.homes[0].region = "eu".into();
    let (moved, _) = built(&mut anew, &moved);
    assert_eq!(moved.regions[0].region, "eu", "what was cut is cut anew");
}

#[test]
fn routes_that_do_not_fit_keep_their_last_form_and_at_a_start_refuse_what_they_lead_away() {
    let route = |number: usize| RouteRecord {
        server: "*".into(),
        method: format!("{number:m>64}"),
        primitive: "pi*".into(),
        pool: "p".repeat(63),
    };
    let stored = |revision, count| ControlState {
        revision,
        servers: vec![server("{schemes: [jwt], issuers: [dev]}")],
        placement: Placement { routes: (0..count).map(route).collect(), ..Placement::default() },
        ..ControlState::default()
    };
    let mut builder = Builder::new(Compiler::new(config(true)));
    let (first, faults) = built(&mut builder, &stored(1, 2));
    let first = first.edge.unwrap().routes;
    assert_eq!((first.len(), faults.len()), (2, 0));
    let (second, faults) = built(&mut builder, &stored(2, 600));
    assert_eq!((second.edge.unwrap().routes, faults[0].in_force), (first, LAST_FORM));

    let (closed, faults) = built(&mut Builder::new(Compiler::new(config(true))), &stored(2, 600));
    assert_eq!((faults.len(), faults[0].name.as_str(), faults[0].in_force), (1, "routes", ROUTES_CLOSED));
    let edge = closed.edge.unwrap();
    let [only] = edge.routes.as_slice() else { panic!("{:?}", edge.routes) };
    let Route { server, method, primitive, cluster } = only;
    assert_eq!([server, method, primitive], ["demo", "*", "*"]);
    assert!(!names::is_label(cluster), "no pool has its name");
    assert!(evaluate(&edge).is_ok());
}

#[test]
fn a_uri_whose_registration_opens_nothing_is_published_as_reserved_and_a_fingerprint_is_not() {
    let now = clock::now_ms();
    let of = |id: &str, name: CertificateName, expires_at: u64| MachineCertificateRecord {
        id: id.into(),
        org: "acme".into(),
        machine: "press".into(),
        name,
        proved: true,
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 0,
        expires_at,
    };
    let uri = |name: &str| CertificateName::Uri(format!("urn://{name}"));
    let mut beyond = of("beyond", uri("beyond"), now + 60_000);
    beyond.groups = vec!["no-such".into()];
    let certificates = vec![
        of("live", uri("live"), now + 60_000),
        of("ended", uri("ended"), now),
        of("gone", CertificateName::Fingerprint("a".repeat(64)), now),
        beyond,
    ];
    let state = ControlState {
        revision: 1,
        machines: Machines { certificates, ..Machines::default() },
        ..ControlState::default()
    };
    let mut builder = Builder::new(Compiler::new(config(true)));
    let (whole, faults) = built(&mut builder, &state);
    let mut said: Vec<(&str, bool)> = whole
        .machine_certificates
        .iter()
        .map(|known| (known.uri.as_str(), known.expires_at == RESERVED))
        .collect();
    said.sort_unstable();
    assert_eq!(said, [("urn://beyond", true), ("urn://ended", true), ("urn://live", false)]);
    assert_eq!(faults.len(), 1, "the one beyond the bound");
    builder.held.drop_expired(now + 120_000);
    let org = builder.held.orgs.get("acme").unwrap();
    let Some(snapshot_part::Part::Org(part)) = org.part.as_ref().and_then(EncodedPart::read) else {
        panic!()
    };
    assert!(part.machine_certificates.iter().all(|known| known.expires_at == RESERVED), "live has ended");
    assert_eq!(part.machine_certificates.len(), 3);
}
