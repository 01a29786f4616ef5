//! An xDS server of the harness's own: serves what a test says, wrong snapshots included, and records how
//! every subscriber answered.
//!
//! State of the world over ADS, ECDS and EDS streams, and all parts of a snapshot to gateways; one version number for
//! everything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use asp_proto::snapshot::GatewaySnapshot;
use asp_proto::xds::envoy::config::core::v3::{
    Address, AsyncDataSource, DataSource, SocketAddress, TypedExtensionConfig,
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
use prost_types::Any;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::tool;

pub const EXTENSION_TYPE: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
pub const ENDPOINT_TYPE: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const GATEWAY_TYPE: &str = "type.googleapis.com/asp.snapshot.v1.SnapshotPart";

/// Answers kept; a subscriber that loops shows as a full list, not as a full memory.
const REPORTS: usize = 10_000;
/// Responses waiting for a slow subscriber.
const QUEUE: usize = 16;

/// One answer of a subscriber: an ACK, or a NACK with its reason.
#[derive(Clone, Debug)]
pub struct Report {
    pub node: String,
    pub type_url: String,
    /// The version the subscriber holds.
    pub version: String,
    pub nack: Option<String>,
}

/// Everything served at one version, by type URL.
#[derive(Clone, Default)]
struct World {
    version: u64,
    resources: BTreeMap<&'static str, Any>,
    /// The parts that gateways have, by name.
    parts: BTreeMap<String, Any>,
}

/// A running xDS server; it ends when dropped.
pub struct XdsServer {
    pub address: SocketAddr,
    world: watch::Sender<World>,
    reports: Arc<Mutex<Vec<Report>>>,
    task: JoinHandle<()>,
}

impl XdsServer {
    pub async fn start() -> Result<XdsServer> {
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
        Ok(XdsServer { address, world, reports, task })
    }

    /// Serves these bytes as the edge snapshot; they need not be one.
    pub fn push_edge(&self, snapshot: Vec<u8>) -> Result<String> {
        let filter = filter_config(snapshot)?;
        Ok(self.set(EXTENSION_TYPE, filter))
    }

    /// Serves these addresses as the endpoints of the cluster `gateway`.
    pub fn push_endpoints(&self, addresses: &[SocketAddr]) -> String {
        self.set(ENDPOINT_TYPE, pack(ENDPOINT_TYPE, &endpoints("gateway", addresses)))
    }

    /// Serves this as the gateways' snapshot.
    pub fn push_gateway(&self, snapshot: GatewaySnapshot) -> String {
        let parts = asp_snapshot::parts::split(snapshot).into_iter();
        let parts = parts.map(|(name, part)| (name, pack(GATEWAY_TYPE, &part))).collect();
        self.change(|world| world.parts = parts)
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

    fn set(&self, type_url: &'static str, resource: Any) -> String {
        self.change(|world| drop(world.resources.insert(type_url, resource)))
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
            let mut subscriptions: BTreeMap<String, u64> = BTreeMap::new();
            let mut node = String::new();
            loop {
                tokio::select! {
                    request = requests.message() => {
                        let Ok(Some(request)) = request else { return };
                        service.record(&mut node, &request);
                        subscriptions.entry(request.type_url).or_insert(0);
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
            version: request.version_info.clone(),
            nack: request.error_detail.as_ref().map(|status| status.message.clone()),
        });
    }

    /// Sends every subscribed type whose latest version was not sent yet; false when the stream is gone.
    async fn answer(
        &mut self,
        subscriptions: &mut BTreeMap<String, u64>,
        answers: &mpsc::Sender<Result<DiscoveryResponse, Status>>,
    ) -> bool {
        let world = self.world.borrow_and_update().clone();
        for (type_url, sent) in subscriptions.iter_mut().filter(|(_, sent)| **sent < world.version) {
            let Some(resource) = world.resources.get(type_url.as_str()) else { continue };
            let response = DiscoveryResponse {
                version_info: world.version.to_string(),
                nonce: world.version.to_string(),
                type_url: type_url.clone(),
                resources: vec![resource.clone()],
            };
            *sent = world.version;
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
                let world = service.world.borrow_and_update().clone();
                if sent == world.version || world.parts.is_empty() {
                    continue;
                }
                sent = world.version;
                let version = sent.to_string();
                let part = |(name, resource)| Resource { version: version.clone(), resource: Some(resource), name };
                let response = DeltaDiscoveryResponse {
                    // A gateway reads the revision out of it.
                    system_version_info: format!("{version}-test"),
                    resources: world.parts.into_iter().map(part).collect(),
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

/// The filter's configuration as the control plane sends it, around any bytes.
fn filter_config(snapshot: Vec<u8>) -> Result<Any> {
    let wasm_file = tool::filter_wasm()?.to_str().context("the filter's path is UTF-8")?.to_string();
    let code = AsyncDataSource { local: Some(DataSource { filename: wasm_file }) };
    let vm = VmConfig { vm_id: "asp-edge".into(), runtime: "envoy.wasm.runtime.v8".into(), code: Some(code) };
    let config = PluginConfig {
        name: "asp-edge".into(),
        root_id: "asp-edge".into(),
        vm_config: Some(vm),
        configuration: Some(pack("type.googleapis.com/google.protobuf.BytesValue", &snapshot)),
        failure_policy: FailurePolicy::FailReload.into(),
        allow_on_headers_stop_iteration: Some(true),
        ..Default::default()
    };
    let filter = Wasm { config: Some(config) };
    let filter = pack("type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", &filter);
    let resource = TypedExtensionConfig { name: "asp-edge".into(), typed_config: Some(filter) };
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
