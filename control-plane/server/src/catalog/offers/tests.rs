//! Edges and gateways expose exactly the servers that are offered and switched on, after any sequence of changes.

use asp_proto::snapshot::Protocol;
use asp_store::control::{ServerRecord, StateDelta, StateUpdate};

use super::super::build::Builder;
use super::super::tests::{config, server};
use super::*;

const SERVERS: [&str; 3] = ["one", "two", "three"];
const ORGS: [&str; 3] = ["acme", "globex", "initech"];
const STEPS: u64 = 3_000;

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// The offers of a server's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    allow: bool,
    to: BTreeSet<String>,
}

impl File {
    fn record(&self, name: &str, revision: u64) -> ServerRecord {
        let mut record = server("{schemes: [jwt], issuers: [dev]}");
        record.name = name.into();
        record.revision = revision;
        let to: Vec<&str> = self.to.iter().map(String::as_str).collect();
        let says = match self.allow {
            true => "defaultExposure: allow".to_owned(),
            false => format!("offeredTo: [{}]", to.join(", ")),
        };
        for file in &mut record.files {
            file.path = file.path.replace("demo/", &format!("{name}/"));
            file.text = file.text.replace("demo", name).replace("ping", &format!("ping-{name}"));
            file.text = file.text.replace("protocols: [mcp]", &format!("protocols: [mcp]\n{says}"));
        }
        record.files[1].path = format!("{name}/ping-{name}.yaml");
        record
    }
}

/// Model of the stored state, as simple as possible.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, File>,
    offers: BTreeSet<(String, String)>,
    /// Keyed by org and server.
    switches: BTreeMap<(String, String), bool>,
}

impl Model {
    fn opens(&self, server: &str, org: &str) -> bool {
        let Some(file) = self.files.get(server) else { return false };
        let pair = (server.to_owned(), org.to_owned());
        let offered = file.allow || file.to.contains(org) || self.offers.contains(&pair);
        let on = self.switches.get(&(org.to_owned(), server.to_owned())).copied().unwrap_or(file.allow);
        offered && on
    }

    fn exposure(&self) -> Vec<ExposureRecord> {
        let record = |((org, server), enabled): (&(String, String), &bool)| ExposureRecord {
            org: org.clone(),
            server: server.clone(),
            protocol: "mcp".into(),
            enabled: *enabled,
        };
        self.switches.iter().map(record).collect()
    }

    fn offer_records(&self) -> Vec<OfferRecord> {
        let record =
            |(server, org): &(String, String)| OfferRecord { server: server.clone(), org: org.clone() };
        self.offers.iter().map(record).collect()
    }

    /// Applies a change, and returns it as the store does.
    fn step(&mut self, dice: &mut Dice, revision: u64) -> StateDelta {
        let server = SERVERS[dice.below(3)].to_owned();
        let org = ORGS[dice.below(3)].to_owned();
        let mut changed = StateDelta { revision, ..StateDelta::default() };
        match dice.below(6) {
            0 => {
                let to = ORGS.iter().filter(|_| dice.0 & 1 == 0 && dice.below(2) == 0);
                let to: BTreeSet<String> = to.map(|org| (*org).to_owned()).collect();
                let file = File { allow: to.is_empty() && dice.below(2) == 0, to };
                changed.servers.push((server.clone(), Some(file.record(&server, revision))));
                self.files.insert(server, file);
            }
            1 if dice.below(3) == 0 => {
                self.files.remove(&server);
                self.offers.retain(|(of, _)| *of != server);
                changed.servers.push((server, None));
                changed.offers = Some(self.offer_records());
            }
            1 | 2 => {
                if !self.offers.remove(&(server.clone(), org.clone())) && self.files.contains_key(&server) {
                    self.offers.insert((server, org));
                }
                changed.offers = Some(self.offer_records());
            }
            _ => {
                match dice.below(3) {
                    0 => drop(self.switches.remove(&(org.clone(), server))),
                    on => drop(self.switches.insert((org.clone(), server), on == 1)),
                }
                let mut exposure = self.exposure();
                exposure.retain(|record| record.org == org);
                let state = asp_store::control::OrgState { org, exposure, ..Default::default() };
                changed.orgs.push(state);
            }
        }
        changed
    }
}

#[test]
fn edge_and_gateway_equal_a_plain_model_after_each_of_many_changes() {
    let compiler = Compiler::new(config(true));
    let mut builder = Builder::new(compiler.clone());
    builder
        .build(StateUpdate::All(ControlState { issuers: Vec::new(), ..ControlState::default() }), false)
        .unwrap();
    let (mut model, mut dice) = (Model::default(), Dice(7));
    let (mut opened, mut hidden) = (0, 0);
    for revision in 1..=STEPS {
        let changed = model.step(&mut dice, revision);
        let built = builder.build(StateUpdate::Changed(changed), false).unwrap();
        assert_eq!(built.faults, []);
        let edge = asp_edge::Snapshot::from_message((*built.edge).clone()).unwrap();
        let gateway = asp_snapshot::Snapshot::build(built.whole()).unwrap();
        for (server, org) in SERVERS.iter().flat_map(|server| ORGS.iter().map(move |org| (*server, *org))) {
            let expected = model.opens(server, org);
            for (place, snapshot) in [("edge", &edge), ("gateway", &gateway.edge)] {
                let open = snapshot.exposed(server, org, Protocol::Mcp);
                assert_eq!(open, expected, "{place}: {server} to {org} at {revision}");
            }
            if expected { opened += 1 } else { hidden += 1 }
        }
    }
    assert!(opened > 1_000 && hidden > 1_000, "{opened} open, {hidden} hidden");
    let state = ControlState {
        revision: STEPS,
        servers: model.files.iter().map(|(name, file)| file.record(name, STEPS)).collect(),
        offers: model.offer_records(),
        exposure: model.exposure(),
        ..ControlState::default()
    };
    let vain = ineffective_exposures(&compiler, &state);
    let is_vain = |((org, server), on): &(&(String, String), &bool)| **on && !model.opens(server, org);
    assert_eq!(vain.len(), model.switches.iter().filter(is_vain).count());
}

#[test]
fn servers_that_orgs_have_lost_are_named_with_the_command_that_offers_them_again() {
    let compiler = Compiler::new(config(true));
    let on = |org: &str, server: &str, protocol: &str, enabled: bool| ExposureRecord {
        org: org.into(),
        server: server.into(),
        protocol: protocol.into(),
        enabled,
    };
    let state = ControlState {
        revision: 1,
        servers: vec![File::default().record("one", 1), File::default().record("two", 1)],
        offers: vec![OfferRecord { server: "one".into(), org: "initech".into() }],
        exposure: vec![
            on("globex", "one", "mcp", true),
            on("acme", "one", "mcp", true),
            on("acme", "one", "rest", true),
            on("initech", "one", "mcp", true),
            on("acme", "two", "mcp", false),
            on("acme", "gone", "mcp", true),
        ],
        ..ControlState::default()
    };
    let commands = |state: &ControlState| {
        unoffered_servers(&compiler, state).iter().map(LostServer::command).collect::<Vec<_>>()
    };
    assert_eq!(commands(&state), ["asp servers offer one --to acme --to globex"]);
    let many = (0..102).map(|org| on(&format!("org-{org:03}"), "one", "mcp", true)).collect();
    let said = commands(&ControlState { exposure: many, ..state });
    assert!(said[0].ends_with("--to org-099 (and 2 more)"), "{said:?}");
}
