//! The xDS server over a real socket with real clients: subscribe, ACK, NACK, reconnect, endpoints.

// A helper of a test fails like the test itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp::publisher::{Handle, Publisher, Source};
use asp::settings::PeerSection;
use asp::xds::client::{self, Apply, Target};
use asp::xds::endpoints::Endpoints;
use asp::xds::peer::Peer;
use asp::xds::stream::Context;
use asp::xds::subscribers::{Subscriber, Subscribers};
use asp::xds::{EDGE_FILTER, Kind, service};
use asp_proto::snapshot::{EdgeSnapshot, GatewaySnapshot};
use async_trait::async_trait;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use envoy_types::pb::envoy::service::extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient;
use envoy_types::pb::google::rpc::Status as RpcStatus;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;

/// A hang guard, far above what any step takes.
const GUARD: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Counter(AtomicU64);

#[async_trait]
impl Source for Counter {
    async fn revision(&self) -> anyhow::Result<u64> {
        Ok(self.0.load(Ordering::SeqCst))
    }

    async fn build(&self) -> anyhow::Result<GatewaySnapshot> {
        let revision = self.0.load(Ordering::SeqCst);
        let edge = EdgeSnapshot { revision, ..EdgeSnapshot::default() };
        Ok(GatewaySnapshot { revision, edge: Some(edge), digest: vec![7; 32], ..GatewaySnapshot::default() })
    }
}

struct Control {
    address: std::net::SocketAddr,
    source: Arc<Counter>,
    handle: Handle,
    subscribers: Arc<Subscribers>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Control {
    async fn start() -> Control {
        Control::start_at("127.0.0.1:0", None).await
    }

    async fn start_at(address: &str, peer: Option<Peer>) -> Control {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let source = Arc::new(Counter(AtomicU64::new(1)));
        let endpoints = Endpoints::new();
        let (publisher, handle) = Publisher::new(source.clone(), "/f.wasm".into(), endpoints.subscribe());
        let stop = CancellationToken::new();
        let subscribers = Subscribers::new();
        let context = Context {
            world: handle.world(),
            subscribers: Arc::clone(&subscribers),
            endpoints,
            stop: stop.clone(),
        };
        tokio::spawn(publisher.run(stop.clone()));
        tokio::spawn(async move { service::run(listener, context, peer.as_ref()).await });
        Control { address, source, handle, subscribers, _guard: stop.clone().drop_guard(), stop }
    }

    fn publish(&self, revision: u64) {
        self.source.0.store(revision, Ordering::SeqCst);
        self.handle.changed();
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the only subscriber of a kind is as wanted.
    async fn subscriber(&self, kind: Kind, wanted: impl Fn(&Subscriber) -> bool) -> Subscriber {
        let found = || self.subscribers.list().into_iter().find(|s| s.kind == kind.as_str() && wanted(s));
        until(found).await
    }
}

async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
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
struct Stream {
    requests: mpsc::Sender<DiscoveryRequest>,
    pushes: Streaming<DiscoveryResponse>,
}

impl Stream {
    async fn extension_configs(control: &Control) -> Stream {
        let mut client = ExtensionConfigDiscoveryServiceClient::connect(control.url()).await.unwrap();
        let (requests, receiver) = mpsc::channel(8);
        requests.send(first(EDGE_FILTER)).await.unwrap();
        let pushes =
            client.stream_extension_configs(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Stream { requests, pushes }
    }

    async fn endpoints(control: &Control) -> Stream {
        Stream::endpoints_from(control, first("gateway")).await
    }

    async fn endpoints_from(control: &Control, first: DiscoveryRequest) -> Stream {
        let mut client = EndpointDiscoveryServiceClient::connect(control.url()).await.unwrap();
        let (requests, receiver) = mpsc::channel(8);
        requests.send(first).await.unwrap();
        let pushes = client.stream_endpoints(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Stream { requests, pushes }
    }

    async fn next(&mut self) -> DiscoveryResponse {
        tokio::time::timeout(GUARD, self.pushes.message()).await.unwrap().unwrap().unwrap()
    }

    /// Whether nothing comes although other work of the server got its turns.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.pushes.message()).await.is_err()
    }

    async fn answer(&self, push: &DiscoveryResponse, error: Option<&str>) {
        let request = DiscoveryRequest {
            response_nonce: push.nonce.clone(),
            version_info: push.version_info.clone(),
            error_detail: error.map(|text| RpcStatus { message: text.into(), ..RpcStatus::default() }),
            node: None,
            ..first(EDGE_FILTER)
        };
        self.requests.send(request).await.unwrap();
    }
}

fn first(name: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(Node { id: "envoy-1".into(), ..Node::default() }),
        resource_names: vec![name.into()],
        ..DiscoveryRequest::default()
    }
}

#[tokio::test]
async fn an_envoy_gets_one_push_at_a_time_and_its_answers_are_recorded() {
    let control = Control::start().await;
    let mut envoy = Stream::extension_configs(&control).await;
    let one = envoy.next().await;
    assert_eq!((one.version_info.as_str(), one.type_url.as_str()), ("1-07070707", Kind::Edge.type_url()));
    control.publish(2);
    control.publish(3);
    assert!(envoy.is_silent().await, "the first push is unanswered");
    envoy.answer(&one, None).await;
    let three = envoy.next().await;
    assert_eq!(three.version_info, "3-07070707", "the version between was skipped");
    envoy.answer(&three, Some("canary failed")).await;
    let recorded = control.subscriber(Kind::Edge, |subscriber| subscriber.last_nack.is_some()).await;
    assert_eq!((recorded.node.as_str(), recorded.acked_revision), ("envoy-1", 1));
    let nack = recorded.last_nack.unwrap();
    assert_eq!((nack.revision, nack.reason.as_str()), (3, "canary failed"));
    assert!(envoy.is_silent().await, "a rejected version is not sent again");
    control.publish(4);
    let four = envoy.next().await;
    envoy.answer(&four, None).await;
    control.subscriber(Kind::Edge, |subscriber| subscriber.acked_revision == 4).await;
}

#[tokio::test]
async fn a_subscriber_that_goes_is_forgotten() {
    let control = Control::start().await;
    let envoy = Stream::extension_configs(&control).await;
    control.subscriber(Kind::Edge, |_| true).await;
    drop(envoy);
    until(|| control.subscribers.list().is_empty().then_some(())).await;
}

struct Gateway {
    applied: Arc<Mutex<Vec<u64>>>,
    refuses: Arc<AtomicBool>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Gateway {
    fn start(control: &Control, advertise: &str) -> Gateway {
        Gateway::start_as(control.url(), advertise, None)
    }

    fn start_as(url: String, advertise: &str, peer: Option<Peer>) -> Gateway {
        let (applied, refuses) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (list, no) = (Arc::clone(&applied), Arc::clone(&refuses));
        let apply: Apply = Arc::new(move |snapshot: GatewaySnapshot| {
            if no.load(Ordering::SeqCst) {
                return Err("primitive echo: bad schema".into());
            }
            list.lock().push(snapshot.revision);
            Ok(())
        });
        let target = Target {
            uri: url.parse().unwrap(),
            node_id: format!("gateway-{advertise}"),
            advertise: advertise.into(),
            pool: "gateway".into(),
            peer,
        };
        let stop = CancellationToken::new();
        tokio::spawn(client::run(target, apply, stop.clone()));
        Gateway { applied, refuses, _guard: stop.clone().drop_guard(), stop }
    }

    async fn has(&self, revision: u64) {
        until(|| (self.applied.lock().last() == Some(&revision)).then_some(())).await;
    }
}

fn addresses(push: &DiscoveryResponse) -> usize {
    let assignment = ClusterLoadAssignment::decode(push.resources[0].value.as_slice()).unwrap();
    assignment.endpoints.iter().map(|locality| locality.lb_endpoints.len()).sum()
}

#[tokio::test]
async fn a_gateway_is_an_endpoint_from_its_first_snapshot_to_its_end() {
    let control = Control::start().await;
    let mut envoy = Stream::endpoints(&control).await;
    assert!(envoy.is_silent().await, "no gateway is known yet: nothing is said");
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    let push = envoy.next().await;
    assert_eq!(addresses(&push), 1);
    let answer = DiscoveryRequest {
        response_nonce: push.nonce.clone(),
        version_info: push.version_info.clone(),
        ..first("gateway")
    };
    envoy.requests.send(answer).await.unwrap();
    gateway.stop.cancel();
    assert_eq!(addresses(&envoy.next().await), 0);
}

#[tokio::test]
async fn an_envoy_with_endpoints_of_an_earlier_control_plane_keeps_them_until_the_gateways_are_back() {
    let control = Control::start().await;
    let again = DiscoveryRequest { version_info: "7".into(), ..first("gateway") };
    let mut known = Stream::endpoints_from(&control, again.clone()).await;
    let mut new = Stream::endpoints(&control).await;
    let one = Gateway::start(&control, "127.0.0.1:4711");
    one.has(1).await;
    assert_eq!(addresses(&new.next().await), 1, "one that has nothing takes what there is");
    let another = Gateway::start(&control, "127.0.0.1:4712");
    another.has(1).await;
    assert_eq!(addresses(&known.next().await), 2, "one that has some never sees the first one alone");
    // The time for that is over.
    let mut late = Stream::endpoints_from(&control, again).await;
    assert_eq!(addresses(&late.next().await), 2);
}

#[tokio::test]
async fn a_gateway_that_refuses_a_snapshot_keeps_the_last_and_says_why() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    gateway.refuses.store(true, Ordering::SeqCst);
    control.publish(2);
    let recorded = control.subscriber(Kind::Gateway, |subscriber| subscriber.last_nack.is_some()).await;
    assert_eq!(recorded.acked_revision, 1);
    assert_eq!(recorded.last_nack.unwrap().reason, "primitive echo: bad schema");
    gateway.refuses.store(false, Ordering::SeqCst);
    control.publish(3);
    gateway.has(3).await;
    assert_eq!(*gateway.applied.lock(), [1, 3]);
}

#[tokio::test]
async fn a_gateway_finds_a_restarted_control_plane() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    let address = control.address.to_string();
    control.stop.cancel();
    drop(control);
    let again = until_bound(&address).await;
    again.publish(9);
    gateway.has(9).await;
}

/// The old listener's port is free as soon as its task has ended.
async fn until_bound(address: &str) -> Control {
    let bound = async {
        while TcpListener::bind(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(GUARD, bound).await.unwrap();
    Control::start_at(address, None).await
}

/// An authority and what it signed, as PEM files.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(parameters, key), pem }
    }

    /// A process with a certificate for `localhost`, which trusts `authority`.
    fn peer(&self, authority: &Authority) -> Peer {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let section = PeerSection {
            certificate: file("cert.pem", certificate.pem()),
            key: file("key.pem", key.serialize_pem()),
            authority: file("ca.pem", authority.pem.clone()),
            name: Some("localhost".into()),
        };
        Peer::read(&section).unwrap()
    }
}

#[tokio::test]
async fn with_peer_certificates_only_the_platforms_own_processes_subscribe() {
    let (own, foreign) = (Authority::new(), Authority::new());
    let control = Control::start_at("127.0.0.1:0", Some(own.peer(&own))).await;
    let url = format!("https://{}", control.address);
    let impostor = Gateway::start_as(url.clone(), "127.0.0.1:4712", Some(foreign.peer(&own)));
    let plain = Gateway::start_as(control.url(), "127.0.0.1:4713", None);
    let gateway = Gateway::start_as(url, "127.0.0.1:4711", Some(own.peer(&own)));
    gateway.has(1).await;
    control.publish(2);
    gateway.has(2).await;
    assert!(impostor.applied.lock().is_empty(), "a certificate of another authority");
    assert!(plain.applied.lock().is_empty(), "no certificate at all");
    let addresses: Vec<String> = control.subscribers.list().into_iter().map(|s| s.address).collect();
    assert_eq!(addresses, ["127.0.0.1:4711"]);
}
