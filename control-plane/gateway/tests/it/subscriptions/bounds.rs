//! Limits of a gateway's resources for subscribers to changes (I-4).

use asp_pipeline::subscriptions::{Quota, Quotas, SubscriptionBounds};
use http::StatusCode;
use serde_json::{Value, json};

use super::{PROMPTS, Stream, TOOLS, UPDATED, at, deny, get, rewrite, subscribe};
use crate::support::{Fixture, Legacy, Modern, token};

const FEW: Quotas = Quotas { whole: Quota::of(4), of_org: Quota::of(3), of_user: Quota::of(2) };

fn listen(server: &str, user: &str) -> Modern {
    let filter = json!({"notifications": {"toolsListChanged": true}});
    Modern::new(server, &token(user), "subscriptions/listen", filter)
}

async fn session(fixture: &Fixture, user: &str) -> Legacy {
    Legacy::connect(fixture, "demo", user, "2025-11-25", json!({})).await
}

#[tokio::test]
async fn a_user_and_an_org_have_a_bounded_number_of_streams_of_both_eras() {
    let fixture =
        Fixture::listened_to_by(SubscriptionBounds { streams: FEW, ..SubscriptionBounds::default() });
    let alice = session(&fixture, "alice").await;
    let first = get(&alice).await;
    let second = listen("demo", "alice").open(&fixture).await;
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let third = get(&alice).await;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    let third = listen("demo", "alice").open(&fixture).await;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    let bobs = listen("demo", "bob").open(&fixture).await;
    assert_eq!(bobs.status(), StatusCode::OK);
    let of_org = listen("demo", "bob").open(&fixture).await;
    assert_eq!(of_org.status(), StatusCode::TOO_MANY_REQUESTS, "a fourth of the org");
    assert_eq!(fixture.gateway.subscriptions.len(), 3, "what is refused leaves nothing");
    drop(second);
    let third = get(&alice).await;
    assert_eq!(third.status(), StatusCode::OK, "a stream that is gone gives its place back");
}

#[tokio::test]
async fn a_session_without_a_stream_makes_room_and_one_with_a_stream_does_not() {
    let fixture =
        Fixture::listened_to_by(SubscriptionBounds { subscribers: FEW, ..SubscriptionBounds::default() });
    let listening = session(&fixture, "alice").await;
    let mut stream = Stream::open(&listening).await;
    for _ in 0..3 {
        // The one before has no stream any more; the oldest has.
        drop(Stream::open(&session(&fixture, "alice").await).await);
    }
    assert_eq!(fixture.gateway.subscriptions.len(), 2);
    let another = Stream::open(&session(&fixture, "alice").await).await;
    let full = get(&session(&fixture, "alice").await).await;
    assert_eq!(full.status(), StatusCode::TOO_MANY_REQUESTS, "all have a stream");
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["alice"]))).unwrap();
    assert_eq!(stream.method().await, TOOLS);
    drop(another);
}

#[tokio::test]
async fn what_all_sessions_of_a_user_watch_takes_a_bounded_number_of_bytes() {
    // Two resources with short URIs.
    let quota = |bytes| Quota { entries: 100, bytes };
    let subscribers = Quotas { whole: quota(10_000), of_org: quota(10_000), of_user: quota(600) };
    let fixture =
        Fixture::listened_to_by(SubscriptionBounds { subscribers, ..SubscriptionBounds::default() });
    let mut streams = Vec::new();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = session(&fixture, "alice").await;
        streams.push(Stream::open(&session).await);
        sessions.push(session);
    }
    let [one, two, three] = &sessions[..] else { panic!("three") };
    assert_eq!(subscribe(one, "demo://about").await["result"], json!({}));
    assert_eq!(subscribe(two, "demo://about").await["result"], json!({}));
    let full = subscribe(three, "demo://about").await;
    assert_eq!(full["error"]["data"]["reason"], "rate_limited", "{full}");
    assert_eq!(subscribe(one, "demo://about").await["result"], json!({}), "it has this one");
    let bob = session(&fixture, "bob").await;
    assert_eq!(subscribe(&bob, "demo://about").await["result"], json!({}), "others have their own");
    let gone: Value = two.request(21, "resources/unsubscribe", json!({"uri": "demo://about"})).await.json();
    assert_eq!(gone["result"], json!({}));
    assert_eq!(subscribe(three, "demo://about").await["result"], json!({}));
    fixture.gateway.apply(at(2, rewrite)).unwrap();
    assert_eq!(streams[0].method().await, UPDATED);
    assert_eq!(streams[2].method().await, UPDATED);
    fixture.gateway.apply(at(3, |i| deny(i, "greeting", &["alice"]))).unwrap();
    assert_eq!(streams[1].method().await, PROMPTS, "nothing of what it unsubscribed from");
}
