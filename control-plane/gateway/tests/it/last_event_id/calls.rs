//! Streams that answer requests.

use asp_call::call::event::{Event as CallEvent, LogLevel};
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{LogLine, log_line};
use asp_runtime_client::runtimes::Runtimes;
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Event, REVISIONS, Stream, back, connect, count, get, refused};
use crate::plugin::{asks_name, until, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Legacy, Modern, snapshot};

/// The messages of events that have any.
fn messages(events: &[Event]) -> Vec<Value> {
    events.iter().filter_map(|event| event.message.clone()).collect()
}

/// Returns the messages expected by a client that counts to `to`.
fn counted(to: u64, revision: &str) -> Vec<Value> {
    let progress = |n: u64| {
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p",
               "progress": n, "total": to, "message": format!("counted {n} of {to}")}})
    };
    let text = json!({"counted": to}).to_string();
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": false});
    if revision != "2025-03-26" {
        result["structuredContent"] = json!({"counted": to});
    }
    let last = json!({"jsonrpc": "2.0", "id": "count-1", "result": result});
    (1..=to).map(progress).chain([last]).collect()
}

#[tokio::test]
async fn a_stream_that_is_cut_twenty_times_brings_each_message_once() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = Fixture::new();
    for revision in REVISIONS {
        let client = connect(&fixture, "alice", revision).await;
        let mut stream = Stream::of(client.open(&count(60, 1)).await);
        let mut got = Vec::new();
        for _cut in 0..20 {
            // With an event that the client has: without any it cannot come back.
            for _ in 0..random.random_range(1..=3) {
                got.push(stream.next().await.expect("sixty numbers are not told in twenty parts"));
            }
            stream = back(&client, &got.last().unwrap().id()).await;
        }
        got.extend(stream.rest().await);
        assert_eq!(messages(&got), counted(60, revision), "{revision}, seed {seed}");
        let mut ids: Vec<String> = got.iter().map(Event::id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), got.len(), "no id comes twice");
    }
}

#[tokio::test]
async fn after_each_event_the_rest_comes_again_also_when_the_call_has_ended() {
    let fixture = Fixture::new();
    for revision in REVISIONS {
        let client = connect(&fixture, "alice", revision).await;
        let all = Stream::of(client.open(&count(5, 1)).await).rest().await;
        let primed = usize::from(revision == "2025-11-25");
        assert_eq!(all.len(), 6 + primed);
        assert_eq!(all[0].message.is_none(), primed == 1, "{revision}: what comes first");
        for (n, event) in all.iter().enumerate().take(all.len() - 1) {
            let rest = back(&client, &event.id()).await.rest().await;
            assert_eq!(messages(&rest), messages(&all[n + 1..]), "{revision}, after {n}");
            assert_eq!(rest[0].message.is_none(), primed == 1);
        }
        let done = refused(&client, &fixture, &all.last().unwrap().id()).await;
        assert_eq!(
            (done.status.as_u16(), done.text.as_str()),
            (204, ""),
            "nothing is left: do not come back"
        );
    }
}

#[tokio::test]
async fn what_has_no_session_has_no_event_ids() {
    let fixture = Fixture::new();
    let mut client = connect(&fixture, "alice", "2025-11-25").await;
    let mut params = count(3, 1)["params"].clone();
    params["_meta"] = json!({});
    let mut modern = Modern::new("demo", &client.token, "tools/call", params);
    modern.body["params"]["_meta"]["progressToken"] = "p".into();
    client.server = "conformance".into();
    client.session.clear();
    for answer in [modern.send(&fixture).await, client.post(&count(3, 1)).await] {
        assert_eq!(answer.events().len(), 4);
        assert!(!answer.text.contains("\nid:"), "{}", answer.text);
    }
}

/// A call that asks, and answers once it may.
fn asks() -> (Runtime, oneshot::Sender<()>) {
    let (script, go) = Script::until_told(move |mut worker: Worker, went| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        let answered = String::from_utf8(user_input(&mut worker).await.fields.unwrap().value).unwrap();
        assert_eq!(answered, r#"{"name":"Ada"}"#);
        went.await.unwrap();
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    (runtime, go)
}

const SWEEP: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"sweep","arguments":{}}}"#;

async fn sweeps(fixture: &Fixture) -> (Legacy, Value) {
    let can = json!({"elicitation": {}});
    let client = Legacy::connect(fixture, "plugins", "alice", "2025-11-25", can).await;
    (client, serde_json::from_str(SWEEP).unwrap())
}

#[tokio::test]
async fn an_open_question_is_put_again_under_its_id_to_who_may_not_have_got_it_and_not_to_who_has() {
    let (runtime, go) = asks();
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let (client, sweep) = sweeps(&fixture).await;
    let mut stream = Stream::of(client.open(&sweep).await);
    let primer = stream.next().await.unwrap();
    let asked = stream.message().await;
    assert_eq!(asked.message()["method"], "elicitation/create");
    let mut stream = back(&client, &primer.id()).await;
    let again = stream.message().await;
    assert_eq!(again.message(), asked.message());
    // Who has the question is told what comes after.
    let mut stream = back(&client, &again.id()).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked.message()["id"],
                        "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    go.send(()).unwrap();
    let last = stream.message().await;
    assert_eq!(
        (&last.message()["id"], &last.message()["result"]["structuredContent"]),
        (&json!(9), &json!({"ok": true}))
    );
    // Its answer is there: nobody is asked any more.
    let rest = back(&client, &primer.id()).await.rest().await;
    assert_eq!(messages(&rest), [last.message().clone()]);
}

#[tokio::test]
async fn a_stream_goes_to_who_came_back_last() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let mut first = Stream::of(client.open(&count(100, 20)).await);
    let primer = first.next().await.unwrap();
    let mut second = back(&client, &primer.id()).await;
    assert_eq!(second.message().await.message()["params"]["progress"], 1);
    let told = messages(&first.rest().await);
    assert!(
        told.len() < 100 && told.iter().all(|message| message.get("id").is_none()),
        "it ends without the answer"
    );
    let third = back(&client, &primer.id()).await;
    drop(second);
    assert_eq!(messages(&third.rest().await), counted(100, "2025-11-25"));
}

#[tokio::test]
async fn a_call_that_its_client_cancelled_says_nothing_more() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let mut stream = Stream::of(client.open(&count(100, 50)).await);
    let told = stream.message().await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "count-1"}});
    assert_eq!(client.post(&cancel).await.status.as_u16(), 202);
    until("the call has ended", || fixture.gateway.pipeline.internals().registry.running().is_empty()).await;
    let rest = stream.rest().await;
    let last = rest.last().unwrap_or(&told).id();
    assert_eq!(refused(&client, &fixture, &last).await.status.as_u16(), 204);
}

/// Invariant I-3.
#[tokio::test]
async fn another_gateway_tells_how_a_call_ended_whose_stream_broke() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let mut stream = Stream::of(client.open(&count(20, 20)).await);
    let primer = stream.next().await.unwrap();
    drop(stream);
    until("the call has ended", || fixture.gateway.pipeline.internals().registry.running().is_empty()).await;
    let other = fixture.beside(Runtimes::none());
    let rest = Stream::of(get(&client, &other, Some(&primer.id())).await).rest().await;
    assert_eq!(messages(&rest), [counted(20, "2025-11-25").pop().unwrap()]);
}

#[tokio::test]
async fn log_messages_that_are_gone_are_said_to_be_gone_and_the_rest_comes() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let mut stream = Stream::of(client.open(&count(100, 100)).await);
    let primer = stream.next().await.unwrap();
    drop(stream);
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    let logs = |level, range: std::ops::Range<u64>| {
        for n in range {
            call.emit(CallEvent::Log { level, logger: None, data: n.into() });
        }
    };
    logs(LogLevel::Debug, 0..300);
    let quiet = &messages(&Vec::from([back(&client, &primer.id()).await.message().await]))[0];
    assert_eq!(quiet["method"], "notifications/progress", "nobody wanted those: {quiet}");
    logs(LogLevel::Warning, 0..300);
    let mut stream = back(&client, &primer.id()).await;
    let mut seen = Vec::new();
    let mut lost = Vec::new();
    while seen.last() != Some(&json!(299)) {
        let event = stream.message().await;
        let params = event.message()["params"].clone();
        match params["logger"].as_str() {
            Some("asp") => {
                assert_eq!(params["level"], "warning");
                lost.push(event.id());
            }
            _ if params["level"] == "warning" => seen.push(params["data"].clone()),
            _ => {}
        }
    }
    assert_eq!(lost.len(), 1, "it is said once");
    assert!(
        seen.len() >= 250 && seen.windows(2).all(|pair| pair[1].as_u64() == pair[0].as_u64().map(|n| n + 1))
    );
    let next = back(&client, &lost[0]).await.message().await;
    assert_ne!(next.message()["params"]["logger"], "asp", "and not again to who knows");
    call.cancel();
}

#[tokio::test]
async fn a_quiet_stream_of_a_primitive_whose_clients_poll_is_closed_for_those_who_know_how_to() {
    for (revision, polls) in [("2025-11-25", true), ("2025-06-18", false)] {
        let (runtime, go) = says_and_waits();
        let mut snapshot = snapshot();
        snapshot.primitives.iter_mut().filter(|one| one.id == "sweep").for_each(|one| one.poll_stream = true);
        let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
        let client = Legacy::connect(&fixture, "plugins", "alice", revision, json!({})).await;
        let mut stream = Stream::of(client.open(&serde_json::from_str(SWEEP).unwrap()).await);
        let said = stream.message().await;
        if polls {
            let pause = stream.next().await.expect("it says that it closes");
            assert_eq!((pause.message.as_ref(), pause.retry), (None, Some(1000)));
            assert_eq!(stream.next().await, None);
            go.send(()).unwrap();
            let rest = back(&client, &pause.id()).await.rest().await;
            assert_eq!(messages(&rest)[0]["result"]["structuredContent"], json!({"ok": true}));
            assert_eq!(messages(&rest).len(), 1);
        } else {
            // Longer than a stream that is polled stays open.
            let quiet = tokio::time::timeout(std::time::Duration::from_secs(7), stream.next()).await;
            assert!(quiet.is_err(), "{quiet:?}");
            assert!(said.id.is_some());
            go.send(()).unwrap();
            assert_eq!(stream.message().await.message()["id"], 9);
        }
    }
}

/// Its client comes back for the rest, which the other gateway tells.
#[tokio::test]
async fn a_stream_ends_without_an_answer_where_another_gateway_goes_on_with_the_call() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let (runtime, _go) = says_and_waits();
        let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
        let client = Legacy::connect(&fixture, "plugins", "alice", revision, json!({})).await;
        let mut stream = Stream::of(client.open(&serde_json::from_str(SWEEP).unwrap()).await);
        stream.message().await;
        let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
        call.ownership.passed_on.set();
        call.cancel();
        assert_eq!(messages(&stream.rest().await), Vec::<Value>::new(), "{revision}");
    }
}

/// A call that logs, and answers once it may.
fn says_and_waits() -> (Runtime, oneshot::Sender<()>) {
    let (script, go) = Script::until_told(move |mut worker: Worker, went| async move {
        let invoke = worker.begin(&[]).await;
        let line = LogLine {
            request_id: invoke.request_id.clone(),
            level: log_line::Level::Info.into(),
            message: "working".into(),
            ..LogLine::default()
        };
        worker.say(Payload::Log(line)).await;
        went.await.unwrap();
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    (runtime, go)
}
