//! A control plane without a store, an Envoy reduced to its messages, and a gateway that records what it applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp_control::catalog::build::SnapshotBuild;
use asp_control::publisher::{Handle, Publisher, RevocationUpdate, SnapshotSource};
use asp_peer::{Accounts, Peer};
use asp_proto::snapshot::{BasePart, EdgeSnapshot, RecentRevocations, snapshot_part};
use asp_proto::xds::envoy::config::core::v3::{HealthStatus, Node};
use asp_proto::xds::envoy::config::endpoint::v3::ClusterLoadAssignment;
use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use asp_proto::xds::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use asp_proto::xds::envoy::service::extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient;
use asp_proto::xds::google::rpc::Status as RpcStatus;
use asp_snapshot::PartFaults;
use asp_store::control::Position;
use asp_xds::client::{self, Apply, ReportSources, SubscriptionTarget};
use asp_xds::context::Context;
use asp_xds::contract::{EDGE_FILTER, Kind};
use asp_xds::degraded_items::DegradedItem;
use asp_xds::endpoints::Endpoints;
use asp_xds::failing_upstreams::FailingUpstream;
use asp_xds::keys::RefreshKeys;
use asp_xds::parts::{EncodedPart, PartsBuilder};
use asp_xds::peer::PeerProof;
use asp_xds::service;
use asp_xds::subscribers::{Subscriber, Subscribers};
use async_trait::async_trait;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// A hang guard, far above what any step takes.
pub(crate) const GUARD: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Counter {
    revision: AtomicU64,
    /// Whether the store does not answer.
    is_silent: AtomicBool,
}

#[async_trait]
impl SnapshotSource for Counter {
    async fn position(&self) -> anyhow::Result<Position> {
        while self.is_silent.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Position { revision: self.revision.load(Ordering::SeqCst), ..Position::default() })
    }

    async fn build(&self, _raise: bool) -> anyhow::Result<SnapshotBuild> {
        let revision = self.revision.load(Ordering::SeqCst);
        // Unchanged content is not pushed.
        let public_url = revision.to_string();
        let edge = EdgeSnapshot {
            revision,
            digest: vec![7; 32],
            public_url: public_url.clone(),
            ..EdgeSnapshot::default()
        };
        let base = BasePart { public_url, ..BasePart::default() };
        let mut gateway = PartsBuilder::default();
        gateway.put("base", Some(EncodedPart::of(snapshot_part::Part::Base(base))));
        let recent = RecentRevocations { revision, revoked: mark(revision), ..RecentRevocations::default() };
        gateway.put("recent", Some(EncodedPart::of(snapshot_part::Part::Recent(recent.clone()))));
        Ok(SnapshotBuild {
            position: Position { revision, ..Position::default() },
            edge: Arc::new(edge),
            recent: Arc::new(recent),
            gateway: gateway.parts,
            changed: gateway.changed,
            faults: Vec::new(),
            lacks_forms: false,
        })
    }

    async fn overtake(&self, _: &RecentRevocations, through: u64) -> anyhow::Result<RevocationUpdate> {
        Ok(RevocationUpdate { through, recent: None })
    }
}

/// Entry of the only revocation at a revision.
pub(crate) fn mark(revision: u64) -> Vec<u8> {
    revision.to_be_bytes().repeat(2)
}

/// Knows no issuer.
struct NoKeys;

#[async_trait]
impl RefreshKeys for NoKeys {
    async fn refresh(&self, _: &str) -> u64 {
        0
    }
}

pub(crate) struct Control {
    pub(crate) address: std::net::SocketAddr,
    source: Arc<Counter>,
    pub(crate) handle: Handle,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) stop: CancellationToken,
    _guard: DropGuard,
}

impl Control {
    pub(crate) async fn start() -> Control {
        Control::start_at("127.0.0.1:0", None).await
    }

    pub(crate) async fn start_at(address: &str, peer: Option<Peer>) -> Control {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let source = Arc::new(Counter { revision: AtomicU64::new(1), ..Counter::default() });
        let endpoints = Endpoints::new();
        let (publisher, handle) = Publisher::new(source.clone(), "/f.wasm".into(), endpoints.subscribe());
        let stop = CancellationToken::new();
        let subscribers = Subscribers::new();
        let context = Context {
            xds_state: handle.xds_state(),
            freshness: handle.freshness(),
            subscribers: Arc::clone(&subscribers),
            endpoints: Arc::clone(&endpoints),
            seen_revisions: handle.seen_revisions(),
            proof: peer.map_or_else(|| PeerProof::Account(Accounts::new(&[])), PeerProof::Certificate),
            keys: Arc::new(NoKeys),
            stop: stop.clone(),
        };
        tokio::spawn(endpoints.run(stop.clone()));
        tokio::spawn(publisher.run(stop.clone()));
        tokio::spawn(async move { service::run(listener, context).await });
        Control { address, source, handle, subscribers, _guard: stop.clone().drop_guard(), stop }
    }

    pub(crate) fn publish(&self, revision: u64) {
        self.source.revision.store(revision, Ordering::SeqCst);
        self.handle.changed();
    }

    /// Makes its store silent, or lets it answer again.
    pub(crate) fn cut_store(&self, is_cut: bool) {
        self.source.is_silent.store(is_cut, Ordering::SeqCst);
    }

    /// Whether a gateway follows it.
    pub(crate) fn is_followed(&self) -> bool {
        self.subscribers.list().iter().any(|subscriber| subscriber.kind == Kind::Gateway.as_str())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url()).unwrap().connect().await.unwrap()
    }

    /// Waits until these gateways are published to Envoy.
    pub(crate) async fn serves(&self, wanted: &[&str]) {
        let xds_state = self.handle.xds_state();
        until(|| {
            let served = xds_state.borrow().endpoints.clusters.get("gateway").cloned().unwrap_or_default();
            let served: Vec<String> = served.iter().map(ToString::to_string).collect();
            (served == wanted).then_some(())
        })
        .await;
    }

    /// Waits until the only subscriber of a kind is as wanted.
    pub(crate) async fn subscriber(&self, kind: Kind, wanted: impl Fn(&Subscriber) -> bool) -> Subscriber {
        let found = || self.subscribers.list().into_iter().find(|s| s.kind == kind.as_str() && wanted(s));
        until(found).await
    }
}

pub(crate) async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    tokio::time::timeout(GUARD, async {
        loop {
            if let Some(value) = found() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it happens in time")
}

/// An Envoy's stream, reduced to its messages.
pub(crate) struct Stream {
    pub(crate) requests: mpsc::Sender<DiscoveryRequest>,
    pushes: Streaming<DiscoveryResponse>,
}

impl Stream {
    pub(crate) async fn extension_configs(control: &Control) -> Stream {
        let mut client = ExtensionConfigDiscoveryServiceClient::new(control.channel().await);
        let (requests, receiver) = mpsc::channel(8);
        requests.send(first(EDGE_FILTER)).await.unwrap();
        let pushes =
            client.stream_extension_configs(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Stream { requests, pushes }
    }

    /// An Envoy that has this version from another stream.
    pub(crate) async fn extension_configs_from(control: &Control, version: &str) -> Stream {
        let mut client = ExtensionConfigDiscoveryServiceClient::new(control.channel().await);
        let (requests, receiver) = mpsc::channel(8);
        let first = DiscoveryRequest { version_info: version.into(), ..first(EDGE_FILTER) };
        requests.send(first).await.unwrap();
        let pushes =
            client.stream_extension_configs(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Stream { requests, pushes }
    }

    pub(crate) async fn endpoints(control: &Control) -> Stream {
        Stream::endpoints_from(control, first("gateway")).await
    }

    pub(crate) async fn endpoints_from(control: &Control, first: DiscoveryRequest) -> Stream {
        let mut client = EndpointDiscoveryServiceClient::new(control.channel().await);
        let (requests, receiver) = mpsc::channel(8);
        requests.send(first).await.unwrap();
        let pushes = client.stream_endpoints(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Stream { requests, pushes }
    }

    pub(crate) async fn next(&mut self) -> DiscoveryResponse {
        tokio::time::timeout(GUARD, self.pushes.message()).await.unwrap().unwrap().unwrap()
    }

    /// The status with which the control plane ends the stream.
    pub(crate) async fn end(&mut self) -> Status {
        tokio::time::timeout(GUARD, self.pushes.message()).await.unwrap().unwrap_err()
    }

    /// Whether nothing is sent although other tasks of the server had time to run.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.pushes.message()).await.is_err()
    }

    pub(crate) async fn answer(&self, push: &DiscoveryResponse, error: Option<&str>) {
        let request = DiscoveryRequest {
            response_nonce: push.nonce.clone(),
            version_info: push.version_info.clone(),
            error_detail: error.map(|text| RpcStatus { code: 3, message: text.into() }),
            node: None,
            ..first(EDGE_FILTER)
        };
        self.requests.send(request).await.unwrap();
    }
}

pub(crate) fn first(name: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(Node { id: "envoy-1".into(), ..Node::default() }),
        resource_names: vec![name.into()],
        ..DiscoveryRequest::default()
    }
}

pub(crate) struct Gateway {
    pub(crate) applied: Arc<Mutex<Vec<u64>>>,
    /// Entries that it received last.
    pub(crate) revoked: Arc<Mutex<Vec<u8>>>,
    pub(crate) refuses: Arc<AtomicBool>,
    /// Parts that it cannot apply.
    pub(crate) refused: Arc<Mutex<Arc<PartFaults>>>,
    /// Upstreams that fail at it.
    pub(crate) failing: Arc<Mutex<Vec<FailingUpstream>>>,
    pub(crate) degraded: Arc<Mutex<Vec<DegradedItem>>>,
    pub(crate) stop: CancellationToken,
    _guard: DropGuard,
}

impl Gateway {
    pub(crate) fn start(control: &Control, advertise: &str) -> Gateway {
        Gateway::start_as(control.url(), advertise, None)
    }

    pub(crate) fn start_as(url: String, advertise: &str, peer: Option<Peer>) -> Gateway {
        Gateway::start_between(&[url], advertise, peer)
    }

    pub(crate) fn start_between(controls: &[String], advertise: &str, peer: Option<Peer>) -> Gateway {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let refuses = Arc::new(AtomicBool::new(false));
        let list = Arc::clone(&applied);
        let no = Arc::clone(&refuses);
        let refused: Arc<Mutex<Arc<PartFaults>>> = Arc::default();
        let faults = Arc::clone(&refused);
        let revoked: Arc<Mutex<Vec<u8>>> = Arc::default();
        let entries = Arc::clone(&revoked);
        let apply: Apply = Arc::new(move |revision, _covers, changes| {
            if no.load(Ordering::SeqCst) {
                return Err("primitive echo: bad schema".into());
            }
            for part in changes.into_iter().filter_map(|(_, part)| part?.part) {
                if let snapshot_part::Part::Recent(recent) = part {
                    *entries.lock() = recent.revoked;
                }
            }
            list.lock().push(revision);
            Ok(faults.lock().clone())
        });
        let target = SubscriptionTarget {
            uris: controls.iter().map(|url| url.parse().unwrap()).collect(),
            node_id: format!("gateway-{advertise}"),
            advertise: advertise.into(),
            pool: "gateway".into(),
            name: peer.as_ref().map(|_| "localhost".into()),
            peer,
        };
        let stop = CancellationToken::new();
        let failing: Arc<Mutex<Vec<FailingUpstream>>> = Arc::default();
        let degraded: Arc<Mutex<Vec<DegradedItem>>> = Arc::default();
        let upstreams = Arc::clone(&failing);
        let items = Arc::clone(&degraded);
        let sources = ReportSources {
            failing: Arc::new(move || upstreams.lock().clone()),
            degraded: Arc::new(move || items.lock().clone()),
        };
        tokio::spawn(client::run(target, (apply, Arc::new(|| {})), sources, stop.clone()));
        Gateway {
            applied,
            revoked,
            refuses,
            refused,
            failing,
            degraded,
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    pub(crate) async fn has(&self, revision: u64) {
        until(|| (self.applied.lock().last() == Some(&revision)).then_some(())).await;
    }
}

/// A connection to a control plane whose responses can be held back.
pub(crate) struct Way {
    address: std::net::SocketAddr,
    /// Ends the current connections; responses on later ones are held back.
    pub(crate) broken: CancellationToken,
    /// Releases the responses.
    pub(crate) mended: CancellationToken,
    _task: JoinSet<()>,
}

impl Way {
    pub(crate) async fn start(control: &Control) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = control.address;
        let broken = CancellationToken::new();
        let mended = CancellationToken::new();
        let mut task = JoinSet::new();
        let breaks = broken.clone();
        let mends = mended.clone();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(target).await.unwrap();
                connections.spawn(carry(client, server, breaks.clone(), mends.clone()));
            }
        });
        Way { address, broken, mended, _task: task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    broken: CancellationToken,
    mended: CancellationToken,
) {
    if !broken.is_cancelled() {
        broken.run_until_cancelled(copy_bidirectional(&mut client, &mut server)).await;
        return;
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answers = async {
        mended.cancelled().await;
        copy(&mut from_server, &mut to_client).await
    };
    // If one side closes, the other is closed, too.
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        _ = answers => {}
    }
}

pub(crate) fn addresses(push: &DiscoveryResponse) -> usize {
    let assignment = ClusterLoadAssignment::decode(push.resources[0].value.as_slice()).unwrap();
    let endpoints = assignment.endpoints.iter().flat_map(|locality| &locality.lb_endpoints);
    endpoints.filter(|endpoint| endpoint.health_status() == HealthStatus::Unknown).count()
}

/// The old listener's port is free as soon as its task has ended; nobody else gets it until the new one listens.
pub(crate) async fn until_bound(address: &str) -> Control {
    let free = async {
        loop {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            if socket.bind(address.parse().unwrap()).is_ok() {
                break socket;
            }
            tokio::task::yield_now().await;
        }
    };
    let _kept = tokio::time::timeout(GUARD, free).await.unwrap();
    Control::start_at(address, None).await
}
