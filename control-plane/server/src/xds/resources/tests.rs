//! What is pushed, and its bytes as Envoy's own API definition gives them.

use asp_proto::snapshot::EdgeSnapshot;

use super::*;

/// The edge filter with the snapshot `{revision: 7}`, encoded by protoc from Envoy's API v3.
const FILTER: &str = "\
    0a086173702d6564676512d3010a3e747970652e676f6f676c65617069732e636f6d2f656e766f792e657874656e7369 \
    6f6e732e66696c746572732e687474702e7761736d2e76332e5761736d1290010a8d010a086173702d65646765120861 \
    73702d656467651a2e0a086173702d656467651215656e766f792e7761736d2e72756e74696d652e76381a0b0a090a07 \
    2f662e7761736d22360a2e747970652e676f6f676c65617069732e636f6d2f676f6f676c652e70726f746f6275662e42 \
    7974657356616c756512040a020807380142090a070a051080c2d72f4a020801";

/// The cluster `gateway`: 127.0.0.1:9 serves, 127.0.0.1:8 drains; encoded by protoc from Envoy's API v3.
const ASSIGNMENT: &str = "\
    0a0767617465776179122c12130a110a0f0a0d12093132372e302e302e31180912150a110a0f0a0d12093132372e302e \
    302e3118081003";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn without_spaces(vector: &str) -> String {
    vector.split_whitespace().collect()
}

#[test]
fn the_filter_has_the_bytes_that_envoys_own_definition_gives_it() {
    let edge = EdgeSnapshot { revision: 7, ..EdgeSnapshot::default() };
    let published = publish(GatewaySnapshot { edge: Some(edge), ..GatewaySnapshot::default() }, "/f.wasm");
    assert_eq!(hex(&published.edge), without_spaces(FILTER));
}

#[test]
fn endpoints_have_the_bytes_that_envoys_own_definition_gives_them() {
    let address = |port: u16| BTreeSet::from([SocketAddr::from(([127, 0, 0, 1], port))]);
    let assignment = assignment("gateway", &address(9), &address(8));
    assert_eq!(hex(&assignment.encode_to_vec()), without_spaces(ASSIGNMENT));
}

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
    assert_eq!(config.allow_on_headers_stop_iteration, Some(true));
    let bytes = Vec::<u8>::decode(config.configuration.unwrap().value.as_slice()).unwrap();
    assert_eq!(EdgeSnapshot::decode(bytes.as_slice()).unwrap(), edge);
}

#[test]
fn endpoints_are_silent_until_a_gateway_was_seen_and_then_answer_every_cluster() {
    let mut xds_state = XdsState::default();
    let names = ["gateway".to_owned(), "heavy".to_owned()];
    assert!(batch(&xds_state, Kind::Endpoints, &names).is_none());
    let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let leaving: SocketAddr = "127.0.0.1:8".parse().unwrap();
    let set = crate::xds::endpoints::EndpointSet {
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
    let health: Vec<i32> = decoded[0].endpoints[0].lb_endpoints.iter().map(|one| one.health_status).collect();
    assert_eq!(health, [core::HealthStatus::Unknown as i32, core::HealthStatus::Draining as i32]);
    assert_eq!(decoded[1].cluster_name, "heavy");
    assert_eq!(decoded[1].endpoints[0].lb_endpoints.len(), 0);
}
