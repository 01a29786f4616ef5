//! Another primitive answers: a call of its own, as the same caller.

use std::sync::Arc;
use std::time::Duration;

use asp_backends::delegate::endpoint::Endpoints;
use asp_proto::plugin::{Completed, InvokeRequest, client_message, server_message::Payload};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{
    GatewaySnapshot, Listing, Mutation, OtherPrimitive, Primitive, Protocol, Runtime as Runs,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Once, asks, audited, read, sweep, told, with_delegate};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, denied_to_alice};

fn answered_by(id: &str) -> GatewaySnapshot {
    answered_by_version(id, None)
}

fn answered_by_version(id: &str, major: Option<u64>) -> GatewaySnapshot {
    with_delegate(|delegate| {
        delegate.question.clear();
        let other = OtherPrimitive { id: id.into(), major };
        delegate.runtime = Some(Runs { mode: Some(Mode::Primitive(other)) });
    })
}

/// The same, with later major versions of `order` beside the first.
fn answered_by_one_of_several(major: Option<u64>) -> GatewaySnapshot {
    let mut snapshot = answered_by_version("order", major);
    let first = snapshot.primitives.iter().find(|primitive| primitive.id == "order").unwrap().clone();
    for version in ["10.0.0", "9.2.0"] {
        snapshot.primitives.push(Primitive { version: version.into(), ..first.clone() });
        for server in &mut snapshot.servers {
            let Some(listing) = server.listings.iter().find(|listing| listing.id == "order").cloned() else {
                continue;
            };
            let named = Listing { version: version.into(), mcp_name: format!("order-{version}"), ..listing };
            server.listings.push(Listing { rest_name: String::new(), ..named });
        }
    }
    snapshot
}

/// Final message of the worker of the other primitive.
type Answers = fn(&InvokeRequest) -> Payload;

/// `sweep` asks, with `input`; what it delegates to answers with `answer`.
async fn run(
    snapshot: GatewaySnapshot,
    input: Value,
    answer: Answers,
) -> (Result<Value, String>, Fixture, Vec<InvokeRequest>) {
    let heard: Arc<Mutex<Option<Result<Value, String>>>> = Arc::default();
    let invokes: Arc<Mutex<Vec<InvokeRequest>>> = Arc::default();
    let hears = heard.clone();
    let sees = invokes.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let hears = hears.clone();
        let sees = sees.clone();
        let input = input.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            sees.lock().push(invoke.clone());
            if invoke.primitive != "sweep" {
                worker.say(answer(&invoke)).await;
                return;
            }
            worker.say(asks(&invoke.request_id, "d-1", &input, Duration::from_secs(5))).await;
            let answer = read(&told(&mut worker).await);
            *hears.lock() = Some(answer);
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = Fixture::with_models(snapshot, 7, runtime.runtimes(), Endpoints::default());
    // Whatever the client can do, a primitive is not asked of it.
    let said = sweep(json!({"sampling": {}})).send(&fixture).await;
    let heard = heard.lock().clone();
    let invokes = invokes.lock().clone();
    (heard.unwrap_or_else(|| panic!("the worker was told nothing: {}", said.text)), fixture, invokes)
}

fn well(invoke: &InvokeRequest) -> Payload {
    Payload::Completed(Completed {
        request_id: invoke.request_id.clone(),
        output: json_of(&json!({"ok": true})),
        ..Completed::default()
    })
}

#[tokio::test]
async fn it_is_called_as_the_same_caller_within_the_time_of_the_delegation() {
    let (heard, fixture, invokes) = run(answered_by("order"), json!({"n": 3}), well).await;
    assert_eq!(heard.unwrap(), json!({"json": {"ok": true}, "text": "{\"ok\":true}"}));
    let [parent, child] = invokes.as_slice() else { panic!("{invokes:?}") };
    assert_eq!(child.primitive, "order");
    assert_eq!(child.arguments.as_ref().unwrap().value, br#"{"n":3}"#);
    assert_eq!(child.ctx.as_ref().unwrap().user_id, "alice");
    assert_eq!(child.ctx.as_ref().unwrap().tenant_id, "acme");
    let until = |invoke: &InvokeRequest| invoke.deadline.unwrap().seconds;
    assert!(until(child) < until(parent), "the delegation gave it five seconds");
    assert!(!child.idempotency_key.is_empty());

    let finished = audited(&fixture, "call.finish").await;
    let of = |id: &str| finished.iter().find(|event| event["primitive"] == format!("{id}@1.0.0")).unwrap();
    assert_eq!(of("order")["parent"], of("sweep")["call"]);
    assert_eq!(of("sweep").get("parent"), None);
    let delegated = audited(&fixture, "call.delegation").await;
    assert_eq!((&delegated[0]["by"], &delegated[0]["outcome"]), (&json!("primitive"), &json!("ok")));
}

#[tokio::test]
async fn of_several_major_versions_the_one_that_is_named_is_called_and_else_the_highest() {
    for (named, called) in [(None, "10.0.0"), (Some(1), "1.0.0"), (Some(9), "9.2.0")] {
        let (heard, fixture, _) = run(answered_by_one_of_several(named), json!({}), well).await;
        assert!(heard.is_ok(), "{named:?}: {heard:?}");
        let finished = audited(&fixture, "call.finish").await;
        let called = json!(format!("order@{called}"));
        assert!(finished.iter().any(|event| event["primitive"] == called), "{named:?}: {finished:?}");
    }
    let (heard, _, _) = run(answered_by_one_of_several(Some(2)), json!({}), well).await;
    assert_eq!(heard.unwrap_err(), "refused", "none of that version is listed");
}

#[tokio::test]
async fn what_the_pipeline_refuses_is_an_error_of_the_delegation() {
    let deny = denied_to_alice("order", Protocol::Mcp);
    let mut denied = answered_by("order");
    denied.bindings.push(deny);
    let mut scoped = answered_by("order");
    let mut destructive = answered_by("order");
    for (snapshot, is_scoped) in [(&mut scoped, true), (&mut destructive, false)] {
        let order = snapshot.primitives.iter_mut().find(|primitive| primitive.id == "order").unwrap();
        if is_scoped {
            order.scopes = vec!["orders:write".into()];
        } else {
            order.set_mutation(Mutation::Destructive);
        }
    }
    let mut homeless = answered_by("order");
    for primitive in homeless.primitives.iter_mut().filter(|primitive| primitive.id == "order") {
        let mode = primitive.runtime.as_mut().and_then(|runtime| runtime.mode.as_mut());
        let Some(Mode::Plugin(plugin)) = mode else { panic!("order is a plugin") };
        plugin.language = "java".into();
    }
    let rows = [
        ("what no runtime can run", homeless, json!({}), "refused"),
        ("policy", denied, json!({}), "refused"),
        ("a missing scope", scoped, json!({}), "refused"),
        ("an approval nobody can give", destructive, json!({}), "refused"),
        ("another server's", answered_by("echo"), json!({}), "refused"),
        ("no tool", answered_by("advice"), json!({}), "refused"),
        ("arguments off the schema", answered_by("order"), json!({"n": "three"}), "invalid_input"),
        ("no arguments", answered_by("order"), json!("three"), "invalid_input"),
    ];
    for (name, snapshot, input, word) in rows {
        let (heard, _, invokes) = run(snapshot, input, well).await;
        assert_eq!(heard.unwrap_err(), word, "{name}");
        assert_eq!(invokes.len(), 1, "{name}: it was called");
    }
}

#[tokio::test]
async fn its_own_failure_is_told_in_its_own_words() {
    fn failed(invoke: &InvokeRequest) -> Payload {
        Payload::Completed(Completed {
            request_id: invoke.request_id.clone(),
            content: json_of(&json!([{"type": "text", "text": "out of stock\nat shelf 3"}])),
            is_error: true,
            ..Completed::default()
        })
    }
    fn off_schema(invoke: &InvokeRequest) -> Payload {
        Payload::Completed(Completed {
            request_id: invoke.request_id.clone(),
            output: json_of(&json!({"ok": "yes"})),
            ..Completed::default()
        })
    }
    let rows: [(Answers, &str); 2] = [(failed, "failed: out of stock"), (off_schema, "invalid_output")];
    for (answer, error) in rows {
        let (heard, _, _) = run(answered_by("order"), json!({}), answer).await;
        assert_eq!(heard.unwrap_err(), error);
    }
}

#[tokio::test]
async fn calls_within_calls_end_at_a_depth() {
    let heard: Arc<Mutex<Vec<Result<(), String>>>> = Arc::default();
    let hears = heard.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let hears = hears.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            worker.say(asks(&invoke.request_id, "d-1", &json!({}), Duration::ZERO)).await;
            let heard = read(&told(&mut worker).await).map(|_| ());
            hears.lock().push(heard);
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    // The linter refuses this loop; a snapshot from elsewhere may have it.
    let fixture = Fixture::with_models(answered_by("sweep"), 7, runtime.runtimes(), Endpoints::default());
    let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    // The innermost is told first.
    let expected = [Err("refused".into()), Ok(()), Ok(()), Ok(()), Ok(())];
    assert_eq!(*heard.lock(), expected);
}

#[tokio::test]
async fn it_ends_with_the_call_it_is_for() {
    let begun = Arc::new(Notify::new());
    let cancelled = Arc::new(Notify::new());
    let begins = begun.clone();
    let cancels = cancelled.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let begins = begins.clone();
        let cancels = cancels.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            if invoke.primitive == "sweep" {
                worker.say(asks(&invoke.request_id, "d-1", &json!({}), Duration::ZERO)).await;
                while worker.next().await.is_some() {}
                return;
            }
            begins.notify_one();
            // A call that is given up while its tunnel opens has its place closed, by which the runtime cancels it.
            while !matches!(worker.next().await, Some(client_message::Payload::Cancel(_)) | None) {}
            cancels.notify_one();
        }
    }));
    let fixture = Fixture::with_models(answered_by("order"), 7, runtime.runtimes(), Endpoints::default());
    let calling = fixture.clone();
    let request = sweep(json!({}));
    let call = tokio::spawn(async move { request.send(&calling).await });
    begun.notified().await;
    call.abort();
    tokio::time::timeout(Duration::from_secs(60), cancelled.notified()).await.expect("it goes on");
}

#[tokio::test]
async fn a_delegate_that_nobody_declared_is_not_asked() {
    let mut snapshot = answered_by("order");
    for primitive in &mut snapshot.primitives {
        primitive.delegations.clear();
    }
    let (heard, _) = Once::of(snapshot, Endpoints::default()).run().await;
    assert_eq!(heard.unwrap_err(), "undeclared");
}
