//! The coarse limits of the edge, made from the exact ones of the gateway.
//!
//! The edge sees exposed names where a limit names primitive ids, so a limit on some primitives becomes one
//! coarse limit for each name it covers. Owns the bounds: what does not fit, or what the edge cannot tell apart,
//! is left out, because the gateway's exact limit holds anyway. Keeps true: a coarse limit is never stricter than
//! the exact one it stands for, whichever worker a client's connection sticks to; one org's limits never take
//! the room of another's; nothing is expanded beyond its room.

mod names;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use asp_proto::snapshot::{CoarseLimit, Limit};
use prost::Message as _;

use super::EdgeInputs;
use names::Names;

/// Every Envoy worker keeps a bucket for each, and compares each with every request.
pub(super) const MAX_COARSE_LIMITS: usize = 5_000;
/// Their encoded size, in bytes: every Envoy worker copies the edge snapshot.
pub(super) const MAX_COARSE_BYTES: usize = 320 * 1024;
/// Tag and length of an entry of a repeated field, at most.
const FRAMING: usize = 4;
/// How far above the exact rate each single worker lets traffic pass, at least. An HTTP/2 connection sticks to
/// one worker, which grants only its share of the coarse rate; and the edge counts requests that the exact limit
/// does not, such as lists and pings.
const LEAST_PER_WORKER: f64 = 4.0;
/// The slowest rate that every edge takes, in requests per second: one in 28 hours.
const MIN_RATE: f64 = 0.000_01;

/// What is left to give away.
struct Room {
    entries: usize,
    bytes: usize,
}

/// Key of a coarse limit of an org at the edge: server, primitive, user, wcit, issuer.
type Identity = [String; 5];

/// The coarse limits of every org, the broad ones first.
pub(super) fn limits(inputs: &EdgeInputs<'_>) -> Vec<CoarseLimit> {
    let workers = f64::from(inputs.workers.max(1));
    // `max` also replaces a multiple that is no number.
    let multiple = inputs.coarse_multiple.max(LEAST_PER_WORKER * workers);
    let mut orgs: BTreeMap<&str, Vec<&Limit>> = BTreeMap::new();
    // Machines are no callers that an edge knows.
    let is_enforced =
        |limit: &&Limit| limit.refill_per_second.is_finite() && limit.issuer != asp_edge::MACHINE_ISSUER;
    for limit in inputs.limits.iter().copied().filter(is_enforced) {
        orgs.entry(&limit.org).or_default().push(limit);
    }
    let names = Names::index(inputs.servers);
    let mut orgs: Vec<(&str, Vec<&Limit>)> = orgs.into_iter().collect();
    // Those with few limits first: what they leave of their share is the others'.
    orgs.sort_by_key(|(org, limits)| (limits.len(), *org));
    let mut room = Room { entries: MAX_COARSE_LIMITS, bytes: MAX_COARSE_BYTES };
    let mut all = Vec::new();
    let waiting = orgs.len();
    for (served, (_, limits)) in orgs.into_iter().enumerate() {
        let left = (waiting - served).max(1);
        let share = Room { entries: room.entries.div_ceil(left), bytes: room.bytes / left };
        let found = of_org(limits, &names, multiple, share);
        room.entries = room.entries.saturating_sub(found.len());
        room.bytes = room.bytes.saturating_sub(found.iter().map(size).sum());
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

/// One org's coarse limits, as many as its share holds.
fn of_org(mut limits: Vec<&Limit>, names: &Names<'_>, multiple: f64, share: Room) -> Vec<CoarseLimit> {
    // Broad limits first, so that the share cuts the narrow ones.
    limits.sort_by_key(|limit| (limit.primitive != "*", super::limit_key(limit)));
    let mut room = share;
    let mut found: BTreeMap<Identity, CoarseLimit> = BTreeMap::new();
    for limit in limits {
        if limit.primitive == "*" {
            keep(&mut found, &mut room, scaled(limit, &limit.server, "*", multiple));
            continue;
        }
        for name in names.covered(limit) {
            if !keep(&mut found, &mut room, scaled(limit, name.server, &name.pattern, multiple)) {
                break;
            }
        }
    }
    found.into_values().collect()
}

/// Adds a limit; false if there is no room. Two that the edge counts in one bucket become the laxer one; both
/// take room, so that the work is bounded too.
fn keep(found: &mut BTreeMap<Identity, CoarseLimit>, room: &mut Room, limit: CoarseLimit) -> bool {
    let bytes = size(&limit);
    if room.entries == 0 || room.bytes < bytes {
        return false;
    }
    room.entries -= 1;
    room.bytes -= bytes;
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
        // Saturating: a float beyond the range casts to the largest integer.
        burst: (burst as u32).max(1),
    }
}
