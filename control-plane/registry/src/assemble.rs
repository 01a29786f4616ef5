//! Assembly of a snapshot from servers, policy and limits.
//!
//! Owns the order and the digests; [`coarse`] makes the coarse limits. Refuses nothing: every part was checked when
//! it was accepted. Keeps true: the same inputs give the same bytes.

mod coarse;
mod routes;

use std::collections::{BTreeMap, HashMap};

use asp_proto::snapshot::{
    AuthScheme, Binding, CoarseLimit, EdgeSnapshot, ExposureException, GatewaySnapshot, Issuer, IssuerAccess,
    Limit, MachineCertificate, MachineKey, OrgExposure, Primitive, Region, RevokedBefore, Route, Upstream,
};
use prost::Message as _;
use sha2::{Digest, Sha256};

use crate::compiled::CompiledServer;

pub use routes::{closed_routes, routes, routes_bytes};

/// Default ratio of a coarse limit at the edge to its exact limit.
pub const DEFAULT_COARSE_MULTIPLE: f64 = 10.0;

/// The inputs of a snapshot.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Revision from SQL, strictly increasing.
    pub revision: u64,
    pub servers: Vec<CompiledServer>,
    pub issuers: Vec<Issuer>,
    pub issuer_access: Vec<IssuerAccess>,
    pub exposure: Vec<ExposureException>,
    pub bindings: Vec<Binding>,
    pub observed_bindings: Vec<Binding>,
    pub machine_keys: Vec<MachineKey>,
    pub machine_certificates: Vec<MachineCertificate>,
    pub limits: Vec<Limit>,
    pub routes: Vec<Route>,
    pub upstreams: Vec<Upstream>,
    pub regions: Vec<Region>,
    /// First 16 bytes of each SHA-256 that `EdgeSnapshot.revoked` describes.
    pub revoked: Vec<[u8; 16]>,
    pub revoked_before: Vec<RevokedBefore>,
    /// Public URL without a trailing slash.
    pub public_url: String,
    pub dev: bool,
    /// Number of Envoy workers (its concurrency).
    pub workers: u32,
    /// Name of the server whose card is served at the root; "" for none.
    pub default_agent: String,
    /// Ratio of a coarse limit to its exact limit; with many workers a larger one is used.
    pub coarse_multiple: f64,
}

impl Default for Inputs {
    fn default() -> Inputs {
        Inputs {
            revision: 0,
            servers: Vec::new(),
            issuers: Vec::new(),
            issuer_access: Vec::new(),
            exposure: Vec::new(),
            bindings: Vec::new(),
            observed_bindings: Vec::new(),
            machine_keys: Vec::new(),
            machine_certificates: Vec::new(),
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
    /// See `Inputs.coarse_multiple`.
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

/// Builds the snapshot. Servers are sorted by name, primitives by id and version, and everything else that has no
/// order of its own is sorted too. Routes keep their order: the first match wins.
///
/// Servers that are open to everybody (scheme `none`) are left out unless `dev`.
///
/// Servers with the same primitive share one copy; the caller has excluded different ones with [`crate::conflicts`].
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
        regions: sorted(inputs.regions.clone(), |region| (region.org.clone(), region.region.clone())),
        revoked: sorted_set(inputs.revoked),
        revoked_before: latest(inputs.revoked_before),
        public_url: inputs.public_url,
        dev: inputs.dev,
        default_agent: inputs.default_agent,
        ..EdgeSnapshot::default()
    };
    edge.digest = digest(&edge.encode_to_vec());
    let mut snapshot = GatewaySnapshot {
        revision: inputs.revision,
        digest: Vec::new(),
        edge: Some(edge),
        servers,
        primitives: primitives.into_values().collect(),
        bindings: bindings(inputs.bindings),
        observed_bindings: bindings(inputs.observed_bindings),
        machine_keys: sorted(inputs.machine_keys, |key| key.id.clone()),
        machine_certificates: sorted(inputs.machine_certificates, |known| known.id.clone()),
        limits: sorted(inputs.limits, limit_key),
        upstreams: sorted(inputs.upstreams, |upstream| (upstream.name.clone(), upstream.url.clone())),
        regions: sorted(inputs.regions, |region| (region.org.clone(), region.region.clone())),
        issuer_access: sorted(inputs.issuer_access, |access| access.issuer.clone()),
    };
    snapshot.digest = digest(&snapshot.encode_to_vec());
    snapshot
}

fn coarse_limits(inputs: &Inputs) -> Vec<CoarseLimit> {
    coarse::limits(&EdgeInputs {
        revision: inputs.revision,
        servers: &inputs.servers.iter().collect::<Vec<_>>(),
        issuers: &[],
        exposure: &[],
        limits: &inputs.limits.iter().collect::<Vec<_>>(),
        routes: &[],
        regions: &[],
        revoked: &[],
        revoked_before: &[],
        revoked_through: 0,
        public_url: "",
        dev: inputs.dev,
        workers: inputs.workers,
        default_agent: "",
        coarse_multiple: inputs.coarse_multiple,
    })
}

/// Sorts bindings by borrowed keys: an org may have ten thousand of them.
fn bindings(mut list: Vec<Binding>) -> Vec<Binding> {
    fn key(binding: &Binding) -> (&str, i32, &str, &str, &str, i32, &str) {
        let Binding { org, target_kind, target, issuer, primitive, protocol, name, .. } = binding;
        (org, *target_kind, target, issuer, primitive, *protocol, name)
    }
    list.sort_by(|a, b| key(a).cmp(&key(b)));
    list
}

/// Keeps the latest time for each org and user.
pub fn latest(list: Vec<RevokedBefore>) -> Vec<RevokedBefore> {
    let mut latest: BTreeMap<(String, String), RevokedBefore> = BTreeMap::new();
    for revoked in list {
        let known =
            latest.entry((revoked.org.clone(), revoked.user.clone())).or_insert_with(|| revoked.clone());
        known.not_after_iat = known.not_after_iat.max(revoked.not_after_iat);
    }
    latest.into_values().collect()
}

fn limit_key(limit: &Limit) -> [String; 6] {
    let Limit { org, server, primitive, user, wcit, issuer, .. } = limit;
    [org, server, primitive, user, wcit, issuer].map(String::clone)
}

fn sorted<T, K: Ord>(mut list: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    list.sort_by_key(key);
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

#[cfg(test)]
mod tests;
