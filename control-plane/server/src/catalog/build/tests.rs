//! What is built of what changed, and what stays as it was.

use asp_proto::snapshot::GatewaySnapshot;
use asp_store::control::{BindingRecord, ExposureRecord};

use super::super::tests::{config, server};
use super::*;

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
    let built = builder.build(Since::All(state.clone()), false).unwrap();
    (built.whole(), built.faults)
}

fn bindings(whole: &GatewaySnapshot, org: &str) -> Vec<(String, bool)> {
    let of_org = whole.bindings.iter().filter(|binding| binding.org == org);
    of_org.map(|binding| (binding.target.clone(), binding.allowed)).collect()
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
    assert_eq!(bindings(&second, "new"), [("*".to_owned(), false)]);
    assert_eq!(bindings(&second, "other").len(), 2, "the rest is renewed");
    assert!(edge_form::evaluate(&second.edge.unwrap()).is_ok());
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
