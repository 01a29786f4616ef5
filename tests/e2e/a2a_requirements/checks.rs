//! Checks that take more than one request at a time, or more than a path.

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::Opened;
use asp_e2e::push_receiver::Receiver;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::client::Conversation;
use super::matching;
use super::table::{Binding, Operation, Step};

/// Names of the checks, as the tables write them.
pub(super) const NAMES: [&str; 8] = [
    "two_streams_get_the_same_events",
    "a_closed_stream_affects_no_other",
    "a_stream_stays_open_while_access_is_asked_for",
    "a_signature_names_its_algorithm_and_key",
    "both_bindings_do_the_same",
    "a_receiver_gets_the_end_with_its_secrets",
    "a_receiver_gets_the_form_of_its_registration",
    "a_receiver_gets_a_question_that_no_request_waits_for",
];

/// Runs a check by its name.
pub(super) async fn run(name: &str, conversation: &Conversation<'_>) -> Result<()> {
    match name {
        "two_streams_get_the_same_events" => compare_streams(conversation).await,
        "a_closed_stream_affects_no_other" => close_one_stream(conversation).await,
        "a_stream_stays_open_while_access_is_asked_for" => follow_through_access(conversation).await,
        "a_signature_names_its_algorithm_and_key" => read_signature(conversation).await,
        "both_bindings_do_the_same" => compare_bindings(conversation).await,
        "a_receiver_gets_the_end_with_its_secrets" => receive_the_end(conversation).await,
        "a_receiver_gets_the_form_of_its_registration" => receive_both_forms(conversation).await,
        "a_receiver_gets_a_question_that_no_request_waits_for" => receive_a_question(conversation).await,
        _ => bail!("no check is called {name}"),
    }
}

/// Starts a task that waits for input; returns its id.
async fn waiting_task(conversation: &Conversation<'_>) -> Result<String> {
    let reply = conversation.send(&Step::say(Operation::Send, "tck-input-required", None)).await?;
    let task = &reply.result["task"];
    ensure!(task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", "{reply:?}");
    Ok(task["id"].as_str().context("a task has an id")?.to_owned())
}

/// Subscribes to a task; returns once its first event has come.
async fn subscribe(conversation: &Conversation<'_>, task: &str) -> Result<Opened> {
    let step = Step::of(Operation::Subscribe, json!({"id": task}));
    conversation.open(&step, "TASK_STATE_INPUT_REQUIRED").await
}

/// Answers a task's question, which ends it.
async fn end(conversation: &Conversation<'_>, task: &str) -> Result<()> {
    let reply = conversation.send(&Step::say(Operation::Send, "The last one", Some(task))).await?;
    ensure!(reply.result["task"]["status"]["state"] == "TASK_STATE_COMPLETED", "{reply:?}");
    Ok(())
}

/// Reads what is left of a stream; returns all of its events.
async fn events(conversation: &Conversation<'_>, stream: Opened) -> Result<Vec<Value>> {
    let reply = conversation.read(Operation::Subscribe, stream.finish().await?)?;
    ensure!(reply.error.is_none(), "{reply:?}");
    matching::check_states(&reply.events)?;
    Ok(reply.events)
}

async fn compare_streams(conversation: &Conversation<'_>) -> Result<()> {
    let task = waiting_task(conversation).await?;
    let first = subscribe(conversation, &task).await?;
    let second = subscribe(conversation, &task).await?;
    end(conversation, &task).await?;
    let (first, second) = (events(conversation, first).await?, events(conversation, second).await?);
    ensure!(first.len() >= 2 && first == second, "{first:?}\nis not\n{second:?}");
    Ok(())
}

async fn close_one_stream(conversation: &Conversation<'_>) -> Result<()> {
    let task = waiting_task(conversation).await?;
    let closed = subscribe(conversation, &task).await?;
    let other = subscribe(conversation, &task).await?;
    drop(closed);
    end(conversation, &task).await?;
    ensure!(events(conversation, other).await?.len() >= 2, "nothing came after the other stream was closed");
    Ok(())
}

async fn follow_through_access(conversation: &Conversation<'_>) -> Result<()> {
    let asked = "TASK_STATE_AUTH_REQUIRED";
    let step = Step::say(Operation::Stream, "tck-auth-required", None);
    let (stream, data) = conversation.open(&step, asked).await?.event_with(asked).await?;
    let event: Value = serde_json::from_str(&data)?;
    let event = event.get("result").unwrap_or(&event);
    let task = matching::find(event, "statusUpdate.taskId|task.id").and_then(Value::as_str);
    let task = task.with_context(|| format!("no task in {event}"))?;
    let reply = conversation.send(&Step::say(Operation::Send, "done", Some(task))).await?;
    ensure!(reply.error.is_none(), "{reply:?}");
    events(conversation, stream).await?;
    Ok(())
}

async fn read_signature(conversation: &Conversation<'_>) -> Result<()> {
    let card = conversation.send(&Step::of(Operation::Card, Value::Null)).await?.result;
    let signatures = card["signatures"].as_array().context("the card has no signatures")?;
    ensure!(!signatures.is_empty(), "the card has no signature");
    for signature in signatures {
        let protected = signature["protected"].as_str().context("a protected header")?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected)?)?;
        let is_known = header["alg"] == "ES256" || header["alg"] == "EdDSA";
        let has_key = header["kid"].as_str().is_some_and(|key| !key.is_empty());
        ensure!(is_known && has_key && header["typ"] == "JOSE", "{header}");
        let value = URL_SAFE_NO_PAD.decode(signature["signature"].as_str().context("a signature")?)?;
        ensure!(value.len() == 64, "a signature of {} bytes", value.len());
    }
    Ok(())
}

/// Members that differ between two tasks that are otherwise equal.
const OWN: [&str; 6] = ["id", "taskId", "contextId", "messageId", "artifactId", "timestamp"];

fn without_own(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !OWN.contains(&name.as_str()));
            members.values_mut().for_each(without_own);
        }
        Value::Array(items) => items.iter_mut().for_each(without_own),
        _ => {}
    }
}

async fn compare_bindings(conversation: &Conversation<'_>) -> Result<()> {
    let binding = match conversation.binding {
        Binding::JsonRpc => Binding::Rest,
        Binding::Rest | Binding::Grpc => Binding::JsonRpc,
    };
    let other = conversation.over(binding);
    for text in [
        "tck-complete-task",
        "tck-message-response",
        "tck-artifact-text",
        "tck-artifact-file",
        "tck-artifact-file-url",
        "tck-artifact-data",
        "tck-task-failure",
        "tck-reject-task",
        "tck-input-required",
    ] {
        let step = Step::say(Operation::Send, text, None);
        let (mine, theirs) = (conversation.send(&step).await?, other.send(&step).await?);
        ensure!(mine.error.is_none() && theirs.error.is_none(), "{text}: {mine:?}\n{theirs:?}");
        if let Some(task) = mine.result["task"]["id"].as_str() {
            let get = Step::of(Operation::Get, json!({"id": task}));
            let (here, there) = (conversation.send(&get).await?.result, other.send(&get).await?.result);
            ensure!(here["id"] == task && here == there, "{text}: {here}\nis not\n{there}");
        }
        let (mut mine, mut theirs) = (mine.result, theirs.result);
        [&mut mine, &mut theirs].into_iter().for_each(without_own);
        ensure!(mine == theirs, "{text}: {mine}\nis not\n{theirs}");
    }
    Ok(())
}

async fn receive_the_end(conversation: &Conversation<'_>) -> Result<()> {
    let receiver = Receiver::start().await?;
    let authentication = json!({"scheme": "Bearer", "credentials": "c-1"});
    let config = json!({"url": receiver.url, "token": "t-1", "authentication": authentication});
    let mut step = Step::say(Operation::Send, "tck-complete-task", None);
    step.config = Some(json!({"taskPushNotificationConfig": config}));
    let reply = conversation.send(&step).await?;
    ensure!(reply.error.is_none(), "{reply:?}");
    let ended = |body: &Value| body["task"]["status"]["state"] == "TASK_STATE_COMPLETED";
    let seen = receiver.until(ended).await?;
    let secrets = [seen.header("authorization"), seen.header("x-a2a-notification-token")];
    ensure!(secrets == ["Bearer c-1", "t-1"], "{seen:?}");
    let is_one_response = seen.body.as_object().is_some_and(|members| members.len() == 1);
    ensure!(is_one_response && seen.body["task"]["id"] == reply.result["task"]["id"], "{seen:?}");
    Ok(())
}

async fn receive_both_forms(conversation: &Conversation<'_>) -> Result<()> {
    let new = Receiver::start().await?;
    let old = Receiver::start().await?;
    let task = waiting_task(conversation).await?;
    let create = Step::of(Operation::PushCreate, json!({"taskId": task, "id": "new", "url": new.url}));
    let reply = conversation.send(&create).await?;
    ensure!(reply.error.is_none(), "{reply:?}");
    let config = json!({"id": "old", "url": old.url});
    let set = json!({"do": "rpc", "method": "tasks/pushNotificationConfig/set", "headers": {"a2a-version": null},
        "params": {"taskId": task, "pushNotificationConfig": config}});
    let reply = conversation.send(&serde_json::from_value(set)?).await?;
    ensure!(reply.result["result"]["pushNotificationConfig"]["id"] == "old", "{reply:?}");
    end(conversation, &task).await?;
    new.until(|body| body["task"]["status"]["state"] == "TASK_STATE_COMPLETED").await?;
    old.until(|body| body["kind"] == "task" && body["status"]["state"] == "completed").await?;
    Ok(())
}

async fn receive_a_question(conversation: &Conversation<'_>) -> Result<()> {
    let receiver = Receiver::start().await?;
    let mut step = Step::say(Operation::Send, "tck-input-required", None);
    let config = json!({"url": receiver.url});
    step.config = Some(json!({"returnImmediately": true, "taskPushNotificationConfig": config}));
    let reply = conversation.send(&step).await?;
    ensure!(reply.error.is_none(), "{reply:?}");
    receiver.until(|body| body["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED").await?;
    Ok(())
}
