//! An xDS server of the harness's own: serves what a test says, wrong snapshots included, and records how
//! every subscriber answered.
//!
//! State of the world over ADS, ECDS and EDS streams, and all parts of a snapshot to gateways; versions from one count
//! for everything.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use asp_proto::snapshot::GatewaySnapshot;
use asp_proto::xds::envoy::config::core::v3::{
    Address, AsyncDataSource, DataSource, Metadata, SocketAddress, TypedExtensionConfig,
};
use asp_proto::xds::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use asp_proto::xds::envoy::extensions::filters::http::wasm::v3::Wasm;
use asp_proto::xds::envoy::extensions::wasm::v3::{FailurePolicy, PluginConfig, VmConfig};
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use asp_proto::xds::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use asp_proto::xds::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use asp_proto::xds::envoy::service::extension::v3::extension_config_discovery_service_server::{
    ExtensionConfigDiscoveryService, ExtensionConfigDiscoveryServiceServer,
};
use futures::Stream;
use parking_lot::Mutex;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::tool;

pub const EXTENSION_TYPE: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
pub const ENDPOINT_TYPE: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const GATEWAY_TYPE: &str = "type.googleapis.com/asp.snapshot.v1.SnapshotPart";

/// The filter's entries in the filter chain: the edge itself, and the recent revocations.
pub const EDGE_FILTER: &str = "asp-edge";
pub const REVOKED_FILTER: &str = "asp-revoked";

/// Answers kept; a subscriber that loops shows as a full list, not as a full memory.
const REPORTS: usize = 10_000;
/// Responses waiting for a slow subscriber.
const QUEUE: usize = 16;

/// One answer of a subscriber: an ACK, or a NACK with its reason.
#[derive(Clone, Debug)]
pub struct Report {
    pub node: String,
    pub type_url: String,
    /// The resources it is subscribed to; none: all.
    pub names: Vec<String>,
    /// The version the subscriber holds.
    pub version: String,
    pub nack: Option<String>,
}

/// Everything served, by type URL and name ("" where subscribers need not name it), with its version.
#[derive(Clone, Default)]
struct World {
    version: u64,
    resources: BTreeMap<(&'static str, &'static str), (u64, Any)>,
    /// The parts that gateways have, by name, and the version at which they came.
    parts: (u64, BTreeMap<String, Any>),
}

/// What a stream asked for of one type, and the version sent last.
#[derive(Default)]
struct Subscription {
    names: Vec<String>,
    sent: u64,
}

/// A running xDS server; it ends when dropped.
pub struct XdsServer {
    pub address: SocketAddr,
    world: watch::Sender<World>,
    reports: Arc<Mutex<Vec<Report>>>,
    filter: PathBuf,
    task: JoinHandle<()>,
}

impl XdsServer {
    pub async fn start() -> Result<XdsServer> {
        XdsServer::of(tool::filter_wasm()?).await
    }

    /// The same, for Envoys that load the filter from this file.
    pub async fn of(filter: PathBuf) -> Result<XdsServer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (world, watched) = watch::channel(World::default());
        let reports = Arc::new(Mutex::new(Vec::new()));
        let service = Service { world: watched, reports: reports.clone() };
        let task = tokio::spawn(async move {
            let server = tonic::transport::Server::builder()
                .add_service(AggregatedDiscoveryServiceServer::new(service.clone()))
                .add_service(ExtensionConfigDiscoveryServiceServer::new(service.clone()))
                .add_service(EndpointDiscoveryServiceServer::new(service));
            if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
                eprintln!("xDS server of the harness: {error}");
            }
        });
        Ok(XdsServer { address, world, reports, filter, task })
    }

    /// Serves these bytes as the edge snapshot; they need not be one.
    pub fn push_edge(&self, snapshot: Vec<u8>) -> Result<String> {
        self.push_edge_of(&self.filter, snapshot)
    }

    /// The same with another file of the filter.
    pub fn push_edge_of(&self, filter: &Path, snapshot: Vec<u8>) -> Result<String> {
        let resource = filter_config(EDGE_FILTER, filter, snapshot)?;
        Ok(self.set((EXTENSION_TYPE, EDGE_FILTER), resource))
    }

    /// Serves these bytes as the recent revocations; they need not be any.
    pub fn push_revocations(&self, list: Vec<u8>) -> Result<String> {
        let resource = filter_config(REVOKED_FILTER, &self.filter, list)?;
        Ok(self.set((EXTENSION_TYPE, REVOKED_FILTER), resource))
    }

    /// Serves these addresses as the endpoints of the cluster `gateway`, and as its pool's in `gateway-pools`.
    pub fn push_endpoints(&self, addresses: &[SocketAddr]) -> String {
        self.push_placed(&addresses.iter().map(|address| ("gateway", *address)).collect::<Vec<_>>())
    }

    /// Serves these as the endpoints of `gateway`, and of `gateway-pools`, each with its pool: in one step, so that no
    /// Envoy sees one without the other.
    pub fn push_placed(&self, gateways: &[(&str, SocketAddr)]) -> String {
        let addresses: Vec<SocketAddr> = gateways.iter().map(|(_, address)| *address).collect();
        let all = pack(ENDPOINT_TYPE, &endpoints("gateway", &addresses));
        let pools = pack(ENDPOINT_TYPE, &of_pools(gateways));
        self.change(|world| {
            world.resources.insert((ENDPOINT_TYPE, "gateway"), (world.version, all));
            world.resources.insert((ENDPOINT_TYPE, "gateway-pools"), (world.version, pools));
        })
    }

    /// Serves these as the endpoints of `gateway-pools`, each with its pool.
    pub fn push_pools(&self, gateways: &[(&str, SocketAddr)]) -> String {
        self.set((ENDPOINT_TYPE, "gateway-pools"), pack(ENDPOINT_TYPE, &of_pools(gateways)))
    }

    /// Serves this as the gateways' snapshot.
    pub fn push_gateway(&self, snapshot: GatewaySnapshot) -> String {
        let parts = asp_snapshot::parts::split(snapshot).into_iter();
        let parts = parts.map(|(name, part)| (name, pack(GATEWAY_TYPE, &part))).collect();
        self.change(|world| world.parts = (world.version, parts))
    }

    /// What the subscribers answered so far, oldest first.
    pub fn reports(&self) -> Vec<Report> {
        self.reports.lock().clone()
    }

    /// Whether some subscriber of this type answered for `version`, and with what reason if it refused.
    pub fn answer(&self, type_url: &str, version: &str) -> Option<Option<String>> {
        let reports = self.reports.lock();
        let of_type = || reports.iter().filter(|report| report.type_url == type_url);
        let refused = of_type().find(|report| report.nack.is_some());
        if of_type().any(|report| report.version == version && report.nack.is_none()) {
            return Some(None);
        }
        refused.map(|report| report.nack.clone())
    }

    fn set(&self, key: (&'static str, &'static str), resource: Any) -> String {
        self.change(|world| drop(world.resources.insert(key, (world.version, resource))))
    }

    fn change(&self, change: impl FnOnce(&mut World)) -> String {
        let mut version = 0;
        self.world.send_modify(|world| {
            world.version += 1;
            version = world.version;
            change(world);
        });
        version.to_string()
    }
}

/// The endpoints of `gateway-pools`, each with its pool.
fn of_pools(gateways: &[(&str, SocketAddr)]) -> ClusterLoadAssignment {
    let addresses: Vec<SocketAddr> = gateways.iter().map(|(_, address)| *address).collect();
    let mut all = endpoints("gateway-pools", &addresses);
    let told = all.endpoints.iter_mut().flat_map(|locality| &mut locality.lb_endpoints);
    for (endpoint, (pool, _)) in told.zip(gateways) {
        let name = Value { kind: Some(Kind::StringValue((*pool).to_owned())) };
        let said = Struct { fields: BTreeMap::from([("pool".to_owned(), name)]) };
        endpoint.metadata =
            Some(Metadata { filter_metadata: HashMap::from([("envoy.lb".to_owned(), said)]) });
    }
    all
}

impl Drop for XdsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Service {
    world: watch::Receiver<World>,
    reports: Arc<Mutex<Vec<Report>>>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

impl Service {
    fn serve(&self, mut requests: Streaming<DiscoveryRequest>) -> Response<Answers> {
        let (answers, stream) = mpsc::channel(QUEUE);
        let mut service = self.clone();
        tokio::spawn(async move {
            let mut subscriptions: BTreeMap<String, Subscription> = BTreeMap::new();
            let mut node = String::new();
            loop {
                tokio::select! {
                    request = requests.message() => {
                        let Ok(Some(request)) = request else { return };
                        service.record(&mut node, &request);
                        subscriptions.entry(request.type_url).or_default().names = request.resource_names;
                    }
                    changed = service.world.changed() => if changed.is_err() { return },
                }
                if !service.answer(&mut subscriptions, &answers).await {
                    return;
                }
            }
        });
        Response::new(Box::pin(ReceiverStream::new(stream)))
    }

    fn record(&self, node: &mut String, request: &DiscoveryRequest) {
        if let Some(sent) = &request.node {
            node.clone_from(&sent.id);
        }
        let mut reports = self.reports.lock();
        if request.response_nonce.is_empty() || reports.len() == REPORTS {
            return;
        }
        reports.push(Report {
            node: node.clone(),
            type_url: request.type_url.clone(),
            names: request.resource_names.clone(),
            version: request.version_info.clone(),
            nack: request.error_detail.as_ref().map(|status| status.message.clone()),
        });
    }

    /// Sends every subscribed type of which something is newer than what was sent; false when the stream is gone.
    async fn answer(
        &mut self,
        subscriptions: &mut BTreeMap<String, Subscription>,
        answers: &mpsc::Sender<Result<DiscoveryResponse, Status>>,
    ) -> bool {
        let world = self.world.borrow_and_update().clone();
        for (type_url, subscription) in subscriptions {
            let wanted = |(of_type, name): &(&str, &str)| {
                of_type == type_url
                    && (name.is_empty() || subscription.names.iter().any(|wanted| wanted == name))
            };
            let found = || world.resources.iter().filter(|(key, _)| wanted(key)).map(|(_, found)| found);
            let latest = found().map(|(version, _)| *version).max().unwrap_or_default();
            if latest <= subscription.sent {
                continue;
            }
            let response = DiscoveryResponse {
                version_info: latest.to_string(),
                nonce: latest.to_string(),
                type_url: type_url.clone(),
                resources: found().map(|(_, resource)| resource.clone()).collect(),
            };
            subscription.sent = latest;
            if answers.send(Ok(response)).await.is_err() {
                return false;
            }
        }
        true
    }
}

type Changes = Pin<Box<dyn Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

impl Service {
    /// All parts at each version; nothing is ever taken away.
    fn serve_parts(&self, mut requests: Streaming<DeltaDiscoveryRequest>) -> Response<Changes> {
        let (answers, stream) = mpsc::channel(QUEUE);
        let mut service = self.clone();
        tokio::spawn(async move {
            let mut node = String::new();
            let mut sent = 0;
            loop {
                tokio::select! {
                    request = requests.message() => {
                        let Ok(Some(request)) = request else { return };
                        service.record_delta(&mut node, &request);
                    }
                    changed = service.world.changed() => if changed.is_err() { return },
                }
                let (version, parts) = service.world.borrow_and_update().parts.clone();
                if sent == version {
                    continue;
                }
                sent = version;
                let version = sent.to_string();
                let part =
                    |(name, resource)| Resource { version: version.clone(), resource: Some(resource), name };
                let response = DeltaDiscoveryResponse {
                    // A gateway reads the revision out of it.
                    system_version_info: format!("{version}-test"),
                    resources: parts.into_iter().map(part).collect(),
                    type_url: GATEWAY_TYPE.into(),
                    nonce: version.clone(),
                    removed_resources: Vec::new(),
                };
                if answers.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        });
        Response::new(Box::pin(ReceiverStream::new(stream)))
    }

    fn record_delta(&self, node: &mut String, request: &DeltaDiscoveryRequest) {
        let accepted = request.error_detail.is_none();
        let version = if accepted { request.response_nonce.clone() } else { String::new() };
        self.record(
            node,
            &DiscoveryRequest {
                version_info: version,
                node: request.node.clone(),
                type_url: request.type_url.clone(),
                response_nonce: request.response_nonce.clone(),
                error_detail: request.error_detail.clone(),
                resource_names: Vec::new(),
            },
        );
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers;
    type DeltaAggregatedResourcesStream = Changes;

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Changes>, Status> {
        Ok(self.serve_parts(request.into_inner()))
    }

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(self.serve(request.into_inner()))
    }
}

#[tonic::async_trait]
impl ExtensionConfigDiscoveryService for Service {
    type StreamExtensionConfigsStream = Answers;

    async fn stream_extension_configs(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(self.serve(request.into_inner()))
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for Service {
    type StreamEndpointsStream = Answers;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(self.serve(request.into_inner()))
    }
}

/// An entry's configuration as the control plane sends it, around any bytes. Entries share a VM because nothing but the
/// root and the bytes tells them apart.
fn filter_config(name: &str, filter: &Path, configuration: Vec<u8>) -> Result<Any> {
    let wasm_file = filter.to_str().context("the filter's path is UTF-8")?.to_string();
    let code = AsyncDataSource { local: Some(DataSource { filename: wasm_file }) };
    let vm = VmConfig { vm_id: "asp-edge".into(), runtime: "envoy.wasm.runtime.v8".into(), code: Some(code) };
    let config = PluginConfig {
        name: name.into(),
        root_id: name.into(),
        vm_config: Some(vm),
        configuration: Some(pack("type.googleapis.com/google.protobuf.BytesValue", &configuration)),
        failure_policy: FailurePolicy::FailReload.into(),
        allow_on_headers_stop_iteration: Some(true),
        ..Default::default()
    };
    let filter = Wasm { config: Some(config) };
    let filter = pack("type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", &filter);
    let resource = TypedExtensionConfig { name: name.into(), typed_config: Some(filter) };
    Ok(pack(EXTENSION_TYPE, &resource))
}

fn endpoints(cluster: &str, addresses: &[SocketAddr]) -> ClusterLoadAssignment {
    let lb_endpoints = addresses
        .iter()
        .map(|address| {
            let socket =
                SocketAddress { address: address.ip().to_string(), port_value: address.port().into() };
            let address = Address { socket_address: Some(socket) };
            LbEndpoint { endpoint: Some(Endpoint { address: Some(address) }), ..Default::default() }
        })
        .collect();
    let locality = LocalityLbEndpoints { lb_endpoints };
    ClusterLoadAssignment { cluster_name: cluster.into(), endpoints: vec![locality] }
}

fn pack(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: type_url.into(), value: message.encode_to_vec() }
}
