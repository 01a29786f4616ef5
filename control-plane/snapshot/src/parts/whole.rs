//! The parts of a snapshot that is one message, for tests.

use std::collections::{BTreeMap, BTreeSet};

use asp_proto::snapshot::{
    BasePart, EdgeSnapshot, ExposureException, GatewaySnapshot, OrgPart, Primitive, RecentRevocations,
    RevokedPart, ServerPart, SnapshotPart, snapshot_part::Part,
};

use super::{BASE, RECENT, REVOKED, of_org, of_server};

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
        all_servers: edge.all_servers,
        unauthenticated_rate: edge.unauthenticated_rate,
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
