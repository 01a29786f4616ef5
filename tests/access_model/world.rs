//! A small world: everything that is stored about who may call what, and how one world becomes the next.
//!
//! Keeps true: the next world differs from the one before in some parts only, so that offers are withdrawn and bounds
//! shrink under what was stored before.

use std::collections::{BTreeMap, BTreeSet};

use asp_store::control::{BindingRecord, MachineBound};

use crate::random::Random;

mod bindings;

pub(crate) use bindings::UNREADABLE_KIND;

pub(crate) type Text = &'static str;
pub(crate) type List = &'static [&'static str];

pub(crate) const SERVERS: [Text; 2] = ["one", "two"];
pub(crate) const ORGS: [Text; 2] = ["acme", "globex"];
pub(crate) const ISSUERS: [Text; 2] = ["login", "other"];
/// First words of the ids of each server's primitives.
pub(crate) const PRIMITIVES: [Text; 2] = ["look", "wipe"];
/// A group has the name of a user, so that a target of the wrong kind is noticed.
pub(crate) const GROUPS: [List; 4] = [&[], &["ops"], &["alice"], &["ops", "alice"]];
pub(crate) const SCOPES: [List; 4] = [&[], &["read"], &["write"], &["read", "write"]];
/// Machines that a world may have: two with a key, then two with a certificate.
pub(crate) const MACHINES: usize = 4;
/// Protocol of an exposure record that no version knows.
pub(crate) const UNREADABLE_PROTOCOL: Text = "quic";
/// Protocols of exposure records.
const SWITCHES: [Text; 4] = ["mcp", "rest", "a2a", UNREADABLE_PROTOCOL];
/// Worlds with the same server files: compiling them takes longer than everything else.
const SERIES: u64 = 16;

/// One world.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) servers: BTreeMap<Text, ServerFile>,
    /// Number of the world in which the server files were written.
    pub(crate) servers_written: u64,
    /// Stored offers: server and org.
    pub(crate) offers: BTreeSet<(Text, Text)>,
    /// Exposure by org, server and protocol.
    pub(crate) exposure: BTreeMap<(Text, Text, Text), bool>,
    pub(crate) bindings: Vec<BindingRecord>,
    /// Orgs that each of [`ISSUERS`] speaks for, as patterns.
    pub(crate) issuers: [List; 2],
    pub(crate) machines: [Option<Machine>; MACHINES],
    pub(crate) bounds: BTreeMap<Text, MachineBound>,
    /// Stored offers of the world before.
    pub(crate) former_offers: BTreeSet<(Text, Text)>,
    /// Bounds of the world before.
    pub(crate) former_bounds: BTreeMap<Text, MachineBound>,
}

/// A server as its files describe it.
#[derive(Clone, Debug)]
pub(crate) struct ServerFile {
    /// `defaultExposure: allow`.
    pub(crate) allow: bool,
    pub(crate) offered_to: BTreeSet<Text>,
    pub(crate) protocols: List,
    pub(crate) schemes: List,
    pub(crate) issuers: List,
    pub(crate) scopes: List,
    /// In the order of [`PRIMITIVES`].
    pub(crate) primitives: [PrimitiveFile; 2],
}

impl ServerFile {
    /// Whether it asks nobody who they are.
    pub(crate) fn is_open(&self) -> bool {
        self.accepts("none")
    }

    pub(crate) fn accepts(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PrimitiveFile {
    pub(crate) mutation: Text,
    /// `riskClass: high`.
    pub(crate) is_risky: bool,
    pub(crate) scopes: List,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) org: Text,
    pub(crate) name: Text,
    pub(crate) groups: List,
    pub(crate) scopes: List,
    /// Whether its key or certificate has expired.
    pub(crate) has_ended: bool,
}

impl World {
    /// Returns the world of this number; `self` is the one before, or empty.
    pub(crate) fn next(&self, random: &mut Random, number: u64) -> World {
        let is_first = self.servers_written == 0;
        let mut next =
            World { former_offers: self.offers.clone(), former_bounds: self.bounds.clone(), ..self.clone() };
        if is_first || number.is_multiple_of(SERIES) {
            next.servers = servers(random);
            next.servers_written = number;
        }
        if is_first || random.one_in(2) {
            next.offers = offers(random);
        }
        if is_first || random.one_in(2) {
            next.exposure = exposure(random);
        }
        if is_first || random.one_in(2) {
            next.bindings = bindings::some(random);
        }
        if is_first || random.one_in(2) {
            next.issuers = ISSUERS.map(|_| orgs_of_issuer(random));
        }
        if is_first || random.one_in(2) {
            next.machines = std::array::from_fn(|_| machine(random));
        }
        if is_first || random.one_in(2) {
            next.bounds = bounds(random);
        }
        next
    }
}

fn servers(random: &mut Random) -> BTreeMap<Text, ServerFile> {
    let mut servers = BTreeMap::new();
    for name in SERVERS {
        if !random.one_in(12) {
            servers.insert(name, server(random));
        }
    }
    servers
}

fn server(random: &mut Random) -> ServerFile {
    const SCHEMES: [List; 9] = [
        &["jwt"],
        &["jwt"],
        &["jwt", "psk"],
        &["jwt", "psk", "mtls"],
        &["jwt", "mtls"],
        &["psk"],
        &["mtls"],
        &["psk", "mtls"],
        &["none"],
    ];
    const NAMED: [List; 4] = [&["login"], &["login"], &["login", "other"], &["other"]];
    const PROTOCOLS: [List; 4] = [&["mcp", "rest"], &["mcp", "rest"], &["mcp"], &["rest"]];
    let schemes = random.of(&SCHEMES);
    let is_open = schemes.contains(&"none");
    let allow = random.one_in(4);
    let offered_to = ORGS.into_iter().filter(|_| !allow && random.one_in(3)).collect();
    let scopes = wanted(random, is_open);
    let primitives =
        [["read_only", "idempotent"], ["destructive", "idempotent"]].map(|mutations| PrimitiveFile {
            mutation: random.of(&mutations),
            is_risky: random.one_in(6),
            scopes: wanted(random, is_open),
        });
    ServerFile {
        allow,
        offered_to,
        protocols: random.of(&PROTOCOLS),
        schemes,
        issuers: if schemes.contains(&"jwt") { random.of(&NAMED) } else { &[] },
        scopes,
        primitives,
    }
}

/// Returns scopes that a server or a primitive asks for. Callers without authentication have none: a server that asks
/// them for some is refused.
fn wanted(random: &mut Random, is_open: bool) -> List {
    const WANTED: [List; 6] = [&[], &[], &[], &["read"], &["write"], &["read", "write"]];
    if is_open { &[] } else { random.of(&WANTED) }
}

fn offers(random: &mut Random) -> BTreeSet<(Text, Text)> {
    let pairs = SERVERS.into_iter().flat_map(|server| ORGS.map(|org| (server, org)));
    pairs.filter(|_| random.one_in(2)).collect()
}

fn exposure(random: &mut Random) -> BTreeMap<(Text, Text, Text), bool> {
    let mut exposure = BTreeMap::new();
    for (org, server) in ORGS.into_iter().flat_map(|org| SERVERS.map(|server| (org, server))) {
        for protocol in SWITCHES {
            let enabled = match random.below(8) {
                _ if protocol == UNREADABLE_PROTOCOL && !random.one_in(5) => None,
                0..3 => None,
                3..6 => Some(true),
                _ => Some(false),
            };
            if let Some(enabled) = enabled {
                exposure.insert((org, server, protocol), enabled);
            }
        }
    }
    exposure
}

fn orgs_of_issuer(random: &mut Random) -> List {
    const ORGS_OF_ISSUER: [List; 5] = [&["acme"], &["globex"], &["acme", "globex"], &["*"], &["ac*"]];
    random.of(&ORGS_OF_ISSUER)
}

fn machine(random: &mut Random) -> Option<Machine> {
    (!random.one_in(6)).then(|| Machine {
        org: random.of(&ORGS),
        // One of the two names is that of a user too.
        name: random.of(&["press", "robot"]),
        groups: random.of(&GROUPS),
        scopes: random.of(&SCOPES),
        has_ended: random.one_in(8),
    })
}

fn bounds(random: &mut Random) -> BTreeMap<Text, MachineBound> {
    let mut bounds = BTreeMap::new();
    for org in ORGS {
        if !random.one_in(5) {
            let set = |list: List| list.iter().map(|name| (*name).to_owned()).collect();
            let groups = random.of(&[GROUPS[1], GROUPS[2], GROUPS[3], GROUPS[3]]);
            let scopes = random.of(&[SCOPES[1], SCOPES[2], SCOPES[3], SCOPES[3]]);
            bounds.insert(org, MachineBound { groups: set(groups), scopes: set(scopes) });
        }
    }
    bounds
}
