//! The protocol's cases, without a network.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations};
use asp_proto::xds::google::rpc::Status;

use super::*;
use crate::parts::Parts;
use crate::published::Content;

fn xds_state(revision: u64) -> XdsState {
    let content = Content {
        revision,
        edge: Arc::new(EdgeSnapshot { revision, digest: vec![1; 32], ..EdgeSnapshot::default() }),
        recent: Arc::new(RecentRevocations::default()),
        gateway: Parts::default(),
        changed: BTreeSet::new(),
    };
    let snapshot = published::publish(content, None, "/f.wasm").map(Arc::new);
    XdsState { snapshot, covers: revision, ..XdsState::default() }
}

fn first() -> DiscoveryRequest {
    DiscoveryRequest { resource_names: vec!["asp-edge".into()], ..DiscoveryRequest::default() }
}

fn answer(push: &DiscoveryResponse, error: Option<&str>) -> DiscoveryRequest {
    DiscoveryRequest {
        response_nonce: push.nonce.clone(),
        version_info: push.version_info.clone(),
        error_detail: error.map(|text| Status { code: 3, message: text.into() }),
        ..first()
    }
}

#[test]
fn a_subscriber_gets_the_current_version_at_once_and_each_new_one_after_its_answer() {
    let mut subscription = Subscription::new(Kind::Edge);
    assert_eq!(subscription.on_request(first()), Event::Subscribed);
    let one = subscription.next_push(&xds_state(1)).unwrap();
    assert_eq!((one.version_info.as_str(), one.resources.len()), ("1-01010101", 1));

    assert!(subscription.next_push(&xds_state(2)).is_none(), "one push is outstanding");
    assert_eq!(subscription.on_request(answer(&one, None)), Event::Acknowledged { revision: 1 });
    assert!(subscription.next_push(&xds_state(1)).is_none(), "nothing new");
    let three = subscription.next_push(&xds_state(3)).unwrap();
    assert_eq!(three.version_info, "3-01010101", "the versions between are skipped");
}

#[test]
fn a_rejected_version_is_not_sent_again_but_the_next_one_is() {
    let mut subscription = Subscription::new(Kind::Edge);
    subscription.on_request(first());
    let one = subscription.next_push(&xds_state(1)).unwrap();
    assert_eq!(
        subscription.on_request(answer(&one, Some("bad schema"))),
        Event::Rejected { revision: 1, reason: "bad schema".into() }
    );
    assert!(subscription.next_push(&xds_state(1)).is_none());
    assert!(subscription.next_push(&xds_state(2)).is_some());
}

#[test]
fn an_answer_to_an_older_push_is_ignored() {
    let mut subscription = Subscription::new(Kind::Edge);
    subscription.on_request(first());
    let one = subscription.next_push(&xds_state(1)).unwrap();
    subscription.on_request(answer(&one, None));
    subscription.next_push(&xds_state(2)).unwrap();
    assert_eq!(subscription.on_request(answer(&one, Some("late"))), Event::Ignored);
    assert!(subscription.next_push(&xds_state(3)).is_none(), "push 2 is still unanswered");
}

#[test]
fn other_names_are_answered_with_the_same_version() {
    let mut subscription = Subscription::new(Kind::Edge);
    subscription.on_request(DiscoveryRequest { resource_names: vec!["other".into()], ..first() });
    let empty = subscription.next_push(&xds_state(1)).unwrap();
    assert_eq!(empty.resources.len(), 0, "a name nobody has");
    subscription
        .on_request(DiscoveryRequest { resource_names: vec!["other".into()], ..answer(&empty, None) });
    let more =
        DiscoveryRequest { resource_names: vec!["other".into(), "asp-edge".into()], ..answer(&empty, None) };
    assert_eq!(subscription.on_request(more), Event::Subscribed);
    assert_eq!(subscription.next_push(&xds_state(1)).unwrap().resources.len(), 1);
}

#[test]
fn a_reconnect_with_an_old_nonce_gets_a_full_push() {
    let mut subscription = Subscription::new(Kind::Edge);
    let request =
        DiscoveryRequest { version_info: "1-01010101".into(), response_nonce: "edge-9".into(), ..first() };
    assert_eq!(subscription.on_request(request), Event::Subscribed);
    assert!(subscription.next_push(&xds_state(1)).is_some());
}

/// Invariant I-4: what others send.
#[test]
fn what_a_subscriber_sends_is_bounded() {
    let mut subscription = Subscription::new(Kind::Edge);
    let names = vec!["x".to_owned(); MAX_NAMES + 1];
    assert_eq!(
        subscription.on_request(DiscoveryRequest { resource_names: names, ..first() }),
        Event::TooMany
    );
    subscription.on_request(first());
    let push = subscription.next_push(&xds_state(1)).unwrap();
    let Event::Rejected { reason, .. } = subscription.on_request(answer(&push, Some(&"ü".repeat(5_000))))
    else {
        panic!("a rejection");
    };
    assert!(reason.len() <= MAX_REASON);
}

#[test]
fn before_the_first_snapshot_nothing_is_pushed() {
    let mut subscription = Subscription::new(Kind::Edge);
    subscription.on_request(first());
    assert!(subscription.next_push(&XdsState::default()).is_none());
    assert!(subscription.next_push(&xds_state(1)).is_some());
}
