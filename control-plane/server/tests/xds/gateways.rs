//! Gateways: endpoints from their first snapshot on, and reconnection to a restarted control plane.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use asp_proto::xds::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use asp_snapshot::PartFault;
use asp_xds::contract::Kind;
use asp_xds::degraded_items::DegradedItem;
use asp_xds::failing_upstreams::FailingUpstream;
use asp_xds::freshness::STALE;
use prost_types::{Struct, Value, value};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{Control, GUARD, Gateway, Stream, Way, addresses, first, mark, until, until_bound};

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

/// The first request on a new stream makes it an endpoint, which it does not know before the response.
#[tokio::test]
async fn a_gateway_that_ends_while_its_stream_opens_says_so() {
    let control = Control::start().await;
    let way = Way::start(&control).await;
    let gateway = Gateway::start_as(way.url(), "127.0.0.1:4711", None);
    gateway.has(1).await;
    control.serves(&["127.0.0.1:4711"]).await;
    way.broken.cancel();
    // It brings its snapshot along, and what is pushed to it waits.
    control.subscriber(Kind::Gateway, |again| again.acked_revision == 1 && again.ack_ms.is_none()).await;
    gateway.stop.cancel();
    way.mended.cancel();
    control.serves(&[]).await;
}

/// Between two streams it counts as lost, and so as an endpoint. One of the control planes is gone.
#[tokio::test]
async fn a_gateway_that_ends_while_it_has_no_stream_says_so_to_whom_it_reaches() {
    let control = Control::start().await;
    let way = Way::start(&control).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let controls = [way.url(), format!("http://{}", gone.local_addr().unwrap())];
    drop(gone);
    let gateway = Gateway::start_between(&controls, "127.0.0.1:4711", None);
    gateway.has(1).await;
    control.serves(&["127.0.0.1:4711"]).await;
    way.mended.cancel();
    way.broken.cancel();
    until(|| control.subscribers.list().is_empty().then_some(())).await;
    gateway.stop.cancel();
    control.serves(&[]).await;
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
async fn the_items_that_a_gateway_does_not_serve_as_accepted_are_shown_until_it_does() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    let degraded = DegradedItem {
        source: "http://tickets.internal/mcp".into(),
        item: "close".into(),
        state: "incompatible".into(),
        cause: String::new(),
    };
    gateway.degraded.lock().push(degraded.clone());
    let shown = control.subscriber(Kind::Gateway, |gateway| !gateway.degraded_items.is_empty()).await;
    assert_eq!(
        (shown.degraded_items, shown.failing_upstreams, shown.acked_revision),
        (vec![degraded], vec![], 1)
    );
    gateway.degraded.lock().clear();
    control.subscriber(Kind::Gateway, |gateway| gateway.degraded_items.is_empty()).await;
}

/// A new control plane learns of it with the gateway's first request.
#[tokio::test]
async fn the_upstreams_that_fail_at_a_gateway_are_shown_while_they_do() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    let failing = FailingUpstream {
        server: "shop".into(),
        origin: "https://shop.example".into(),
        breaker: "open".into(),
        failed_at: 7,
        cause: "the service answered 503".into(),
    };
    gateway.failing.lock().push(failing.clone());
    let shown = control.subscriber(Kind::Gateway, |gateway| !gateway.failing_upstreams.is_empty()).await;
    assert_eq!((shown.failing_upstreams, shown.acked_revision), (vec![failing], 1));
    let address = control.address.to_string();
    control.stop.cancel();
    drop(control);
    let again = until_bound(&address).await;
    again.subscriber(Kind::Gateway, |gateway| !gateway.failing_upstreams.is_empty()).await;
    gateway.failing.lock().clear();
    again.subscriber(Kind::Gateway, |gateway| gateway.failing_upstreams.is_empty()).await;
    again.publish(2);
    gateway.has(2).await;
}

/// Each control plane that the gateway follows learns which acknowledged parts are not in force.
#[tokio::test]
async fn the_parts_that_a_gateway_could_not_apply_are_shown_until_it_can() {
    let control = Control::start().await;
    let gateway = Gateway::start(&control, "127.0.0.1:4711");
    gateway.has(1).await;
    let fault = PartFault { reason: "bad schema".into(), in_force: "its last form" };
    *gateway.refused.lock() = Arc::new([("server/demo".to_owned(), fault)].into());
    control.publish(2);
    let shown = control.subscriber(Kind::Gateway, |gateway| gateway.refused_parts_count == 1).await;
    assert_eq!((shown.acked_revision, shown.last_nack), (2, None));
    let part = &shown.refused_parts[0];
    assert_eq!(part.name, "server/demo");
    assert_eq!(part.reason, "bad schema; in force: its last form");
    let address = control.address.to_string();
    control.stop.cancel();
    drop(control);
    let again = until_bound(&address).await;
    let brought = again.subscriber(Kind::Gateway, |gateway| gateway.refused_parts_count == 1).await;
    assert_eq!((brought.acked_revision, brought.ack_ms), (2, None), "it says so when it comes");
    *gateway.refused.lock() = Arc::default();
    again.publish(3);
    let mended = again.subscriber(Kind::Gateway, |gateway| gateway.acked_revision == 3).await;
    assert_eq!((mended.refused_parts_count, mended.refused_parts.len()), (0, 0));
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

/// The revision falls, as after the restore of an older database.
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

/// Two control planes, and a gateway that follows the first of them.
async fn followed_and_other() -> (Control, Control, Gateway) {
    let (one, other) = (Control::start().await, Control::start().await);
    for control in [&one, &other] {
        let xds_state = control.handle.xds_state();
        until(|| xds_state.borrow().snapshot.is_some().then_some(())).await;
    }
    let gateway = Gateway::start_between(&[one.url(), other.url()], "127.0.0.1:4711", None);
    gateway.has(1).await;
    match one.is_followed() {
        true => (one, other, gateway),
        false => (other, one, gateway),
    }
}

#[tokio::test]
async fn a_gateway_leaves_a_control_plane_that_cannot_read_its_store_for_one_that_can() {
    let (followed, other, gateway) = followed_and_other().await;
    followed.serves(&["127.0.0.1:4711"]).await;
    followed.cut_store(true);
    other.subscriber(Kind::Gateway, |gateway| gateway.acked_revision == 1).await;
    until(|| (!followed.is_followed()).then_some(())).await;
    other.publish(2);
    gateway.has(2).await;
    other.serves(&["127.0.0.1:4711"]).await;
}

/// Each of them has a store of its own in this test: the followed one does not learn of publications of the other.
#[tokio::test]
async fn a_gateway_takes_revocations_from_a_control_plane_that_it_does_not_follow() {
    let (followed, other, gateway) = followed_and_other().await;
    other.publish(2);
    let both = [mark(1), mark(2)].concat();
    until(|| (*gateway.revoked.lock() == both).then_some(())).await;
    assert!(followed.is_followed() && !other.is_followed());
    followed.publish(3);
    gateway.has(3).await;
    assert_eq!(*gateway.revoked.lock(), mark(3), "the followed one has come to it");
}

#[tokio::test]
async fn a_gateway_stays_where_no_other_control_plane_is_fresher() {
    let (followed, other, gateway) = followed_and_other().await;
    for control in [&other, &followed] {
        control.cut_store(true);
        let freshness = control.handle.freshness();
        until(|| freshness.is_stale().then_some(())).await;
    }
    until(|| (followed.handle.freshness().age() >= STALE * 2).then_some(())).await;
    assert!(followed.is_followed() && !other.is_followed(), "it is served by what it has");
    followed.cut_store(false);
    followed.publish(2);
    gateway.has(2).await;
    assert!(followed.is_followed() && !other.is_followed());
}

/// A request of a gateway, as its certificate would let it begin.
fn of_gateway(advertise: &str) -> DeltaDiscoveryRequest {
    let fields =
        [("advertise".to_owned(), text_value(advertise)), ("pool".to_owned(), text_value("gateway"))];
    let metadata = Some(Struct { fields: fields.into() });
    DeltaDiscoveryRequest {
        node: Some(Node { id: "gateway-1".into(), metadata, ..Node::default() }),
        type_url: Kind::Gateway.type_url().into(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn text_value(text: &str) -> Value {
    Value { kind: Some(value::Kind::StringValue(text.to_owned())) }
}

/// Its work on a snapshot hangs.
#[tokio::test]
async fn a_gateway_that_does_not_answer_gets_no_new_requests_until_it_does() {
    let control = Control::start().await;
    let current = Gateway::start(&control, "127.0.0.1:4711");
    current.has(1).await;
    let mut client = AggregatedDiscoveryServiceClient::new(control.channel().await);
    let (requests, receiver) = mpsc::channel(8);
    let mut first = of_gateway("127.0.0.1:4712");
    let node = first.node.as_mut().unwrap();
    node.metadata.as_mut().unwrap().fields.insert("version".into(), text_value("1-00000000"));
    requests.send(first).await.unwrap();
    let stream = client.delta_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap();
    let mut pushes = stream.into_inner();
    let push = tokio::time::timeout(GUARD, pushes.message()).await.unwrap().unwrap().unwrap();
    control.serves(&["127.0.0.1:4711", "127.0.0.1:4712"]).await;
    control.serves(&["127.0.0.1:4711"]).await;
    let late = control.subscribers.list().into_iter().filter(|subscriber| subscriber.is_overdue()).count();
    assert_eq!(late, 1);
    let answer =
        DeltaDiscoveryRequest { node: None, response_nonce: push.nonce, ..of_gateway("127.0.0.1:4712") };
    requests.send(answer).await.unwrap();
    control.serves(&["127.0.0.1:4711", "127.0.0.1:4712"]).await;
}

#[tokio::test]
async fn a_stream_keeps_the_address_that_its_first_request_was_authorised_for() {
    let control = Control::start().await;
    let victim = Gateway::start(&control, "127.0.0.1:4711");
    victim.has(1).await;
    control.serves(&["127.0.0.1:4711"]).await;
    let mut client = AggregatedDiscoveryServiceClient::new(control.channel().await);
    let (requests, receiver) = mpsc::channel(8);
    requests.send(of_gateway("127.0.0.1:4712")).await.unwrap();
    let stream = client.delta_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap();
    let mut pushes = stream.into_inner();
    tokio::time::timeout(GUARD, pushes.message()).await.unwrap().unwrap().unwrap();
    requests.send(of_gateway("127.0.0.1:4711")).await.unwrap();
    let ended = tokio::time::timeout(GUARD, pushes.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), tonic::Code::PermissionDenied);
    control.serves(&["127.0.0.1:4711"]).await;
}

#[tokio::test]
async fn without_a_certificate_a_gateway_leads_no_requests_away_from_this_machine() {
    let control = Control::start().await;
    let strangers = ["203.0.113.9:80", "10.1.2.3:4711", "[2001:db8::1]:80", "0.0.0.0:4711"]
        .map(|address| Gateway::start(&control, address));
    let own = [Gateway::start(&control, "127.0.0.1:4711"), Gateway::start(&control, "[::1]:4712")];
    for gateway in &own {
        gateway.has(1).await;
    }
    control.serves(&["127.0.0.1:4711", "[::1]:4712"]).await;
    control.publish(2);
    for gateway in &own {
        gateway.has(2).await;
    }
    for stranger in &strangers {
        assert!(stranger.applied.lock().is_empty(), "it gets no policy either");
    }
    control.serves(&["127.0.0.1:4711", "[::1]:4712"]).await;
}
