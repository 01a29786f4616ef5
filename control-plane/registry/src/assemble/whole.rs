//! A snapshot as one message, for tests: edges and gateways are sent parts.

use std::collections::BTreeMap;

use asp_proto::snapshot::{
    AuthScheme, Binding, CoarseLimit, EdgeSnapshot, ExposureException, GatewaySnapshot, Issuer, IssuerAccess,
    Limit, MachineCertificate, MachineKey, Primitive, Region, RevokedBefore, Route, Upstream,
};
use prost::Message as _;

use super::{
    DEFAULT_COARSE_MULTIPLE, EdgeInputs, all_servers, coarse, digest, latest, limit_key, sorted, sorted_set,
};
use crate::compiled::CompiledServer;

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
    /// Adds the server that stands for all others.
    pub all_servers: bool,
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
            all_servers: false,
            coarse_multiple: DEFAULT_COARSE_MULTIPLE,
        }
    }
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
    if inputs.all_servers {
        inputs.servers.push(all_servers(&inputs.public_url, inputs.servers.iter()));
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
        all_servers: inputs.all_servers,
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
        all_servers: inputs.all_servers,
        unauthenticated_rate: 0,
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
