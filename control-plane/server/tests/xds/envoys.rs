//! Envoys: one push at a time, their records in the table of subscribers, and the end of their streams.

use asp_proto::control::FollowRequest;
use asp_proto::control::revocations_client::RevocationsClient;
use asp_xds::contract::Kind;
use tonic::Code;

use crate::support::{Control, Stream, until};

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

#[tokio::test]
async fn a_control_plane_that_stops_ends_its_streams_with_a_reason() {
    let control = Control::start().await;
    let mut envoy = Stream::extension_configs(&control).await;
    envoy.next().await;
    let mut gateway = RevocationsClient::new(control.channel().await);
    let mut lists = gateway.follow(FollowRequest {}).await.unwrap().into_inner();
    assert!(lists.message().await.unwrap().is_some());
    control.stop.cancel();
    for end in [envoy.end().await, lists.message().await.unwrap_err()] {
        assert_eq!((end.code(), end.message()), (Code::Unavailable, "this control plane ends"));
    }
}
