//! Arguments that a message does not have: the task asks for them, and runs once they fit.

use std::sync::Arc;

use asp_gateway::gateway::Gateway;
use asp_proto::snapshot::{GatewaySnapshot, RevokedBefore};
use asp_protocols::mcp::elsewhere;
use asp_registry::assemble;
use asp_store::records::{CallRecords, State};
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::questions::{fleet, reply, shared};
use super::{Client, completed, fixture, message, message_id, snapshot, speaking};
use crate::plugin::until_some;
use crate::rest::asking;
use crate::support::{Fixture, now};

/// The servers of the tests, in which these primitives require a name and a number.
fn requiring(ids: &[&str]) -> GatewaySnapshot {
    let mut snapshot = assemble(speaking());
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| ids.contains(&primitive.id.as_str())) {
        primitive.input_schema = r#"{"type": "object", "required": ["message", "to"], "properties":
            {"message": {"type": "string"}, "to": {"type": "integer", "minimum": 1}}}"#
            .into();
        primitive.input_timeout_seconds = 60;
    }
    snapshot
}

fn data(value: Value) -> Value {
    json!([{"data": value}])
}

/// The schema of the answer that a task waits for.
fn asked(task: &Value) -> &Value {
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    &task["status"]["message"]["parts"][1]["data"]["schema"]
}

async fn answered(client: &Client<'_>, task: &Value, parts: &Value) -> Value {
    client.result("SendMessage", reply(task, parts)).await["task"].clone()
}

#[tokio::test]
async fn what_is_missing_is_asked_for_with_its_schema_and_answered_by_a_message() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let sent = message("count", json!({"delayMs": 1}));
    let task = client.result("SendMessage", sent.clone()).await["task"].clone();
    let form = asked(&task);
    assert_eq!(form["required"], json!(["to"]));
    assert_eq!(
        (&form["properties"]["to"]["type"], form["properties"].get("delayMs")),
        (&json!("integer"), None)
    );
    let again = client.result("SendMessage", sent).await["task"].clone();
    assert_eq!(again["id"], task["id"], "the same message is the same task");
    let listed = client.result("ListTasks", json!({"status": "TASK_STATE_INPUT_REQUIRED"})).await;
    assert_eq!(listed["tasks"][0]["id"], task["id"], "{listed}");

    let wrong = answered(&client, &task, &data(json!({"to": "three"}))).await;
    assert_eq!(asked(&wrong)["required"], json!(["to"]));
    assert!(wrong["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains("/to"), "{wrong}");
    let unreadable = reply(&task, &json!([{"text": "three"}]));
    assert_eq!(client.refused("SendMessage", unreadable).await, (200, -32602), "nothing is guessed");
    let ended = answered(&client, &task, &json!([{"text": r#"{"to": 2}"#}])).await;
    assert_eq!(ended["id"], task["id"]);
    completed(&ended, &json!({"counted": 2}));
    assert_eq!(ended["history"].as_array().unwrap().len(), 5, "the message, two questions and their answers");
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    assert_eq!(events.len(), 2, "one call began and finished");
}

#[tokio::test]
async fn a_text_is_the_answer_if_one_text_is_missing_and_no_argument_otherwise() {
    let fixture = Fixture::of(requiring(&["policy.open"]));
    let client = Client::of(&fixture, "policy");
    let one = client.result("SendMessage", message("policy.open", json!({"to": 3}))).await["task"].clone();
    assert_eq!(asked(&one)["required"], json!(["message"]));
    let ended = answered(&client, &one, &json!([{"text": "hi"}])).await;
    completed(&ended, &json!({"message": "hi"}));

    let text = json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "parts": [{"text": "hi"}],
        "metadata": {"skill": "policy.open"}}});
    let both = client.result("SendMessage", text).await["task"].clone();
    assert_eq!(asked(&both)["required"], json!(["message", "to"]));
    let rest = answered(&client, &both, &data(json!({"to": 3}))).await;
    assert_eq!(asked(&rest)["required"], json!(["message"]));
    let mut declined = reply(&rest, &json!([{"text": "no"}]));
    declined["message"]["metadata"] = json!({"action": "decline"});
    let ended = client.result("SendMessage", declined).await["task"].clone();
    assert_eq!(ended["status"]["state"], "TASK_STATE_REJECTED", "{ended}");
    // Arguments that do not fit, and none that is missing.
    let misfit = message("policy.open", json!({"message": "hi", "to": 0}));
    assert_eq!(client.refused("SendMessage", misfit).await, (200, -32602));
}

#[tokio::test]
async fn an_answer_too_large_to_keep_answers_no_other_question_when_it_is_sent_again() {
    let fixture = Fixture::of(requiring(&["policy.open"]));
    let client = Client::of(&fixture, "policy");
    let task = client.result("SendMessage", message("policy.open", json!({}))).await["task"].clone();
    let large = reply(&task, &data(json!({"message": "x".repeat(70_000)})));
    let next = client.result("SendMessage", large.clone()).await["task"].clone();
    assert_eq!(asked(&next)["required"], json!(["to"]));
    let again = client.result("SendMessage", large.clone()).await["task"].clone();
    assert_eq!(again["status"]["message"], next["status"]["message"], "{again}");
    let history = again["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[2]["messageId"]), (3, &large["message"]["messageId"]), "{again}");
    assert!(history[2]["parts"][0]["data"]["asp/omittedBytes"].as_u64().unwrap() > 70_000, "{again}");
}

#[tokio::test]
async fn no_worker_begins_before_the_arguments_fit_and_after_five_questions_none_does() {
    let runtime = asking();
    let fixture = Fixture::with(requiring(&["book"]), 7, runtime.runtimes());
    let client = Client::of(&fixture, "plugins");
    let mut task = client.result("SendMessage", message("book", json!({}))).await["task"].clone();
    let id = task["id"].clone();
    for _ in 0..4 {
        task = answered(&client, &task, &data(json!({"message": 7}))).await;
        assert_eq!(asked(&task)["required"][0], "to", "the missing one");
    }
    task = answered(&client, &task, &data(json!({"to": 0}))).await;
    assert_eq!((&task["status"]["state"], &task["id"]), (&json!("TASK_STATE_REJECTED"), &id), "{task}");
    let cancelled = client.result("SendMessage", message("book", json!({}))).await["task"].clone();
    let cancelled = client.result("CancelTask", json!({"id": cancelled["id"]})).await;
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert!(runtime.told.allocations.lock().is_empty(), "nothing was done");

    let whole = message("book", json!({"message": "Ada", "to": 1}));
    let task = client.result("SendMessage", whole).await["task"].clone();
    assert_eq!(asked(&task)["required"], json!(["name"]), "the plugin asks: {task}");
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

#[tokio::test]
async fn a_call_that_was_asked_counts_once_and_needs_its_approval_all_the_same() {
    let fixture = Fixture::of(requiring(&["policy.few", "policy.wipe"]));
    let client = Client::of(&fixture, "policy");
    let hi = json!({"message": "hi"});
    for _ in 0..2 {
        let task = client.result("SendMessage", message("policy.few", json!({}))).await["task"].clone();
        let task = answered(&client, &task, &data(json!({"to": "one"}))).await;
        completed(&answered(&client, &task, &data(json!({"message": "hi", "to": 1}))).await, &hi);
    }
    let third = client.call("SendMessage", message("policy.few", json!({}))).await;
    assert_eq!(third.status, StatusCode::TOO_MANY_REQUESTS, "{}", third.text);

    let task = client.result("SendMessage", message("policy.wipe", json!({"to": 1}))).await["task"].clone();
    let task = answered(&client, &task, &json!([{"text": "hi"}])).await;
    assert_eq!(asked(&task)["required"], json!(["approve"]), "{task}");
    completed(&answered(&client, &task, &data(json!({"approve": true}))).await, &hi);
}

/// The task at a gateway, once its question is shown there.
async fn shown(client: &Client<'_>, id: &Value) -> Value {
    until_some("its question is shown", async || {
        let task = client.result("GetTask", json!({"id": id})).await;
        let is_shown = task["status"]["message"]["parts"][1]["data"]["schema"].is_object();
        is_shown.then_some(task)
    })
    .await
}

/// I-3: the gateway that asked is lost, and another one asks again.
#[tokio::test]
async fn a_task_whose_gateway_is_lost_while_it_asks_is_asked_again_elsewhere() {
    let first = fixture();
    first.gateway.pipeline.internals().active.renew().await.unwrap();
    let second = first.with_stores(snapshot(), |stores| {
        stores.active = first.active.clone();
        stores.ledger = first.ledger.clone();
    });
    let client = Client::of(&first, "demo");
    let sent = message("count", json!({"delayMs": 0}));
    let task = client.result("SendMessage", sent.clone()).await["task"].clone();
    let task = answered(&client, &task, &data(json!({"to": 0}))).await;
    assert_eq!(asked(&task)["required"], json!(["to"]));
    first.gateway.pipeline.internals().active.retire().await;
    second.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
    let client = Client::of(&second, "demo");
    let again = shown(&client, &task["id"]).await;
    assert_eq!(asked(&again)["required"], json!(["to"]));
    let ended = answered(&client, &again, &data(json!({"to": 2}))).await;
    completed(&ended, &json!({"counted": 2}));
    let joined = client.result("SendMessage", sent).await["task"].clone();
    assert_eq!((&joined["id"], &joined["status"]["state"]), (&task["id"], &ended["status"]["state"]));
}

/// The next gateway has the revocation from its start, and asks nobody for the call.
#[tokio::test]
async fn a_task_that_asks_ends_with_its_token_where_it_is_taken_over() {
    let first = fixture();
    first.gateway.pipeline.internals().active.renew().await.unwrap();
    let sent = message("count", json!({"delayMs": 0}));
    let task = Client::of(&first, "demo").result("SendMessage", sent).await["task"].clone();
    assert_eq!(asked(&task)["required"], json!(["to"]));
    first.gateway.pipeline.internals().active.retire().await;
    let mut inputs = speaking();
    let (org, user) = ("acme".into(), "alice".into());
    inputs.revoked_before = vec![RevokedBefore { org, user, not_after_iat: now(), ..Default::default() }];
    let second = first.with_stores(assemble(inputs), |stores| {
        stores.active = first.active.clone();
        stores.ledger = first.ledger.clone();
    });
    second.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
    let id: Uuid = task["id"].as_str().unwrap().parse().unwrap();
    until_some("the task ends", async || {
        let row = first.active.find(id.into_bytes()).await.unwrap();
        row.filter(|row| row.state == State::Cancelled)
    })
    .await;
}

/// I-3: a gateway that stops leaves what waits for arguments to the next one.
#[tokio::test]
async fn a_task_that_asks_survives_a_restart() {
    let snapshot = || requiring(&["policy.once"]);
    let first = Fixture::of(snapshot());
    first.gateway.pipeline.internals().active.renew().await.unwrap();
    let client = Client::of(&first, "policy");
    let task = client.result("SendMessage", message("policy.once", json!({"to": 1}))).await["task"].clone();
    assert_eq!(asked(&task)["required"], json!(["message"]));
    first.gateway.stop().await;
    let second = first.with_stores(snapshot(), |stores| {
        stores.active = first.active.clone();
        stores.ledger = first.ledger.clone();
    });
    second.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
    let client = Client::of(&second, "policy");
    let again = shown(&client, &task["id"]).await;
    let ended = answered(&client, &again, &json!([{"text": "hi"}])).await;
    assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED", "{ended}");
}

/// I-3, I-13.
#[tokio::test]
async fn a_task_that_asks_at_one_gateway_is_shown_and_answered_at_another() {
    let (first, second) = fleet(&shared());
    first.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(elsewhere::listen(Arc::downgrade(&first.gateway.replica)));
    tokio::task::yield_now().await;
    let begun = Client::of(&first, "demo").result("SendMessage", message("count", json!({}))).await;
    let id = begun["task"]["id"].clone();
    let client = Client::of(&second, "demo");
    let listed = client.result("ListTasks", json!({})).await;
    assert_eq!((&listed["totalSize"], &listed["tasks"][0]["id"]), (&json!(1), &id));
    let task = shown(&client, &id).await;
    assert_eq!(asked(&task)["required"], json!(["to"]));
    let ended = answered(&client, &task, &data(json!({"to": 1, "delayMs": 0}))).await;
    completed(&ended, &json!({"counted": 1}));
    let at_first = Client::of(&first, "demo").result("GetTask", json!({"id": id})).await;
    completed(&at_first, &json!({"counted": 1}));
}
