//! Encodes what is pushed: the edge filter with its snapshot, and the endpoints of a cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;

use asp_proto::snapshot::GatewaySnapshot;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::extensions::filters::http::wasm::v3::Wasm;
use envoy_types::pb::envoy::extensions::wasm::v3 as wasm;
use envoy_types::pb::google::protobuf::{Any, BoolValue, BytesValue, Duration};
use prost::Message;

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
    let code = core::AsyncDataSource {
        specifier: Some(core::async_data_source::Specifier::Local(core::DataSource {
            specifier: Some(core::data_source::Specifier::Filename(filter_wasm.to_owned())),
            ..core::DataSource::default()
        })),
    };
    let plugin = wasm::PluginConfig {
        name: EDGE_FILTER.into(),
        root_id: EDGE_FILTER.into(),
        vm: Some(wasm::plugin_config::Vm::VmConfig(wasm::VmConfig {
            vm_id: EDGE_FILTER.into(),
            runtime: V8.into(),
            code: Some(code),
            ..wasm::VmConfig::default()
        })),
        configuration: Some(Any {
            type_url: BYTES_URL.into(),
            value: BytesValue { value: edge_snapshot }.encode_to_vec(),
        }),
        failure_policy: wasm::FailurePolicy::FailReload.into(),
        reload_config: Some(wasm::ReloadConfig {
            backoff: Some(core::BackoffStrategy { base_interval: Some(RELOAD_BACKOFF), max_interval: None }),
        }),
        allow_on_headers_stop_iteration: Some(BoolValue { value: true }),
        ..wasm::PluginConfig::default()
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
    let lb_endpoints = serving.chain(draining).collect();
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            lb_endpoints,
            ..endpoint::LocalityLbEndpoints::default()
        }],
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn lb_endpoint(address: SocketAddr, health: core::HealthStatus) -> endpoint::LbEndpoint {
    let socket = core::SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(address.port().into())),
        ..core::SocketAddress::default()
    };
    endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint::Endpoint {
            address: Some(core::Address { address: Some(core::address::Address::SocketAddress(socket)) }),
            ..endpoint::Endpoint::default()
        })),
        health_status: health.into(),
        ..endpoint::LbEndpoint::default()
    }
}

fn any(kind: Kind, value: Vec<u8>) -> Any {
    Any { type_url: kind.type_url().into(), value }
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::EdgeSnapshot;

    use super::*;

    #[test]
    fn the_filter_carries_the_edge_snapshot_and_the_settings_envoy_needs() {
        let edge = EdgeSnapshot { revision: 7, dev: true, ..EdgeSnapshot::default() };
        let published = publish(
            GatewaySnapshot {
                revision: 7,
                digest: vec![0xab; 32],
                edge: Some(edge.clone()),
                ..Default::default()
            },
            "/filter.wasm",
        );
        assert_eq!(published.version, "7-abababab");
        let extension = core::TypedExtensionConfig::decode(published.edge.as_slice()).unwrap();
        assert_eq!(extension.name, "asp-edge");
        let config = Wasm::decode(extension.typed_config.unwrap().value.as_slice()).unwrap().config.unwrap();
        assert_eq!(config.failure_policy, i32::from(wasm::FailurePolicy::FailReload));
        assert!(config.allow_on_headers_stop_iteration.unwrap().value);
        let bytes = BytesValue::decode(config.configuration.unwrap().value.as_slice()).unwrap().value;
        assert_eq!(EdgeSnapshot::decode(bytes.as_slice()).unwrap(), edge);
    }

    #[test]
    fn endpoints_are_silent_until_a_gateway_was_seen_and_then_answer_every_cluster() {
        let mut xds_state = XdsState::default();
        let names = ["gateway".to_owned(), "heavy".to_owned()];
        assert!(batch(&xds_state, Kind::Endpoints, &names).is_none());
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let leaving: SocketAddr = "127.0.0.1:8".parse().unwrap();
        let set = super::super::endpoints::EndpointSet {
            since: None,
            version: 3,
            clusters: [("gateway".to_owned(), BTreeSet::from([address]))].into(),
            draining: [("gateway".to_owned(), BTreeSet::from([leaving]))].into(),
        };
        xds_state.endpoints = std::sync::Arc::new(set);
        let batch = batch(&xds_state, Kind::Endpoints, &names).unwrap();
        let decoded: Vec<_> = batch
            .resources
            .iter()
            .map(|any| endpoint::ClusterLoadAssignment::decode(any.value.as_slice()).unwrap())
            .collect();
        let health: Vec<i32> =
            decoded[0].endpoints[0].lb_endpoints.iter().map(|one| one.health_status).collect();
        assert_eq!(health, [core::HealthStatus::Unknown as i32, core::HealthStatus::Draining as i32]);
        assert_eq!(decoded[1].cluster_name, "heavy");
        assert_eq!(decoded[1].endpoints[0].lb_endpoints.len(), 0);
    }
}
