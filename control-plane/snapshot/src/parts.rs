//! The named parts in which gateways receive a snapshot, and the splitting of a whole snapshot into them.
//!
//! Keeps true: a part's name identifies everything the part covers, so a newer part replaces the one with the same
//! name.

use std::collections::{BTreeMap, BTreeSet};

use asp_proto::snapshot::{
    BasePart, EdgeSnapshot, ExposureException, GatewaySnapshot, OrgPart, Primitive, RecentRevocations,
    RevokedPart, ServerPart, SnapshotPart, snapshot_part::Part,
};

/// Name of the part that concerns every server and org.
pub const BASE: &str = "base";
/// Name of the part with the revocations that are older than the recent ones.
pub const REVOKED: &str = "revoked";
pub const RECENT: &str = "recent";
const SERVER: &str = "server/";
const ORG: &str = "org/";

/// Returns the name of a server's part.
pub fn of_server(name: &str) -> String {
    format!("{SERVER}{name}")
}

/// Returns the name of an org's part.
pub fn of_org(org: &str) -> String {
    format!("{ORG}{org}")
}

/// A part's name, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    Base,
    Revoked,
    Recent,
    Server(&'a str),
    Org(&'a str),
}

impl Name<'_> {
    /// Parses a part's name; `None` if only a newer version knows this kind of part.
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

/// Names that parts may require ([`SnapshotPart::needs`]) and that this version knows.
const KNOWN_NEEDS: [&str; 0] = [];

/// Returns the first name that the part requires and this version does not know.
pub fn unknown_need(part: &SnapshotPart) -> Option<&str> {
    part.needs.iter().map(String::as_str).find(|need| !KNOWN_NEEDS.contains(need))
}

fn whole(part: Part) -> SnapshotPart {
    SnapshotPart { part: Some(part), ..SnapshotPart::default() }
}

/// Splits a snapshot into its parts. Data that only edges have is omitted. Primitives that no server lists go into
/// the first server's part.
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

/// Collects the settings and machines of each org.
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
