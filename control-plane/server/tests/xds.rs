//! The xDS server over a real socket with real clients: subscribe, ACK, NACK, reconnect, endpoints.

// A helper of a test fails like the test itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp_control::catalog::build::Built;
use asp_control::publisher::{Handle, Publisher, Source};
use asp_control::xds::client::{self, Apply, Target};
use asp_control::xds::endpoints::Endpoints;
use asp_control::xds::stream::Context;
use asp_control::xds::subscribers::{Subscriber, Subscribers};
use asp_control::xds::{EDGE_FILTER, Kind, Published, service};
use asp_peer::{Peer, PeerFiles, Role};
use asp_proto::snapshot::{EdgeSnapshot, GatewaySnapshot, Region};
use async_trait::async_trait;
use envoy_types::pb::envoy::config::core::v3::{HealthStatus, Node};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use envoy_types::pb::envoy::service::extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient;
use envoy_types::pb::google::protobuf::{Struct, Value, value};
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

    async fn build(&self, _last: Option<Arc<Published>>) -> anyhow::Result<Built> {
        let revision = self.0.load(Ordering::SeqCst);
        let edge = EdgeSnapshot { revision, ..EdgeSnapshot::default() };
        // What says nothing new is not pushed.
        let region = Region { org: revision.to_string(), ..Region::default() };
        let snapshot = GatewaySnapshot {
            revision,
            edge: Some(edge),
            regions: vec![region],
            digest: vec![7; 32],
            ..GatewaySnapshot::default()
        };
        Ok(Built { snapshot, faults: Vec::new() })
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
            endpoints: Arc::clone(&endpoints),
            peer,
            stop: stop.clone(),
        };
        tokio::spawn(endpoints.run(stop.clone()));
        tokio::spawn(publisher.run(stop.clone()));
        tokio::spawn(async move { service::run(listener, context).await });
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

    /// An Envoy that has this version from another stream.
    async fn extension_configs_from(control: &Control, version: &str) -> Stream {
        let mut client = ExtensionConfigDiscoveryServiceClient::connect(control.url()).await.unwrap();
        let (requests, receiver) = mpsc::channel(8);
        let first = DiscoveryRequest { version_info: version.into(), ..first(EDGE_FILTER) };
        requests.send(first).await.unwrap();
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
            name: peer.as_ref().map(|_| "localhost".into()),
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
    let endpoints = assignment.endpoints.iter().flat_map(|locality| &locality.lb_endpoints);
    endpoints.filter(|endpoint| endpoint.health_status() == HealthStatus::Unknown).count()
}

#[tokio::test]
async fn a_gateway_is_an_endpoint_from_its_first_snapshot_until_it_says_that_it_ends() {
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

/// Invariant I-5: the first push after a reconnect is refused, and the gateway serves on its last good snapshot.
#[tokio::test]
async fn a_gateway_that_refuses_what_a_restarted_control_plane_has_takes_part_again_with_its_last_snapshot() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    gateway.refuses.store(true, Ordering::SeqCst);
    let address = control.address.to_string();
    control.stop.cancel();
    drop(control);
    let again = until_bound(&address).await;
    again.publish(9);
    let recorded = again.subscriber(Kind::Gateway, |subscriber| subscriber.last_nack.is_some()).await;
    assert_eq!(recorded.acked_revision, 1, "what it brought along");
    assert_eq!(addresses(&Stream::endpoints(&again).await.next().await), 1);
}

/// As after the restore of an older database.
#[tokio::test]
async fn an_older_snapshot_is_not_sent_and_the_subscribers_show_it() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    control.publish(9);
    gateway.has(9).await;
    let address = control.address.to_string();
    control.stop.cancel();
    drop(control);
    let restored = until_bound(&address).await;
    let mut envoy = Stream::extension_configs_from(&restored, "9-07070707").await;
    assert!(envoy.is_silent().await, "the filter would acknowledge it and not apply it");
    for kind in [Kind::Edge, Kind::Gateway] {
        let recorded = restored.subscriber(kind, |subscriber| subscriber.last_nack.is_some()).await;
        assert_eq!(recorded.acked_revision, 9, "{kind:?}");
        let reason = recorded.last_nack.unwrap().reason;
        assert!(reason.contains("revision 1 is older than revision 9"), "{reason}");
    }
    assert_eq!(addresses(&Stream::endpoints(&restored).await.next().await), 1, "it serves on");
    restored.publish(10);
    assert_eq!(envoy.next().await.version_info, "10-07070707");
    gateway.has(10).await;
}

/// An authority and what it signed, as PEM files.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority {
            issuer: rcgen::Issuer::new(parameters, key),
            pem,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Files of a process with this role and address, which trusts `authority`.
    fn files(&self, role: Role, address: &str, authority: &Authority) -> PeerFiles {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), address.to_owned()];
        let names = if role == Role::Gateway { names[1..].to_vec() } else { names };
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        let uri = format!("spiffe://example.org/asp/{role}/test").try_into().unwrap();
        parameters.subject_alt_names.push(rcgen::SanType::URI(uri));
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let file = |name: &str, text: String| {
            let path = self.directory.path().join(format!("{role}-{address}-{name}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        PeerFiles {
            certificate: file("cert.pem", certificate.pem()),
            key: file("key.pem", key.serialize_pem()),
            authority: file("ca.pem", authority.pem.clone()),
        }
    }

    fn peer(&self, role: Role, address: &str, authority: &Authority) -> Peer {
        Peer::open(self.files(role, address, authority), role).unwrap()
    }
}

#[tokio::test]
async fn with_peer_certificates_only_the_platforms_own_processes_subscribe() {
    let own = Authority::new();
    let foreign = Authority::new();
    let here = "127.0.0.1";
    let control = Control::start_at("127.0.0.1:0", Some(own.peer(Role::Control, here, &own))).await;
    let url = format!("https://{}", control.address);
    let start = |advertise: &str, peer: Peer| Gateway::start_as(url.clone(), advertise, Some(peer));
    let refused = [
        start("127.0.0.1:4712", foreign.peer(Role::Gateway, here, &own)),
        Gateway::start_as(control.url(), "127.0.0.1:4713", None),
        start("127.0.0.1:4714", own.peer(Role::Envoy, here, &own)),
        start("127.0.0.1:4715", own.peer(Role::Runtime, here, &own)),
        start("127.0.0.1:4716", own.peer(Role::Gateway, "127.0.0.2", &own)),
    ];
    let gateway = start("127.0.0.1:4711", own.peer(Role::Gateway, here, &own));
    let named = start("127.0.0.1:4717", own.peer(Role::Gateway, "localhost", &own));
    gateway.has(1).await;
    named.has(1).await;
    control.publish(2);
    gateway.has(2).await;
    for (number, impostor) in refused.iter().enumerate() {
        assert!(impostor.applied.lock().is_empty(), "{number}");
    }
    let served = control.handle.world().borrow().endpoints.clusters.clone();
    let served: Vec<String> = served["gateway"].iter().map(ToString::to_string).collect();
    assert_eq!(served, ["127.0.0.1:4711", "127.0.0.1:4717"]);
}

/// A request of a gateway, as its certificate would let it begin.
fn of_gateway(advertise: &str, version: &str) -> DiscoveryRequest {
    let text = |text: &str| text_value(text);
    let fields = [("advertise".to_owned(), text(advertise)), ("pool".to_owned(), text("gateway"))];
    let metadata = Some(Struct { fields: fields.into() });
    DiscoveryRequest {
        node: Some(Node { id: "gateway-1".into(), metadata, ..Node::default() }),
        type_url: Kind::Gateway.type_url().into(),
        version_info: version.into(),
        ..DiscoveryRequest::default()
    }
}

fn text_value(text: &str) -> Value {
    Value { kind: Some(value::Kind::StringValue(text.to_owned())) }
}

#[tokio::test]
async fn a_stream_keeps_the_address_that_its_first_request_was_authorised_for() {
    let control = Control::start().await;
    let victim = Gateway::start(&control, "127.0.0.1:4711");
    victim.has(1).await;
    let mut client = AggregatedDiscoveryServiceClient::connect(control.url()).await.unwrap();
    let (requests, receiver) = mpsc::channel(8);
    requests.send(of_gateway("127.0.0.1:4712", "")).await.unwrap();
    let stream = client.stream_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap();
    let mut pushes = stream.into_inner();
    tokio::time::timeout(GUARD, pushes.message()).await.unwrap().unwrap().unwrap();
    requests.send(of_gateway("127.0.0.1:4711", "1-07070707")).await.unwrap();
    let ended = tokio::time::timeout(GUARD, pushes.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), tonic::Code::PermissionDenied);
    let served = control.handle.world().borrow().endpoints.clusters.clone();
    assert_eq!(served["gateway"].len(), 1, "neither hijacked nor withdrawn: {served:?}");
}

#[tokio::test]
async fn a_gateway_takes_snapshots_of_a_control_plane_only() {
    let own = Authority::new();
    for (role, taken) in [(Role::Gateway, false), (Role::Control, true)] {
        let control = Control::start_at("127.0.0.1:0", Some(own.peer(role, "localhost", &own))).await;
        let url = format!("https://{}", control.address);
        let peer = own.peer(Role::Gateway, "127.0.0.1", &own);
        let gateway = Gateway::start_as(url, "127.0.0.1:4711", Some(peer));
        if taken {
            gateway.has(1).await;
        } else {
            // Long enough for several attempts.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(gateway.applied.lock().is_empty(), "{role}");
        }
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on_and_a_broken_one_is_not() {
    let own = Authority::new();
    let next = Authority::new();
    let files = own.files(Role::Control, "localhost", &own);
    let control = Peer::open(files.clone(), Role::Control).unwrap();
    let control = Control::start_at("127.0.0.1:0", Some(control)).await;
    let url = format!("https://{}", control.address);
    let start = |authority: &Authority, port: u16| {
        let peer = authority.peer(Role::Gateway, "127.0.0.1", authority);
        Gateway::start_as(url.clone(), &format!("127.0.0.1:{port}"), Some(peer))
    };
    start(&own, 4711).has(1).await;
    std::fs::write(&files.certificate, "half a fi").unwrap();
    start(&own, 4712).has(1).await;
    let renewed = next.files(Role::Control, "localhost", &next);
    std::fs::copy(&renewed.key, &files.key).unwrap();
    std::fs::copy(&renewed.authority, &files.authority).unwrap();
    std::fs::copy(&renewed.certificate, &files.certificate).unwrap();
    start(&next, 4713).has(1).await;
}
