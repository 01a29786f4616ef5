//! Pushed resources, compared with bytes encoded by Envoy's own API definition.

use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations};

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

/// The cluster `gateway-pools`: 127.0.0.1:9 of the pool `heavy`; as Envoy's API v3 and struct.proto say, written by hand.
const POOLS: &str = "\
    0a0d676174657761792d706f6f6c73 1236 1234 \
    0a11 0a0f0a0d12093132372e302e302e311809 \
    1a1f 0a1d 0a08656e766f792e6c62 1211 0a0f 0a04706f6f6c 1207 1a056865617679";

fn told(clusters: &[(&str, u16)], draining: &[(&str, u16)], name: &str) -> Vec<u8> {
    let set = |pools: &[(&str, u16)]| {
        let one = |(pool, port): &(&str, u16)| {
            (String::from(*pool), BTreeSet::from([SocketAddr::from(([127, 0, 0, 1], *port))]))
        };
        pools.iter().map(one).collect::<BTreeMap<_, _>>()
    };
    let endpoints =
        EndpointSet { clusters: set(clusters), draining: set(draining), ..EndpointSet::default() };
    let xds_state = XdsState { endpoints: Arc::new(endpoints), ..XdsState::default() };
    resources(&xds_state, Kind::Endpoints, &[name.to_owned()]).remove(0).value
}

fn published(edge: EdgeSnapshot, recent: RecentRevocations, filter_wasm: &str) -> Publication {
    let content = Content {
        revision: edge.revision,
        edge: Arc::new(edge),
        recent: Arc::new(recent),
        gateway: crate::parts::Parts::default(),
        changed: BTreeSet::new(),
    };
    publish(content, None, filter_wasm).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn without_spaces(vector: &str) -> String {
    vector.split_whitespace().collect()
}

#[test]
fn the_filter_has_the_bytes_that_envoys_own_definition_gives_it() {
    let edge = EdgeSnapshot { revision: 7, ..EdgeSnapshot::default() };
    let published = published(edge, RecentRevocations::default(), "/f.wasm");
    assert_eq!(hex(&published.edge.bytes), without_spaces(FILTER));
}

#[test]
fn endpoints_have_the_bytes_that_envoys_own_definition_gives_them() {
    let bytes = told(&[("gateway", 9), ("heavy", 7)], &[("gateway", 8)], "gateway");
    assert_eq!(hex(&bytes), without_spaces(ASSIGNMENT));
}

#[test]
fn the_cluster_of_all_pools_has_every_gateway_with_the_name_of_its_pool() {
    assert_eq!(hex(&told(&[("heavy", 9)], &[], "gateway-pools")), without_spaces(POOLS));
    let all = told(&[("gateway", 9), ("heavy", 7)], &[("heavy", 8)], "gateway-pools");
    let all = endpoint::ClusterLoadAssignment::decode(all.as_slice()).unwrap();
    let shown = all.endpoints[0].lb_endpoints.iter().map(|endpoint| {
        let metadata = endpoint.metadata.clone().unwrap();
        (metadata == in_pool("heavy"), metadata == in_pool("gateway"), endpoint.health_status)
    });
    let draining = i32::from(core::HealthStatus::Draining);
    assert_eq!(shown.collect::<Vec<_>>(), [(false, true, 0), (true, false, 0), (true, false, draining)]);
}

#[test]
fn the_filter_carries_the_edge_snapshot_and_the_settings_envoy_needs() {
    let edge = EdgeSnapshot { revision: 7, dev: true, digest: vec![0xab; 32], ..EdgeSnapshot::default() };
    let published = published(edge.clone(), RecentRevocations::default(), "/filter.wasm");
    assert_eq!(published.edge.version, "7-abababab");
    let extension = core::TypedExtensionConfig::decode(published.edge.bytes.as_slice()).unwrap();
    assert_eq!(extension.name, "asp-edge");
    let config = Wasm::decode(extension.typed_config.unwrap().value.as_slice()).unwrap().config.unwrap();
    assert_eq!(config.failure_policy, i32::from(wasm::FailurePolicy::FailReload));
    assert_eq!(config.allow_on_headers_stop_iteration, Some(true));
    let bytes = Vec::<u8>::decode(config.configuration.unwrap().value.as_slice()).unwrap();
    assert_eq!(EdgeSnapshot::decode(bytes.as_slice()).unwrap(), edge);
}

/// A difference would make it another VM, which the filter would not find its revocations in.
#[test]
fn recent_revocations_come_in_a_filter_that_differs_by_name_root_and_content_alone() {
    let recent = RecentRevocations { revision: 7, since: 5, ..RecentRevocations::default() };
    let published = published(EdgeSnapshot::default(), recent.clone(), "/filter.wasm");
    let read = |bytes: &[u8]| {
        let extension = core::TypedExtensionConfig::decode(bytes).unwrap();
        let wasm = Wasm::decode(extension.typed_config.unwrap().value.as_slice()).unwrap();
        (extension.name, wasm.config.unwrap())
    };
    let (name, apart) = read(&published.recent.bytes);
    assert_eq!((name.as_str(), apart.root_id.as_str()), ("asp-revoked", "asp-revoked"));
    let bytes = Vec::<u8>::decode(apart.configuration.clone().unwrap().value.as_slice()).unwrap();
    assert_eq!(RecentRevocations::decode(bytes.as_slice()).unwrap(), recent);
    let (_, main) = read(&published.edge.bytes);
    let same = wasm::PluginConfig {
        name: main.name.clone(),
        root_id: main.root_id.clone(),
        configuration: main.configuration.clone(),
        ..apart
    };
    assert_eq!(same, main);
}

#[test]
fn what_overtakes_a_build_reaches_no_further_than_everything_else_in_force() {
    let first = published(EdgeSnapshot::default(), RecentRevocations::default(), "/f.wasm");
    let recent = RecentRevocations { revision: 9, ..RecentRevocations::default() };
    let ahead = with_recent_revocations(&first, recent.clone(), 5, "/f.wasm").unwrap();
    assert_eq!((ahead.revision, ahead.recent.revision, ahead.gateway.revision), (0, 9, 9));
    assert_eq!(crate::published::reach(&ahead.gateway.version), (9, 5));
    assert_eq!((first.gateways_at(), ahead.gateways_at()), (0, 5));
    let built = published(EdgeSnapshot { revision: 7, ..EdgeSnapshot::default() }, recent, "/f.wasm");
    assert_eq!((built.revision, built.edge.revision), (7, 7));
    assert_eq!(built.edge.version, version_text(7, &[]));
    for version in [&built.recent.version, &built.gateway.version] {
        assert_eq!(crate::published::reach(version), (9, 7));
    }
    assert_eq!(crate::published::reach(&version_text(9, &[0; 4])), (9, 9));
    assert_eq!(crate::published::reach(""), (0, 0));
}

#[test]
fn what_does_not_differ_keeps_its_version_and_its_bytes() {
    let first = published(EdgeSnapshot::default(), RecentRevocations::default(), "/f.wasm");
    let content = |recent: &Arc<RecentRevocations>| Content {
        revision: 9,
        edge: Arc::clone(&first.edge.content),
        recent: Arc::clone(recent),
        gateway: crate::parts::Parts::default(),
        changed: BTreeSet::new(),
    };
    assert!(publish(content(&first.recent.content), Some(&first), "/f.wasm").is_none());
    let other = Arc::new(RecentRevocations { revision: 9, ..RecentRevocations::default() });
    let second = publish(content(&other), Some(&first), "/f.wasm").unwrap();
    assert!(Arc::ptr_eq(&first.edge, &second.edge) && Arc::ptr_eq(&first.gateway, &second.gateway));
    assert_eq!((second.revision, second.recent.revision, second.edge.revision), (9, 9, 0));
    let (edge, recent) = (first.edge.version.clone(), first.recent.version.clone());
    let xds_state = XdsState { snapshot: Some(Arc::new(second)), ..XdsState::default() };
    assert_eq!(xds_state.covered("edge", 0, &edge), 9, "all that concerns it is in force there");
    assert_eq!(xds_state.covered("revocations", 0, &recent), 0);
    assert_eq!(xds_state.covered("edge", 0, "0-of the same revision"), 0);
}

#[test]
fn endpoints_are_silent_until_a_gateway_was_seen_and_then_answer_every_cluster() {
    let mut xds_state = XdsState::default();
    let names = ["gateway".to_owned(), "heavy".to_owned()];
    assert_eq!(version(&xds_state, Kind::Endpoints, &names), None);
    let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let leaving: SocketAddr = "127.0.0.1:8".parse().unwrap();
    let set = crate::endpoints::EndpointSet {
        since: None,
        version: 3,
        clusters: [("gateway".to_owned(), BTreeSet::from([address]))].into(),
        draining: [("gateway".to_owned(), BTreeSet::from([leaving]))].into(),
    };
    xds_state.endpoints = std::sync::Arc::new(set);
    assert_eq!(version(&xds_state, Kind::Endpoints, &names).unwrap().text, "3");
    let decoded: Vec<_> = resources(&xds_state, Kind::Endpoints, &names)
        .iter()
        .map(|any| endpoint::ClusterLoadAssignment::decode(any.value.as_slice()).unwrap())
        .collect();
    let health: Vec<i32> = decoded[0].endpoints[0].lb_endpoints.iter().map(|one| one.health_status).collect();
    assert_eq!(health, [core::HealthStatus::Unknown as i32, core::HealthStatus::Draining as i32]);
    assert_eq!(decoded[1].cluster_name, "heavy");
    assert_eq!(decoded[1].endpoints[0].lb_endpoints.len(), 0);
}
