//! Streams that open while something ends, and the events that wake them (I-4, I-5).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use asp_proto::snapshot::{GatewaySnapshot, RevokedBefore};
use asp_snapshot::Snapshot;
use futures::FutureExt;
use serde_json::{Value, json};

use super::{PROMPTS, Stream, TOOLS, at, connect, deny};
use crate::support::{Fixture, Legacy, now};

/// Puts a snapshot in force for those who are told of changes, and not yet, or no more, for requests.
async fn evaluate(fixture: &Fixture, snapshot: GatewaySnapshot) {
    let snapshot = Arc::new(Snapshot::build(snapshot).unwrap());
    fixture.gateway.subscriptions.apply(&snapshot);
    settle().await;
}

/// Lets the tasks run that can: of one thread, and none of them waits for anything outside.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_that_opens_while_its_token_is_revoked_ends() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    drop(Stream::open(&alice).await);
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now(),
        ..Default::default()
    };
    evaluate(&fixture, at(2, |i| i.revoked_before = vec![revoked])).await;
    // Its request was admitted before.
    assert_eq!(Stream::open(&alice).await.next().await, None);
}

/// Subscriptions of one session: so many that its evaluation is as long as one may be before others get the thread.
const MANY: usize = 300;

/// A session that subscribed to many resources, and its stream.
async fn listens(fixture: &Fixture, user: &str) -> Stream {
    let client = Legacy::connect(fixture, "demo", user, "2025-03-26", json!({})).await;
    let numbers: Vec<usize> = (0..MANY).collect();
    for some in numbers.chunks(50) {
        let subscribe = |number: &usize| {
            let params = json!({"uri": format!("demo://items/{number}")});
            json!({"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": params})
        };
        let batch: Value = some.iter().map(subscribe).collect();
        let answer = client.post(&batch).await.json();
        assert!(answer.as_array().unwrap().iter().all(|one| one["result"] == json!({})), "{answer}");
    }
    Stream::open(&client).await
}

#[tokio::test]
async fn streams_of_dead_tokens_end_before_anybody_is_evaluated() {
    let fixture = Fixture::new();
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(listens(&fixture, "alice").await);
    }
    let mut bobs = listens(&fixture, "bob").await;
    settle().await;
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now(),
        ..Default::default()
    };
    fixture.gateway.apply(at(2, |i| i.revoked_before = vec![revoked])).unwrap();
    // One turn of each task, in which one session is evaluated.
    tokio::task::yield_now().await;
    for stream in &mut streams {
        assert_eq!(stream.next().now_or_never(), Some(None));
    }
    assert_eq!(bobs.next().now_or_never(), None, "whose token is not dead");
}

#[tokio::test]
async fn an_evaluation_by_an_older_snapshot_ends_nobody() {
    let fixture = Fixture::new();
    fixture.gateway.apply(at(5, |_| {})).unwrap();
    let alice = connect(&fixture, "alice").await;
    let bob = connect(&fixture, "bob").await;
    let mut alices = Stream::open(&alice).await;
    let older = at(2, |i| i.servers.retain(|server| server.server.name != "demo"));
    evaluate(&fixture, older).await;
    let mut bobs = Stream::open(&bob).await;
    fixture.gateway.apply(at(6, |i| deny(i, "clock", &["alice", "bob"]))).unwrap();
    assert_eq!(alices.method().await, TOOLS, "who was there");
    assert_eq!(bobs.method().await, TOOLS, "who came since");
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_has_not_been_slow_while_away() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let mut stream = Stream::open(&alice).await;
    let change = |i: &mut asp_registry::Inputs| {
        deny(i, "clock", &["alice"]);
        deny(i, "greeting", &["alice"]);
    };
    fixture.gateway.apply(at(2, change)).unwrap();
    assert_eq!(stream.method().await, TOOLS);
    drop(stream);
    tokio::time::advance(Duration::from_secs(61)).await;
    let mut stream = Stream::open(&alice).await;
    fixture.gateway.subscriptions.sweep();
    assert_eq!(stream.method().await, PROMPTS);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_stream_that_nothing_concerns_is_not_woken() {
    let fixture = Fixture::new();
    let alice = connect(&fixture, "alice").await;
    let bob = connect(&fixture, "bob").await;
    let mut alices = Stream::open(&alice).await;
    let mut bobs = Stream::open(&bob).await;
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut next = pin!(alices.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    fixture.gateway.apply(at(2, |i| deny(i, "clock", &["bob"]))).unwrap();
    assert_eq!(bobs.method().await, TOOLS);
    settle().await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    fixture.gateway.apply(at(3, |i| deny(i, "clock", &["alice"]))).unwrap();
    assert_eq!(next.await.unwrap()["method"], TOOLS);
}
