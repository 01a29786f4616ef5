//! Questions of a task, answered by messages.

use std::sync::Arc;

use asp_gateway::gateway::{EVENT_BYTES, Shared};
use asp_protocols::mcp::elsewhere;
use asp_store::answers::MemoryAnswers;
use asp_store::briefs::MemoryBriefs;
use asp_store::bus::MemoryBus;
use asp_store::followers::MemoryFollowers;
use asp_store::inbox::MemoryInbox;
use asp_store::outbox::MemoryOutbox;
use asp_store::records::CallRecords;
use asp_store::sessions::MemoryDirectory;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Client, fixture, message, message_id, snapshot, with_plugins};
use crate::plugin::{asks_name, until_async, until_some, user_input};
use crate::rest::asking;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;

pub(super) fn reply(task: &Value, parts: &Value) -> Value {
    json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "taskId": task["id"],
        "contextId": task["contextId"], "parts": parts}})
}

#[tokio::test]
async fn a_question_is_shown_with_its_fields_and_answered_by_a_message() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let parts = task["status"]["message"]["parts"].as_array().unwrap();
    assert_eq!(parts[0]["text"], "Which name?", "{task}");
    assert_eq!(parts[1]["data"]["schema"]["required"], json!(["name"]), "{task}");
    assert!(parts[1]["data"]["questionId"].is_string(), "{task}");

    let misfit = client.call("SendMessage", reply(&task, &json!([{"data": {"name": 7}}]))).await;
    assert!(misfit.text.contains("arguments.name"), "{}", misfit.text);
    let mut elsewhere = reply(&task, &json!([{"text": "Ada"}]));
    elsewhere["message"]["contextId"] = "another".into();
    assert_eq!(client.refused("SendMessage", elsewhere).await, (200, -32602));
    let answer = reply(&task, &json!([{"data": {"name": "Ada"}}]));
    let ended = client.result("SendMessage", answer.clone()).await;
    let ended = &ended["task"];
    assert_eq!(
        (&ended["id"], &ended["status"]["state"]),
        (&task["id"], &json!("TASK_STATE_COMPLETED")),
        "{ended}"
    );
    let history = ended["history"].as_array().unwrap();
    let roles: Vec<&str> = history.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{ended}");
    assert_eq!(history[0]["parts"][0]["data"]["skill"], "sweep");
    assert_eq!(history[1]["parts"], task["status"]["message"]["parts"]);
    assert_eq!(history[2]["parts"][0]["data"], json!({"name": "Ada"}));
    assert_eq!(history[2]["messageId"], answer["message"]["messageId"]);
    let again = client.result("SendMessage", answer.clone()).await;
    assert_eq!(again["task"], *ended, "the same answer again is the task as it is");
    let mut changed = answer;
    changed["message"]["parts"] = json!([{"data": {"name": "Eve"}}]);
    assert_eq!(client.refused("SendMessage", changed).await, (200, -32004), "it is another answer");
    let got = client.result("GetTask", json!({"id": task["id"], "historyLength": 1})).await;
    assert_eq!(got["history"].as_array().unwrap().len(), 1);
    let late = reply(&task, &json!([{"text": "Ada"}]));
    assert_eq!(client.refused("SendMessage", late).await, (200, -32004));
}

#[tokio::test]
async fn a_stream_of_the_earlier_version_ends_with_the_question() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let params = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": "sweep", "arguments": {}}}]}});
    let events = client.call("message/stream", params).await.events();
    let last = &events.last().unwrap()["result"];
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("input-required"), &json!(true)),
        "{last}"
    );
    let answer = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "taskId": last["taskId"], "parts": [{"kind": "text", "text": "Ada"}]}});
    let task = client.result("message/send", answer).await;
    assert_eq!(task["status"]["state"], "completed", "{task}");
}

/// Stores that gateways share apart from their database.
pub(super) fn shared() -> Shared {
    Shared {
        directory: Arc::new(MemoryDirectory::default()),
        bus: Arc::new(MemoryBus::default()),
        inbox: Arc::new(MemoryInbox::default()),
        followers: Arc::new(MemoryFollowers::default()),
        outbox: Arc::new(MemoryOutbox::default()),
        event_bytes: EVENT_BYTES,
        answers: Arc::new(MemoryAnswers::default()),
        briefs: Arc::new(MemoryBriefs::default()),
    }
}

/// Gateways that share stores besides the database.
pub(super) fn fleet(shared: &Shared) -> (Fixture, Fixture) {
    let base = fixture();
    let gateway = || {
        base.with_stores(snapshot(), |stores| {
            stores.active = base.active.clone();
            stores.ledger = base.ledger.clone();
            stores.shared = Some(shared.clone());
        })
    };
    (gateway(), gateway())
}

/// I-3: a task is the same at a gateway that does not run it.
#[tokio::test]
async fn another_gateway_shows_the_question_takes_the_answer_and_has_the_messages() {
    let (first, second) = fleet(&shared());
    for fixture in [&first, &second] {
        fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    }
    tokio::spawn(elsewhere::listen(Arc::downgrade(&first.gateway.replica)));
    let (client, other) = (Client::of(&first, "policy"), Client::of(&second, "policy"));

    let task = client.result("SendMessage", message("policy.wipe", json!({"message": "a"}))).await;
    let task = &task["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    assert!(task["status"]["message"]["parts"][1]["data"]["schema"].is_object(), "{task}");
    // The events that another gateway reads are stored behind them.
    let shown = until_some("it is shown", async || {
        let shown = other.result("GetTask", json!({"id": task["id"]})).await;
        (shown["status"]["message"] == task["status"]["message"]).then_some(shown)
    });
    let shown = shown.await;
    assert_eq!(shown["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{shown}");
    assert_eq!(shown["history"], task["history"]);
    let waiting = json!({"status": "TASK_STATE_INPUT_REQUIRED", "historyLength": 1});
    let listed = other.result("ListTasks", waiting).await["tasks"][0].clone();
    assert_eq!(listed["status"]["message"], task["status"]["message"], "{listed}");
    assert_eq!(listed["history"], task["history"]);

    let answer = reply(task, &json!([{"data": {"approve": true}}]));
    let ended = other.result("SendMessage", answer.clone()).await["task"].clone();
    assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED", "{ended}");
    for client in [&client, &other] {
        let again = client.result("SendMessage", answer.clone()).await["task"].clone();
        let history = again["history"].as_array().unwrap();
        assert_eq!((history.len(), &history[0]), (3, &task["history"][0]), "{again}");
        assert_eq!(history[2]["messageId"], answer["message"]["messageId"]);
        assert_eq!(history[2]["parts"], answer["message"]["parts"]);
    }
}

/// A tool that could be continued elsewhere, asks for a name and does not end.
fn asks_and_hangs() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        while worker.next().await.is_some() {}
    }))
}

/// Invariant I-13: if this gateway is lost now, the next one does not ask again.
#[tokio::test]
async fn an_answer_is_stored_before_its_task_is_reported() {
    let runtime = asks_and_hangs();
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    let id = Uuid::parse_str(task["id"].as_str().unwrap()).unwrap().into_bytes();
    let memory = async || fixture.active.find(id).await.unwrap().map(|row| row.memory).unwrap_or_default();
    until_async("the question is stored", async || !memory().await.is_empty()).await;
    let before = memory().await;
    let mut answer = reply(&task, &json!([{"text": "Ada"}]));
    answer["configuration"] = json!({"returnImmediately": true});
    let sent = client.result("SendMessage", answer.clone()).await["task"].clone();
    assert_eq!(sent["status"]["state"], "TASK_STATE_WORKING", "{sent}");
    let after = memory().await;
    assert_ne!(after, before, "the answer is stored");
    let again = client.result("SendMessage", answer).await["task"].clone();
    assert_eq!((&again["history"], memory().await), (&sent["history"], after));
}

/// The record by which another gateway could continue the call is older than the answer.
#[tokio::test]
async fn another_gateway_has_the_messages_of_a_task_that_runs() {
    let runtime = asks_and_hangs();
    let shared = shared();
    let first = Fixture::with_snapshot_and(snapshot(), runtime.runtimes(), |stores| {
        stores.shared = Some(shared.clone());
    });
    let second = first.with_stores(snapshot(), |stores| {
        stores.active = first.active.clone();
        stores.ledger = first.ledger.clone();
        stores.shared = Some(shared.clone());
    });
    for fixture in [&first, &second] {
        fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    }
    let (client, other) = (Client::of(&first, "plugins"), Client::of(&second, "plugins"));
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    let mut answer = reply(&task, &json!([{"text": "Ada"}]));
    answer["configuration"] = json!({"returnImmediately": true});
    let sent = client.result("SendMessage", answer).await["task"].clone();
    assert_eq!(sent["history"].as_array().unwrap().len(), 3, "{sent}");
    let shown = until_some("the answer is shown", async || {
        let shown = other.result("GetTask", json!({"id": task["id"]})).await;
        (shown["history"] == sent["history"]).then_some(shown)
    });
    let shown = shown.await;
    assert_eq!(shown["status"]["state"], "TASK_STATE_WORKING", "{shown}");
}
