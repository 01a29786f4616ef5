//! Tasks of skills that only read: the database gets them only if a gateway would not find them without.

use std::sync::Arc;
use std::time::Duration;

use asp_call::clock::unix_ms;
use asp_gateway::gateway::Shared;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::briefs::{BriefError, BriefList, BriefRecord, BriefRecords};
use asp_store::records::{CallId, CallRecords, OwnerId};
use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::push::{Receiver, sending_by};
use super::questions::{fleet, shared};
use super::{Client, completed, fixture, message, snapshot};
use crate::plugin::until_some;
use crate::support::{Fixture, Modern, token};

/// A gateway that knows to be the only one.
async fn alone() -> Fixture {
    let fixture = fixture();
    look(&fixture).await;
    fixture
}

async fn look(fixture: &Fixture) {
    fixture.gateway.pipeline.look_for_others().await;
}

/// Whether the gateway reports that it is the only one.
async fn reports_alone(fixture: &Fixture) -> bool {
    let metrics = fixture.send(Method::GET, "/metrics", &[], "").await.text;
    metrics.lines().any(|line| line == "asp_gateway_alone 1")
}

async fn sent(client: &Client<'_>, params: Value) -> Value {
    client.result("SendMessage", params).await["task"].clone()
}

fn echo(text: &str) -> Value {
    message("echo", json!({"message": text}))
}

/// Whether the store has a record of the task.
async fn is_stored(fixture: &Fixture, task: &Value) -> bool {
    let id: Uuid = task["id"].as_str().unwrap().parse().unwrap();
    fixture.active.find(id.into_bytes()).await.unwrap().is_some()
}

/// Waits so that the next task ends at another time.
async fn next_millisecond() {
    let now = unix_ms();
    until_some("a later millisecond", async || (unix_ms() > now).then_some(())).await;
}

/// Another gateway over the same stores.
fn beside(fixture: &Fixture) -> Fixture {
    fixture.with_stores(snapshot(), |stores| {
        stores.active = fixture.active.clone();
        stores.ledger = fixture.ledger.clone();
    })
}

#[tokio::test]
async fn what_only_reads_and_ends_within_its_request_is_kept_without_the_store() {
    let fixture = alone().await;
    let client = Client::of(&fixture, "demo");
    let params = echo("hi");
    let task = sent(&client, params.clone()).await;
    completed(&task, &json!({"message": "hi"}));
    assert!(!is_stored(&fixture, &task).await);
    assert_eq!(client.result("GetTask", json!({"id": task["id"]})).await, task);
    assert_eq!(sent(&client, params.clone()).await, task, "the same message is the same task");
    let mut other = echo("ho");
    other["message"]["messageId"] = params["message"]["messageId"].clone();
    let changed = sent(&client, other.clone()).await;
    completed(&changed, &json!({"message": "ho"}));
    assert_ne!(changed["id"], task["id"], "the id with other content is another message");
    assert_eq!((sent(&client, params).await, sent(&client, other).await), (task.clone(), changed));
    assert_eq!(client.refused("CancelTask", json!({"id": task["id"]})).await, (200, -32002));
    let bob = client.with("authorization", &format!("Bearer {}", token("bob")));
    assert_eq!(bob.refused("GetTask", json!({"id": task["id"]})).await, (200, -32001));
    assert_eq!(bob.result("ListTasks", json!({})).await["tasks"], json!([]));
    assert!(!is_stored(&fixture, &task).await);
}

/// The task itself is what the same message finds.
#[tokio::test]
async fn the_only_gateway_keeps_no_second_answer_of_a_task() {
    for (is_alone, replayed) in [(true, Value::Null), (false, json!(true))] {
        let fixture = if is_alone { alone().await } else { fixture() };
        let task = sent(&Client::of(&fixture, "demo"), echo("hi")).await;
        let params = json!({"name": "echo", "arguments": {"message": "hi"}});
        let call = Modern::new("demo", &token("alice"), "tools/call", params);
        let keyed = call.with("idempotency-key", task["id"].as_str().unwrap());
        let answer = keyed.send(&fixture).await.json();
        assert_eq!(answer["result"]["structuredContent"], json!({"message": "hi"}), "{answer}");
        assert_eq!(answer["result"]["_meta"]["asp/replayed"], replayed, "{answer}");
    }
}

/// I-3, I-13.
#[tokio::test]
async fn what_outlives_its_request_or_changes_something_is_stored() {
    let fixture = alone().await;
    let client = Client::of(&fixture, "demo");
    let mut at_once = echo("a");
    at_once["configuration"] = json!({"returnImmediately": true});
    let asks = message("count", json!({}));
    let slow = message("count", json!({"to": 2, "delayMs": 700}));
    for params in [at_once, asks, slow] {
        assert!(is_stored(&fixture, &sent(&client, params).await).await);
    }
    let events = client.call("SendStreamingMessage", echo("b")).await.events();
    assert!(is_stored(&fixture, &events[0]["result"]["task"]).await);
    let policy = Client::of(&fixture, "policy");
    let changes = sent(&policy, message("policy.once", json!({"message": "c"}))).await;
    assert!(is_stored(&fixture, &changes).await);
}

#[tokio::test]
async fn a_list_has_stored_tasks_and_others_in_the_order_of_their_changes() {
    let fixture = alone().await;
    let client = Client::of(&fixture, "demo");
    let mut ids = Vec::new();
    for number in 0..5 {
        let mut params = echo("x");
        params["configuration"] = json!({"returnImmediately": number % 2 == 1});
        params["message"]["contextId"] = format!("context-{}", number % 2).into();
        let id = sent(&client, params).await["id"].clone();
        until_some("the task ends", async || {
            let task = client.result("GetTask", json!({"id": id})).await;
            (task["status"]["state"] == "TASK_STATE_COMPLETED").then_some(())
        })
        .await;
        next_millisecond().await;
        ids.push(id);
    }
    let mut seen = Vec::new();
    let mut params = json!({"pageSize": 1});
    loop {
        let page = client.result("ListTasks", params.clone()).await;
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()));
        if page["nextPageToken"] == "" {
            break;
        }
        params["pageToken"] = page["nextPageToken"].clone();
    }
    ids.reverse();
    assert_eq!(seen, ids);
    let one = client.result("ListTasks", json!({"contextId": "context-0"})).await;
    assert_eq!(one["tasks"].as_array().unwrap().len(), 3, "{one}");
}

/// I-3.
#[tokio::test]
async fn another_gateway_gets_all_tasks_once_it_appears() {
    let fixture = alone().await;
    assert!(reports_alone(&fixture).await);
    let client = Client::of(&fixture, "demo");
    let task = sent(&client, echo("hi")).await;
    fixture.active.renew(OwnerId([9; 16]), Duration::from_secs(60)).await.unwrap();
    look(&fixture).await;
    assert!(!reports_alone(&fixture).await);
    let other = beside(&fixture);
    let client_there = Client::of(&other, "demo");
    let there = until_some("the task is there", async || {
        let answer = client_there.call("GetTask", json!({"id": task["id"]})).await.json();
        answer.get("result").cloned()
    })
    .await;
    for part in ["id", "contextId", "artifacts", "history"] {
        assert_eq!(there[part], task[part], "{part}");
    }
    assert_eq!(there["status"]["state"], task["status"]["state"]);
    let listed = client_there.result("ListTasks", json!({})).await;
    assert_eq!((&listed["totalSize"], &listed["tasks"][0]["id"]), (&json!(1), &task["id"]));
    assert!(is_stored(&fixture, &sent(&client, echo("ho")).await).await, "from now on at once");
    fixture.active.retire(OwnerId([9; 16])).await.unwrap();
    look(&fixture).await;
    assert!(!is_stored(&fixture, &sent(&client, echo("hu")).await).await);
}

/// I-13 for a gateway that stops.
#[tokio::test]
async fn the_next_gateway_has_the_tasks_of_one_that_stopped() {
    let fixture = alone().await;
    let task = sent(&Client::of(&fixture, "demo"), echo("hi")).await;
    fixture.gateway.stop().await;
    let next = beside(&fixture);
    let there = Client::of(&next, "demo").result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!((&there["artifacts"], &there["history"]), (&task["artifacts"], &task["history"]));
}

#[tokio::test]
async fn a_receiver_that_is_registered_after_the_end_gets_it() {
    let (fixture, _directory) = sending_by(snapshot(), Runtimes::none()).await;
    look(&fixture).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let task = sent(&client, echo("hi")).await;
    let config = json!({"taskId": task["id"], "url": receiver.url});
    client.result("CreateTaskPushNotificationConfig", config).await;
    let seen = receiver.received_until(|one| one.json()["task"]["id"] == task["id"]).await;
    completed(&seen.last().unwrap().json()["task"], &json!({"message": "hi"}));
}

/// I-3: also of one that the database does not have.
#[tokio::test]
async fn a_task_is_the_same_at_all_gateways_that_share_a_store() {
    let (first, second) = fleet(&shared());
    let client = Client::of(&first, "demo");
    let there = Client::of(&second, "demo");
    let mut params = message("count", json!({"to": 2, "delayMs": 0}));
    params["message"]["contextId"] = "trip".into();
    let task = sent(&client, params.clone()).await;
    completed(&task, &json!({"counted": 2}));
    assert!(!is_stored(&first, &task).await);
    assert_eq!(there.result("GetTask", json!({"id": task["id"]})).await, task);
    assert_eq!(sent(&there, params.clone()).await, task, "the same message is the same task");
    params["message"]["parts"] = json!([{"data": {"skill": "count", "arguments": {"to": 3, "delayMs": 0}}}]);
    params["message"]["contextId"] = "another trip".into();
    next_millisecond().await;
    let changed = sent(&there, params.clone()).await;
    completed(&changed, &json!({"counted": 3}));
    assert_ne!(changed["id"], task["id"], "the id with other content is another message");
    assert_eq!(sent(&client, params).await, changed);
    let bob = there.with("authorization", &format!("Bearer {}", token("bob")));
    assert_eq!(bob.refused("GetTask", json!({"id": task["id"]})).await, (200, -32001));
    assert_eq!(bob.result("ListTasks", json!({})).await["tasks"], json!([]));

    let mut at_once = echo("a");
    at_once["configuration"] = json!({"returnImmediately": true});
    next_millisecond().await;
    let stored = sent(&there, at_once).await;
    assert!(is_stored(&first, &stored).await);
    until_some("it ends", async || {
        let task = client.result("GetTask", json!({"id": stored["id"]})).await;
        (task["status"]["state"] == "TASK_STATE_COMPLETED").then_some(())
    })
    .await;
    let mut ids = Vec::new();
    let mut params = json!({"pageSize": 1});
    loop {
        let page = client.result("ListTasks", params.clone()).await;
        ids.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()));
        if page["nextPageToken"] == "" {
            break;
        }
        params["pageToken"] = page["nextPageToken"].clone();
    }
    assert_eq!(ids, [&stored, &changed, &task].map(|task| task["id"].clone()));
    let one = there.result("ListTasks", json!({"contextId": "trip", "includeArtifacts": true})).await;
    assert_eq!(one["tasks"][0]["artifacts"], task["artifacts"]);
}

/// I-3: a message that comes to another gateway while its task runs.
#[tokio::test]
async fn a_message_is_sent_again_to_another_gateway_while_its_task_runs() {
    let (first, second) = fleet(&shared());
    for fixture in [&first, &second] {
        fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    }
    let mut params = message("count", json!({"to": 2, "delayMs": 100}));
    params["configuration"] = json!({"returnImmediately": true});
    let task = sent(&Client::of(&first, "demo"), params.clone()).await;
    params["configuration"] = json!({});
    let there = sent(&Client::of(&second, "demo"), params).await;
    completed(&there, &json!({"counted": 2}));
    let here = Client::of(&first, "demo").result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!((&there["id"], &here["artifacts"]), (&task["id"], &there["artifacts"]));
}

/// A store that does not answer.
struct Away;

#[async_trait]
impl BriefRecords for Away {
    async fn put(
        &self,
        _list: BriefList,
        _record: BriefRecord,
        _keep: Duration,
        _replaces: bool,
    ) -> Result<bool, BriefError> {
        Err(BriefError("away".into()))
    }

    async fn find(&self, _org: [u8; 16], _call: CallId) -> Result<Option<Bytes>, BriefError> {
        Err(BriefError("away".into()))
    }

    async fn list(
        &self,
        _list: BriefList,
        _before: Option<(i64, CallId)>,
        _limit: u32,
    ) -> Result<Vec<BriefRecord>, BriefError> {
        Err(BriefError("away".into()))
    }
}

/// I-3, I-13.
#[tokio::test]
async fn the_database_gets_what_the_shared_store_does_not_take() {
    let (first, second) = fleet(&Shared { briefs: Arc::new(Away), ..shared() });
    let client = Client::of(&first, "demo");
    let task = sent(&client, echo("hi")).await;
    assert!(is_stored(&first, &task).await);
    let there = Client::of(&second, "demo").result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!(there["artifacts"], task["artifacts"]);
    let (first, second) = fleet(&shared());
    let large = sent(&Client::of(&first, "demo"), echo(&"x".repeat(60_000))).await;
    assert!(is_stored(&first, &large).await);
    let there = Client::of(&second, "demo").result("GetTask", json!({"id": large["id"]})).await;
    assert_eq!(there["artifacts"], large["artifacts"]);
}
