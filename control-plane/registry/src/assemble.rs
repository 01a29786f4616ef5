//! Assembly of an edge snapshot from servers, policy and limits, and comparison of two by what edges see.
//!
//! Owns the order and the digests; [`coarse`] makes the coarse limits. Refuses nothing: every part was checked when
//! it was accepted. Keeps true: the same inputs give the same bytes.

mod all_servers;
mod coarse;
mod routes;
#[cfg(any(test, feature = "testkit"))]
mod whole;

use std::cmp::{Ordering, Reverse};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::{
    CoarseLimit, EdgeSnapshot, ExposureException, Issuer, Limit, Listing, OrgExposure, Region, RevokedBefore,
    RevokedToken, Route,
};
use prost::Message as _;
use sha2::{Digest, Sha256};

use crate::compiled::CompiledServer;

pub use all_servers::all_servers;
pub use routes::{closed_routes, routes, routes_bytes};
#[cfg(any(test, feature = "testkit"))]
pub use whole::{Inputs, assemble};

/// Default ratio of a coarse limit at the edge to its exact limit.
pub const DEFAULT_COARSE_MULTIPLE: f64 = 10.0;

/// The inputs of an edge snapshot, borrowed.
#[derive(Clone, Copy)]
pub struct EdgeInputs<'a> {
    /// Revision from SQL, strictly increasing.
    pub revision: u64,
    /// Servers sorted by name.
    pub servers: &'a [&'a CompiledServer],
    pub issuers: &'a [Issuer],
    /// Exceptions by org.
    pub exposure: &'a [(&'a str, &'a [ExposureException])],
    pub limits: &'a [&'a Limit],
    /// Routes in order of precedence ([`routes`]).
    pub routes: &'a [Route],
    pub regions: &'a [Region],
    /// Sorted hashes, encoded like `EdgeSnapshot.revoked`.
    pub revoked: &'a [u8],
    pub revoked_before: &'a [RevokedBefore],
    /// End of these revocations in Unix milliseconds; later ones are sent separately.
    pub revoked_through: u64,
    /// Public URL without a trailing slash.
    pub public_url: &'a str,
    pub dev: bool,
    /// Number of Envoy workers (its concurrency).
    pub workers: u32,
    /// Name of the server whose card is served at the root; "" for none.
    pub default_agent: &'a str,
    /// Whether the server `all` stands for all others ([`all_servers()`]).
    pub all_servers: bool,
    /// Requests per second of one client network and kind without a valid credential; 0 for no limit.
    pub unauthenticated_rate: u32,
    /// Ratio of a coarse limit to its exact limit; with many workers a larger one is used.
    pub coarse_multiple: f64,
}

/// Builds an edge snapshot, with exposure in its short form and revocations up to `revoked_through`.
pub fn edge(inputs: EdgeInputs<'_>) -> EdgeSnapshot {
    let places: HashMap<&str, u32> =
        (0..).zip(inputs.servers).map(|(place, server)| (server.server.name.as_str(), place)).collect();
    let of_org = |(org, exceptions): &(&str, &[ExposureException])| {
        let code = |exception: &ExposureException| {
            let place = places.get(exception.server.as_str())?;
            Some(place << 3 | exception.protocol.cast_unsigned() << 1 | u32::from(exception.enabled))
        };
        let mut codes: Vec<u32> = exceptions.iter().filter_map(code).collect();
        codes.sort_unstable();
        (!codes.is_empty()).then(|| OrgExposure { org: (*org).to_owned(), exceptions: codes })
    };
    let mut edge = EdgeSnapshot {
        revision: inputs.revision,
        digest: Vec::new(),
        workers: inputs.workers,
        servers: inputs.servers.iter().map(|compiled| compiled.edge.clone()).collect(),
        issuers: sorted(inputs.issuers.to_vec(), |issuer| issuer.name.clone()),
        exposure_exceptions: Vec::new(),
        exposure: sorted(inputs.exposure.iter().filter_map(of_org).collect(), |exposure| {
            exposure.org.clone()
        }),
        coarse_limits: coarse::limits(&inputs),
        routes: inputs.routes.to_vec(),
        regions: inputs.regions.to_vec(),
        revoked: inputs.revoked.to_vec(),
        revoked_before: inputs.revoked_before.to_vec(),
        revoked_through: inputs.revoked_through,
        revocations_apart: true,
        all_servers: inputs.all_servers,
        unauthenticated_rate: inputs.unauthenticated_rate,
        public_url: inputs.public_url.to_owned(),
        dev: inputs.dev,
        default_agent: inputs.default_agent.to_owned(),
    };
    edge.digest = digest(&edge.encode_to_vec());
    edge
}

/// Returns the same content at another revision.
pub fn at_revision(edge: EdgeSnapshot, revision: u64) -> EdgeSnapshot {
    let mut edge = EdgeSnapshot { revision, digest: Vec::new(), ..edge };
    edge.digest = digest(&edge.encode_to_vec());
    edge
}

/// Keeps the entry with the latest time for each org and user; of two with the same time the earlier one. The result
/// does not depend on the order of the list.
pub fn latest(list: Vec<RevokedBefore>) -> Vec<RevokedBefore> {
    let mut latest: BTreeMap<(String, String), RevokedBefore> = BTreeMap::new();
    for revoked in list {
        let key = (revoked.org.clone(), revoked.user.clone());
        match latest.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(revoked);
            }
            Entry::Occupied(mut known) => {
                if is_later(&revoked, known.get()) {
                    known.insert(revoked);
                }
            }
        }
    }
    latest.into_values().collect()
}

/// Whether an entry takes the place of another one of the same org and user.
fn is_later(new: &RevokedBefore, known: &RevokedBefore) -> bool {
    let order = |entry: &RevokedBefore| (entry.not_after_iat, entry.block, Reverse(entry.since_ms));
    match order(new).cmp(&order(known)) {
        Ordering::Equal => new.reason > known.reason,
        order => order == Ordering::Greater,
    }
}

fn sorted<T, K: Ord>(mut list: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    list.sort_by_key(key);
    list
}

/// Sorts the details of revoked tokens and keeps those of the earliest revocation of each. The result does not depend on
/// the order of the list.
pub fn earliest(mut list: Vec<RevokedToken>) -> Vec<RevokedToken> {
    list.sort_by(|one, other| {
        let order = |token: &RevokedToken| (token.since_ms, Reverse(token.reason.len()));
        let by_entry = one.entry.cmp(&other.entry);
        by_entry.then_with(|| order(one).cmp(&order(other))).then_with(|| one.reason.cmp(&other.reason))
    });
    list.dedup_by(|next, kept| next.entry == kept.entry);
    list
}

/// Encodes hashes like `EdgeSnapshot.revoked`: sorted, without duplicates.
pub fn sorted_set(mut hashes: Vec<[u8; 16]>) -> Vec<u8> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes.concat()
}

fn digest(encoded: &[u8]) -> Vec<u8> {
    Sha256::digest(encoded).to_vec()
}

fn limit_key(limit: &Limit) -> ([String; 7], [u32; 2], [bool; 2]) {
    let Limit { org, server, primitive, user, wcit, issuer, group, .. } = limit;
    let names = [org, server, primitive, user, wcit, issuer, group].map(String::clone);
    let windows = [limit.fixed_window_seconds, limit.sliding_window_seconds];
    (names, windows, [limit.observe, limit.concurrent])
}

// === comparison ===

/// Whether edges see no difference between two lists of servers: the servers' own entries, the names under which
/// primitives are limited, and the gateway pools. Edges do not see versions.
pub fn is_same_at_edges(before: &[Arc<CompiledServer>], servers: &[Arc<CompiledServer>]) -> bool {
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

/// Whether two snapshots differ only in their revision.
pub fn differs_only_in_revision(one: &EdgeSnapshot, other: &EdgeSnapshot) -> bool {
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
        unauthenticated_rate,
        regions,
    } = edge;
    let entries = (servers, issuers, routes, regions);
    let revocations = (revoked, revoked_before, revoked_through, revocations_apart);
    let settings = (workers, public_url, dev, all_servers, unauthenticated_rate, default_agent);
    (entries, revocations, settings)
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
        let exposure = &after.exposure;
        let limits = &after.coarse_limits;
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
    let before = exceptions(before);
    let after = exceptions(after);
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
mod tests;
