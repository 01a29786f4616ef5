//! Puts servers, policy and limits together to one snapshot.
//!
//! Owns the order, the digests and the coarse limits. Refuses nothing: every part was checked when it came
//! in. Keeps true: the same inputs give the same bytes, and a coarse limit is never stricter than the exact
//! one it stands for.

use std::collections::BTreeMap;

use asp_proto::snapshot::{
    AuthScheme, Binding, CoarseLimit, EdgeSnapshot, ExposureException, GatewaySnapshot, Issuer, Limit,
    Listing, Primitive, Region, RevokedBefore, Route, Upstream,
};
use prost::Message as _;
use sha2::{Digest, Sha256};

use crate::CompiledServer;

/// Every Envoy worker keeps a bucket for each; beyond this the broad limits alone must do at the edge.
const MAX_COARSE_LIMITS: usize = 5_000;
/// How far above the exact limit the edge lets traffic pass when the operator names no multiple.
const DEFAULT_COARSE_MULTIPLE: f64 = 10.0;

/// All that a snapshot is made of.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// From SQL, strictly rising.
    pub revision: u64,
    pub servers: Vec<CompiledServer>,
    pub issuers: Vec<Issuer>,
    pub exposure: Vec<ExposureException>,
    pub bindings: Vec<Binding>,
    pub limits: Vec<Limit>,
    pub routes: Vec<Route>,
    pub upstreams: Vec<Upstream>,
    pub regions: Vec<Region>,
    /// First 16 bytes of the SHA-256 that `EdgeSnapshot.revoked` describes.
    pub revoked: Vec<[u8; 16]>,
    pub revoked_before: Vec<RevokedBefore>,
    /// Without a slash at the end.
    pub public_url: String,
    pub dev: bool,
    /// Envoy's concurrency.
    pub workers: u32,
    /// The server whose card stands at the root; "" for none.
    pub default_agent: String,
    /// Coarse limit = exact limit × this; below 1 counts as 1.
    pub coarse_multiple: f64,
}

impl Default for Inputs {
    fn default() -> Inputs {
        Inputs {
            revision: 0,
            servers: Vec::new(),
            issuers: Vec::new(),
            exposure: Vec::new(),
            bindings: Vec::new(),
            limits: Vec::new(),
            routes: Vec::new(),
            upstreams: Vec::new(),
            regions: Vec::new(),
            revoked: Vec::new(),
            revoked_before: Vec::new(),
            public_url: String::new(),
            dev: false,
            workers: 1,
            default_agent: String::new(),
            coarse_multiple: DEFAULT_COARSE_MULTIPLE,
        }
    }
}

/// Builds the snapshot. Servers are sorted by name, primitives by id and version; everything else that has
/// no order of its own is sorted too. Routes keep theirs: the first match wins.
///
/// A server that is open to everybody (scheme `none`) is left out unless `dev`.
///
/// Two servers that carry the same primitive share one copy; the caller has ruled out different ones with
/// [`crate::conflicts`].
pub fn assemble(inputs: Inputs) -> GatewaySnapshot {
    let mut inputs = inputs;
    if !inputs.dev {
        inputs.servers.retain(|server| !server.edge.schemes().any(|scheme| scheme == AuthScheme::None));
    }
    inputs.servers.sort_by(|a, b| a.server.name.cmp(&b.server.name));
    let coarse_limits = coarse_limits(&inputs);
    let mut primitives: BTreeMap<(String, String), Primitive> = BTreeMap::new();
    let mut edge_servers = Vec::with_capacity(inputs.servers.len());
    let mut servers = Vec::with_capacity(inputs.servers.len());
    for compiled in inputs.servers {
        edge_servers.push(compiled.edge);
        servers.push(compiled.server);
        for primitive in compiled.primitives {
            primitives.entry((primitive.id.clone(), primitive.version.clone())).or_insert(primitive);
        }
    }
    let mut edge = EdgeSnapshot {
        revision: inputs.revision,
        digest: Vec::new(),
        workers: inputs.workers,
        servers: edge_servers,
        issuers: sorted(inputs.issuers, |issuer| issuer.name.clone()),
        exposure_exceptions: sorted(inputs.exposure, |exception| {
            (exception.org.clone(), exception.server.clone(), exception.protocol)
        }),
        coarse_limits,
        routes: inputs.routes,
        revoked: sorted_set(inputs.revoked),
        revoked_before: sorted(inputs.revoked_before, |revoked| (revoked.org.clone(), revoked.user.clone())),
        public_url: inputs.public_url,
        dev: inputs.dev,
        default_agent: inputs.default_agent,
    };
    edge.digest = digest(&edge.encode_to_vec());
    let mut snapshot = GatewaySnapshot {
        revision: inputs.revision,
        digest: Vec::new(),
        edge: Some(edge),
        servers,
        primitives: primitives.into_values().collect(),
        bindings: sorted(inputs.bindings, |binding| {
            (
                binding.org.clone(),
                binding.target_kind,
                binding.target.clone(),
                binding.primitive.clone(),
                binding.protocol,
            )
        }),
        limits: sorted(inputs.limits, limit_key),
        upstreams: sorted(inputs.upstreams, |upstream| (upstream.name.clone(), upstream.url.clone())),
        regions: sorted(inputs.regions, |region| (region.org.clone(), region.region.clone())),
    };
    snapshot.digest = digest(&snapshot.encode_to_vec());
    snapshot
}

fn limit_key(limit: &Limit) -> [String; 5] {
    [&limit.org, &limit.server, &limit.primitive, &limit.user, &limit.wcit].map(String::clone)
}

fn sorted<T, K: Ord>(mut list: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    list.sort_by_key(key);
    list
}

fn sorted_set(mut hashes: Vec<[u8; 16]>) -> Vec<u8> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes.concat()
}

fn digest(encoded: &[u8]) -> Vec<u8> {
    Sha256::digest(encoded).to_vec()
}

/// The edge sees exposed names where a limit names primitive ids, so a limit on some primitives becomes one
/// coarse limit for each name it covers.
fn coarse_limits(inputs: &Inputs) -> Vec<CoarseLimit> {
    let multiple = if inputs.coarse_multiple >= 1.0 { inputs.coarse_multiple } else { 1.0 };
    let mut limits: Vec<&Limit> = inputs.limits.iter().collect();
    // Broad limits first, so that the cap cuts the narrow ones.
    limits.sort_by_key(|limit| (limit.primitive != "*", limit_key(limit)));
    let mut coarse = Vec::new();
    for limit in limits {
        if limit.primitive == "*" {
            coarse.push(scaled(limit, &limit.server, "*".into(), multiple));
            continue;
        }
        let servers = inputs.servers.iter().filter(|server| selects(&limit.server, &server.server.name));
        for server in servers {
            for listing in &server.server.listings {
                if selects(&limit.primitive, &listing.id) && !listing.mcp_name.is_empty() {
                    coarse.push(scaled(limit, &server.server.name, edge_pattern(listing), multiple));
                }
            }
        }
    }
    coarse.truncate(MAX_COARSE_LIMITS);
    coarse
}

fn scaled(limit: &Limit, server: &str, primitive: String, multiple: f64) -> CoarseLimit {
    let burst = (limit.capacity as f64 * multiple).ceil();
    CoarseLimit {
        org: limit.org.clone(),
        server: server.to_string(),
        user: limit.user.clone(),
        wcit: limit.wcit.clone(),
        primitive,
        rate_per_second: limit.refill_per_second * multiple,
        // Saturating: a float beyond the range casts to the largest integer.
        burst: (burst as u32).max(1),
    }
}

/// What the edge reads in a request for this listing: the name, the URI, or the fixed start of a template.
fn edge_pattern(listing: &Listing) -> String {
    match listing.mcp_name.split_once('{') {
        Some((fixed, _)) => format!("{fixed}*"),
        None => listing.mcp_name.clone(),
    }
}

/// Exact, `prefix*` or `*`.
fn selects(pattern: &str, value: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => value.starts_with(prefix),
        None => pattern == value,
    }
}

#[cfg(test)]
mod tests;
