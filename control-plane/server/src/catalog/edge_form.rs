//! Comparison of edge snapshots by what edges see.

use std::collections::HashSet;
use std::sync::Arc;

use asp_proto::snapshot::{CoarseLimit, EdgeSnapshot, Listing, OrgExposure};
use asp_registry::CompiledServer;

/// Whether edges see no difference between two lists of servers: the servers' own entries, the names under which
/// primitives are limited, and the gateway pools. Edges do not see versions.
pub(super) fn is_same_at_edges(before: &[Arc<CompiledServer>], servers: &[Arc<CompiledServer>]) -> bool {
    let is_same = |(one, other): (&Arc<CompiledServer>, &Arc<CompiledServer>)| {
        Arc::ptr_eq(one, other)
            || one.edge == other.edge
                && one.server.pool == other.server.pool
                && one.server.listings.iter().map(edge_view).eq(other.server.listings.iter().map(edge_view))
    };
    before.len() == servers.len() && before.iter().zip(servers).all(is_same)
}

fn edge_view(listing: &Listing) -> [&str; 5] {
    let Listing { id, version: _, mcp_name, a2a_skill, rest_name, pool } = listing;
    [id, mcp_name, a2a_skill, rest_name, pool].map(String::as_str)
}

/// Checks that edges accept the snapshot.
pub(super) fn evaluate(edge: &EdgeSnapshot) -> Result<(), asp_edge::SnapshotError> {
    asp_edge::Snapshot::from_message(edge.clone()).map(drop)
}

/// Whether two snapshots differ only in their revision.
pub(super) fn differs_only_in_revision(one: &EdgeSnapshot, other: &EdgeSnapshot) -> bool {
    one.exposure == other.exposure && one.coarse_limits == other.coarse_limits && rest(one) == rest(other)
}

/// Everything but the revision, the digest, and the lists whose changes may wait. Nothing is copied: a snapshot has
/// megabytes.
fn rest(edge: &EdgeSnapshot) -> impl PartialEq {
    let EdgeSnapshot {
        revision: _,
        digest: _,
        exposure: _,
        coarse_limits: _,
        workers,
        servers,
        issuers,
        exposure_exceptions: _,
        routes,
        revoked,
        revoked_before,
        public_url,
        dev,
        default_agent,
        revoked_through,
        revocations_apart,
        all_servers,
        regions,
    } = edge;
    let entries = (servers, issuers, routes, regions);
    let revocations = (revoked, revoked_before, revoked_through, revocations_apart);
    (entries, revocations, (workers, public_url, dev, all_servers, default_agent))
}

/// The difference between the current and the next edge snapshot, by how long edges may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeChange {
    /// Changes only the revision.
    Nothing,
    /// Only hides servers from orgs and adds coarse limits. It may wait: gateways evaluate every request and refuse
    /// what edges still let pass.
    Closes,
    /// Shows servers to orgs or loosens coarse limits, and may also hide and add others. Gateways do not see what edges
    /// still refuse.
    Opens,
    /// Any other change.
    Other,
}

impl EdgeChange {
    /// Compares everything but the revision and the digest.
    pub fn between(before: &Arc<EdgeSnapshot>, after: &Arc<EdgeSnapshot>) -> EdgeChange {
        if Arc::ptr_eq(before, after) {
            return EdgeChange::Nothing;
        }
        let (exposure, limits) = (&after.exposure, &after.coarse_limits);
        if rest(before) != rest(after) {
            EdgeChange::Other
        } else if before.exposure == *exposure && before.coarse_limits == *limits {
            EdgeChange::Nothing
        } else if opens(&before.exposure, exposure) || !has_all(limits, &before.coarse_limits) {
            EdgeChange::Opens
        } else {
            EdgeChange::Closes
        }
    }
}

/// Whether an exception that opens was added, or one that hides was removed.
fn opens(before: &[OrgExposure], after: &[OrgExposure]) -> bool {
    let (before, after) = (exceptions(before), exceptions(after));
    let opens = |code: u32| code & 1 == 1;
    after.difference(&before).any(|(_, code)| opens(*code))
        || before.difference(&after).any(|(_, code)| !opens(*code))
}

/// Whether `limits` has all limits of `of`, in the same order.
fn has_all(limits: &[CoarseLimit], of: &[CoarseLimit]) -> bool {
    let mut limits = limits.iter();
    of.iter().all(|limit| limits.any(|other| other == limit))
}

/// Returns each exception, in the code of [`OrgExposure`], with its org.
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
    use super::EdgeChange::{Closes, Nothing, Opens, Other};
    use super::*;

    fn change(before: &EdgeSnapshot, after: &EdgeSnapshot) -> EdgeChange {
        EdgeChange::between(&Arc::new(before.clone()), &Arc::new(after.clone()))
    }

    #[test]
    fn exceptions_close_or_open() {
        let of = |revision: u64, org: &str, exceptions: &[u32]| {
            let exposure = vec![OrgExposure { org: org.into(), exceptions: exceptions.to_vec() }];
            EdgeSnapshot { revision, digest: vec![1; 32], exposure, ..EdgeSnapshot::default() }
        };
        // The first server over one protocol, and the second: hidden (0) or shown (1).
        let (hidden, shown, second) = (0b010, 0b011, 0b1011);
        let nothing = EdgeSnapshot::default();
        for (before, after, expected) in [
            (of(1, "acme", &[hidden]), of(2, "acme", &[hidden]), Nothing),
            (of(1, "acme", &[hidden]), of(2, "acme", &[shown]), Opens),
            (of(1, "acme", &[hidden]), nothing.clone(), Opens),
            (of(1, "acme", &[shown]), of(2, "acme", &[shown, second]), Opens),
            (of(1, "acme", &[shown]), of(2, "acme", &[hidden]), Closes),
            (of(1, "acme", &[shown]), nothing.clone(), Closes),
            (nothing.clone(), of(2, "acme", &[hidden]), Closes),
            (of(1, "acme", &[shown]), of(2, "other", &[shown]), Opens),
            (of(1, "acme", &[shown, second]), of(2, "acme", &[hidden]), Closes),
            (of(1, "acme", &[hidden]), of(2, "acme", &[second]), Opens),
        ] {
            assert_eq!(change(&before, &after), expected, "{before:?} to {after:?}");
        }
        let revoked = EdgeSnapshot { revoked: vec![1; 16], ..nothing.clone() };
        assert_eq!((change(&nothing, &revoked), change(&revoked, &nothing)), (Other, Other));
        assert_eq!(change(&of(1, "acme", &[shown]), &revoked), Other);
    }

    #[test]
    fn only_the_revision_and_the_digest_change_nothing() {
        let limit = CoarseLimit { rate_per_second: 1.0, ..CoarseLimit::default() };
        let edge = EdgeSnapshot { coarse_limits: vec![limit], workers: 2, ..EdgeSnapshot::default() };
        let again = EdgeSnapshot { revision: 7, digest: vec![1; 32], ..edge.clone() };
        assert!(differs_only_in_revision(&edge, &again));
        assert_eq!(change(&edge, &again), Nothing);
        for other in [
            EdgeSnapshot { workers: 3, ..edge.clone() },
            EdgeSnapshot { public_url: "https://a.example".into(), ..edge.clone() },
            EdgeSnapshot { revoked_through: 1, ..edge.clone() },
        ] {
            assert!(!differs_only_in_revision(&edge, &other), "{other:?}");
            assert_eq!(change(&edge, &other), Other, "{other:?}");
        }
        let unlimited = EdgeSnapshot { coarse_limits: Vec::new(), ..edge.clone() };
        assert!(!differs_only_in_revision(&edge, &unlimited));
    }

    #[test]
    fn a_limit_that_is_added_closes_and_one_that_is_gone_or_another_one_opens() {
        let of = |rates: &[f64]| {
            let limit = |rate: &f64| CoarseLimit { rate_per_second: *rate, ..CoarseLimit::default() };
            EdgeSnapshot { coarse_limits: rates.iter().map(limit).collect(), ..EdgeSnapshot::default() }
        };
        for (before, after, expected) in [
            (of(&[1.0]), of(&[1.0]), Nothing),
            (of(&[]), of(&[1.0]), Closes),
            (of(&[1.0, 3.0]), of(&[1.0, 2.0, 3.0, 4.0]), Closes),
            (of(&[1.0]), of(&[]), Opens),
            (of(&[1.0, 2.0]), of(&[1.0, 3.0, 4.0]), Opens),
        ] {
            assert_eq!(change(&before, &after), expected, "{before:?} to {after:?}");
        }
        let hidden = vec![OrgExposure { org: "acme".into(), exceptions: vec![0b010] }];
        let both = EdgeSnapshot { exposure: hidden, ..of(&[2.0]) };
        assert_eq!((change(&of(&[]), &both), change(&of(&[1.0]), &both)), (Closes, Opens));
    }
}
