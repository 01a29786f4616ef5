//! The published state: two resources for edges and parts for gateways, each encoded once for all subscribers, and
//! their versions: the revision of the store that a version names, and the revision that it covers. And the resources in the
//! form in which they are pushed: the edge filter with its snapshot, and the endpoints of a cluster.
//!
//! Keeps true: a version names a revision of the store and the content, and the same content keeps its version, so that
//! nothing is sent to subscribers for which nothing changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use asp_edge::Changes;
use asp_platform::clock;
use asp_proto::snapshot::{
    EdgeSnapshot, OrgPart, RecentRevocations, ServerPart, snapshot_part::Part as Says,
};
use asp_proto::xds::envoy::config::core::v3 as core;
use asp_proto::xds::envoy::config::endpoint::v3 as endpoint;
use asp_proto::xds::envoy::extensions::filters::http::wasm::v3::Wasm;
use asp_proto::xds::envoy::extensions::wasm::v3 as wasm;
use asp_snapshot::parts;
use asp_snapshot::policy::Policy;
use prost::Message;
use prost_types::value::Kind as Said;
use prost_types::{Any, Duration, Struct, Value};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::contract::{ALL_POOLS, EDGE_FILTER, EDGE_REVOKED, Kind};
use crate::endpoints::EndpointSet;
use crate::parts::{EncodedPart, Parts, PartsBuilder};

const WASM_URL: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const BYTES_URL: &str = "type.googleapis.com/google.protobuf.BytesValue";
/// Namespace in which Envoy's load balancer looks for the metadata of an endpoint, and the key in it.
const LB: &str = "envoy.lb";
const POOL: &str = "pool";
const V8: &str = "envoy.wasm.runtime.v8";
/// Base interval before Envoy recreates a crashed VM.
const RELOAD_BACKOFF: Duration = Duration { seconds: 0, nanos: 100_000_000 };

// === state ===

/// Content of a revision before it is encoded for subscribers.
pub struct Content {
    pub revision: u64,
    pub edge: Arc<EdgeSnapshot>,
    /// Recent revocations, also in `gateway`. If their revision is later than the content's, the versions name both.
    pub recent: Arc<RecentRevocations>,
    pub gateway: Parts,
    /// Names of the parts that differ from the previous build.
    pub changed: BTreeSet<Arc<str>>,
}

/// A resource for edges.
pub struct EdgeResource<T> {
    /// Revision of its last change.
    pub revision: u64,
    /// `<revision>-<8 hex digits of a digest>`; for revocations published ahead of other changes, `~` and the revision
    /// of those follow.
    pub version: String,
    pub content: Arc<T>,
    /// The encoded `TypedExtensionConfig`.
    pub bytes: Vec<u8>,
}

/// The parts for gateways.
pub struct GatewayParts {
    /// Revision of the last change of any part.
    pub revision: u64,
    /// The same form as [`EdgeResource::version`].
    pub version: String,
    pub parts: Parts,
    /// Number of changes so far.
    pub number: u64,
    /// Names of the parts that differ from the previous number.
    pub changed: BTreeSet<Arc<str>>,
}

/// The published state for all subscribers.
pub struct Publication {
    /// Revision of the store.
    pub revision: u64,
    pub edge: Arc<EdgeResource<EdgeSnapshot>>,
    pub recent: Arc<EdgeResource<RecentRevocations>>,
    pub gateway: Arc<GatewayParts>,
    /// Time of publication, in Unix milliseconds.
    pub published_at: u64,
}

/// Evaluator of callers of one org at one server.
pub struct Evaluator {
    pub edge: asp_edge::Snapshot,
    pub policy: Policy,
}

impl Publication {
    /// Returns the store revision up to which gateways are sent everything. Edges may wait for some of it.
    pub fn gateways_at(&self) -> u64 {
        let (_, covers) = reach(&self.gateway.version);
        self.revision.max(covers)
    }

    /// Returns a server's part for gateways.
    pub fn server(&self, name: &str) -> Option<ServerPart> {
        match self.gateway.parts.get(&parts::of_server(name))?.read()? {
            Says::Server(part) => Some(part),
            _ => None,
        }
    }

    /// Returns an org's part for gateways; an empty one if there is none.
    pub fn org(&self, org: &str) -> OrgPart {
        match self.gateway.parts.get(&parts::of_org(org)).and_then(EncodedPart::read) {
            Some(Says::Org(part)) => part,
            _ => OrgPart { org: org.to_owned(), ..OrgPart::default() },
        }
    }

    /// Returns the evaluator of callers of one org at one server; the error says what cannot be read.
    pub fn evaluator(&self, server: &ServerPart, org: &OrgPart) -> Result<Evaluator, String> {
        let base = match self.gateway.parts.get(parts::BASE).and_then(EncodedPart::read) {
            Some(Says::Base(base)) => base,
            _ => return Err("the base part is missing".into()),
        };
        let changes = Changes {
            revision: self.revision,
            base: Some(&base),
            servers: server.edge.iter().collect(),
            // A caller without an org gets the servers' defaults.
            exposure: match org.org.as_str() {
                "" => Vec::new(),
                name => vec![(name, org.exposure.as_slice())],
            },
            ..Changes::default()
        };
        let edge = asp_edge::Snapshot::boot().changed(changes).map_err(|error| error.to_string())?;
        Ok(Evaluator { edge, policy: Policy::new(org.bindings.clone(), org.observed_bindings.clone())? })
    }
}

/// State that is pushed to subscribers; always replaced as a whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Publication>>,
    /// Revision of the store up to which everything is published.
    pub covers: u64,
    pub endpoints: Arc<EndpointSet>,
}

impl XdsState {
    /// Returns the store revision up to which everything is in force at a subscriber of `kind` that acknowledged
    /// `acked` at `version`. Later changes may not have concerned it.
    pub fn covered(&self, kind: &str, acked: u64, version: &str) -> u64 {
        let Some(published) = &self.snapshot else { return acked };
        let edge = &published.edge.version;
        let recent = &published.recent.version;
        let is_newest = match kind {
            kind if kind == Kind::Edge.as_str() => version == edge || version == format!("{edge}+{recent}"),
            kind if kind == Kind::Revocations.as_str() => version == recent,
            kind if kind == Kind::Gateway.as_str() => version == published.gateway.version,
            _ => false,
        };
        if is_newest { published.revision } else { acked.min(covered_by_version(version)) }
    }
}

/// Receiver of new [`XdsState`]s.
pub type XdsStateReceiver = watch::Receiver<XdsState>;

/// Separator in the version of revocations that were published ahead of other changes; the revision up to which
/// everything is published follows it.
const OVERTAKEN: char = '~';

/// Returns the revision at the start of a snapshot's version; 0 if there is none.
pub(crate) fn revision_in(version: &str) -> u64 {
    version.split_once('-').and_then(|(revision, _)| revision.parse().ok()).unwrap_or(0)
}

/// Returns the revision up to which everything is in force with a version, as far as the version limits it.
fn covered_by_version(version: &str) -> u64 {
    version.rsplit_once(OVERTAKEN).and_then(|(_, covers)| covers.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the revision of a version, and the revision up to which everything is in force with it. The second is lower
/// if only revocations have the first.
pub(crate) fn reach(version: &str) -> (u64, u64) {
    let revision = revision_in(version);
    (revision, revision.min(covered_by_version(version)))
}

// === resources ===

/// Version of the resources of one kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    pub text: String,
    /// Revision of the snapshot; 0 for endpoints.
    pub revision: u64,
}

/// Returns the current version of `kind` for a subscriber of `names`; `None` if there is nothing to send yet.
pub fn version(xds_state: &XdsState, kind: Kind, names: &[String]) -> Option<Version> {
    if kind == Kind::Endpoints {
        // A control plane that has just started does not know its gateways yet: an empty answer would remove the ones
        // that Envoy has.
        let version = xds_state.endpoints.version;
        return (version != 0).then(|| Version { text: version.to_string(), revision: 0 });
    }
    let published = xds_state.snapshot.as_ref()?;
    let main = wants(names, EDGE_FILTER).then_some((&published.edge.version, published.edge.revision));
    let recent = wants(names, EDGE_REVOKED).then_some((&published.recent.version, published.recent.revision));
    match (main, recent) {
        (Some((main, at)), Some((recent, since))) => {
            Some(Version { text: format!("{main}+{recent}"), revision: at.max(since) })
        }
        (Some((text, revision)), None) | (None, Some((text, revision))) => {
            Some(Version { text: text.clone(), revision })
        }
        (None, None) => {
            Some(Version { text: published.edge.version.clone(), revision: published.edge.revision })
        }
    }
}

/// Returns the resources of `kind` for a subscriber of `names`.
pub fn resources(xds_state: &XdsState, kind: Kind, names: &[String]) -> Vec<Any> {
    if kind == Kind::Endpoints {
        return endpoints(xds_state, names);
    }
    let Some(published) = &xds_state.snapshot else { return Vec::new() };
    let main = wants(names, EDGE_FILTER).then(|| any(kind, published.edge.bytes.clone()));
    let recent = wants(names, EDGE_REVOKED).then(|| any(kind, published.recent.bytes.clone()));
    main.into_iter().chain(recent).collect()
}

/// Whether a subscriber of `names` wants `name`; no names mean the filter.
fn wants(names: &[String], name: &str) -> bool {
    let named = names.iter().any(|wanted| wanted == name || wanted == "*");
    named || (names.is_empty() && name == EDGE_FILTER)
}

fn endpoints(xds_state: &XdsState, names: &[String]) -> Vec<Any> {
    let set = &xds_state.endpoints;
    let of = |name: &String| {
        let told =
            [(&set.clusters, core::HealthStatus::Unknown), (&set.draining, core::HealthStatus::Draining)];
        let lb_endpoints = match name.as_str() {
            ALL_POOLS => told.into_iter().flat_map(|(pools, health)| of_pools(pools, health)).collect(),
            _ => told.into_iter().flat_map(|(pools, health)| of_pool(pools.get(name), health)).collect(),
        };
        any(Kind::Endpoints, assignment(name, lb_endpoints).encode_to_vec())
    };
    names.iter().map(of).collect()
}

/// Encodes what changed since the last publication, for every kind of subscriber; `None` if nothing changed.
/// `filter_wasm` is a path on the Envoy's machine.
pub fn publish(content: Content, last: Option<&Publication>, filter_wasm: &str) -> Option<Publication> {
    let Content { revision, edge, recent, gateway, changed } = content;
    let through = revision.max(recent.revision);
    let version = |digest: &[u8]| match through > revision {
        true => format!("{}{OVERTAKEN}{revision}", version_text(through, digest)),
        false => version_text(revision, digest),
    };
    let edge = match last.filter(|last| Arc::ptr_eq(&last.edge.content, &edge)) {
        Some(last) => Arc::clone(&last.edge),
        None => Arc::new(EdgeResource {
            revision,
            version: version_text(revision, &edge.digest),
            bytes: filter(EDGE_FILTER, edge.encode_to_vec(), filter_wasm).encode_to_vec(),
            content: edge,
        }),
    };
    let recent = match last.filter(|last| Arc::ptr_eq(&last.recent.content, &recent)) {
        Some(last) => Arc::clone(&last.recent),
        None => {
            let encoded = recent.encode_to_vec();
            Arc::new(EdgeResource {
                revision: through,
                version: version(&Sha256::digest(&encoded)),
                bytes: filter(EDGE_REVOKED, encoded, filter_wasm).encode_to_vec(),
                content: recent,
            })
        }
    };
    let gateway = match last.filter(|_| changed.is_empty()) {
        Some(last) => Arc::clone(&last.gateway),
        None => Arc::new(GatewayParts {
            revision: through,
            version: version(&gateway.digest()),
            parts: gateway,
            number: last.map_or(0, |last| last.gateway.number + 1),
            changed,
        }),
    };
    let says_the_same = last.is_some_and(|last| {
        Arc::ptr_eq(&last.edge, &edge)
            && Arc::ptr_eq(&last.recent, &recent)
            && Arc::ptr_eq(&last.gateway, &gateway)
    });
    let published = Publication { revision, edge, recent, gateway, published_at: clock::now_ms() };
    (!says_the_same).then_some(published)
}

/// Returns the last publication with other recent revocations of a later revision; `None` if nothing changes. `covers` is
/// the revision up to which everything else is published; the versions name it.
pub fn with_recent_revocations(
    last: &Publication,
    recent: RecentRevocations,
    covers: u64,
    filter_wasm: &str,
) -> Option<Publication> {
    let mut gateway = PartsBuilder { parts: last.gateway.parts.clone(), changed: BTreeSet::new() };
    gateway.put_recent(&recent);
    let PartsBuilder { parts: gateway, changed } = gateway;
    let edge = Arc::clone(&last.edge.content);
    let content = Content { revision: covers, edge, recent: Arc::new(recent), gateway, changed };
    let published = publish(content, Some(last), filter_wasm)?;
    Some(Publication { revision: last.revision, ..published })
}

fn version_text(revision: u64, digest: &[u8]) -> String {
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{revision}-{digest}")
}

/// Returns a complete filter. Only the configuration changes from push to push, so that the VM stays. Both filters
/// differ only in name and root, so that they share one VM.
fn filter(name: &str, configuration: Vec<u8>, filter_wasm: &str) -> core::TypedExtensionConfig {
    let file = core::DataSource { filename: filter_wasm.to_owned() };
    let plugin = wasm::PluginConfig {
        name: name.into(),
        root_id: name.into(),
        vm_config: Some(wasm::VmConfig {
            vm_id: EDGE_FILTER.into(),
            runtime: V8.into(),
            code: Some(core::AsyncDataSource { local: Some(file) }),
        }),
        // Bytes encode as a google.protobuf.BytesValue.
        configuration: Some(Any { type_url: BYTES_URL.into(), value: configuration.encode_to_vec() }),
        failure_policy: wasm::FailurePolicy::FailReload.into(),
        reload_config: Some(wasm::ReloadConfig {
            backoff: Some(core::BackoffStrategy { base_interval: Some(RELOAD_BACKOFF) }),
        }),
        allow_on_headers_stop_iteration: Some(true),
    };
    core::TypedExtensionConfig {
        name: name.into(),
        typed_config: Some(Any {
            type_url: WASM_URL.into(),
            value: Wasm { config: Some(plugin) }.encode_to_vec(),
        }),
    }
}

fn assignment(cluster: &str, lb_endpoints: Vec<endpoint::LbEndpoint>) -> endpoint::ClusterLoadAssignment {
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![endpoint::LocalityLbEndpoints { lb_endpoints }],
    }
}

fn of_pool(
    addresses: Option<&BTreeSet<SocketAddr>>,
    health: core::HealthStatus,
) -> impl Iterator<Item = endpoint::LbEndpoint> {
    addresses.into_iter().flatten().map(move |address| lb_endpoint(*address, health))
}

/// Returns each endpoint with the name of its pool, so that Envoy knows a new pool without a change of its
/// configuration.
fn of_pools(
    pools: &BTreeMap<String, BTreeSet<SocketAddr>>,
    health: core::HealthStatus,
) -> impl Iterator<Item = endpoint::LbEndpoint> {
    pools.iter().flat_map(move |(pool, addresses)| {
        let metadata = in_pool(pool);
        of_pool(Some(addresses), health)
            .map(move |endpoint| endpoint::LbEndpoint { metadata: Some(metadata.clone()), ..endpoint })
    })
}

fn in_pool(pool: &str) -> core::Metadata {
    let name = Value { kind: Some(Said::StringValue(pool.to_owned())) };
    let said = Struct { fields: BTreeMap::from([(POOL.to_owned(), name)]) };
    core::Metadata { filter_metadata: HashMap::from([(LB.to_owned(), said)]) }
}

fn lb_endpoint(address: SocketAddr, health: core::HealthStatus) -> endpoint::LbEndpoint {
    let socket = core::SocketAddress { address: address.ip().to_string(), port_value: address.port().into() };
    endpoint::LbEndpoint {
        endpoint: Some(endpoint::Endpoint { address: Some(core::Address { socket_address: Some(socket) }) }),
        health_status: health.into(),
        metadata: None,
    }
}

fn any(kind: Kind, value: Vec<u8>) -> Any {
    Any { type_url: kind.type_url().into(), value }
}

#[cfg(test)]
mod tests;
