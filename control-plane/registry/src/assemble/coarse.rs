//! The coarse limits of the edge, derived from the gateway's exact ones.
//!
//! The edge sees exposed names where a limit names primitive ids, so a limit on some primitives becomes one coarse
//! limit for each name it covers. Owns the bounds: limits that do not fit, or that the edge cannot tell apart, are
//! left out, because the gateway enforces the exact limit anyway. Keeps true: a coarse limit is never stricter than
//! its exact limit, whichever worker a client's connection is bound to; one org's limits never use another's share of
//! the capacity; no limit is expanded beyond the capacity left.

mod names;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use asp_proto::snapshot::{CoarseLimit, Limit};
use prost::Message as _;

use super::EdgeInputs;
use names::Names;

/// Maximum number of coarse limits. Every Envoy worker keeps a bucket for each, and compares each with every request.
pub(super) const MAX_COARSE_LIMITS: usize = 5_000;
/// Maximum encoded size of the coarse limits in bytes: every Envoy worker copies the edge snapshot.
pub(super) const MAX_COARSE_BYTES: usize = 320 * 1024;
/// Maximum size of the tag and length of an entry in a repeated field, in bytes.
const FRAMING: usize = 4;
/// Minimum ratio of a single worker's coarse rate to the exact rate. An HTTP/2 connection stays on one worker, which
/// grants only its share of the coarse rate; and the edge also counts requests that the exact limit does not, such as
/// lists and pings.
const LEAST_PER_WORKER: f64 = 4.0;
/// Lowest rate that every edge accepts, in requests per second: one in 28 hours.
const MIN_RATE: f64 = 0.000_01;

/// Capacity that is still free.
struct FreeCapacity {
    entries: usize,
    bytes: usize,
}

/// Key of an org's coarse limit at the edge: server, primitive, user, wcit, issuer.
type Identity = [String; 5];

/// Returns the coarse limits of every org, broad ones first.
pub(super) fn limits(inputs: &EdgeInputs<'_>) -> Vec<CoarseLimit> {
    let workers = f64::from(inputs.workers.max(1));
    // `max` also replaces NaN.
    let multiple = inputs.coarse_multiple.max(LEAST_PER_WORKER * workers);
    let mut orgs: BTreeMap<&str, Vec<&Limit>> = BTreeMap::new();
    // Edges know neither machines nor groups, nor when a call ends. They count each org by itself: also for a limit of all orgs,
    // where that is laxer.
    let is_enforced = |limit: &&Limit| {
        let is_known =
            limit.issuer != asp_edge::MACHINE_ISSUER && limit.group.is_empty() && !limit.concurrent;
        limit.refill_per_second.is_finite() && is_known && !limit.observe
    };
    for limit in inputs.limits.iter().copied().filter(is_enforced) {
        orgs.entry(&limit.org).or_default().push(limit);
    }
    let names = Names::index(inputs.servers);
    let mut orgs: Vec<(&str, Vec<&Limit>)> = orgs.into_iter().collect();
    // Orgs with few limits come first; the others get what is left of their shares.
    orgs.sort_by_key(|(org, limits)| (limits.len(), *org));
    let mut capacity = FreeCapacity { entries: MAX_COARSE_LIMITS, bytes: MAX_COARSE_BYTES };
    let mut all = Vec::new();
    let waiting = orgs.len();
    for (served, (_, limits)) in orgs.into_iter().enumerate() {
        let left = (waiting - served).max(1);
        let share = FreeCapacity { entries: capacity.entries.div_ceil(left), bytes: capacity.bytes / left };
        let found = of_org(limits, &names, multiple, share);
        capacity.entries = capacity.entries.saturating_sub(found.len());
        capacity.bytes = capacity.bytes.saturating_sub(found.iter().map(size).sum());
        all.extend(found);
    }
    all.sort_by(|a, b| order(a).cmp(&order(b)));
    all
}

fn order(limit: &CoarseLimit) -> (bool, [&str; 6]) {
    let CoarseLimit { org, server, primitive, user, wcit, issuer, .. } = limit;
    (primitive != "*", [org, server, primitive, user, wcit, issuer])
}

fn size(limit: &CoarseLimit) -> usize {
    limit.encoded_len() + FRAMING
}

/// Returns as many coarse limits of one org as fit its share.
fn of_org(
    mut limits: Vec<&Limit>,
    names: &Names<'_>,
    multiple: f64,
    share: FreeCapacity,
) -> Vec<CoarseLimit> {
    // Broad limits come first, so that a small share drops the narrow ones.
    limits.sort_by_key(|limit| (limit.primitive != "*", super::limit_key(limit)));
    let mut capacity = share;
    let mut found: BTreeMap<Identity, CoarseLimit> = BTreeMap::new();
    for limit in limits {
        if limit.primitive == "*" {
            add(&mut found, &mut capacity, scaled(limit, &limit.server, "*", multiple));
            continue;
        }
        for name in names.selected_names(limit) {
            if !add(&mut found, &mut capacity, scaled(limit, name.server, &name.pattern, multiple)) {
                break;
            }
        }
    }
    found.into_values().collect()
}

/// Adds a limit; returns false if there is no capacity left. Two limits that the edge counts in one bucket become the
/// laxer one. Both use capacity, which also bounds the work.
fn add(found: &mut BTreeMap<Identity, CoarseLimit>, capacity: &mut FreeCapacity, limit: CoarseLimit) -> bool {
    let bytes = size(&limit);
    if capacity.entries == 0 || capacity.bytes < bytes {
        return false;
    }
    capacity.entries -= 1;
    capacity.bytes -= bytes;
    let CoarseLimit { server, primitive, user, wcit, issuer, .. } = &limit;
    let identity = [server, primitive, user, wcit, issuer].map(String::clone);
    match found.entry(identity) {
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.rate_per_second = known.rate_per_second.max(limit.rate_per_second);
            known.burst = known.burst.max(limit.burst);
        }
        Entry::Vacant(free) => {
            free.insert(limit);
        }
    }
    true
}

fn scaled(limit: &Limit, server: &str, primitive: &str, multiple: f64) -> CoarseLimit {
    let burst = (limit.capacity as f64 * multiple).ceil();
    CoarseLimit {
        org: limit.org.clone(),
        server: server.to_string(),
        user: limit.user.clone(),
        wcit: limit.wcit.clone(),
        issuer: limit.issuer.clone(),
        primitive: primitive.to_string(),
        rate_per_second: (limit.refill_per_second * multiple).max(MIN_RATE),
        // The cast saturates at the largest integer.
        burst: (burst as u32).max(1),
    }
}
