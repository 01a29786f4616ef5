//! The edge snapshot that is published, and whether what edges see of the state is still the same.

use std::collections::HashSet;
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, Listing, OrgExposure};
use asp_registry::CompiledServer;

/// Whether edges see the same of both: each server's own entry, under which names primitives are limited, and the gateway
/// pools. A version is none of it.
pub(super) fn shows_the_same(before: &[Arc<CompiledServer>], servers: &[Arc<CompiledServer>]) -> bool {
    let is_same = |(one, other): (&Arc<CompiledServer>, &Arc<CompiledServer>)| {
        Arc::ptr_eq(one, other)
            || one.edge == other.edge
                && one.server.pool == other.server.pool
                && one.server.listings.iter().map(seen).eq(other.server.listings.iter().map(seen))
    };
    before.len() == servers.len() && before.iter().zip(servers).all(is_same)
}

fn seen(listing: &Listing) -> [&str; 5] {
    let Listing { id, version: _, mcp_name, a2a_skill, rest_name, pool } = listing;
    [id, mcp_name, a2a_skill, rest_name, pool].map(String::as_str)
}

/// Whether edges take the snapshot; the error says why not.
pub(super) fn evaluate(edge: &EdgeSnapshot) -> Result<(), asp_edge::SnapshotError> {
    asp_edge::Snapshot::from_message(edge.clone()).map(drop)
}

/// Whether two differ by their revision only.
pub(super) fn says_the_same(one: &EdgeSnapshot, other: &EdgeSnapshot) -> bool {
    let bare = |edge: &EdgeSnapshot| EdgeSnapshot { revision: 0, digest: Vec::new(), ..edge.clone() };
    bare(one) == bare(other)
}

/// Whether edges may hear of the difference a moment later: it only opens servers to orgs, or is one of coarse limits, whose
/// exact ones gateways enforce meanwhile.
pub fn may_wait(before: &EdgeSnapshot, after: &EdgeSnapshot) -> bool {
    let rest = |edge: &EdgeSnapshot| EdgeSnapshot {
        revision: 0,
        digest: Vec::new(),
        exposure: Vec::new(),
        coarse_limits: Vec::new(),
        ..edge.clone()
    };
    rest(before) == rest(after) && only_opens(&before.exposure, &after.exposure)
}

/// Whether nothing that opens is gone, and nothing that hides has come.
fn only_opens(before: &[OrgExposure], after: &[OrgExposure]) -> bool {
    let (before, after) = (exceptions(before), exceptions(after));
    let opens = |code: u32| code & 1 == 1;
    after.difference(&before).all(|(_, code)| opens(*code))
        && before.difference(&after).all(|(_, code)| !opens(*code))
}

/// Each with its org, as [`OrgExposure`] codes them.
fn exceptions(list: &[OrgExposure]) -> HashSet<(&str, u32)> {
    let of_org = |of: &OrgExposure| of.exceptions.len();
    let mut exceptions = HashSet::with_capacity(list.iter().map(of_org).sum());
    for of in list {
        exceptions.extend(of.exceptions.iter().map(|code| (of.org.as_str(), *code)));
    }
    exceptions
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::CoarseLimit;

    use super::*;

    #[test]
    fn what_opens_may_wait_and_what_closes_may_not() {
        let of = |revision: u64, org: &str, exceptions: &[u32]| {
            let exposure = vec![OrgExposure { org: org.into(), exceptions: exceptions.to_vec() }];
            EdgeSnapshot { revision, exposure, ..EdgeSnapshot::default() }
        };
        // The first server over one protocol, and the second: hidden (0) or shown (1).
        let (hidden, shown, second) = (0b010, 0b011, 0b1011);
        let nothing = EdgeSnapshot::default();
        for (before, after, may) in [
            (of(1, "acme", &[hidden]), of(2, "acme", &[shown]), true),
            (of(1, "acme", &[hidden]), nothing.clone(), true),
            (of(1, "acme", &[shown]), of(2, "acme", &[shown, second]), true),
            (of(1, "acme", &[shown]), of(2, "acme", &[hidden]), false),
            (of(1, "acme", &[shown]), nothing.clone(), false),
            (nothing.clone(), of(2, "acme", &[hidden]), false),
            (of(1, "acme", &[shown]), of(2, "other", &[shown]), false),
            (of(1, "acme", &[shown, second]), of(2, "acme", &[second, hidden]), false),
        ] {
            assert_eq!(may_wait(&before, &after), may, "{before:?} to {after:?}");
        }
        let limited = EdgeSnapshot { coarse_limits: vec![CoarseLimit::default()], ..nothing.clone() };
        assert!(may_wait(&nothing, &limited) && may_wait(&limited, &nothing));
        let revoked = EdgeSnapshot { revoked: vec![1; 16], ..nothing.clone() };
        assert!(!may_wait(&nothing, &revoked) && !may_wait(&revoked, &nothing));
    }
}
