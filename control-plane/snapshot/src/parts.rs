//! A snapshot in parts, as gateways are told of it: what each is called, and a whole one in its parts.
//!
//! Keeps true: a part's name says all of what it is about, so that whoever has the former one replaces it.

use std::collections::{BTreeMap, BTreeSet};

use asp_proto::snapshot::{
    BasePart, EdgeSnapshot, ExposureException, GatewaySnapshot, OrgPart, Primitive, RecentRevocations,
    RevokedPart, ServerPart, SnapshotPart, snapshot_part::Part,
};

/// What concerns every server and org.
pub const BASE: &str = "base";
/// What was revoked before the recent revocations.
pub const REVOKED: &str = "revoked";
pub const RECENT: &str = "recent";
const SERVER: &str = "server/";
const ORG: &str = "org/";

/// Of the part about a server.
pub fn of_server(name: &str) -> String {
    format!("{SERVER}{name}")
}

/// Of the part about an org.
pub fn of_org(org: &str) -> String {
    format!("{ORG}{org}")
}

/// What a part's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    Base,
    Revoked,
    Recent,
    Server(&'a str),
    Org(&'a str),
}

impl Name<'_> {
    /// `None`: of a newer version, which says something that this one does not know.
    pub fn read(text: &str) -> Option<Name<'_>> {
        match text {
            BASE => Some(Name::Base),
            REVOKED => Some(Name::Revoked),
            RECENT => Some(Name::Recent),
            _ => {
                let server = text.strip_prefix(SERVER).map(Name::Server);
                server.or_else(|| text.strip_prefix(ORG).map(Name::Org))
            }
        }
    }
}

/// Names that newer versions may need in a part ([`SnapshotPart::needs`]) and that this version knows.
const KNOWN_NEEDS: [&str; 0] = [];

/// Returns the first name that the part needs and this version does not know.
pub fn unknown_need(part: &SnapshotPart) -> Option<&str> {
    part.needs.iter().map(String::as_str).find(|need| !KNOWN_NEEDS.contains(need))
}

fn whole(part: Part) -> SnapshotPart {
    SnapshotPart { part: Some(part), ..SnapshotPart::default() }
}

/// A whole snapshot in its parts. What only edges have is not among them. A primitive that no server lists is the first
/// server's.
pub fn split(mut snapshot: GatewaySnapshot) -> BTreeMap<String, SnapshotPart> {
    let edge = snapshot.edge.take().unwrap_or_default();
    let EdgeSnapshot { servers: edge_servers, exposure_exceptions, .. } = &edge;
    let mut parts = BTreeMap::new();
    let mut add = |name: String, part: Part| parts.insert(name, whole(part));
    let listed: BTreeSet<(&str, &str)> = snapshot
        .servers
        .iter()
        .flat_map(|server| &server.listings)
        .map(|listing| (listing.id.as_str(), listing.version.as_str()))
        .collect();
    let is_listed = |primitive: &&Primitive| listed.contains(&(&primitive.id, &primitive.version));
    let mut of_nobody: Vec<Primitive> =
        snapshot.primitives.iter().filter(|primitive| !is_listed(primitive)).cloned().collect();
    for server in &snapshot.servers {
        let has = |primitive: &&Primitive| {
            server.listings.iter().any(|l| l.id == primitive.id && l.version == primitive.version)
        };
        let mut primitives: Vec<Primitive> = snapshot.primitives.iter().filter(has).cloned().collect();
        primitives.append(&mut of_nobody);
        let edge = edge_servers.iter().find(|known| known.name == server.name).cloned();
        let part = ServerPart { edge, server: Some(server.clone()), primitives };
        add(of_server(&server.name), Part::Server(part));
    }
    for (org, part) in orgs(&snapshot, exposure_exceptions) {
        add(of_org(&org), Part::Org(part));
    }
    let base = BasePart {
        public_url: edge.public_url,
        dev: edge.dev,
        default_agent: edge.default_agent,
        issuers: edge.issuers,
        issuer_access: snapshot.issuer_access,
        upstreams: snapshot.upstreams,
        routes: edge.routes,
        regions: snapshot.regions,
    };
    add(BASE.to_owned(), Part::Base(base));
    let through = edge.revoked_through;
    let recent = RecentRevocations { since: through, until: through, ..RecentRevocations::default() };
    let revoked = RevokedPart { through, revoked: edge.revoked, revoked_before: edge.revoked_before };
    add(REVOKED.to_owned(), Part::Revoked(revoked));
    add(RECENT.to_owned(), Part::Recent(RecentRevocations { revision: snapshot.revision, ..recent }));
    parts
}

/// What each org has said, and its machines.
fn orgs(snapshot: &GatewaySnapshot, exposure: &[ExposureException]) -> BTreeMap<String, OrgPart> {
    let mut orgs: BTreeMap<String, OrgPart> = BTreeMap::new();
    let mut of = |org: &str, put: &mut dyn FnMut(&mut OrgPart)| {
        put(orgs
            .entry(org.to_owned())
            .or_insert_with(|| OrgPart { org: org.to_owned(), ..OrgPart::default() }));
    };
    for entry in exposure {
        of(&entry.org, &mut |part| part.exposure.push(entry.clone()));
    }
    for entry in &snapshot.bindings {
        of(&entry.org, &mut |part| part.bindings.push(entry.clone()));
    }
    for entry in &snapshot.observed_bindings {
        of(&entry.org, &mut |part| part.observed_bindings.push(entry.clone()));
    }
    for entry in &snapshot.limits {
        of(&entry.org, &mut |part| part.limits.push(entry.clone()));
    }
    for entry in &snapshot.machine_keys {
        of(&entry.org, &mut |part| part.machine_keys.push(entry.clone()));
    }
    for entry in &snapshot.machine_certificates {
        of(&entry.org, &mut |part| part.machine_certificates.push(entry.clone()));
    }
    orgs
}
