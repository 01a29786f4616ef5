//! Streams of what changed.

use serde_json::{Value, json};

use super::{Event, REVISIONS, Stream, back, connect, get};
use crate::subscriptions::{PROMPTS, RESOURCES, TOOLS, UPDATED, at, deny, rewrite};
use crate::support::{Fixture, Legacy};

async fn listen(client: &Legacy) -> Stream {
    Stream::of(get(client, &client.fixture, None).await)
}

async fn told(stream: &mut Stream) -> (String, Event) {
    let event = stream.message().await;
    (event.message()["method"].as_str().unwrap().to_owned(), event)
}

async fn subscribe(client: &Legacy, uri: &str) {
    let answer = client.request(20, "resources/subscribe", json!({"uri": uri})).await.json();
    assert_eq!(answer["result"], json!({}), "{answer}");
}

#[tokio::test]
async fn what_was_told_after_the_last_event_a_client_got_is_told_again_and_nothing_else() {
    let fixture = Fixture::new();
    for (round, revision) in (0_u64..).zip(REVISIONS) {
        let client = connect(&fixture, "alice", revision).await;
        subscribe(&client, "demo://about").await;
        let mut stream = listen(&client).await;
        let first = 10 * round + 2;
        fixture.gateway.apply(at(first, |i| deny(i, "clock", &["alice"]))).unwrap();
        let (method, tools) = told(&mut stream).await;
        assert_eq!(method, TOOLS);
        let change = |i: &mut asp_registry::Inputs| {
            deny(i, "clock", &["alice"]);
            deny(i, "greeting", &["alice"]);
            rewrite(i);
        };
        fixture.gateway.apply(at(first + 1, change)).unwrap();
        let (method, prompts) = told(&mut stream).await;
        assert_eq!(method, PROMPTS);
        assert_eq!(told(&mut stream).await.0, UPDATED);
        // The last one was on its way when the stream was cut.
        let mut again = back(&client, &prompts.id()).await;
        assert_eq!(told(&mut again).await.0, UPDATED);
        assert_eq!(stream.next().await, None, "the other stream is not the client's any more");
        // The last two were.
        let mut again = back(&client, &tools.id()).await;
        assert_eq!(told(&mut again).await.0, PROMPTS);
        let (method, updated) = told(&mut again).await;
        assert_eq!(method, UPDATED);
        // It got all: the next one is what changes next.
        let mut again = back(&client, &updated.id()).await;
        fixture.gateway.apply(at(first + 2, |_| {})).unwrap();
        assert_eq!(told(&mut again).await.0, TOOLS);
    }
}

#[tokio::test]
async fn a_stream_of_2025_11_25_can_be_come_back_to_before_it_has_told_anything() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let primer = listen(&client).await.next().await.unwrap();
    assert_eq!(primer.message, None);
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["alice"]))).unwrap();
    let mut stream = back(&client, &primer.id()).await;
    assert_eq!(told(&mut stream).await.0, TOOLS);
    let old = connect(&fixture, "alice", "2025-06-18").await;
    let mut stream = listen(&old).await;
    fixture.gateway.apply(at(3, |_| {})).unwrap();
    assert_eq!(
        stream.next().await.unwrap().message()["method"],
        TOOLS,
        "an empty event would be a broken one"
    );
}

#[tokio::test]
async fn what_another_stream_of_the_session_told_is_not_told_again() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let mut first = listen(&client).await;
    let primer = first.next().await.unwrap();
    let second = listen(&client).await;
    drop(first);
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["alice"]))).unwrap();
    let mut second = second;
    assert_eq!(told(&mut second).await.0, TOOLS);
    let mut again = back(&client, &primer.id()).await;
    drop(second);
    fixture
        .gateway
        .apply(at(3, |i| {
            deny(i, "clock", &["alice"]);
            deny(i, "greeting", &["alice"]);
        }))
        .unwrap();
    assert_eq!(told(&mut again).await.0, PROMPTS);
}

/// Invariant I-3.
#[tokio::test]
async fn where_nobody_knows_what_was_told_every_list_is() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let primer = listen(&client).await.next().await.unwrap();
    let other = Fixture::new();
    let mut stream = Stream::of(get(&client, &other, Some(&primer.id())).await);
    let mut all: Vec<Value> = Vec::new();
    for _ in 0..3 {
        all.push(told(&mut stream).await.0.into());
    }
    assert_eq!(all, [TOOLS, PROMPTS, RESOURCES]);
}
