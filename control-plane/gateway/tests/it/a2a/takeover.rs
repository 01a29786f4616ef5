//! Tasks whose gateway is lost: what the others show is never earlier than what was shown before.

use std::cell::RefCell;
use std::sync::Arc;

use asp_gateway::gateway::{Gateway, Shared};
use asp_proto::plugin::Progress;
use asp_proto::plugin::server_message::Payload;
use asp_store::outbox::MemoryOutbox;
use asp_store::records::CallRecords;
use serde_json::{Value, json};
use uuid::Uuid;

use super::questions::{reply, shared};
use super::{Client, fixture, message, snapshot};
use crate::plugin::{asks_name, until_async, until_some, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;

fn generation(task: &Value) -> Option<u64> {
    task["metadata"]["asp/generation"].as_u64()
}

/// A tool that reports so many steps, asks for a name and completes.
fn asks_after(steps: u32) -> Runtime {
    Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        for step in 0..steps {
            let request_id = invoke.request_id.clone();
            let percent = f64::from(step);
            let message = format!("at {step}");
            let progress = Progress { request_id, percent, message, ..Progress::default() };
            worker.say(Payload::Progress(progress)).await;
        }
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

/// A gateway over the records of another one.
fn gateway(runtime: &Runtime, other: Option<&Fixture>, shared: Option<Shared>) -> Fixture {
    Fixture::with_snapshot_and(snapshot(), runtime.runtimes(), |stores| {
        if let Some(other) = other {
            stores.active = other.active.clone();
            stores.ledger = other.ledger.clone();
        }
        stores.shared = shared;
    })
}

/// I-3. A gateway that takes a task over need not know its events.
#[tokio::test]
async fn the_generation_of_a_task_rises_over_a_takeover() {
    let [kept, lost] = [shared(), shared()];
    let empty = Shared { outbox: Arc::new(MemoryOutbox::default()), ..lost.clone() };
    let cases = [(None, None), (Some(kept.clone()), Some(kept)), (Some(lost), Some(empty))];
    for (at_first, at_second) in cases {
        let dead = asks_after(20);
        let first = gateway(&dead, None, at_first);
        first.gateway.pipeline.internals().active.renew().await.unwrap();
        let client = Client::of(&first, "plugins");
        let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
        let before = generation(&task).unwrap();
        assert!(before > 20, "{task}");
        let id = Uuid::parse_str(task["id"].as_str().unwrap()).unwrap().into_bytes();
        let is_saved = async || {
            let row = first.active.find(id).await.unwrap();
            row.is_some_and(|row| !row.memory.is_empty())
        };
        until_async("the next gateway can continue it", is_saved).await;
        first.gateway.pipeline.internals().active.retire().await;

        let living = asks_after(1);
        let second = gateway(&living, Some(&first), at_second);
        second.gateway.pipeline.internals().active.renew().await.unwrap();
        tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
        let client = Client::of(&second, "plugins");
        let seen = RefCell::new(vec![before]);
        let again = until_some("it asks again", async || {
            let shown = client.result("GetTask", json!({"id": task["id"]})).await;
            seen.borrow_mut().extend(generation(&shown));
            let is_asked = shown["status"]["message"]["parts"][1]["data"]["schema"].is_object();
            (is_asked && generation(&shown) > Some(before)).then_some(shown)
        })
        .await;
        let answer = reply(&again, &json!([{"text": "Ada"}]));
        let ended = client.result("SendMessage", answer).await["task"].clone();
        assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED", "{ended}");
        let mut seen = seen.into_inner();
        seen.extend(generation(&ended));
        assert!(seen.is_sorted(), "{seen:?}");

        let third = gateway(&living, Some(&first), None);
        let read = Client::of(&third, "plugins").result("GetTask", json!({"id": task["id"]})).await;
        assert_eq!(generation(&read), generation(&ended), "its record has it, without the events");
    }
}

#[tokio::test]
async fn the_end_of_a_task_that_no_gateway_continues_is_later_than_what_was_shown() {
    let first = fixture();
    first.gateway.pipeline.internals().active.renew().await.unwrap();
    let client = Client::of(&first, "demo");
    let mut params = message("count", json!({"to": 100, "delayMs": 20}));
    params["configuration"] = json!({"returnImmediately": true});
    let task = client.result("SendMessage", params).await["task"].clone();
    let before = until_some("it counts", async || {
        let shown = client.result("GetTask", json!({"id": task["id"]})).await;
        generation(&shown).filter(|generation| *generation > 3)
    })
    .await;
    first.gateway.pipeline.internals().active.retire().await;
    let second = first.with_stores(snapshot(), |stores| {
        stores.active = first.active.clone();
        stores.ledger = first.ledger.clone();
    });
    let lost = Client::of(&second, "demo").result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!(lost["status"]["state"], "TASK_STATE_FAILED", "{lost}");
    assert!(generation(&lost) > Some(before), "{lost}");
}
