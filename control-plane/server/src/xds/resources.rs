//! Encodes what is pushed: the edge filter with its snapshot, and the endpoints of a cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;

use asp_proto::snapshot::GatewaySnapshot;
use asp_proto::xds::envoy::config::core::v3 as core;
use asp_proto::xds::envoy::config::endpoint::v3 as endpoint;
use asp_proto::xds::envoy::extensions::filters::http::wasm::v3::Wasm;
use asp_proto::xds::envoy::extensions::wasm::v3 as wasm;
use prost::Message;
use prost_types::{Any, Duration};

use super::{EDGE_FILTER, GATEWAY_RESOURCE, Kind, Published, XdsState};
use crate::clock;

const WASM_URL: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const BYTES_URL: &str = "type.googleapis.com/google.protobuf.BytesValue";
const V8: &str = "envoy.wasm.runtime.v8";
/// First wait before a crashed VM is made anew.
const RELOAD_BACKOFF: Duration = Duration { seconds: 0, nanos: 100_000_000 };

/// The resources of one kind, as one response carries them.
pub struct Batch {
    pub version: String,
    /// Of the snapshot; 0 for endpoints.
    pub revision: u64,
    pub resources: Vec<Any>,
}

/// What `kind` looks like to a subscriber of `names` now; `None` when there is nothing to say yet.
pub fn batch(xds_state: &XdsState, kind: Kind, names: &[String]) -> Option<Batch> {
    let wants = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name || wanted == "*");
    match kind {
        Kind::Edge => {
            let published = xds_state.snapshot.as_ref()?;
            let resource = wants(EDGE_FILTER).then(|| any(kind, published.edge.clone()));
            Some(Batch {
                version: published.version.clone(),
                revision: published.revision,
                resources: resource.into_iter().collect(),
            })
        }
        Kind::Gateway => {
            let published = xds_state.snapshot.as_ref()?;
            let resource = wants(GATEWAY_RESOURCE).then(|| any(kind, published.gateway.clone()));
            Some(Batch {
                version: published.version.clone(),
                revision: published.revision,
                resources: resource.into_iter().collect(),
            })
        }
        Kind::Endpoints => endpoints(xds_state, names),
    }
}

fn endpoints(xds_state: &XdsState, names: &[String]) -> Option<Batch> {
    let set = &xds_state.endpoints;
    // A control plane that has just started does not know its gateways yet: an empty answer would take
    // away the ones Envoy has.
    if set.version == 0 {
        return None;
    }
    let none = BTreeSet::new();
    let resources = names
        .iter()
        .map(|name| {
            let serving = set.clusters.get(name).unwrap_or(&none);
            let assignment = assignment(name, serving, set.draining.get(name).unwrap_or(&none));
            any(Kind::Endpoints, assignment.encode_to_vec())
        })
        .collect();
    Some(Batch { version: set.version.to_string(), revision: 0, resources })
}

/// Encodes a snapshot for every kind of subscriber. `filter_wasm` is a path on the Envoy's machine.
pub fn publish(snapshot: GatewaySnapshot, filter_wasm: &str) -> Published {
    let edge = snapshot.edge.as_ref().map(Message::encode_to_vec).unwrap_or_default();
    let digest: String = snapshot.digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    Published {
        revision: snapshot.revision,
        version: format!("{}-{digest}", snapshot.revision),
        gateway: snapshot.encode_to_vec(),
        edge: filter(edge, filter_wasm).encode_to_vec(),
        snapshot,
        published_at: clock::now_ms(),
        evaluator: OnceLock::new(),
    }
}

/// The whole filter. Everything but the configuration stays the same from push to push, so that the VM
/// stays too.
fn filter(edge_snapshot: Vec<u8>, filter_wasm: &str) -> core::TypedExtensionConfig {
    let file = core::DataSource { filename: filter_wasm.to_owned() };
    let plugin = wasm::PluginConfig {
        name: EDGE_FILTER.into(),
        root_id: EDGE_FILTER.into(),
        vm_config: Some(wasm::VmConfig {
            vm_id: EDGE_FILTER.into(),
            runtime: V8.into(),
            code: Some(core::AsyncDataSource { local: Some(file) }),
        }),
        // Bytes encode as a google.protobuf.BytesValue.
        configuration: Some(Any { type_url: BYTES_URL.into(), value: edge_snapshot.encode_to_vec() }),
        failure_policy: wasm::FailurePolicy::FailReload.into(),
        reload_config: Some(wasm::ReloadConfig {
            backoff: Some(core::BackoffStrategy { base_interval: Some(RELOAD_BACKOFF) }),
        }),
        allow_on_headers_stop_iteration: Some(true),
    };
    core::TypedExtensionConfig {
        name: EDGE_FILTER.into(),
        typed_config: Some(Any {
            type_url: WASM_URL.into(),
            value: Wasm { config: Some(plugin) }.encode_to_vec(),
        }),
    }
}

fn assignment(
    cluster: &str,
    serving: &BTreeSet<SocketAddr>,
    draining: &BTreeSet<SocketAddr>,
) -> endpoint::ClusterLoadAssignment {
    let serving = serving.iter().map(|address| lb_endpoint(*address, core::HealthStatus::Unknown));
    let draining = draining.iter().map(|address| lb_endpoint(*address, core::HealthStatus::Draining));
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![endpoint::LocalityLbEndpoints { lb_endpoints: serving.chain(draining).collect() }],
    }
}

fn lb_endpoint(address: SocketAddr, health: core::HealthStatus) -> endpoint::LbEndpoint {
    let socket = core::SocketAddress { address: address.ip().to_string(), port_value: address.port().into() };
    endpoint::LbEndpoint {
        endpoint: Some(endpoint::Endpoint { address: Some(core::Address { socket_address: Some(socket) }) }),
        health_status: health.into(),
    }
}

fn any(kind: Kind, value: Vec<u8>) -> Any {
    Any { type_url: kind.type_url().into(), value }
}

#[cfg(test)]
mod tests;
